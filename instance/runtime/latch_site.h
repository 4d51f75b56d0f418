// Waiting for a latch, and the one macro through which latches are entered.
//
// ISLANDS_LATCH("btree.modify", expression) evaluates the expression that takes the latch and names its call
// site. It costs nothing today; the profiler will count and time each site here.
//
// Thread safety: a Backoff belongs to one thread.
#pragma once

#include <sched.h>

#include <cstdint>

#define ISLANDS_LATCH(site, ...) (static_cast<void>(site), __VA_ARGS__)

namespace islands::runtime {

// Latches are held for well under a microsecond: spin first, then let the holder have the core.
class Backoff {
 public:
  void Wait() {
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
