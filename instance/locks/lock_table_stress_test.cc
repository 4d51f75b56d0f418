// Workers that lock the same few names as hard as they can, several transactions each. What the locks protect
// is plain memory: a missing exclusion is a data race for ThreadSanitizer, and without it a row whose halves
// differ or a wrong sum. A slot that waits does nothing until its wake token arrives: a lost wake-up, or a
// deadlock nobody was told of, ends the test by its time limit.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "instance/locks/lock_table.h"

namespace islands::locks {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr size_t kSlots = 3;  // transactions in flight per worker
constexpr uint32_t kSites = 2;
constexpr uint64_t kMaxRows = 512;  // per site
constexpr uint64_t kWatchedRows = 16;
constexpr auto kPatience = std::chrono::seconds(30);

struct Mix {
  const char* name;
  uint64_t rows = 6;                // per site
  uint64_t whole_site_one_in = 16;  // steps
  uint64_t exclusive_one_in = 4;    // of those
  uint64_t transactions = 20000;    // per worker
  LockTableOptions options = {};
};

// Protected by the locks on its name, by nothing else.
struct Row {
  uint64_t value = 0;
  uint64_t copy = 0;
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
  explicit Shared(const Mix& m) : mix(m), table(m.options) {}

  const Mix mix;
  LockTable table;
  Row rows[kSites][kMaxRows];
  std::array<Mailbox, kWorkers> mailboxes;
  std::atomic<uint64_t> increments = 0, deadlocks = 0, waits = 0, cancelled = 0, blockers = 0, torn = 0,
                        changed = 0, inherited = 0;
  std::atomic<bool> failed = false;
};

class Worker {
 public:
  Worker(Shared& shared, uint32_t index) : shared_(shared), index_(index), random_(index + 1) {}

  void Run() {
    while (committed_ < shared_.mix.transactions && !shared_.failed) {
      bool progress = false;
      for (size_t i = 0; i < kSlots; ++i) progress |= Turn(i);
      TakeMail(!progress);
    }
    for (Slot& slot : slots_) {
      if (slot.owner != nullptr) End(slot, false);
    }
  }

 private:
  struct Step {
    uint32_t site;
    uint64_t row;  // kMaxRows: the whole site
    bool write;
  };
  struct Seen {
    uint32_t site;
    uint64_t row;
    uint64_t value;  // as this transaction knows it
  };
  struct Slot {
    std::unique_ptr<LockOwner>
        owner;  // of each transaction another one, so that one looked at too late is seen
    std::vector<Step> steps;
    size_t next = 0;
    bool asleep = false;
    std::vector<std::pair<uint32_t, uint64_t>> written;
    std::vector<Seen> seen;
  };

  // True when the slot did something.
  bool Turn(size_t i) {
    Slot& slot = slots_[i];
    if (slot.asleep) {
      if (random_() % 16 == 0) AskBlockers(slot);
      if (random_() % 64 != 0) return false;
      slot.asleep = false;
      wakeups_.clear();
      const bool cancelled = shared_.table.CancelWait(*slot.owner, &wakeups_);
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

  // Looks at the owners of other workers.
  void AskBlockers(const Slot& slot) {
    std::vector<coordinator::TransactionId> blockers;
    shared_.table.Blockers(*slot.owner, random_() % 2 == 0 ? BlockerSet::kAll : BlockerSet::kHolders,
                           &blockers);
    for (const coordinator::TransactionId& id : blockers) {
      const bool sane = id.worker < kWorkers && id.sequence != 0 && id != slot.owner->transaction;
      if (!sane) ADD_FAILURE() << id.ToString() << " cannot be in the way";
    }
    shared_.blockers += blockers.size();
  }

  void Begin(size_t i) {
    Slot& slot = slots_[i];
    slot.owner = std::make_unique<LockOwner>();
    slot.owner->worker = index_;
    slot.owner->wake_token = ++tokens_ * kSlots + i;
    slot.owner->transaction = {.island = 1, .worker = index_, .boot_epoch = 1, .sequence = tokens_};
    const Mix& mix = shared_.mix;
    for (size_t n = 1 + random_() % 4; n > 0; --n) {
      const bool whole_site = random_() % mix.whole_site_one_in == 0;
      slot.steps.push_back({static_cast<uint32_t>(random_() % kSites),
                            whole_site ? kMaxRows : random_() % mix.rows,
                            random_() % (whole_site ? mix.exclusive_one_in : 2) == 0});
    }
  }

  void Lock(Slot& slot) {
    const Step& step = slot.steps[slot.next];
    const LockMode mode = step.write ? LockMode::kX : LockMode::kS;
    const LockResult result = step.row == kMaxRows
                                  ? shared_.table.Acquire(*slot.owner, {1, step.site, 0}, mode)
                                  : shared_.table.AcquireKey(*slot.owner, {1, step.site, step.row + 1}, mode);
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
    const bool whole_site = step.row == kMaxRows;
    const uint64_t end = whole_site ? shared_.mix.rows : step.row + 1;
    for (uint64_t i = whole_site ? 0 : step.row; i < end; ++i) {
      Row& row = shared_.rows[step.site][i];
      if (row.value != row.copy) ++shared_.torn;
      if (step.write) {
        ++row.value;
        ++row.copy;
        slot.written.push_back({step.site, i});
      }
      See(slot, {step.site, i, row.value}, step.write ? 1 : 0);
    }
  }

  // A row stays as it was seen first, but for what the transaction adds itself. Where there are few rows.
  void See(Slot& slot, const Seen& now, uint64_t added) {
    if (shared_.mix.rows > kWatchedRows) return;
    for (Seen& seen : slot.seen) {
      if (seen.site != now.site || seen.row != now.row) continue;
      if (seen.value + added != now.value) ++shared_.changed;
      seen.value = now.value;
      return;
    }
    slot.seen.push_back(now);
  }

  void End(Slot& slot, bool commit) {
    if (commit) {
      for (const Seen& seen : slot.seen) {
        if (shared_.rows[seen.site][seen.row].value != seen.value) ++shared_.changed;
      }
      ++committed_;
      shared_.increments += slot.written.size();
    } else {
      for (const auto& [site, row] : slot.written) {
        --shared_.rows[site][row].value;
        --shared_.rows[site][row].copy;
      }
    }
    wakeups_.clear();
    shared_.table.ReleaseAll(*slot.owner, &wakeups_);
    slot.owner.reset();
    if (random_() % 64 == 0) shared_.inherited += shared_.table.LocksInherited();
    Deliver();
    slot.steps.clear();
    slot.written.clear();
    slot.seen.clear();
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
      if (!slot.asleep || slot.owner->wake_token != token) continue;  // stale
      if (shared_.table.WaitOver(*slot.owner)) slot.asleep = false;
    }
  }

  Shared& shared_;
  const uint32_t index_;
  std::mt19937_64 random_;
  std::array<Slot, kSlots> slots_;
  std::vector<Wakeup> wakeups_;
  uint64_t tokens_ = 0;
  uint64_t committed_ = 0;
};

// Few buckets: names share them.
constexpr LockTableOptions kInherit{.buckets = 8};
constexpr LockTableOptions kDoNotInherit{.buckets = 8, .inherit = false};
constexpr LockTableOptions kEscalate{.buckets = 8, .escalate_after = 3};

class LockTableStressTest : public testing::TestWithParam<Mix> {};

INSTANTIATE_TEST_SUITE_P(Mix, LockTableStressTest,
                         testing::Values(Mix{.name = "FewRows", .options = kInherit},
                                         Mix{.name = "FewRowsNothingInherited", .options = kDoNotInherit},
                                         Mix{.name = "FewRowsEscalation", .options = kEscalate},
                                         // Intentions are inherited all the time, and evicted now and then.
                                         Mix{.name = "HotSites",
                                             .rows = 512,
                                             .whole_site_one_in = 400,
                                             .transactions = 40000,
                                             .options = kInherit},
                                         Mix{.name = "HotSitesManyScans",
                                             .rows = 512,
                                             .whole_site_one_in = 12,
                                             .exclusive_one_in = 12,
                                             .options = kInherit}),
                         [](const auto& param) { return param.param.name; });

TEST_P(LockTableStressTest, ManyWorkers) {
  Shared shared(GetParam());
  {
    std::vector<std::jthread> threads;
    for (uint32_t i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&shared, i] { Worker(shared, i).Run(); });
    }
  }
  uint64_t sum = 0;
  for (const auto& site : shared.rows) {
    for (const Row& row : site) sum += row.value;
  }
  EXPECT_EQ(sum, shared.increments);
  EXPECT_EQ(shared.torn, 0u);
  EXPECT_EQ(shared.changed, 0u);
  EXPECT_EQ(shared.table.LocksHeld(), 0u);
  EXPECT_EQ(shared.table.OwnersWaiting(), 0u);
  EXPECT_GT(shared.waits, 100u);
  EXPECT_GT(shared.blockers, 0u);
  EXPECT_GT(shared.deadlocks, 0u);
  EXPECT_GT(shared.cancelled, 0u);
  EXPECT_TRUE(GetParam().options.inherit || shared.inherited == 0);
  EXPECT_TRUE(GetParam().rows < kMaxRows || shared.inherited > 0);
  EXPECT_EQ(shared.table.Escalations() > 0, GetParam().options.escalate_after < 100);
}

// Both at the same moment, in every round: one worker leaves a hot lock, another asks for what it excludes.
// Nobody else comes by, so a wait that is overlooked never ends.
class LeavingMeetsWaiting {
 public:
  static constexpr uint32_t kRounds = 100000;
  // A machine with other work seldom runs both threads at once: then there are fewer rounds.
  static constexpr auto kTime = std::chrono::seconds(4);

  // Worker 0. Worker 1 had the lock before: it is hot.
  void Leaver() {
    std::mt19937 random(1);
    std::vector<Wakeup> wakeups;
    const auto end = std::chrono::steady_clock::now() + kTime;
    for (uint32_t round = 0; !last_round_ && !failed_; ++round) {
      LockOwner owner;
      owner.transaction.sequence = round + 1;
      // Nobody else has it now.
      failed_ =
          table_.Acquire(owner, kSite, round % 2 == 0 ? LockMode::kIX : LockMode::kS) != LockResult::kGranted;
      Meet();
      Dawdle(random, 256);
      if (random() % 8 == 0) std::this_thread::yield();  // in case that both have one core
      wakeups.clear();
      table_.ReleaseAll(owner, &wakeups);
      if (round % 4 < 2) Again(round, random, &wakeups);
      woken_ = wakeups.size();
      last_round_ = round + 1 == kRounds || std::chrono::steady_clock::now() > end;
      Meet();
    }
  }

  void Waiter() {
    std::mt19937 random(2);
    std::vector<Wakeup> wakeups;
    for (uint32_t round = 0; !last_round_ && !failed_; ++round) {
      LockOwner owner;
      owner.worker = 1;
      owner.transaction.sequence = kRounds + round;
      Meet();
      Dawdle(random, 16);
      const LockResult result = table_.Acquire(owner, kSite, LockMode::kX);
      if (result == LockResult::kWaiting) AwaitGrant(owner);
      UseAlone(random);
      table_.ReleaseAll(owner, &wakeups);
      Meet();
      EXPECT_EQ(woken_, result == LockResult::kWaiting ? 1u : 0u);
      inherited_ += table_.LocksInherited();
    }
  }

  void Run() {
    {
      const std::jthread leaver([&] { Leaver(); });
      Waiter();
    }
    EXPECT_FALSE(failed_);
    EXPECT_EQ(plain_, uses_);
    EXPECT_GT(inherited_, 0u);
    EXPECT_EQ(table_.LocksHeld(), 0u);
    EXPECT_EQ(table_.OwnersWaiting(), 0u);
  }

 private:
  static constexpr LockName kSite{1, 1, 0};

  // Reclaims what was just left, unless it is evicted before.
  void Again(uint32_t round, std::mt19937& random, std::vector<Wakeup>* wakeups) {
    LockOwner owner;
    owner.transaction.sequence = round + 1;
    if (table_.Acquire(owner, kSite, LockMode::kIX) == LockResult::kWaiting) AwaitGrant(owner);
    UseAlone(random);
    table_.ReleaseAll(owner, wakeups);
  }

  void UseAlone(std::mt19937& random) {
    EXPECT_FALSE(used_.exchange(true));
    ++plain_;
    ++uses_;
    Dawdle(random, 64);
    used_ = false;
  }

  void AwaitGrant(const LockOwner& owner) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::vector<coordinator::TransactionId> blockers;
    while (!table_.WaitOver(owner) && !failed_) {
      blockers.clear();
      table_.Blockers(owner, BlockerSet::kAll, &blockers);
      for (const auto& id : blockers) EXPECT_NE(id, owner.transaction);
      if (std::chrono::steady_clock::now() > deadline) {
        failed_ = true;
        ADD_FAILURE() << "waits, and nobody is in the way";
      }
      std::this_thread::yield();
    }
  }

  // Until both are here.
  void Meet() {
    const uint32_t both = (arrived_.fetch_add(1) / 2 + 1) * 2;
    for (uint32_t spins = 0; arrived_ < both && !failed_; ++spins) {
      if (spins > 2000) std::this_thread::yield();
    }
  }

  static void Dawdle(std::mt19937& random, uint32_t most) {
    for (std::atomic<uint32_t> n = random() % most; n > 0;) n.fetch_sub(1, std::memory_order_relaxed);
  }

  LockTable table_{kInherit};
  std::atomic<uint32_t> arrived_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> used_ = false;
  std::atomic<uint64_t> uses_ = 0;
  bool last_round_ = false;  // changed between meetings by the leaver
  uint64_t plain_ = 0;       // protected by the lock
  size_t woken_ = 0;         // by the leaver, in this round
  uint64_t inherited_ = 0;   // the waiter's
};

TEST(LockInheritanceStress, LeavingMeetsWaiting) { LeavingMeetsWaiting().Run(); }

}  // namespace
}  // namespace islands::locks
