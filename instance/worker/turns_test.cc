#include "instance/worker/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/task.h"

namespace islands::instance {
namespace {

class TurnsTest : public testing::Test {
 protected:
  runtime::Task<void> Sleeper(std::string name, int64_t until_ns) {
    Turns::Pause pause = turns_.PauseUntil(until_ns);
    co_await pause;
    seen_.push_back(name);
  }
  runtime::Task<void> Beginner(std::string name) {
    Turns::Yield yield = turns_.LetOthersBegin();
    co_await yield;
    turns_.NoteBegin();
    seen_.push_back(name);
  }
  runtime::Task<void> Breather(std::string name) {
    Turns::Breath breath = turns_.Breathe();
    co_await breath;
    seen_.push_back(name);
  }
  void Start(runtime::Task<void> task) {
    const runtime::ReadyQueue::Scope scope(turns_.queue());
    tasks_.push_back(std::move(task));
    tasks_.back().Start();
  }
  size_t Round() {
    const runtime::ReadyQueue::Scope scope(turns_.queue());
    turns_.BeginRound();
    turns_.WakeSleepers();
    return turns_.ResumeReady([this] { ++given_back_; });
  }

  runtime::ManualClock clock_;
  Turns turns_{clock_};
  std::vector<runtime::Task<void>> tasks_;
  std::vector<std::string> seen_;
  int given_back_ = 0;
};

TEST_F(TurnsTest, ResumeReady_WhoWaitedGoesBeforeWhoBegins) {
  Start(Beginner("begins"));
  Start(Breather("breathes"));
  EXPECT_EQ(turns_.ready(), 2u);
  EXPECT_EQ(Round(), 2u);
  EXPECT_THAT(seen_, testing::ElementsAre("breathes", "begins"));
  EXPECT_EQ(given_back_, 2);
  EXPECT_EQ(turns_.ready(), 0u);
}

TEST_F(TurnsTest, PauseUntil_EarliestFirstAndNoneTooEarly) {
  EXPECT_EQ(turns_.NextDeadlineNs(), std::numeric_limits<int64_t>::max());
  Start(Sleeper("late", 300));
  Start(Sleeper("early", 100));
  Start(Sleeper("middle", 200));
  EXPECT_EQ(turns_.NextDeadlineNs(), 100);
  EXPECT_EQ(Round(), 0u);
  clock_.AdvanceNs(200);
  EXPECT_EQ(Round(), 2u);
  EXPECT_THAT(seen_, testing::ElementsAre("early", "middle"));
  EXPECT_EQ(turns_.NextDeadlineNs(), 300);
}

TEST_F(TurnsTest, ResumeReady_OnlySoManyBeginInARound) {
  for (uint32_t i = 0; i < Turns::kBegunPerRound + 3; ++i) Start(Beginner("x"));
  EXPECT_EQ(Round(), Turns::kBegunPerRound);
  EXPECT_EQ(Round(), 3u);
}

// A round that has gone on for long lets one begin, so that nobody starves, and no more.
TEST_F(TurnsTest, ResumeReady_LittleBeginsInALongRound) {
  for (int i = 0; i < 3; ++i) Start(Beginner("slow"));
  const runtime::ReadyQueue::Scope scope(turns_.queue());
  turns_.BeginRound();
  clock_.AdvanceNs(2 * Turns::kLongestRoundNs);
  EXPECT_TRUE(turns_.LongSinceRoundBegan());
  EXPECT_EQ(turns_.ResumeReady([] {}), 1u);
}

TEST_F(TurnsTest, Resume_OfNobodyDoesNothing) {
  Waiter waiter;
  turns_.Resume(waiter);
  EXPECT_EQ(turns_.ready(), 0u);
}

}  // namespace
}  // namespace islands::instance
