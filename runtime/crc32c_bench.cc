// What a checksum costs: of records of the log (an update of ten counters, a payment) and of a page.
#include <benchmark/benchmark.h>

#include <vector>

#include "runtime/crc32c.h"

namespace islands::runtime {
namespace {

void Checksum(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)));
  uint32_t crc = 0;
  for (auto _ : state) benchmark::DoNotOptimize(crc = Crc32c(bytes, crc));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Checksum)->Arg(64)->Arg(184)->Arg(560)->Arg(4096);

}  // namespace
}  // namespace islands::runtime
