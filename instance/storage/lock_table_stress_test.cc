// Workers that lock the same few names as hard as they can, several transactions each. What the locks protect
// is plain memory: a missing exclusion is a data race for ThreadSanitizer and a wrong sum without it. A slot
// that waits does nothing until its wake token arrives: a lost wake-up, or a deadlock nobody was told of,
// ends the test by its time limit.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "instance/storage/lock_table.h"

namespace islands::storage {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr size_t kSlots = 3;  // transactions in flight per worker
constexpr uint32_t kSites = 2;
constexpr uint64_t kRows = 6;              // per site
constexpr uint64_t kTransactions = 20000;  // per worker
constexpr auto kPatience = std::chrono::seconds(30);

// Protected by the locks on their names, by nothing else.
struct Rows {
  uint64_t value[kSites][kRows] = {};
};

class Mailbox {
 public:
  void Push(uint64_t token) {
    const std::lock_guard guard(mutex_);
    tokens_.push_back(token);
    arrived_.notify_one();
  }
  // What has arrived; with `wait`, at least one unless patience ends.
  std::vector<uint64_t> Take(bool wait) {
    std::unique_lock guard(mutex_);
    if (wait) arrived_.wait_for(guard, kPatience, [&] { return !tokens_.empty(); });
    return std::exchange(tokens_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<uint64_t> tokens_;
};

struct Shared {
  LockTable table{{.buckets = 8, .latched = true}};  // few buckets: names share them
  Rows rows;
  std::array<Mailbox, kWorkers> mailboxes;
  std::atomic<uint64_t> increments = 0, deadlocks = 0, waits = 0, cancelled = 0;
  std::atomic<bool> failed = false;
};

class Worker {
 public:
  Worker(Shared& shared, uint32_t index) : shared_(shared), index_(index), random_(index + 1) {
    for (Slot& slot : slots_) slot.owner.worker = index;
  }

  void Run() {
    while (committed_ < kTransactions && !shared_.failed) {
      bool progress = false;
      for (size_t i = 0; i < kSlots; ++i) progress |= Turn(i);
      TakeMail(!progress);
    }
    for (Slot& slot : slots_) End(slot, false);
  }

 private:
  struct Step {
    uint32_t site;
    uint64_t row;  // kRows: the whole site
    bool write;
  };
  struct Slot {
    LockOwner owner;
    std::vector<Step> steps;
    size_t next = 0;
    bool site_locked = false;  // of the next step
    bool asleep = false;
    std::vector<std::pair<uint32_t, uint64_t>> written;
  };

  // True when the slot did something.
  bool Turn(size_t i) {
    Slot& slot = slots_[i];
    if (slot.asleep) {
      if (random_() % 64 != 0) return false;
      slot.asleep = false;
      wakeups_.clear();
      const bool cancelled = shared_.table.CancelWait(slot.owner, &wakeups_);
      Deliver();
      if (cancelled) {
        ++shared_.cancelled;
        End(slot, false);
      }
      return true;  // otherwise just granted: the wake-up under way is stale
    }
    if (slot.steps.empty()) Begin(i);
    if (slot.next == slot.steps.size()) {
      End(slot, true);
      return true;
    }
    Lock(slot);
    return true;
  }

  void Begin(size_t i) {
    Slot& slot = slots_[i];
    slot.owner.wake_token = ++tokens_ * kSlots + i;
    for (size_t n = 1 + random_() % 4; n > 0; --n) {
      const bool whole_site = random_() % 16 == 0;
      slot.steps.push_back({static_cast<uint32_t>(random_() % kSites), whole_site ? kRows : random_() % kRows,
                            random_() % 2 == 0 && !whole_site});
    }
  }

  void Lock(Slot& slot) {
    const Step& step = slot.steps[slot.next];
    const bool whole_site = step.row == kRows;
    const LockName site{1, step.site, 0};
    const LockName row{1, step.site, step.row + 1};
    LockResult result = LockResult::kGranted;
    if (whole_site) {
      result = shared_.table.Acquire(slot.owner, site, LockMode::kS);
    } else {
      result = shared_.table.Acquire(slot.owner, site, step.write ? LockMode::kIX : LockMode::kIS);
      if (result == LockResult::kGranted) {
        result = shared_.table.Acquire(slot.owner, row, step.write ? LockMode::kX : LockMode::kS);
      }
    }
    if (result == LockResult::kWaiting) {
      ++shared_.waits;
      slot.asleep = true;  // when woken the step is tried again; what it holds it gets at once
      return;
    }
    if (result == LockResult::kDeadlock) {
      ++shared_.deadlocks;
      return End(slot, false);
    }
    Use(slot, step);
    ++slot.next;
  }

  void Use(Slot& slot, const Step& step) {
    if (step.write) {
      ++shared_.rows.value[step.site][step.row];
      slot.written.push_back({step.site, step.row});
      return;
    }
    const uint64_t first = step.row == kRows ? 0 : step.row;
    const uint64_t end = step.row == kRows ? kRows : step.row + 1;
    for (uint64_t row = first; row < end; ++row) sink_ += shared_.rows.value[step.site][row];
  }

  void End(Slot& slot, bool commit) {
    if (commit) {
      ++committed_;
      shared_.increments += slot.written.size();
    } else {
      for (const auto& [site, row] : slot.written) --shared_.rows.value[site][row];
    }
    wakeups_.clear();
    shared_.table.ReleaseAll(slot.owner, &wakeups_);
    Deliver();
    slot.steps.clear();
    slot.written.clear();
    slot.next = 0;
    slot.asleep = false;
  }

  void Deliver() {
    for (const Wakeup& wakeup : wakeups_) shared_.mailboxes[wakeup.worker].Push(wakeup.wake_token);
  }

  void TakeMail(bool wait) {
    const std::vector<uint64_t> tokens = shared_.mailboxes[index_].Take(wait);
    if (wait && tokens.empty() && !shared_.failed.exchange(true)) {
      ADD_FAILURE() << "worker " << index_ << ": every transaction waits and nobody wakes one";
    }
    for (const uint64_t token : tokens) {
      Slot& slot = slots_[token % kSlots];
      if (slot.owner.wake_token != token || !slot.asleep) continue;  // stale
      if (shared_.table.WaitOver(slot.owner)) slot.asleep = false;
    }
  }

  Shared& shared_;
  const uint32_t index_;
  std::mt19937_64 random_;
  std::array<Slot, kSlots> slots_;
  std::vector<Wakeup> wakeups_;
  uint64_t tokens_ = 0;
  uint64_t committed_ = 0;
  uint64_t sink_ = 0;
};

TEST(LockTableStress, ManyWorkersFewRows) {
  Shared shared;
  {
    std::vector<std::jthread> threads;
    for (uint32_t i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&shared, i] { Worker(shared, i).Run(); });
    }
  }
  uint64_t sum = 0;
  for (const auto& site : shared.rows.value) {
    for (const uint64_t value : site) sum += value;
  }
  EXPECT_EQ(sum, shared.increments);
  EXPECT_EQ(shared.table.LocksHeld(), 0u);
  EXPECT_EQ(shared.table.OwnersWaiting(), 0u);
  EXPECT_GT(shared.waits, 100u);
  EXPECT_GT(shared.deadlocks, 10u);
  EXPECT_GT(shared.cancelled, 0u);
}

}  // namespace
}  // namespace islands::storage
