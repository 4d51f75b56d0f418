#include "instance/storage/lock_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>

namespace islands::storage {
namespace {

using enum LockMode;
using enum LockResult;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr LockMode kAllModes[] = {kIS, kIX, kS, kSIX, kX};
constexpr LockName kSite{1, 2, 0};
constexpr LockName kRow{1, 2, 77};
constexpr LockName kOtherRow{1, 2, 78};

// Owners that can be told apart by their wake token.
class LockTableTest : public testing::TestWithParam<bool> {
 protected:
  LockTableTest() : table_({.buckets = 16, .latched = GetParam()}) {
    for (size_t i = 0; i < std::size(owners_); ++i) owners_[i].wake_token = i;
  }
  ~LockTableTest() override {
    for (LockOwner& owner : owners_) table_.ReleaseAll(owner, &wakeups_);
    EXPECT_EQ(table_.LocksHeld(), 0u);
    EXPECT_EQ(table_.OwnersWaiting(), 0u);
  }

  LockResult Acquire(size_t owner, const LockName& name, LockMode mode) {
    return table_.Acquire(owners_[owner], name, mode);
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

// ---- against a model that is too simple to be wrong ----

class Model {
 public:
  struct Request {
    size_t owner;
    LockMode mode;
    bool converting = false;
  };
  struct Queue {
    std::vector<Request> granted;
    std::deque<Request> waiting;  // conversions first
  };

  static Request* Find(auto& requests, size_t owner) {
    for (Request& request : requests) {
      if (request.owner == owner) return &request;
    }
    return nullptr;
  }

  LockResult Acquire(size_t owner, uint64_t name, LockMode mode) {
    Queue& queue = queues_[name];
    const Request* const own = Find(queue.granted, owner);
    Request request{owner, own != nullptr ? Supremum(own->mode, mode) : mode, own != nullptr};
    if (own != nullptr && own->mode == request.mode) return kGranted;
    auto at = queue.waiting.end();
    if (request.converting) {
      at = std::find_if(queue.waiting.begin(), queue.waiting.end(),
                        [](const Request& r) { return !r.converting; });
    }
    const size_t place = static_cast<size_t>(at - queue.waiting.begin());
    queue.waiting.insert(at, request);
    if (Blockers(queue, place).empty()) {
      queue.waiting.erase(queue.waiting.begin() + static_cast<long>(place));
      Grant(queue, request);
      return kGranted;
    }
    if (!InCycle(owner)) return kWaiting;
    queue.waiting.erase(queue.waiting.begin() + static_cast<long>(place));
    return kDeadlock;
  }

  bool Waits(size_t owner) {
    return std::any_of(std::begin(queues_), std::end(queues_),
                       [&](Queue& queue) { return Find(queue.waiting, owner) != nullptr; });
  }

  void Cancel(size_t owner, std::set<uint64_t>* woken) {
    for (Queue& queue : queues_) {
      std::erase_if(queue.waiting, [&](const Request& r) { return r.owner == owner; });
      Wake(queue, woken);
    }
  }

  void Release(size_t owner, std::set<uint64_t>* woken) {
    for (Queue& queue : queues_) {
      std::erase_if(queue.waiting, [&](const Request& r) { return r.owner == owner; });
      std::erase_if(queue.granted, [&](const Request& r) { return r.owner == owner; });
    }
    for (Queue& queue : queues_) Wake(queue, woken);
  }

  std::optional<LockMode> Held(size_t owner, uint64_t name) {
    const Request* const own = Find(queues_[name].granted, owner);
    return own != nullptr ? std::optional(own->mode) : std::nullopt;
  }

  static constexpr uint64_t kNames = 4;

 private:
  static std::set<size_t> Blockers(const Queue& queue, size_t place) {
    const Request& request = queue.waiting[place];
    std::set<size_t> owners;
    for (const Request& holder : queue.granted) {
      if (holder.owner != request.owner && !Compatible(holder.mode, request.mode))
        owners.insert(holder.owner);
    }
    for (size_t i = 0; i < place && !request.converting; ++i) {
      if (!Compatible(queue.waiting[i].mode, request.mode)) owners.insert(queue.waiting[i].owner);
    }
    return owners;
  }

  static void Grant(Queue& queue, const Request& request) {
    if (Request* const own = Find(queue.granted, request.owner)) {
      own->mode = request.mode;
    } else {
      queue.granted.push_back({request.owner, request.mode});
    }
  }

  static void Wake(Queue& queue, std::set<uint64_t>* woken) {
    for (size_t i = 0; i < queue.waiting.size();) {
      if (!Blockers(queue, i).empty()) {
        ++i;
        continue;
      }
      const Request request = queue.waiting[i];
      queue.waiting.erase(queue.waiting.begin() + static_cast<long>(i));
      Grant(queue, request);
      woken->insert(request.owner);
      i = 0;
    }
  }

  bool InCycle(size_t start) {
    std::set<size_t> seen;
    const std::function<bool(size_t)> reaches = [&](size_t owner) {
      for (const Queue& queue : queues_) {
        for (size_t i = 0; i < queue.waiting.size(); ++i) {
          if (queue.waiting[i].owner != owner) continue;
          for (const size_t blocker : Blockers(queue, i)) {
            if (blocker == start) return true;
            if (seen.insert(blocker).second && reaches(blocker)) return true;
          }
        }
      }
      return false;
    };
    return reaches(start);
  }

  Queue queues_[kNames];
};

TEST_P(LockTableTest, Property_SameAsTheModel) {
  std::mt19937_64 random(5);
  int waits = 0, deadlocks = 0;
  Model model;
  for (int step = 0; step < 200000; ++step) {
    const size_t owner = random() % std::size(owners_);
    SCOPED_TRACE(testing::Message() << "step " << step << " owner " << owner);
    std::set<uint64_t> woken;
    wakeups_.clear();
    const bool waiting = model.Waits(owner);
    ASSERT_EQ(owners_[owner].waiting(), waiting);
    const uint64_t dice = random() % 10;
    if (waiting) {
      if (dice > 2) continue;
      ASSERT_TRUE(table_.CancelWait(owners_[owner], &wakeups_));
      model.Cancel(owner, &woken);
    } else if (dice < 7) {
      const uint64_t name = random() % Model::kNames;  // 0 and 1 are whole sites
      const LockName lock{1, static_cast<uint32_t>(name & 1), name >> 1};
      const LockMode mode = kAllModes[random() % 100 < 60 ? random() % 3 : random() % 5];
      const LockResult expected = model.Acquire(owner, name, mode);
      ASSERT_EQ(Acquire(owner, lock, mode), expected);
      waits += expected == kWaiting;
      deadlocks += expected == kDeadlock;
    } else if (dice < 9) {
      table_.ReleaseAll(owners_[owner], &wakeups_);
      model.Release(owner, &woken);
    }
    const std::vector<uint64_t> tokens = Tokens();
    ASSERT_EQ(std::set<uint64_t>(tokens.begin(), tokens.end()), woken);
    ASSERT_EQ(tokens.size(), woken.size());
    for (uint64_t name = 0; name < Model::kNames; ++name) {
      const std::optional<LockMode> held = model.Held(owner, name);
      const LockName lock{1, static_cast<uint32_t>(name & 1), name >> 1};
      for (const LockMode mode : kAllModes) {
        ASSERT_EQ(Holds(owner, lock, mode), held && Supremum(*held, mode) == *held);
      }
    }
  }
  EXPECT_GT(waits, 10000);
  EXPECT_GT(deadlocks, 1000);
}

}  // namespace
}  // namespace islands::storage
