#include <benchmark/benchmark.h>

#include "experiments/zipf.h"

namespace islands::experiments {
namespace {

constexpr uint64_t kRanks = 120'000'000;

// Argument: 100 * s.
void BM_ZipfDraw(benchmark::State& state) {
  const Zipf zipf(1, kRanks, static_cast<double>(state.range(0)) / 100);
  runtime::Random random(1);
  for (auto _ : state) benchmark::DoNotOptimize(zipf.Draw(random));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ZipfDraw)->Arg(0)->Arg(50)->Arg(99)->Arg(100)->Arg(150)->Arg(300);

void BM_ZipfConstruct(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Zipf(1, kRanks, 0.99));
}
BENCHMARK(BM_ZipfConstruct);

}  // namespace
}  // namespace islands::experiments
