// What a worker's time is spent on: all of it is counted, each moment once.
//
// Thread safety: owned by a worker.
#pragma once

#include <cstdint>
#include <utility>

#include "instance/worker/counters.h"
#include "runtime/clock.h"

namespace islands::instance {

class TimeAccount {
 public:
  TimeAccount(const runtime::Clock& clock, WorkerCounters& counters)
      : clock_(clock), counters_(counters), until_ns_(clock.NowNs()) {}

  // All time since the last call was spent on `activity`.
  void Spent(Activity activity, int64_t now_ns) {
    const int64_t since_ns = std::exchange(until_ns_, now_ns);
    counters_.activity_ns[static_cast<uint8_t>(activity)].Add(static_cast<uint64_t>(now_ns - since_ns));
  }
  void Spent(Activity activity) { Spent(activity, clock_.NowNs()); }

 private:
  const runtime::Clock& clock_;
  WorkerCounters& counters_;
  int64_t until_ns_;
};

// Executing that happens in the midst of messaging: counted apart, for two readings of the clock.
class ExecutingScope {
 public:
  explicit ExecutingScope(TimeAccount& account) : account_(account) { account_.Spent(Activity::kMessaging); }
  ~ExecutingScope() { account_.Spent(Activity::kExecuting); }
  ExecutingScope(const ExecutingScope&) = delete;
  ExecutingScope& operator=(const ExecutingScope&) = delete;

 private:
  TimeAccount& account_;
};

}  // namespace islands::instance
