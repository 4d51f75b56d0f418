#include "instance/simulation/interleaver.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "instance/locks/lock_latch.h"
#include "instance/storage/pages/buffer_pool.h"
#include "runtime/latch_site.h"

namespace islands::simulation {
namespace {

class Round final : public runtime::Runnable {
 public:
  explicit Round(std::function<void()> round) : round_(std::move(round)) {}
  bool RunOnce() override { return round_(), true; }
  void Sleep(int64_t) override {}
  void Wake() override {}
  int64_t NextDeadlineNs() const override { return 0; }

 private:
  const std::function<void()> round_;
};

// Two workers add 1 a hundred times each, with a scheduling point between the look and the change.
int Count(uint64_t seed, uint32_t percent, locks::Latch* latch, std::string* order = nullptr) {
  int counter = 0;
  const auto add = [&](char name) {
    for (int i = 0; i < 100; ++i) {
      if (latch != nullptr) latch->Lock({"test"});
      const int seen = counter;
      runtime::SchedulingPoint();
      counter = seen + 1;
      if (order != nullptr) *order += name;
      if (latch != nullptr) latch->Unlock();
    }
  };
  Round a([&] { add('a'); }), b([&] { add('b'); });
  Interleaver interleaver(seed, percent);
  runtime::Runnable* const workers[] = {&a, &b};
  EXPECT_EQ(interleaver.Run(workers), (std::vector<bool>{true, true}));
  return counter;
}

TEST(Interleaver, Rounds_AreCutWhereALatchWouldBe) {
  int lost = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Count(seed, 0, nullptr), 200) << "whole rounds";
    lost += Count(seed, 20, nullptr) < 200 ? 1 : 0;
    locks::Latch latch;
    EXPECT_EQ(Count(seed, 20, &latch), 200) << "who waits for a latch gives way";
  }
  EXPECT_EQ(lost, 20);
}

TEST(Interleaver, SameSeed_SameOrder) {
  std::string first, again, other;
  Count(1, 20, nullptr, &first);
  Count(1, 20, nullptr, &again);
  Count(2, 20, nullptr, &other);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

// Both workers are in the middle of such scopes at the same time.
TEST(Interleaver, ThreadLocalScopes_StayWithTheirWorker) {
  int wrong = 0;
  const auto work = [&](int number) {
    for (int i = 0; i < 100; ++i) {
      if (number == 1) {
        const storage::UndoScope undo;
        runtime::SchedulingPoint();
      } else {
        runtime::SchedulingPoint();
        const int scopes = storage::UndoScope::Swap(0);
        storage::UndoScope::Swap(scopes);
        wrong += scopes != 0 ? 1 : 0;
      }
    }
  };
  Round a([&] { work(0); }), b([&] { work(1); });
  Interleaver interleaver(1, 50);
  runtime::Runnable* const workers[] = {&a, &b};
  interleaver.Run(workers);
  EXPECT_GT(interleaver.changes(), 20u);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace islands::simulation
