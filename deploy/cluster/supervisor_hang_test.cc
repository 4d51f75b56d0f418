#include "deploy/cluster/supervisor_hang.h"

#include <gtest/gtest.h>

namespace islands::deploy {
namespace {

constexpr uint32_t kWorkers[] = {1, 2};

class HangWatchTest : public testing::Test {
 protected:
  void LookAfter(int64_t ms, std::initializer_list<uint32_t> movers_of_island_1) {
    now_ms_ += ms;
    board_.Beat(0, 0);
    for (const uint32_t worker : movers_of_island_1) board_.Beat(1, worker);
    watch_.Look(now_ms_);
  }
  runtime::PulseBoard board_{kWorkers};
  HangWatch watch_{board_, kWorkers};
  int64_t now_ms_ = 1'000'000;
};

TEST_F(HangWatchTest, HungMs_CountsWhileOneWorkerStandsStill) {
  LookAfter(250, {0, 1});
  for (int i = 0; i < 3; ++i) LookAfter(250, {0});
  EXPECT_EQ(watch_.HungMs(1), 0) << "no news yet";
  LookAfter(250, {0});
  EXPECT_EQ(watch_.HungMs(1), 1000);
  LookAfter(250, {0});
  EXPECT_EQ(watch_.HungMs(1), 1250);
  EXPECT_EQ(watch_.HungMs(0), 0);
  LookAfter(250, {0, 1});
  EXPECT_EQ(watch_.HungMs(1), 0);
}

TEST_F(HangWatchTest, Look_TooEarlyIsNone) {
  LookAfter(250, {0, 1});
  for (int i = 0; i < 100; ++i) LookAfter(20, {});
  EXPECT_LE(watch_.HungMs(1), 2000);
  EXPECT_GT(watch_.HungMs(1), 1000);
}

TEST_F(HangWatchTest, Look_AfterAPauseOfTheWholeMachineAccusesNobody) {
  LookAfter(250, {0, 1});
  LookAfter(3'600'000, {});
  EXPECT_EQ(watch_.HungMs(1), 0);
  LookAfter(250, {0, 1});
  EXPECT_EQ(watch_.HungMs(1), 0);
}

TEST_F(HangWatchTest, HungMs_NotWhileAnIslandLoadsNorOfALifeThatIsOver) {
  LookAfter(250, {0, 1});
  board_.SetResting(1, 0, true);
  for (int i = 0; i < 20; ++i) LookAfter(250, {1});
  EXPECT_EQ(watch_.HungMs(1), 0);
  board_.SetResting(1, 0, false);
  for (int i = 0; i < 20; ++i) LookAfter(250, {1});
  EXPECT_EQ(watch_.HungMs(1), 5000);
  watch_.Forget(1);
  EXPECT_EQ(watch_.HungMs(1), 0);
}

}  // namespace
}  // namespace islands::deploy
