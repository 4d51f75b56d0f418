// How long a cache line takes from one core to another and back: two threads, each pinned to one of the
// cores, raise a number in turns. What the firmware says of packages, nodes and caches does not enter.
//
// A pair takes the median of many short batches, so what else runs on the cores for less than half of the
// time does not show; and all pairs are gone through several times, of which the least counts, so neither
// does what keeps a core busy for a while. The line's memory lies with the first core of the pair:
// elsewhere, a third place would be measured with every pair. Pairs come one after the other, since
// several at a time would share links. A pass takes some 5 ms a pair: 96 cores take under a minute.
//
// Thread safety: any thread, but two measurements at a time disturb each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/clock.h"

namespace islands::topology {

using RoundTripMatrix = std::vector<std::vector<uint32_t>>;  // ns; square, symmetric, 0 on the diagonal alone

struct RoundTrips {
  std::vector<uint32_t> cpus;  // OS indexes of PUs, each once
  RoundTripMatrix ns;          // [i][j]: between cpus[i] and cpus[j]
};

struct RoundTripOptions {
  uint32_t passes = 2;
  uint32_t batches = 61;  // of each pair in each pass
  uint32_t trips_per_batch = 200;
  int64_t warm_up_ns = runtime::kNsPerMs;              // what a pair does before does not count
  int64_t pair_limit_ns = 20 * runtime::kNsPerSecond;  // of one pair in one pass
  // Called on the calling thread before each pair and at the end; pairs count once for each pass.
  std::function<void(size_t done, size_t all)> progress = nullptr;
};

// `cpus` are different, and this process may use them. DEADLINE_EXCEEDED: two of them did not run at the
// same time for long enough, and the error names them; PERMISSION_DENIED, INVALID_ARGUMENT: a thread could
// not be bound. There is no half result.
absl::StatusOr<RoundTrips> MeasureRoundTrips(std::vector<uint32_t> cpus,
                                             const RoundTripOptions& options = {});

}  // namespace islands::topology
