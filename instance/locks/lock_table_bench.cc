// What the locks of one transaction cost: the intention lock of a site, some rows of it, and their release.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "instance/locks/lock_table.h"

namespace islands::locks {
namespace {

void Transaction(LockTable& table, LockOwner& owner, uint32_t site, uint64_t first, uint64_t rows,
                 std::vector<Wakeup>* wakeups) {
  for (uint64_t row = first; row < first + rows; ++row) {
    const LockName name{1, site, KeyHash(&row, sizeof(row))};
    benchmark::DoNotOptimize(table.AcquireKey(owner, name, LockMode::kX));
  }
  table.ReleaseAll(owner, wakeups);
}

void OneWorker(benchmark::State& state, bool latched) {
  LockTable table({.latched = latched});
  LockOwner owner;
  std::vector<Wakeup> wakeups;
  const auto rows = static_cast<uint64_t>(state.range(0));
  uint64_t first = 0;
  for (auto _ : state) {
    Transaction(table, owner, 0, first, rows, &wakeups);
    first += rows;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(OneWorker, latched, true)->Arg(1)->Arg(10);
BENCHMARK_CAPTURE(OneWorker, unlatched, false)->Arg(1)->Arg(10);

// Rows of their own, of sites of their own or of one that all have in common.
void Workers(benchmark::State& state, bool own_site, bool inherit) {
  static std::unique_ptr<LockTable> table;
  if (state.thread_index() == 0) table = std::make_unique<LockTable>(LockTableOptions{.inherit = inherit});
  LockOwner owner;
  owner.worker = static_cast<uint32_t>(state.thread_index());
  std::vector<Wakeup> wakeups;
  const auto rows = static_cast<uint64_t>(state.range(0));
  uint64_t first = uint64_t{owner.worker} << 40;
  for (auto _ : state) {
    Transaction(*table, owner, own_site ? owner.worker : 0, first, rows, &wakeups);
    first += rows;
  }
  state.SetItemsProcessed(state.iterations());
}
#define ISLANDS_WORKERS(name, own_site, inherit) \
  BENCHMARK_CAPTURE(Workers, name, own_site, inherit)->Arg(1)->Arg(10)->Threads(2)->Threads(4)->UseRealTime()
ISLANDS_WORKERS(own_sites_inherit, true, true);
ISLANDS_WORKERS(own_sites_release, true, false);
ISLANDS_WORKERS(hot_site_inherit, false, true);
ISLANDS_WORKERS(hot_site_release, false, false);

// Nothing but intentions on the same five names: what is inherited, and nothing else.
void Intentions(benchmark::State& state, bool inherit) {
  static std::unique_ptr<LockTable> table;
  if (state.thread_index() == 0) table = std::make_unique<LockTable>(LockTableOptions{.inherit = inherit});
  LockOwner owner;
  owner.worker = static_cast<uint32_t>(state.thread_index());
  std::vector<Wakeup> wakeups;
  for (auto _ : state) {
    for (uint32_t site = 0; site < 5; ++site) {
      benchmark::DoNotOptimize(table->Acquire(owner, {1, site, 0}, LockMode::kIX));
    }
    table->ReleaseAll(owner, &wakeups);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(Intentions, inherit, true)->ThreadRange(1, 4)->UseRealTime();
BENCHMARK_CAPTURE(Intentions, release, false)->ThreadRange(1, 4)->UseRealTime();

}  // namespace
}  // namespace islands::locks
