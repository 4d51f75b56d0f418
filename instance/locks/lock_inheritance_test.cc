#include "instance/locks/lock_inheritance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "instance/locks/lock_memory.h"

namespace islands::locks {
namespace {

using enum LockMode;
using enum LockResult;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr LockName kSite{1, 2, 0};
constexpr LockName kRow{1, 2, 77};

// One thread plays all workers.
class LockInheritanceTest : public testing::Test {
 protected:
  // A transaction.
  struct Owner : LockOwner {
    Owner(uint32_t of_worker, uint64_t token) {
      worker = of_worker;
      wake_token = token;
      transaction.sequence = token;
    }
  };

  std::vector<uint64_t> Release(LockOwner& owner) {
    std::vector<Wakeup> wakeups;
    table_.ReleaseAll(owner, &wakeups);
    std::vector<uint64_t> tokens;
    for (const Wakeup& wakeup : wakeups) tokens.push_back(wakeup.wake_token);
    return tokens;
  }

  // Leaves the lock to worker 0: another worker asked before, so it is hot.
  void LeaveBeside(const LockName& name, LockMode mode) {
    Owner other(LockMemory::kShares, 0);  // a worker that inherits nothing itself
    Owner owner(0, 0);
    ASSERT_EQ(table_.Acquire(other, name, kIS), kGranted);
    Release(other);
    ASSERT_EQ(table_.Acquire(owner, name, mode), kGranted);
    const uint64_t before = table_.LocksInherited();
    EXPECT_THAT(Release(owner), IsEmpty());
    ASSERT_EQ(table_.LocksInherited(), before + 1);
  }
  void Leave(const LockName& name, LockMode mode) {
    ASSERT_NO_FATAL_FAILURE(LeaveBeside(name, mode));
    ASSERT_EQ(table_.LocksHeld(), 0u);
  }

  LockTable table_{{.buckets = 16}};
};

TEST_F(LockInheritanceTest, Reclaim_ByTheNextTransactionOfTheWorker) {
  for (const LockMode mode : {kIS, kIX, kS}) {
    ASSERT_NO_FATAL_FAILURE(Leave(kSite, mode));
    Owner next(0, 1);
    EXPECT_EQ(table_.Acquire(next, kSite, mode), kGranted);
    EXPECT_EQ(table_.LocksInherited(), 0u);
    EXPECT_EQ(table_.LocksHeld(), 1u);
    EXPECT_EQ(next.held(), 1u);
    EXPECT_TRUE(table_.Holds(next, kSite, mode));
    Owner writer(1, 2);
    EXPECT_EQ(table_.Acquire(writer, kSite, kX), kWaiting);  // what was reclaimed excludes others again
    EXPECT_THAT(Release(next), ElementsAre(2));
    EXPECT_EQ(table_.LocksInherited(), 0u);
    Release(writer);
  }
}

TEST_F(LockInheritanceTest, Reclaim_StaysHotFromOneToTheNext) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  for (uint64_t i = 0; i < 100; ++i) {
    Owner next(0, i);
    EXPECT_EQ(table_.AcquireKey(next, {1, 2, i + 1}, kX), kGranted);
    EXPECT_EQ(table_.LocksInherited(), 0u);
    Release(next);
    EXPECT_EQ(table_.LocksInherited(), 1u);
    EXPECT_EQ(table_.LocksHeld(), 0u);
  }
}

TEST_F(LockInheritanceTest, Reclaim_NotByAnotherWorker) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  Owner other(1, 1);
  EXPECT_EQ(table_.Acquire(other, kSite, kIX), kGranted);
  EXPECT_EQ(table_.LocksInherited(), 1u);
  EXPECT_EQ(table_.LocksHeld(), 1u);
  Release(other);
  EXPECT_EQ(table_.LocksInherited(), 2u);
}

TEST_F(LockInheritanceTest, Reclaim_IXForISButNothingElseThatIsStronger) {
  constexpr LockName kOtherSite{1, 3, 0};
  Owner next(0, 1), other(1, 2);
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  EXPECT_EQ(table_.Acquire(next, kSite, kIS), kGranted);
  EXPECT_TRUE(table_.Holds(next, kSite, kIX));
  Release(next);
  ASSERT_NO_FATAL_FAILURE(Leave(kOtherSite, kS));
  EXPECT_EQ(table_.Acquire(next, kOtherSite, kIS), kGranted);
  EXPECT_FALSE(table_.Holds(next, kOtherSite, kS));
  EXPECT_EQ(table_.Acquire(other, kOtherSite, kIX), kGranted);
  Release(next);
  Release(other);
}

TEST_F(LockInheritanceTest, Reclaim_NotBesideALockOfTheSameOwner) {
  Owner next(0, 1);
  EXPECT_EQ(table_.Acquire(next, kSite, kIS), kGranted);
  ASSERT_NO_FATAL_FAILURE(LeaveBeside(kSite, kIX));
  EXPECT_EQ(table_.Acquire(next, kSite, kIX), kGranted);  // converts what it has
  EXPECT_EQ(next.held(), 1u);
  EXPECT_EQ(table_.LocksInherited(), 1u);
  Release(next);
}

TEST_F(LockInheritanceTest, Leave_OnlyWhatIsHotAndShared) {
  Owner first(0, 1), other(1, 2);
  EXPECT_EQ(table_.Acquire(first, kSite, kIX), kGranted);  // nobody had it before
  Release(first);
  EXPECT_EQ(table_.LocksInherited(), 0u);
  EXPECT_EQ(table_.Acquire(first, kSite, kIX), kGranted);  // only this worker had
  Release(first);
  EXPECT_EQ(table_.LocksInherited(), 0u);
  for (const LockMode mode : {kSIX, kX}) {
    EXPECT_EQ(table_.Acquire(other, kSite, mode), kGranted);
    Release(other);
    EXPECT_EQ(table_.Acquire(first, kSite, mode), kGranted);
    Release(first);
  }
  EXPECT_EQ(table_.LocksInherited(), 0u);
  EXPECT_EQ(table_.Acquire(other, kRow, kS), kGranted);  // locks of keys
  Release(other);
  EXPECT_EQ(table_.Acquire(first, kRow, kS), kGranted);
  Release(first);
  EXPECT_EQ(table_.LocksInherited(), 0u);
}

TEST_F(LockInheritanceTest, Leave_NotPastAWaiter) {
  Owner owner(0, 1), other(1, 2);
  EXPECT_EQ(table_.Acquire(other, kSite, kIX), kGranted);
  EXPECT_EQ(table_.Acquire(owner, kSite, kIX), kGranted);  // hot
  Release(other);
  EXPECT_EQ(table_.LocksInherited(), 0u);
  EXPECT_EQ(table_.Acquire(other, kSite, kS), kWaiting);
  EXPECT_THAT(Release(owner), ElementsAre(2));
  EXPECT_EQ(table_.LocksInherited(), 0u);
  EXPECT_TRUE(table_.Holds(other, kSite, kS));
  Release(other);
}

TEST_F(LockInheritanceTest, Leave_NotWithoutTheOption) {
  LockTable table({.buckets = 16, .inherit = false});
  std::vector<Wakeup> wakeups;
  for (uint32_t i = 0; i < 10; ++i) {
    Owner owner(i % 2, i);
    EXPECT_EQ(table.Acquire(owner, kSite, kIX), kGranted);
    table.ReleaseAll(owner, &wakeups);
    EXPECT_EQ(table.LocksInherited(), 0u);
  }
}

TEST_F(LockInheritanceTest, Evict_ByWhoeverItExcludes) {
  for (const LockMode left : {kIS, kIX, kS}) {
    for (const LockMode wanted : {kIS, kIX, kS, kSIX, kX}) {
      ASSERT_NO_FATAL_FAILURE(Leave(kSite, left));
      Owner other(1, 1);
      ASSERT_EQ(table_.Acquire(other, kSite, wanted), kGranted);
      Owner next(0, 2);
      EXPECT_EQ(table_.Acquire(next, kSite, left), Compatible(left, wanted) ? kGranted : kWaiting);
      EXPECT_EQ(Release(other).size(), Compatible(left, wanted) ? 0u : 1u);
      EXPECT_TRUE(table_.Holds(next, kSite, left));
      Release(next);
      Owner last(2, 3);  // clears the table
      EXPECT_EQ(table_.Acquire(last, kSite, kX), kGranted);
      Release(last);
      for (uint32_t worker = 0; worker < 2; ++worker) {
        Owner tidy(worker, 4);
        EXPECT_EQ(table_.Acquire(tidy, {9, worker, 0}, kX), kGranted);
        Release(tidy);
      }
      EXPECT_EQ(table_.LocksInherited(), 0u);
    }
  }
}

TEST_F(LockInheritanceTest, Evict_ByAConversion) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  Owner other(1, 1);
  EXPECT_EQ(table_.Acquire(other, kSite, kIX), kGranted);
  EXPECT_EQ(table_.Acquire(other, kSite, kX), kGranted);
  Release(other);
}

// S beside the IX of the worker's earlier transaction, not SIX in its place.
TEST_F(LockInheritanceTest, Evict_ByTheWorkerItself) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  Owner next(0, 1), other(1, 2);
  EXPECT_EQ(table_.Acquire(next, kSite, kS), kGranted);
  EXPECT_FALSE(table_.Holds(next, kSite, kSIX));
  EXPECT_EQ(table_.Acquire(other, kSite, kS), kGranted);
  Release(next);
  Release(other);
}

// Behind a holder that really holds: an inherited lock between them is in nobody's way.
TEST_F(LockInheritanceTest, Evict_ByOneThatWaitsForAnother) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  Owner holder(1, 1), writer(2, 2), next(0, 3);
  EXPECT_EQ(table_.Acquire(holder, kSite, kIS), kGranted);
  EXPECT_EQ(table_.Acquire(writer, kSite, kX), kWaiting);
  std::vector<coordinator::TransactionId> blockers;
  table_.Blockers(writer, BlockerSet::kAll, &blockers);
  ASSERT_EQ(blockers.size(), 1u);
  EXPECT_EQ(blockers[0].sequence, 1u);
  EXPECT_EQ(table_.Acquire(next, kSite, kIX), kWaiting);  // does not reclaim past the writer
  EXPECT_THAT(Release(holder), ElementsAre(2));
  EXPECT_THAT(Release(writer), ElementsAre(3));
  Release(next);
}

TEST_F(LockInheritanceTest, Evict_ByAnEscalation) {
  LockTable table({.buckets = 16, .escalate_after = 3});
  std::vector<Wakeup> wakeups;
  for (uint32_t worker : {1u, 0u}) {
    Owner owner(worker, 1);
    EXPECT_EQ(table.Acquire(owner, kSite, kIX), kGranted);
    table.ReleaseAll(owner, &wakeups);
  }
  ASSERT_EQ(table.LocksInherited(), 1u);
  Owner reader(1, 2);
  for (uint64_t key = 1; key <= 3; ++key) EXPECT_EQ(table.AcquireKey(reader, {1, 2, key}, kS), kGranted);
  EXPECT_EQ(table.Escalations(), 1u);
  EXPECT_TRUE(table.Holds(reader, kSite, kS));
  table.ReleaseAll(reader, &wakeups);
}

TEST_F(LockInheritanceTest, Escalation_CountsFromNothingAfterAReclaim) {
  LockTable table({.buckets = 16, .escalate_after = 3});
  std::vector<Wakeup> wakeups;
  for (uint32_t i = 0; i < 20; ++i) {
    Owner owner(i < 2 ? i : 1, i);
    EXPECT_EQ(table.AcquireKey(owner, {1, 2, 1}, kS), kGranted);
    EXPECT_EQ(table.AcquireKey(owner, {1, 2, 2}, kS), kGranted);
    table.ReleaseAll(owner, &wakeups);
  }
  EXPECT_EQ(table.LocksInherited(), 1u);
  EXPECT_EQ(table.Escalations(), 0u);
}

TEST_F(LockInheritanceTest, Deadlock_NotThroughALockThatNobodyHas) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  Owner a(1, 1), b(2, 2), c(0, 3);
  EXPECT_EQ(table_.Acquire(a, {5, 5, 0}, kX), kGranted);
  EXPECT_EQ(table_.Acquire(b, {6, 6, 0}, kX), kGranted);
  EXPECT_EQ(table_.Acquire(c, {5, 5, 0}, kX), kWaiting);  // of the worker that inherited
  EXPECT_EQ(table_.Acquire(a, kSite, kX), kGranted);
  EXPECT_THAT(Release(a), ElementsAre(3));
  Release(b);
  Release(c);
}

TEST_F(LockInheritanceTest, Deadlock_ThroughOneThatWasReclaimed) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  Owner a(1, 1), c(0, 3);
  EXPECT_EQ(table_.Acquire(a, {5, 5, 0}, kX), kGranted);
  EXPECT_EQ(table_.Acquire(c, kSite, kIX), kGranted);
  EXPECT_EQ(table_.LocksInherited(), 0u);
  EXPECT_EQ(table_.Acquire(c, {5, 5, 0}, kX), kWaiting);
  EXPECT_EQ(table_.Acquire(a, kSite, kX), kDeadlock);
  EXPECT_THAT(Release(a), ElementsAre(3));
  Release(c);
}

// Its owner is gone when others look at what it left.
TEST_F(LockInheritanceTest, Owner_MayDieAfterLeaving) {
  Owner other(1, 1), reader(2, 2);
  auto owner = std::make_unique<Owner>(0, 3);
  EXPECT_EQ(table_.Acquire(other, kSite, kIX), kGranted);
  EXPECT_EQ(table_.Acquire(*owner, kSite, kIX), kGranted);
  Release(*owner);
  owner.reset();
  EXPECT_EQ(table_.LocksInherited(), 1u);
  EXPECT_EQ(table_.Acquire(reader, kSite, kS), kWaiting);  // searches
  EXPECT_THAT(Release(other), ElementsAre(2));
  Release(reader);
}

TEST_F(LockInheritanceTest, Unused_IsReleasedAfterAWhile) {
  ASSERT_NO_FATAL_FAILURE(Leave(kSite, kIX));
  for (uint32_t i = 0; i <= InheritedLocks::kPatience; ++i) {
    EXPECT_EQ(table_.LocksInherited(), 1u);
    Owner owner(0, i);
    EXPECT_EQ(table_.Acquire(owner, {7, 7, 0}, kX), kGranted);
    Release(owner);
  }
  EXPECT_EQ(table_.LocksInherited(), 0u);
  EXPECT_EQ(table_.LocksHeld(), 0u);
}

TEST_F(LockInheritanceTest, Unused_IsLimited) {
  Owner other(1, 1), owner(0, 2);
  for (uint32_t site = 0; site < 3 * InheritedLocks::kMost; ++site) {
    EXPECT_EQ(table_.Acquire(other, {1, site, 0}, kIX), kGranted);
    EXPECT_EQ(table_.Acquire(owner, {1, site, 0}, kIX), kGranted);
  }
  Release(owner);
  EXPECT_EQ(table_.LocksInherited(), InheritedLocks::kMost);
  EXPECT_EQ(table_.LocksHeld(), 3 * InheritedLocks::kMost);
  Release(other);
  EXPECT_EQ(table_.LocksHeld(), 0u);
}

}  // namespace
}  // namespace islands::locks
