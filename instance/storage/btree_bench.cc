// Ten random rows of 240,000 x 250 bytes per iteration: what the microbenchmark's local transaction asks of
// storage.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "instance/storage/catalog.h"
#include "instance/storage/store.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

using partitioner::Uint64Key;

constexpr uint64_t kRows = 240'000;
constexpr size_t kRowBytes = 250;
constexpr int kRowsPerTransaction = 10;
constexpr uint32_t kSites = 24;

struct Fixture {
  explicit Fixture(uint32_t sites) {
    Catalog::TableSpecs specs;
    control::v1::TableSpec* spec = specs.Add();
    spec->set_name("micro");
    spec->add_key("uint64");
    spec->set_range_end(kRows);
    spec->set_row_bytes(kRowBytes);
    catalog = std::make_unique<Catalog>(*Catalog::Create(specs, sites));
    files = runtime::MakeMemoryFileSystem();
    store = *Store::Create(*catalog, {.sites = {0, sites}, .pool_bytes = 256u << 20}, *files);
    const std::vector<std::byte> row(kRowBytes);
    for (uint64_t i = 0; i < kRows; ++i) {
      const Uint64Key key(i);
      if (store->At(0, *catalog->SiteOf(0, key))->Insert(key, row) != absl::StatusCode::kOk) std::abort();
    }
  }
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<runtime::FileSystem> files;
  std::unique_ptr<Store> store;
};

Fixture& Shared(uint32_t sites) {
  static Fixture one(1);
  static Fixture many(kSites);
  return sites == 1 ? one : many;
}

void BM_Read(benchmark::State& state) {
  Fixture& fixture = Shared(static_cast<uint32_t>(state.range(0)));
  runtime::Random random = runtime::Random::Stream(1, static_cast<uint64_t>(state.thread_index()));
  std::vector<std::byte> row;
  for (auto _ : state) {
    for (int i = 0; i < kRowsPerTransaction; ++i) {
      const Uint64Key key(random.Below(kRows));
      const uint32_t site = *fixture.catalog->SiteOf(0, key);
      if (fixture.store->At(0, site)->Read(key, &row) != absl::StatusCode::kOk)
        state.SkipWithError("row lost");
      benchmark::DoNotOptimize(row.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * kRowsPerTransaction);
}
BENCHMARK(BM_Read)->Arg(1)->Arg(kSites)->ThreadRange(1, 2)->UseRealTime();

void BM_Update(benchmark::State& state) {
  Fixture& fixture = Shared(static_cast<uint32_t>(state.range(0)));
  runtime::Random random = runtime::Random::Stream(2, static_cast<uint64_t>(state.thread_index()));
  const auto add_one = [](std::span<std::byte> row) {
    uint64_t value;
    std::memcpy(&value, row.data(), sizeof(value));
    ++value;
    std::memcpy(row.data(), &value, sizeof(value));
  };
  for (auto _ : state) {
    for (int i = 0; i < kRowsPerTransaction; ++i) {
      const Uint64Key key(random.Below(kRows));
      const uint32_t site = *fixture.catalog->SiteOf(0, key);
      if (fixture.store->At(0, site)->Modify(key, {0, sizeof(uint64_t)}, add_one) != absl::StatusCode::kOk)
        state.SkipWithError("row lost");
    }
  }
  state.SetItemsProcessed(state.iterations() * kRowsPerTransaction);
}
BENCHMARK(BM_Update)->Arg(1)->Arg(kSites)->ThreadRange(1, 2)->UseRealTime();

void BM_ScanAll(benchmark::State& state) {
  Fixture& fixture = Shared(1);
  for (auto _ : state) {
    uint64_t rows = 0;
    fixture.store->At(0, 0)->Scan({}, {}, state.range(0) != 0,
                                  [&](KeyView, RowView) { return ++rows, true; });
    if (rows != kRows) state.SkipWithError("rows lost");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kRows));
}
BENCHMARK(BM_ScanAll)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace islands::storage
