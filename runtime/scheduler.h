// Who calls the workers: real pinned threads, or one thread that steps them in an order of its choosing
// (tests, simulation).
//
// Thread safety: Start and Stop from one thread; the Runnable's RunOnce and Sleep are called from one thread
// at a time, always the same one until Stop returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/clock.h"

namespace islands::runtime {

// A worker, as its scheduler sees it.
class Runnable {
 public:
  virtual ~Runnable() = default;
  // Before the first RunOnce, on the thread that will call it: pinning, memory policy.
  virtual void OnThreadStart() {}
  // One round. True if there was anything to do.
  virtual bool RunOnce() = 0;
  // Sleeps until there may be something to do; at most `timeout_ns`.
  virtual void Sleep(int64_t timeout_ns) = 0;
  // Ends a Sleep; from any thread.
  virtual void Wake() = 0;
  // Time by which RunOnce has to be called even if nothing else happens.
  virtual int64_t NextDeadlineNs() const = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void Start(std::vector<Runnable*> workers) = 0;
  // After it returned no worker is called any more.
  virtual void Stop() = 0;
};

struct ThreadSchedulerOptions {
  // How long a worker spins without work before it sleeps: about what waking it would cost (50-100 us), so
  // that a wait never costs more than twice what it must. With more workers than cores spinning only steals
  // time from the one that has the answer: 0.
  int64_t spin_ns = 100 * kNsPerUs;
};

// One thread per worker.
std::unique_ptr<Scheduler> MakeThreadScheduler(const Clock& clock, ThreadSchedulerOptions options);

}  // namespace islands::runtime
