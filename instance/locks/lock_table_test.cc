#include "instance/locks/lock_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace islands::locks {
namespace {

using enum LockMode;
using enum LockResult;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr LockMode kAllModes[] = {kIS, kIX, kS, kSIX, kX};
constexpr LockName kSite{1, 2, 0};
constexpr LockName kRow{1, 2, 77};
constexpr LockName kOtherRow{1, 2, 78};
constexpr LockName kGap{1, 2, kGapBit | 79};
constexpr uint32_t kEscalateAfter = 5;

// Owners that can be told apart by their wake token.
class LockTableTest : public testing::TestWithParam<bool> {
 protected:
  LockTableTest() : table_({.buckets = 16, .latched = GetParam(), .escalate_after = kEscalateAfter}) {
    for (size_t i = 0; i < std::size(owners_); ++i) {
      owners_[i].wake_token = i;
      owners_[i].transaction.sequence = i;
    }
  }
  ~LockTableTest() override {
    for (LockOwner& owner : owners_) table_.ReleaseAll(owner, &wakeups_);
    EXPECT_EQ(table_.LocksHeld(), 0u);
    EXPECT_EQ(table_.OwnersWaiting(), 0u);
  }

  LockResult Acquire(size_t owner, const LockName& name, LockMode mode) {
    return table_.Acquire(owners_[owner], name, mode);
  }
  LockResult AcquireKey(size_t owner, const LockName& name, LockMode mode) {
    return table_.AcquireKey(owners_[owner], name, mode);
  }
  // The transactions waited for.
  std::vector<uint64_t> Blockers(size_t owner, BlockerSet which = BlockerSet::kHolders) {
    std::vector<coordinator::TransactionId> blockers;
    table_.Blockers(owners_[owner], which, &blockers);
    std::vector<uint64_t> sequences;
    for (const coordinator::TransactionId& id : blockers) sequences.push_back(id.sequence);
    return sequences;
  }
  // The tokens woken.
  std::vector<uint64_t> Release(size_t owner) {
    wakeups_.clear();
    table_.ReleaseAll(owners_[owner], &wakeups_);
    return Tokens();
  }
  std::vector<uint64_t> Tokens() const {
    std::vector<uint64_t> tokens;
    for (const Wakeup& wakeup : wakeups_) tokens.push_back(wakeup.wake_token);
    return tokens;
  }
  bool Holds(size_t owner, const LockName& name, LockMode mode) {
    return table_.Holds(owners_[owner], name, mode);
  }

  LockTable table_;
  LockOwner owners_[8];
  std::vector<Wakeup> wakeups_;
};

INSTANTIATE_TEST_SUITE_P(Latched, LockTableTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "Yes" : "No"; });

TEST(LockModes, Compatible_TheTableOfGrayEtAl) {
  const char* const expected[] = {"yyyyn",   // IS with IS IX S SIX X
                                  "yynnn",   // IX
                                  "ynynn",   // S
                                  "ynnnn",   // SIX
                                  "nnnnn"};  // X
  for (const LockMode a : kAllModes) {
    for (const LockMode b : kAllModes) {
      EXPECT_EQ(Compatible(a, b), expected[static_cast<int>(a)][static_cast<int>(b)] == 'y');
      EXPECT_EQ(Compatible(a, b), Compatible(b, a));
    }
  }
}

// By its definition: compatible with exactly those modes that both are compatible with, except that nothing
// below SIX is as strong as IX and S together.
TEST(LockModes, Supremum_IsTheLeastUpperBound) {
  const auto covers = [](LockMode strong, LockMode weak) { return Supremum(strong, weak) == strong; };
  for (const LockMode a : kAllModes) {
    EXPECT_TRUE(covers(a, a));
    EXPECT_TRUE(covers(kX, a));
    EXPECT_TRUE(covers(a, kIS));
    for (const LockMode b : kAllModes) {
      const LockMode both = Supremum(a, b);
      EXPECT_EQ(both, Supremum(b, a));
      EXPECT_TRUE(covers(both, a) && covers(both, b));
      for (const LockMode c : kAllModes) {
        EXPECT_TRUE(!(covers(c, a) && covers(c, b)) || covers(c, both));
        EXPECT_TRUE(!Compatible(both, c) || (Compatible(a, c) && Compatible(b, c)));
      }
    }
  }
  EXPECT_EQ(Supremum(kIX, kS), kSIX);
  EXPECT_FALSE(covers(kS, kIX));
  EXPECT_FALSE(covers(kIX, kS));
}

TEST(KeyHash, NeverZeroAndSpreads) {
  std::set<uint64_t> hashes;
  for (uint64_t i = 0; i < 100000; ++i) {
    const uint64_t hash = KeyHash(&i, sizeof(i));
    EXPECT_NE(hash, 0u);
    hashes.insert(hash);
  }
  EXPECT_EQ(hashes.size(), 100000u);
  EXPECT_NE(KeyHash("", 0), 0u);
  EXPECT_EQ(KeyHash("abc", 3), KeyHash(std::string("abc").data(), 3));
  EXPECT_NE(KeyHash("abc", 3), KeyHash("abc", 2));
}

TEST(GapHash, IsNeverARecord) {
  for (uint64_t i = 0; i < 100000; ++i) {
    const uint64_t record = KeyHash(&i, sizeof(i));
    const uint64_t gap = GapHash(&i, sizeof(i));
    ASSERT_NE(gap, 0u);
    ASSERT_NE(gap, record);
    ASSERT_NE(gap, kSupremumGap);
    ASSERT_NE(record, kSupremumGap);
    ASSERT_EQ(gap >> 63, 1u);  // which no record has: they differ for all keys, not only these
    ASSERT_EQ(record >> 63, 0u);
  }
  EXPECT_EQ(GapHash("abc", 3), GapHash(std::string("abc").data(), 3));
}

// Whatever others have and wait for: it is free exactly if one who has nothing is granted it at once.
TEST_P(LockTableTest, IsFree_ForWhomItWouldBeGranted) {
  const auto acquire = [&](size_t owner, const LockName& name, LockMode mode) {
    return name.key_hash == 0 ? Acquire(owner, name, mode) : AcquireKey(owner, name, mode);
  };
  for (const LockName& held : {kSite, kRow, kGap}) {
    for (const LockMode has : kAllModes) {
      for (const LockMode waits_for : kAllModes) {
        if (held.key_hash != 0 && (has < kS || waits_for < kS)) continue;
        for (const LockName& wanted : {kSite, kRow, kOtherRow, kGap}) {
          for (const LockMode mode : kAllModes) {
            if (wanted.key_hash != 0 && mode < kIX) continue;
            ASSERT_EQ(acquire(1, held, has), kGranted);
            const LockResult second = acquire(2, held, waits_for);
            const uint64_t before = table_.LocksHeld();
            const bool below = wanted.key_hash != 0;
            const bool free =
                table_.IsFree(wanted, mode) && (!below || table_.IsFree(kSite, mode == kS ? kIS : kIX));
            // Where all of it is free everything below is.
            if (below && table_.IsFree(kSite, mode == kS ? kS : kX)) {
              EXPECT_TRUE(free);
            }
            EXPECT_EQ(table_.LocksHeld(), before);
            EXPECT_EQ(free, acquire(0, wanted, mode) == kGranted)
                << held.key_hash << " held in " << int(has) << ", another "
                << (second == kGranted ? "has" : "wants") << " " << int(waits_for) << ": " << wanted.key_hash
                << " in " << int(mode);
            for (const size_t owner : {0, 1, 2}) Release(owner);
          }
        }
      }
    }
  }
  EXPECT_TRUE(table_.IsFree(kRow, kX));
}

TEST_P(LockTableTest, Acquire_EveryPairOfModes) {
  for (const LockMode held : kAllModes) {
    for (const LockMode wanted : kAllModes) {
      ASSERT_EQ(Acquire(0, kRow, held), kGranted);
      const bool compatible = Compatible(held, wanted);
      ASSERT_EQ(Acquire(1, kRow, wanted), compatible ? kGranted : kWaiting);
      EXPECT_EQ(owners_[1].waiting(), !compatible);
      EXPECT_EQ(Holds(1, kRow, wanted), compatible);
      EXPECT_EQ(table_.OwnersWaiting(), compatible ? 0u : 1u);
      EXPECT_EQ(table_.LocksHeld(), compatible ? 2u : 1u);
      EXPECT_EQ(Release(0).size(), compatible ? 0u : 1u);
      EXPECT_TRUE(table_.WaitOver(owners_[1]));
      EXPECT_TRUE(Holds(1, kRow, wanted));
      EXPECT_THAT(Release(1), IsEmpty());
      EXPECT_EQ(table_.LocksHeld(), 0u);
    }
  }
}

TEST_P(LockTableTest, Acquire_EveryConversionAlone) {
  for (const LockMode held : kAllModes) {
    for (const LockMode wanted : kAllModes) {
      ASSERT_EQ(Acquire(0, kRow, held), kGranted);
      ASSERT_EQ(Acquire(0, kRow, wanted), kGranted);
      EXPECT_EQ(owners_[0].held(), 1u);
      for (const LockMode mode : kAllModes) {
        const LockMode now = Supremum(held, wanted);
        EXPECT_EQ(Holds(0, kRow, mode), Supremum(now, mode) == now);
      }
      Release(0);
    }
  }
}

TEST_P(LockTableTest, Acquire_EveryConversionBesideAnother) {
  for (const LockMode other : kAllModes) {
    for (const LockMode held : kAllModes) {
      if (!Compatible(other, held)) continue;
      for (const LockMode wanted : kAllModes) {
        ASSERT_EQ(Acquire(1, kRow, other), kGranted);
        ASSERT_EQ(Acquire(0, kRow, held), kGranted);
        const bool fits = Compatible(other, Supremum(held, wanted));
        ASSERT_EQ(Acquire(0, kRow, wanted), fits ? kGranted : kWaiting);
        EXPECT_TRUE(Holds(0, kRow, held));  // not given up while it waits for more
        if (!fits) {
          EXPECT_THAT(Release(1), ElementsAre(0));
        } else {
          EXPECT_THAT(Release(1), IsEmpty());
        }
        EXPECT_TRUE(Holds(0, kRow, wanted));
        Release(0);
      }
    }
  }
}

TEST_P(LockTableTest, Acquire_AgainWhatIsCovered) {
  EXPECT_EQ(Acquire(0, kSite, kIX), kGranted);
  EXPECT_EQ(Acquire(0, kRow, kX), kGranted);
  EXPECT_EQ(Acquire(0, kSite, kIS), kGranted);
  EXPECT_EQ(Acquire(0, kRow, kS), kGranted);
  EXPECT_EQ(owners_[0].held(), 2u);
  EXPECT_EQ(table_.LocksHeld(), 2u);
}

TEST_P(LockTableTest, Acquire_NamesAreIndependent) {
  for (uint32_t table = 0; table < 5; ++table) {
    for (uint32_t site = 0; site < 5; ++site) {
      for (uint64_t key = 0; key < 5; ++key) {
        const size_t owner = (table + site + key) % std::size(owners_);
        ASSERT_EQ(Acquire(owner, {table, site, key}, kX), kGranted);
      }
    }
  }
  EXPECT_EQ(table_.LocksHeld(), 125u);
}

TEST_P(LockTableTest, Queue_IsFirstInFirstOut) {
  Acquire(0, kRow, kX);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(2, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(3, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(4, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(5, kRow, kS), kWaiting);
  EXPECT_THAT(Release(0), ElementsAre(1));
  EXPECT_THAT(Release(1), ElementsAre(2, 3));
  EXPECT_THAT(Release(2), IsEmpty());
  EXPECT_THAT(Release(3), ElementsAre(4));
  EXPECT_THAT(Release(4), ElementsAre(5));
}

TEST_P(LockTableTest, Queue_ReadersDoNotStarveAWriter) {
  Acquire(0, kRow, kS);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(2, kRow, kS), kWaiting);
  EXPECT_THAT(Release(0), ElementsAre(1));
  EXPECT_THAT(Release(1), ElementsAre(2));
}

TEST_P(LockTableTest, Queue_WhoDisturbsNobodyAheadNeedNotWait) {
  Acquire(0, kSite, kIX);
  EXPECT_EQ(Acquire(1, kSite, kS), kWaiting);
  EXPECT_EQ(Acquire(2, kSite, kIS), kGranted);
  EXPECT_EQ(Acquire(3, kSite, kIX), kWaiting);
  EXPECT_THAT(Release(0), ElementsAre(1));
  EXPECT_THAT(Release(1), ElementsAre(3));
}

TEST_P(LockTableTest, Conversion_GoesAheadOfNewRequests) {
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  EXPECT_EQ(Acquire(2, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(3, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(0, kRow, kX), kWaiting);
  EXPECT_EQ(owners_[0].held(), 1u);
  EXPECT_THAT(Release(1), ElementsAre(0));
  EXPECT_TRUE(Holds(0, kRow, kX));
  EXPECT_THAT(Release(0), ElementsAre(2));
  EXPECT_THAT(Release(2), ElementsAre(3));
}

TEST_P(LockTableTest, Conversion_GrantedAtOnceBesideWaiters) {
  Acquire(0, kRow, kS);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(0, kRow, kX), kGranted);
  EXPECT_THAT(Release(0), ElementsAre(1));
}

TEST_P(LockTableTest, Deadlock_TwoOwners) {
  Acquire(0, kRow, kX);
  Acquire(1, kOtherRow, kX);
  EXPECT_EQ(Acquire(0, kOtherRow, kX), kWaiting);
  EXPECT_EQ(Acquire(1, kRow, kS), kDeadlock);
  EXPECT_FALSE(owners_[1].waiting());
  EXPECT_EQ(owners_[1].held(), 1u);
  EXPECT_FALSE(Holds(1, kRow, kS));
  EXPECT_THAT(Release(1), ElementsAre(0));
}

TEST_P(LockTableTest, Deadlock_ThreeOwners) {
  const LockName names[] = {{1, 1, 1}, {1, 1, 2}, {1, 1, 3}};
  for (size_t i = 0; i < 3; ++i) Acquire(i, names[i], kX);
  EXPECT_EQ(Acquire(0, names[1], kX), kWaiting);
  EXPECT_EQ(Acquire(1, names[2], kX), kWaiting);
  EXPECT_EQ(Acquire(2, names[0], kX), kDeadlock);
  EXPECT_THAT(Release(2), ElementsAre(1));
  EXPECT_THAT(Release(1), ElementsAre(0));
}

TEST_P(LockTableTest, Deadlock_TwoConversionsOfOneName) {
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  EXPECT_EQ(Acquire(0, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(1, kRow, kX), kDeadlock);
  EXPECT_TRUE(Holds(1, kRow, kS));
  EXPECT_THAT(Release(1), ElementsAre(0));
}

// 1 waits for 0 only because of its place in the queue.
TEST_P(LockTableTest, Deadlock_ThroughTheQueue) {
  Acquire(2, kRow, kS);
  Acquire(1, kOtherRow, kX);
  EXPECT_EQ(Acquire(0, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(1, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(2, kOtherRow, kX), kDeadlock);
  EXPECT_THAT(Release(2), ElementsAre(0));
}

// A conversion steps ahead of 1, which did not wait for 0 before, and 0 would wait for 2, which waits for 1.
TEST_P(LockTableTest, Deadlock_ByAConversionGoingAhead) {
  Acquire(0, kRow, kIS);
  Acquire(3, kRow, kIX);
  Acquire(2, kRow, kIS);
  Acquire(1, kOtherRow, kX);
  EXPECT_EQ(Acquire(1, kRow, kS), kWaiting);       // for 3
  EXPECT_EQ(Acquire(2, kOtherRow, kX), kWaiting);  // for 1
  EXPECT_EQ(Acquire(0, kRow, kX), kDeadlock);      // for 2 and 3; and 1 would wait for it
  EXPECT_THAT(Release(0), IsEmpty());
  EXPECT_THAT(Release(3), ElementsAre(1));
}

TEST_P(LockTableTest, Deadlock_NotBetweenThoseWhoOnlyShare) {
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  Acquire(2, kOtherRow, kX);
  EXPECT_EQ(Acquire(0, kOtherRow, kS), kWaiting);
  EXPECT_EQ(Acquire(1, kOtherRow, kS), kWaiting);
  EXPECT_EQ(Acquire(2, kRow, kS), kGranted);
  EXPECT_THAT(Release(2), ElementsAre(0, 1));
}

TEST_P(LockTableTest, CancelWait_LetsOthersPass) {
  Acquire(0, kRow, kS);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(2, kRow, kS), kWaiting);
  EXPECT_TRUE(table_.CancelWait(owners_[1], &wakeups_));
  EXPECT_THAT(Tokens(), ElementsAre(2));
  EXPECT_FALSE(owners_[1].waiting());
  EXPECT_EQ(owners_[1].held(), 0u);
  EXPECT_FALSE(Holds(1, kRow, kS));
  EXPECT_TRUE(Holds(2, kRow, kS));
}

TEST_P(LockTableTest, CancelWait_ConversionKeepsWhatItHad) {
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(2, kRow, kS), kWaiting);
  EXPECT_TRUE(table_.CancelWait(owners_[1], &wakeups_));
  EXPECT_THAT(Tokens(), ElementsAre(2));
  EXPECT_TRUE(Holds(1, kRow, kS));
  EXPECT_FALSE(Holds(1, kRow, kX));
  EXPECT_EQ(owners_[1].held(), 1u);
}

TEST_P(LockTableTest, CancelWait_TooLate) {
  Acquire(0, kRow, kX);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  Release(0);
  EXPECT_FALSE(table_.CancelWait(owners_[1], &wakeups_));
  EXPECT_TRUE(Holds(1, kRow, kX));
  EXPECT_FALSE(table_.CancelWait(owners_[2], &wakeups_));  // never waited
}

TEST_P(LockTableTest, ReleaseAll_WhileWaiting) {
  Acquire(0, kRow, kS);
  Acquire(1, kOtherRow, kX);
  EXPECT_EQ(Acquire(1, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(2, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(3, kOtherRow, kS), kWaiting);
  EXPECT_THAT(Release(1), ElementsAre(2, 3));
  EXPECT_FALSE(owners_[1].waiting());
  EXPECT_EQ(owners_[1].held(), 0u);
  EXPECT_THAT(Release(1), IsEmpty());
}

TEST_P(LockTableTest, AcquireKey_TakesTheIntentionFirst) {
  EXPECT_EQ(AcquireKey(0, kRow, kS), kGranted);
  EXPECT_TRUE(Holds(0, kSite, kIS));
  EXPECT_FALSE(Holds(0, kSite, kIX));
  EXPECT_TRUE(Holds(0, kRow, kS));
  EXPECT_EQ(AcquireKey(0, kOtherRow, kX), kGranted);
  EXPECT_TRUE(Holds(0, kSite, kIX));
  EXPECT_TRUE(Holds(0, kOtherRow, kX));
  EXPECT_EQ(AcquireKey(1, {1, 3, kSupremumGap}, kIX), kGranted);
  EXPECT_TRUE(Holds(1, {1, 3, 0}, kIX));
  EXPECT_TRUE(Holds(1, {1, 3, kSupremumGap}, kIX));
  EXPECT_EQ(owners_[0].held(), 3u);
}

TEST_P(LockTableTest, AcquireKey_NothingWhereTheSiteIsCovered) {
  const struct {
    LockMode site, key;
    bool covered;
  } cases[] = {{kIS, kS, false}, {kIX, kX, false}, {kS, kS, true},  {kSIX, kS, true},  {kSIX, kX, false},
               {kX, kS, true},   {kX, kX, true},   {kX, kIX, true}, {kSIX, kIX, false}};
  for (const auto& c : cases) {
    ASSERT_EQ(Acquire(0, kSite, c.site), kGranted);
    ASSERT_EQ(AcquireKey(0, kRow, c.key), kGranted);
    EXPECT_EQ(owners_[0].held(), c.covered ? 1u : 2u);
    EXPECT_NE(Holds(0, kRow, c.key), c.covered);
    Release(0);
  }
}

TEST_P(LockTableTest, AcquireKey_GoesOnAfterEachWait) {
  Acquire(0, kSite, kS);
  EXPECT_EQ(AcquireKey(2, {1, 4, 77}, kX), kGranted);
  EXPECT_EQ(AcquireKey(1, kRow, kX), kWaiting);  // for the site
  EXPECT_THAT(Blockers(1), ElementsAre(0));
  EXPECT_EQ(AcquireKey(3, kRow, kS), kGranted);
  EXPECT_THAT(Release(0), ElementsAre(1));
  EXPECT_EQ(AcquireKey(1, kRow, kX), kWaiting);  // for the row
  EXPECT_THAT(Blockers(1), ElementsAre(3));
  EXPECT_THAT(Release(3), ElementsAre(1));
  EXPECT_EQ(AcquireKey(1, kRow, kX), kGranted);
  EXPECT_EQ(owners_[1].held(), 2u);
}

// A scan has the gap; inserts of it wait, but not for one another.
TEST_P(LockTableTest, AcquireKey_GapsExcludeScansAndInserts) {
  const uint64_t key = 5;
  const LockName gap{1, 2, GapHash(&key, sizeof(key))};
  EXPECT_EQ(AcquireKey(0, gap, kIX), kGranted);
  EXPECT_EQ(AcquireKey(1, gap, kIX), kGranted);
  EXPECT_EQ(AcquireKey(2, gap, kS), kWaiting);
  EXPECT_EQ(AcquireKey(3, {1, 2, KeyHash(&key, sizeof(key))}, kX), kGranted);  // the record is not the gap
  Release(0);
  EXPECT_THAT(Release(1), ElementsAre(2));
  EXPECT_EQ(AcquireKey(1, gap, kIX), kWaiting);
}

TEST_P(LockTableTest, TryAcquireKey_TakesWhatIsFree) {
  EXPECT_TRUE(table_.TryAcquireKey(owners_[0], kRow, kX));
  EXPECT_TRUE(table_.Holds(owners_[0], kSite, kIX));
  EXPECT_TRUE(table_.Holds(owners_[0], kRow, kX));
  EXPECT_FALSE(table_.TryAcquireKey(owners_[1], kRow, kS));
  EXPECT_EQ(table_.OwnersWaiting(), 0u);
  EXPECT_TRUE(table_.TryAcquireKey(owners_[1], kOtherRow, kS));
  EXPECT_EQ(Acquire(2, {1, 3, 0}, kX), kGranted);
  EXPECT_TRUE(table_.TryAcquireKey(owners_[2], {1, 3, 5}, kX)) << "covered";
  EXPECT_FALSE(table_.TryAcquireKey(owners_[1], {1, 3, 5}, kS)) << "the intention is not to be had";
  EXPECT_THAT(Release(0), IsEmpty());
}

// Who takes what it can get at once, at its end, waits for nobody. While it did wait for an instant, to
// cancel that, another worker's search could find a cycle through it and name a victim for nothing.
TEST_P(LockTableTest, TryAcquireKey_IsNeverPartOfACycle) {
  for (const bool waits : {true, false}) {
    EXPECT_EQ(AcquireKey(0, kRow, kX), kGranted);
    EXPECT_EQ(AcquireKey(1, kGap, kS), kGranted);
    EXPECT_EQ(AcquireKey(2, kOtherRow, kX), kGranted);
    EXPECT_EQ(AcquireKey(1, kOtherRow, kS), kWaiting);
    if (waits) {
      EXPECT_EQ(AcquireKey(0, kGap, kIX), kWaiting);
    } else {
      EXPECT_FALSE(table_.TryAcquireKey(owners_[0], kGap, kIX));
    }
    EXPECT_EQ(AcquireKey(2, kRow, kS), waits ? kDeadlock : kWaiting);
    for (size_t owner = 0; owner < 3; ++owner) Release(owner);
  }
}

TEST_P(LockTableTest, Escalation_OfReadsToS) {
  for (uint64_t key = 1; key <= kEscalateAfter + 10; ++key) {
    ASSERT_EQ(AcquireKey(0, {1, 2, key}, kS), kGranted);
    ASSERT_EQ(AcquireKey(0, {1, 2, key}, kS), kGranted);  // counts once
  }
  EXPECT_TRUE(Holds(0, kSite, kS));
  EXPECT_EQ(owners_[0].held(), 1u + kEscalateAfter);
  EXPECT_EQ(table_.Escalations(), 1u);
  EXPECT_EQ(AcquireKey(1, {1, 2, 99}, kS), kGranted);
  EXPECT_EQ(AcquireKey(2, {1, 2, 99}, kX), kWaiting);
}

TEST_P(LockTableTest, Escalation_WithAWriteToX) {
  ASSERT_EQ(AcquireKey(0, {1, 2, 1}, kX), kGranted);
  for (uint64_t key = 2; key <= kEscalateAfter; ++key) ASSERT_EQ(AcquireKey(0, {1, 2, key}, kS), kGranted);
  EXPECT_TRUE(Holds(0, kSite, kX));
  EXPECT_EQ(table_.Escalations(), 1u);
  EXPECT_EQ(AcquireKey(0, kRow, kX), kGranted);
  EXPECT_EQ(owners_[0].held(), 1u + kEscalateAfter);
  EXPECT_EQ(AcquireKey(1, {1, 2, 99}, kS), kWaiting);
  EXPECT_THAT(Release(0), ElementsAre(1));
}

// A row that was read is written: it is the same lock, but no longer only a read.
TEST_P(LockTableTest, Escalation_CountsAConversionAsAWrite) {
  ASSERT_EQ(AcquireKey(0, {1, 2, 1}, kS), kGranted);
  ASSERT_EQ(AcquireKey(0, {1, 2, 1}, kX), kGranted);
  for (uint64_t key = 2; key <= kEscalateAfter; ++key) ASSERT_EQ(AcquireKey(0, {1, 2, key}, kS), kGranted);
  EXPECT_TRUE(Holds(0, kSite, kX));
}

TEST_P(LockTableTest, Escalation_AfterReadsBecameSWritesBecomeX) {
  uint64_t key = 1;
  for (; key <= kEscalateAfter; ++key) ASSERT_EQ(AcquireKey(0, {1, 2, key}, kS), kGranted);
  ASSERT_TRUE(Holds(0, kSite, kS));
  ASSERT_EQ(AcquireKey(0, {1, 2, key++}, kX), kGranted);
  EXPECT_TRUE(Holds(0, kSite, kSIX));
  EXPECT_FALSE(Holds(0, kSite, kX));
  for (uint32_t more = 1; more < kEscalateAfter; ++more) AcquireKey(0, {1, 2, key++}, kX);
  EXPECT_TRUE(Holds(0, kSite, kX));
  EXPECT_EQ(table_.Escalations(), 2u);
}

TEST_P(LockTableTest, Escalation_RefusedGoesOnAndTriesAgain) {
  ASSERT_EQ(AcquireKey(1, {1, 2, 1000}, kX), kGranted);
  for (uint64_t key = 1; key < 2 * kEscalateAfter; ++key) {
    ASSERT_EQ(AcquireKey(0, {1, 2, key}, kX), kGranted);
    EXPECT_FALSE(owners_[0].waiting());
  }
  EXPECT_EQ(owners_[0].held(), 2u * kEscalateAfter);
  EXPECT_FALSE(Holds(0, kSite, kX));
  EXPECT_EQ(table_.Escalations(), 0u);
  Release(1);
  ASSERT_EQ(AcquireKey(0, {1, 2, 998}, kX), kGranted);
  EXPECT_TRUE(Holds(0, kSite, kX));
  EXPECT_EQ(table_.Escalations(), 1u);
}

TEST_P(LockTableTest, Escalation_CountsEachSiteByItself) {
  for (uint64_t key = 1; key < kEscalateAfter; ++key) {
    for (uint32_t site = 0; site < 3; ++site) ASSERT_EQ(AcquireKey(0, {1, site, key}, kS), kGranted);
  }
  EXPECT_EQ(table_.Escalations(), 0u);
  ASSERT_EQ(AcquireKey(0, {1, 1, 99}, kS), kGranted);
  EXPECT_TRUE(Holds(0, {1, 1, 0}, kS));
  EXPECT_FALSE(Holds(0, {1, 0, 0}, kS));
  Release(0);
  ASSERT_EQ(AcquireKey(0, {1, 1, 99}, kS), kGranted);  // counted anew
  EXPECT_EQ(owners_[0].held(), 2u);
}

TEST_P(LockTableTest, Blockers_HoldersOrElseTheFirstAhead) {
  EXPECT_THAT(Blockers(0), IsEmpty());
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  EXPECT_THAT(Blockers(0), IsEmpty());
  EXPECT_EQ(Acquire(2, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(3, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(4, kRow, kX), kWaiting);
  EXPECT_THAT(Blockers(2), UnorderedElementsAre(0, 1));
  EXPECT_THAT(Blockers(3), ElementsAre(2));
  EXPECT_THAT(Blockers(4), UnorderedElementsAre(0, 1));  // 2 and 3, ahead of it, wait for these as well
  EXPECT_EQ(Acquire(0, kRow, kX), kWaiting);             // converts
  EXPECT_THAT(Blockers(0), ElementsAre(1));
  EXPECT_THAT(Blockers(3), ElementsAre(0));  // ahead of 2 now
  EXPECT_THAT(Blockers(4), UnorderedElementsAre(0, 1));
  Release(1);
  EXPECT_THAT(Blockers(0), IsEmpty());
  EXPECT_THAT(Blockers(2), ElementsAre(0));
}

TEST_P(LockTableTest, BlockedBy_SaysWhatTheHolderDoesWhenTheWaitBegins) {
  for (size_t i = 0; i < 4; ++i) owners_[i].doing = static_cast<uint8_t>(10 + i);
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  EXPECT_EQ(Acquire(0, kRow, kX), kWaiting);  // converts: its own hold is not in its way
  EXPECT_EQ(owners_[0].blocked_by().name, kRow);
  EXPECT_EQ(owners_[0].blocked_by().doing, 11);
  owners_[1].doing = 99;  // too late
  EXPECT_EQ(owners_[0].blocked_by().doing, 11);
  EXPECT_EQ(Acquire(2, kRow, kS), kWaiting);  // no hold is in its way, but who converts
  EXPECT_EQ(owners_[2].blocked_by().doing, 10);
}

TEST_P(LockTableTest, Blockers_All) {
  const auto all = [this](size_t owner) { return Blockers(owner, BlockerSet::kAll); };
  Acquire(0, kRow, kS);
  Acquire(1, kRow, kS);
  EXPECT_THAT(all(0), IsEmpty());
  EXPECT_EQ(Acquire(2, kRow, kX), kWaiting);
  EXPECT_EQ(Acquire(3, kRow, kS), kWaiting);
  EXPECT_EQ(Acquire(4, kRow, kX), kWaiting);
  EXPECT_THAT(all(2), UnorderedElementsAre(0, 1));
  EXPECT_THAT(all(3), ElementsAre(2));
  EXPECT_THAT(all(4), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_EQ(Acquire(0, kRow, kX), kWaiting);  // converts: waits for nobody in the queue, and all of it for it
  EXPECT_THAT(all(0), ElementsAre(1));
  EXPECT_THAT(all(3), UnorderedElementsAre(0, 2));
  EXPECT_THAT(all(4), UnorderedElementsAre(0, 0, 1, 2, 3));  // for what it holds and for what it will
}

}  // namespace
}  // namespace islands::locks
