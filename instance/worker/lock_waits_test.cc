#include "instance/worker/lock_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "instance/worker/mailbox.h"

namespace islands::instance {
namespace {

class LockWaitsTest : public testing::Test {
 protected:
  static constexpr locks::LockName kName{.table = 0, .site = 0, .key_hash = 77};

  LockWaitsTest() {
    shared_.locks = &locks_;
    shared_.colleagues = {{&own_mail_, nullptr, nullptr}, {&others_mail_, nullptr, nullptr}};
    for (Waiter* waiter : {&first_, &second_}) {
      waiter->branch.locks.transaction = {0, 0, 1, lock_waits_.NextToken()};
      waiter->branch.locks.wake_token = waiter->branch.locks.transaction.sequence;
    }
    EXPECT_EQ(Acquire(first_), locks::LockResult::kGranted);
    EXPECT_EQ(Acquire(second_), locks::LockResult::kWaiting);
  }
  ~LockWaitsTest() override {
    for (Waiter* waiter : {&second_, &first_}) locks_.ReleaseAll(waiter->branch.locks, &wakeups_);
  }
  locks::LockResult Acquire(Waiter& waiter) {
    return locks_.Acquire(waiter.branch.locks, kName, locks::LockMode::kX);
  }
  void Release(Waiter& waiter) {
    locks_.ReleaseAll(waiter.branch.locks, &wakeups_);
    lock_waits_.Deliver(&wakeups_);
  }
  void StartWait(Waiter& waiter) {
    const runtime::ReadyQueue::Scope scope(turns_.queue());
    wait_ = lock_waits_.Await(waiter);
    wait_.Start();
  }
  void Round() {
    const runtime::ReadyQueue::Scope scope(turns_.queue());
    turns_.BeginRound();
    turns_.ResumeReady([] {});
  }

  runtime::ManualClock clock_;
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 64}};
  std::vector<locks::Wakeup> wakeups_;
  WorkerOptions options_;
  WorkerShared shared_;
  WorkerCounters counters_;
  Mailbox own_mail_{[] {}}, others_mail_{[] {}};
  Turns turns_{clock_};
  LockWaits lock_waits_{options_, shared_, turns_, counters_};
  Waiter first_, second_;
  runtime::Task<void> wait_;
};

TEST_F(LockWaitsTest, Await_EndsByAGrant) {
  StartWait(second_);
  ASSERT_FALSE(wait_.done());
  ASSERT_EQ(lock_waits_.Sorted().size(), 1u);
  EXPECT_EQ(lock_waits_.Sorted()[0].second, &second_);
  clock_.AdvanceNs(500);
  Release(first_);
  Round();
  EXPECT_TRUE(wait_.done());
  EXPECT_FALSE(second_.failure.set());
  EXPECT_TRUE(lock_waits_.empty());
  EXPECT_EQ(counters_.lock_waits.Get(), 1u);
  EXPECT_EQ(counters_.lock_wait_ns.Get(), 500u);
}

// Whoever is woken looks whether the wait is over: wake-ups may be stale.
TEST_F(LockWaitsTest, Wake_WithoutAGrantGoesOnWaiting) {
  StartWait(second_);
  lock_waits_.Wake(second_.branch.locks.wake_token);
  lock_waits_.Wake(12345);  // nobody's
  Round();
  EXPECT_FALSE(wait_.done());
  EXPECT_FALSE(lock_waits_.empty());
  second_.Fail(AbortReason::kDeadline, absl::DeadlineExceededError("end"));
  turns_.Resume(second_);
  Round();
  EXPECT_TRUE(wait_.done());
}

TEST_F(LockWaitsTest, Sweep_EndsWaitsThatLastTooLong) {
  StartWait(second_);
  clock_.AdvanceNs(options_.lock_timeout_ns - 1);
  turns_.BeginRound();
  lock_waits_.Sweep();
  EXPECT_FALSE(second_.failure.set());
  clock_.AdvanceNs(1);
  turns_.BeginRound();
  lock_waits_.Sweep();
  EXPECT_EQ(second_.failure.reason, AbortReason::kLockTimeout);
  Round();
  EXPECT_TRUE(wait_.done());
}

TEST_F(LockWaitsTest, Await_NotForABranchThatIsStuck) {
  shared_.stuck.Set(first_.branch.locks.transaction, true);
  StartWait(second_);
  EXPECT_TRUE(wait_.done());
  EXPECT_EQ(second_.failure.reason, AbortReason::kPeerUnresponsive);
}

TEST_F(LockWaitsTest, Sweep_EndsWaitsForABranchThatHasGotStuck) {
  StartWait(second_);
  shared_.stuck.Set({5, 0, 1, 1}, true);
  lock_waits_.Sweep();
  EXPECT_FALSE(second_.failure.set());
  shared_.stuck.Set(first_.branch.locks.transaction, true);
  lock_waits_.Sweep();
  EXPECT_EQ(second_.failure.reason, AbortReason::kPeerUnresponsive);
  Round();
  EXPECT_TRUE(wait_.done());
}

TEST_F(LockWaitsTest, Deliver_ToAColleagueByMail) {
  std::vector<locks::Wakeup> wakeups = {{.worker = 1, .wake_token = 42}};
  lock_waits_.Deliver(&wakeups);
  EXPECT_TRUE(wakeups.empty());
  std::vector<uint64_t> tokens;
  others_mail_.Drain([&](const locks::Wakeup& wakeup) { tokens.push_back(wakeup.wake_token); });
  EXPECT_THAT(tokens, testing::ElementsAre(42u));
  EXPECT_EQ(own_mail_.Drain([](const locks::Wakeup&) {}), 0u);
}

}  // namespace
}  // namespace islands::instance
