// The lock table against a model that is too simple to be wrong, step by step.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "instance/locks/lock_table.h"

namespace islands::locks {
namespace {

using enum LockMode;
using enum LockResult;

constexpr LockMode kAllModes[] = {kIS, kIX, kS, kSIX, kX};
constexpr size_t kOwners = 8;

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

  // Of a waiting owner.
  std::set<uint64_t> Blockers(size_t owner) const {
    for (const Queue& queue : queues_) {
      for (size_t i = 0; i < queue.waiting.size(); ++i) {
        if (queue.waiting[i].owner == owner) return Blockers(queue, i);
      }
    }
    return {};
  }

  // Of those, the ones that deadlock probes need: holders, or else who is first of those ahead.
  std::set<uint64_t> ProbedBlockers(size_t owner) const {
    for (const Queue& queue : queues_) {
      for (const Request& request : queue.waiting) {
        if (request.owner != owner) continue;
        std::set<uint64_t> found = Holders(queue, request);
        if (!found.empty() || request.converting) return found;
        for (const Request& ahead : queue.waiting) {
          if (&ahead == &request) break;
          if (!Compatible(ahead.mode, request.mode)) return {ahead.owner};
        }
      }
    }
    return {};
  }

  std::optional<LockMode> Held(size_t owner, uint64_t name) {
    const Request* const own = Find(queues_[name].granted, owner);
    return own != nullptr ? std::optional(own->mode) : std::nullopt;
  }

  static constexpr uint64_t kNames = 4;

 private:
  // Of locks that are in the request's way.
  static std::set<uint64_t> Holders(const Queue& queue, const Request& request) {
    std::set<uint64_t> owners;
    for (const Request& holder : queue.granted) {
      if (holder.owner != request.owner && !Compatible(holder.mode, request.mode))
        owners.insert(holder.owner);
    }
    return owners;
  }

  static std::set<uint64_t> Blockers(const Queue& queue, size_t place) {
    const Request& request = queue.waiting[place];
    std::set<uint64_t> owners = Holders(queue, request);
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

struct Setup {
  const char* name;
  bool latched;
  uint32_t workers;
};

// With several workers there are inherited locks, which must be impossible to notice. (No IS then: an
// inherited IX stands in for it.)
class LockTableModelTest : public testing::TestWithParam<Setup> {
 protected:
  LockTableModelTest() : table_({.buckets = 16, .latched = GetParam().latched}) {
    for (size_t i = 0; i < kOwners; ++i) {
      owners_[i].worker = static_cast<uint32_t>(i % GetParam().workers);
      owners_[i].wake_token = i;
      owners_[i].transaction.sequence = i;
    }
  }

  static LockName NameOf(uint64_t name) {  // 0 and 1 are whole sites
    return {1, static_cast<uint32_t>(name & 1), name >> 1};
  }

  void Step() {
    const size_t owner = random_() % kOwners;
    SCOPED_TRACE(testing::Message() << "owner " << owner);
    std::set<uint64_t> woken;
    wakeups_.clear();
    const bool waiting = model_.Waits(owner);
    ASSERT_EQ(owners_[owner].waiting(), waiting);
    const uint64_t dice = random_() % 10;
    if (waiting) {
      ASSERT_NO_FATAL_FAILURE(CompareBlockers(owner));
      if (dice > 2) return;
      ASSERT_TRUE(table_.CancelWait(owners_[owner], &wakeups_));
      model_.Cancel(owner, &woken);
    } else if (dice < 7) {
      ASSERT_NO_FATAL_FAILURE(Acquire(owner));
    } else if (dice < 9) {
      table_.ReleaseAll(owners_[owner], &wakeups_);
      model_.Release(owner, &woken);
      inherited_ += table_.LocksInherited();
    }
    ASSERT_NO_FATAL_FAILURE(Compare(owner, woken));
  }

  void Acquire(size_t owner) {
    const uint64_t name = random_() % Model::kNames;
    const size_t weakest = GetParam().workers > 1 ? 1 : 0;
    const size_t modes = random_() % 100 < 60 ? 3 : 5;
    const LockMode mode = kAllModes[weakest + random_() % (modes - weakest)];
    const LockResult expected = model_.Acquire(owner, name, mode);
    ASSERT_EQ(table_.Acquire(owners_[owner], NameOf(name), mode), expected);
    waits_ += expected == kWaiting;
    deadlocks_ += expected == kDeadlock;
  }

  void Compare(size_t owner, const std::set<uint64_t>& woken) {
    std::multiset<uint64_t> tokens;
    for (const Wakeup& wakeup : wakeups_) tokens.insert(wakeup.wake_token);
    ASSERT_EQ(tokens, std::multiset<uint64_t>(woken.begin(), woken.end()));
    for (uint64_t name = 0; name < Model::kNames; ++name) {
      const std::optional<LockMode> held = model_.Held(owner, name);
      for (const LockMode mode : kAllModes) {
        ASSERT_EQ(table_.Holds(owners_[owner], NameOf(name), mode), held && Supremum(*held, mode) == *held);
      }
    }
  }

  void CompareBlockers(size_t owner) {
    ASSERT_EQ(AskTable(owner, BlockerSet::kHolders), model_.ProbedBlockers(owner));
    ASSERT_EQ(AskTable(owner, BlockerSet::kAll), model_.Blockers(owner));
  }

  std::set<uint64_t> AskTable(size_t owner, BlockerSet which) {
    std::vector<coordinator::TransactionId> blockers;
    table_.Blockers(owners_[owner], which, &blockers);
    std::set<uint64_t> sequences;
    for (const coordinator::TransactionId& id : blockers) sequences.insert(id.sequence);
    return sequences;
  }

  LockTable table_;
  LockOwner owners_[kOwners];
  std::vector<Wakeup> wakeups_;
  Model model_;
  std::mt19937_64 random_{5};
  int waits_ = 0, deadlocks_ = 0;
  uint64_t inherited_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Table, LockTableModelTest,
                         testing::Values(Setup{"Unlatched", false, 1}, Setup{"Latched", true, 1},
                                         Setup{"Inheriting", true, 3}),
                         [](const auto& param) { return param.param.name; });

TEST_P(LockTableModelTest, Property_SameAsTheModel) {
  for (int step = 0; step < 200000; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    ASSERT_NO_FATAL_FAILURE(Step());
  }
  EXPECT_GT(waits_, 10000);
  EXPECT_GT(deadlocks_, 1000);
  EXPECT_EQ(inherited_ > 1000, GetParam().workers > 1);
  for (LockOwner& owner : owners_) table_.ReleaseAll(owner, &wakeups_);
  EXPECT_EQ(table_.LocksHeld(), 0u);
  EXPECT_EQ(table_.OwnersWaiting(), 0u);
}

}  // namespace
}  // namespace islands::locks
