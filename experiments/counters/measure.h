// Runs a plan of `counters`: threads that increment counters, each behind its own lock, in a tight loop (OLTP
// on Hardware Islands, Figure 2 and Table 1).
//
// Thread safety: none; blocks SIGINT and SIGTERM of the calling thread, and threads it starts, while it runs.
//
// Invariants:
//  1. A counter and its lock share one cache line, and that line with nothing else: each has a page of its
//     own.
//  2. Every counter ends as the sum of what its threads counted; else DATA_LOSS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/counters/placement.h"

namespace islands::experiments {

enum class CounterLock { kSpin, kMutex };

struct CountersRun {
  CounterLock lock = CounterLock::kSpin;
  double warmup_s = 0.2;
  double seconds = 1;
};

struct CountersResult {
  double seconds = 0;
  std::vector<uint64_t> per_thread;    // increments of each thread in the measurement
  std::vector<double> interval_rates;  // all increments per second, in ten intervals of the measurement
  std::vector<std::string>
      unbound;  // what could not be bound, and why; that much ran where the kernel put it

  double IncrementsPerSecond() const;
  double ThreadMinPerSecond() const;
  double ThreadMaxPerSecond() const;
  double StdDevPercent() const;  // standard deviation of interval_rates, in percent of their mean
};

// CANCELLED: a signal came.
absl::StatusOr<CountersResult> MeasureCounters(const CountersPlan& plan, const CountersRun& run);

}  // namespace islands::experiments
