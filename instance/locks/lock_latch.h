// The latch of a lock table's bucket, and of a worker's share of its memory.
//
// Thread safety: a Latch is for all threads, a LatchGuard for one.
#pragma once

#include <atomic>

#include "runtime/latch_site.h"

namespace islands::locks {

class Latch {
 public:
  void Lock() {
    if (!held_.exchange(true, std::memory_order_acquire)) return;
    for (runtime::Backoff backoff;
         held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire);) {
      backoff.Wait();
    }
  }
  void Unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_ = false;
};

// Holds a latch for a scope; without `latched` (a one-worker island) it costs a predicted branch.
class LatchGuard {
 public:
  LatchGuard(Latch& latch, bool latched) : latch_(latched ? &latch : nullptr) {
    if (latch_ != nullptr) latch_->Lock();
  }
  ~LatchGuard() {
    if (latch_ != nullptr) latch_->Unlock();
  }
  LatchGuard(const LatchGuard&) = delete;
  LatchGuard& operator=(const LatchGuard&) = delete;

 private:
  Latch* const latch_;
};

}  // namespace islands::locks
