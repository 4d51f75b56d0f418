// The latch of a lock table's bucket, and of a worker's share of its memory.
//
// Thread safety: a Latch is for all threads, a LatchGuard for one.
#pragma once

#include <atomic>

#include "runtime/latch_site.h"

namespace islands::locks {

class Latch {
 public:
  void Lock(runtime::LatchSite site) {
    const char* holder = nullptr;
    if (holder_.compare_exchange_strong(holder, site.name, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
      return;
    }
    const char* const first = holder;
    runtime::Backoff backoff;
    do {
      backoff.Wait(site, first);
      holder = holder_.load(std::memory_order_relaxed);
    } while (holder != nullptr ||
             !holder_.compare_exchange_strong(holder, site.name, std::memory_order_acquire,
                                              std::memory_order_relaxed));
  }
  void Unlock() { holder_.store(nullptr, std::memory_order_release); }

 private:
  std::atomic<const char*> holder_ = nullptr;  // the site where it was taken
};

// Holds a latch for a scope; without `latched` (a one-worker island) it costs a predicted branch.
class LatchGuard {
 public:
  LatchGuard(Latch& latch, bool latched, runtime::LatchSite site) : latch_(latched ? &latch : nullptr) {
    if (latch_ != nullptr) latch_->Lock(site);
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
