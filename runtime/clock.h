// Time as a seam: nothing in storage/, coordinator/ or messaging/ asks the operating system what time it is.
//
// Thread safety: NowNs may be called from any thread.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace islands::runtime {

inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary start; never goes back.
  virtual int64_t NowNs() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  int64_t NowNs() const override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kNsPerSecond + now.tv_nsec;
  }
};

// What the calling thread has had of a core, ns. Not a seam: for what only people look at.
inline int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

// A clock that stands still until told otherwise: for unit tests and simulation.
class ManualClock final : public Clock {
 public:
  int64_t NowNs() const override {
    const int64_t by_ns = by_look_ns_.load(std::memory_order_relaxed);
    if (by_ns == 0) return now_ns_.load(std::memory_order_relaxed);
    return now_ns_.fetch_add(by_ns, std::memory_order_relaxed);
  }
  void AdvanceNs(int64_t by_ns) { now_ns_.fetch_add(by_ns, std::memory_order_relaxed); }
  // From now on it goes on by so much whenever somebody looks, as if time had passed between two looks.
  void AdvanceByLook(int64_t by_ns) { by_look_ns_.store(by_ns, std::memory_order_relaxed); }

 private:
  mutable std::atomic<int64_t> now_ns_{1};
  std::atomic<int64_t> by_look_ns_{0};
};

}  // namespace islands::runtime
