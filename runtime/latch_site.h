// Waiting for a latch, and the one macro through which latches are entered.
//
// ISLANDS_LATCH("btree.modify", expression) evaluates what takes the latch, or what a MutexLock is to take,
// and names its call site. It costs nothing today; the profiler will count and time each site here.
//
// In the build with planted bugs (ISLANDS_PLANTED_BUGS) these sites are scheduling points as well: a
// simulation runs the workers of an island on one thread, and changes from one to another there
// (simulation/interleaver.h).
//
// Thread safety: a Backoff belongs to one thread.
#pragma once

#include <sched.h>

#include <cstdint>

#define ISLANDS_LATCH(site, ...) (static_cast<void>(site), ::islands::runtime::SchedulingPoint(), __VA_ARGS__)

namespace islands::runtime {

#ifdef ISLANDS_PLANTED_BUGS
// Lets another worker go on, perhaps; `blocked`: surely. Null: there are threads.
inline void (*interleave)(bool blocked) = nullptr;
inline void SchedulingPoint() {
  if (interleave != nullptr) interleave(/*blocked=*/false);
}
#else
constexpr void SchedulingPoint() {}
#endif

// Latches are held for well under a microsecond: spin first, then let the holder have the core.
class Backoff {
 public:
  void Wait() {
#ifdef ISLANDS_PLANTED_BUGS
    if (interleave != nullptr) return interleave(/*blocked=*/true);
#endif
    if (++rounds_ > kSpins) {
      sched_yield();
      return;
    }
    for (uint32_t i = 0; i < rounds_; ++i) Pause();
  }

 private:
  static constexpr uint32_t kSpins = 16;
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  uint32_t rounds_ = 0;
};

}  // namespace islands::runtime
