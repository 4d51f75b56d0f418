// What it costs to collect changes of pages: ten rows of 240,000 x 250 bytes get 8 new bytes each, with
// nobody listening and with a collector; and to make them again.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "instance/log/page_changes_testing.h"
#include "runtime/random.h"

namespace islands::log {
namespace {

using partitioner::Uint64Key;

constexpr uint64_t kRows = 240'000;
constexpr int kRowsPerTransaction = 10;

LoneTree& Table() {
  static const std::unique_ptr<LoneTree> table = [] {
    auto made = std::make_unique<LoneTree>(40'000);
    for (uint64_t i = 0; i < kRows; ++i) made->tree->Insert(Uint64Key(i), AsBytes(std::string(250, 'r')));
    return made;
  }();
  return *table;
}

void Transaction(runtime::Random& random) {
  for (int i = 0; i < kRowsPerTransaction; ++i) {
    Table().tree->Modify(Uint64Key(random.Below(kRows)), {0, 8},
                         [](std::span<std::byte> row) { row[0] ^= std::byte{1}; });
  }
}

void NobodyListens(benchmark::State& state) {
  Table();
  runtime::Random random(1);
  for (auto _ : state) Transaction(random);
  state.SetItemsProcessed(state.iterations() * kRowsPerTransaction);
}
BENCHMARK(NobodyListens);

void Collects(benchmark::State& state) {
  Table();
  Listening listening;
  for (uint64_t i = 0; i < kRows; ++i)  // the images of first changes are no part of what is measured
    Table().tree->Modify(Uint64Key(i), {0, 8}, [](std::span<std::byte>) {});
  runtime::Random random(1);
  size_t bytes = 0;
  for (auto _ : state) {
    listening.Again(2);
    Transaction(random);
    bytes += listening.body.size();
  }
  state.SetItemsProcessed(state.iterations() * kRowsPerTransaction);
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(Collects);

// What the collector alone does for a record of ten changes, without the tree.
void CollectsAlone(benchmark::State& state) {
  LoneTree tree(100);
  tree.tree->Insert(Uint64Key(1), AsBytes(std::string(250, 'r')));
  std::vector<PageCopy> pages(kRowsPerTransaction, CopyOf(tree.space, 1));
  uint64_t number = 1;
  for (PageCopy& page : pages) {
    storage::PageHeader header = page.header();
    header.page_id = storage::PageId(3, number += 150).value();
    header.lsn = 1;
    std::memcpy(page.bytes.data(), &header, sizeof(header));
  }
  RecordBuffer body;
  PageChangeCollector collector;
  for (auto _ : state) {
    body.Clear();
    collector.Begin(1, &body);
    for (PageCopy& page : pages) {
      collector.BeforeChange(page.bytes.data(), {storage::PageChange::Kind::kValue, 0, 0, 8});
      collector.BeforeRelease(page.bytes.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * kRowsPerTransaction);
}
BENCHMARK(CollectsAlone);

void Redoes(benchmark::State& state) {
  Table();
  Listening listening;
  for (uint64_t i = 0; i < kRows; ++i)
    Table().tree->Modify(Uint64Key(i), {0, 8}, [](std::span<std::byte>) {});
  std::vector<PageCopy> before;
  for (uint64_t i = 0; i < Table().space.used_pages(); ++i) before.push_back(CopyOf(Table().space, i));
  listening.Again(2);
  runtime::Random random(1);
  for (int i = 0; i < 10'000; ++i) Transaction(random);
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<PageCopy> pages = before;
    state.ResumeTiming();
    PageChangeReader reader(listening.body.bytes());
    PageChangeGroup group;
    while (reader.Next(&group)) {
      if (!Redo(group, pages[group.page().number()].bytes).ok()) std::abort();
    }
  }
  state.SetItemsProcessed(state.iterations() * 10'000 * kRowsPerTransaction);
}
BENCHMARK(Redoes)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace islands::log
