// What a worker's thread spends its time on, measured exactly in a few rounds of its loop and not at all in
// the others (instance/worker/work_sampler.h says which).
//
// A WorkScope says what the thread does until the scope ends, or another one begins within it. Outside a
// measured round it costs one predicted branch. Scopes are lexical: none may be open where a coroutine
// suspends.
//
// Reading the counter takes time, too. How much is measured once, and taken off again for each change from
// one kind of work to another, so that what has many scopes does not look longer than it is.
//
// Thread safety: an account belongs to the thread that has begun it.
//
// Invariants:
//  1. While an account is begun every tick is of exactly one kind of work.
//  2. work_account points to an account that is begun on this thread, or is null.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "runtime/check.h"
#include "runtime/clock.h"

namespace islands::runtime {

enum class Work : uint8_t {
  kExecuting = 0,   // procedures and their operations on rows; drawing requests, giving answers
  kSearching = 1,   // ways down trees, before the operations
  kLocking = 2,     // taking and releasing locks of rows, gaps, tables
  kLatching = 3,    // waiting for latches
  kLogging = 4,     // records into the ring
  kBuilding = 5,    // messages, and sending them
  kReading = 6,     // messages: polling, decoding
  kCommitting = 7,  // ending transactions, two-phase commit; locks and log apart
  kCleaning = 8,    // pages written home, checkpoints
  kManaging = 9,    // the loop itself, arrivals, timers
};
inline constexpr uint32_t kWorks = 10;
inline constexpr std::array<const char*, kWorks> kWorkNames = {
    "executing", "searching", "locking",    "latching", "logging",
    "building",  "reading",   "committing", "cleaning", "managing"};

class WorkAccount;
inline constinit thread_local WorkAccount* work_account = nullptr;

class WorkAccount {
 public:
  using Times = std::array<uint64_t, kWorks>;

  // Some counter that goes on evenly; of what unit does not matter here.
  static uint64_t Ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return static_cast<uint64_t>(MonotonicClock().NowNs());
#endif
  }

  // `change_ticks`: what a change from one kind of work to another costs (MeasureChange).
  explicit WorkAccount(uint64_t change_ticks) : change_ticks_(change_ticks) {}
  WorkAccount(const WorkAccount&) = delete;
  WorkAccount& operator=(const WorkAccount&) = delete;

  // The least of many, in ticks.
  static uint64_t MeasureChange();

  // The thread does `work` from now on, and is watched. No account is begun on it.
  void Begin(Work work) {
    ISLANDS_CHECK(work_account == nullptr);
    ticks_ = {};
    changes_ = {};
    work_ = work;
    since_ = Ticks();
    work_account = this;
  }
  // Returns how `whole_ns`, which has gone by since Begin, is shared out.
  Times End(uint64_t whole_ns);

  // Returns what the thread has been doing.
  Work Change(Work work) {
    const uint64_t now = Ticks();
    const auto was = static_cast<size_t>(work_);
    ticks_[was] += now - since_;
    ++changes_[was];
    since_ = now;
    return std::exchange(work_, work);
  }

 private:
  const uint64_t change_ticks_;
  Times ticks_{};
  Times changes_{};  // that ended each
  Work work_ = Work::kManaging;
  uint64_t since_ = 0;
};

class WorkScope {
 public:
  // `watched`: false where the caller knows that nobody measures, so that nothing is left of the scope.
  explicit WorkScope(Work work, bool watched = true) : account_(watched ? work_account : nullptr) {
    if (account_ != nullptr) [[unlikely]]
      before_ = account_->Change(work);
  }
  ~WorkScope() {
    if (account_ != nullptr) [[unlikely]]
      account_->Change(before_);
  }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  WorkAccount* const account_;
  Work before_ = Work::kManaging;
};

}  // namespace islands::runtime
