// A mutex that Clang's thread safety analysis knows (-Wthread-safety, `make fuzz`): members say which one
// guards them (ABSL_GUARDED_BY), functions which one their caller holds (ABSL_EXCLUSIVE_LOCKS_REQUIRED).
//
// The annotations are Abseil's, the mutex is not: ThreadSanitizer cannot see into Debian's Abseil. To wait
// for a condition, std::condition_variable_any takes the Mutex itself.
//
// Thread safety: that is what it is for. A MutexLock belongs to one thread.
#pragma once

#include <atomic>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "runtime/latch_waits.h"

namespace islands::runtime {

class ABSL_LOCKABLE Mutex {
 public:
#ifdef ISLANDS_PLANTED_BUGS
  // Sections may have scheduling points in them (latch_site.h).
  void lock(LatchSite = {}) ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    for (Backoff backoff; held_.exchange(true, std::memory_order_acquire);) backoff.Wait();
  }
  void unlock() ABSL_UNLOCK_FUNCTION() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_ = false;
#else
  void lock(LatchSite site = {}) ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (!mutex_.try_lock()) {
      // The one who had it last, and has surely said so: who has just taken it may not have yet.
      const auto holder = [this] { return holder_.load(std::memory_order_relaxed); };
      CountWait(site, holder, /*again=*/false, [this] { mutex_.lock(); });
    }
    holder_.store(site.name, std::memory_order_relaxed);
  }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::atomic<const char*> holder_ = nullptr;  // the site where it was taken last
#endif
};

// Holds a mutex as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex, LatchSite site = {}) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.lock(site);
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace islands::runtime
