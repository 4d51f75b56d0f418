// What the locks of one transaction cost: the intention lock of a site, ten rows of it, and their release.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "instance/storage/lock_table.h"

namespace islands::storage {
namespace {

constexpr int kRows = 10;

void TransactionOfTenRows(LockTable& table, LockOwner& owner, uint64_t first, std::vector<Wakeup>* wakeups) {
  const LockName site{1, owner.worker, 0};
  for (uint64_t row = first; row < first + kRows; ++row) {
    const uint64_t key = row;
    benchmark::DoNotOptimize(table.Acquire(owner, site, LockMode::kIX));
    benchmark::DoNotOptimize(
        table.Acquire(owner, {1, owner.worker, KeyHash(&key, sizeof(key))}, LockMode::kX));
  }
  table.ReleaseAll(owner, wakeups);
}

void OneWorker(benchmark::State& state, bool latched) {
  LockTable table({.latched = latched});
  LockOwner owner;
  std::vector<Wakeup> wakeups;
  uint64_t first = 0;
  for (auto _ : state) {
    TransactionOfTenRows(table, owner, first, &wakeups);
    first += kRows;
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK_CAPTURE(OneWorker, latched, true);
BENCHMARK_CAPTURE(OneWorker, unlatched, false);

// Rows of their own, one table.
void Workers(benchmark::State& state) {
  static std::unique_ptr<LockTable> table;
  if (state.thread_index() == 0) table = std::make_unique<LockTable>(LockTableOptions{});
  LockOwner owner;
  owner.worker = static_cast<uint32_t>(state.thread_index());
  std::vector<Wakeup> wakeups;
  uint64_t first = 0;
  for (auto _ : state) {
    TransactionOfTenRows(*table, owner, first, &wakeups);
    first += kRows;
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK(Workers)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace islands::storage
