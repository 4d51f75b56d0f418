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
  runtime::Task<void> Inner(std::string called, std::string caller) {
    runtime::Task<void> task = Breather(std::move(called));
    co_await task;
    seen_.push_back(caller);
  }
  runtime::Task<void> Caller(std::string called, std::string caller) {
    runtime::Task<void> task = Inner(std::move(called), caller);
    co_await task;
    seen_.push_back("caller of " + caller);
  }
  runtime::Task<void> TwiceBreathing(std::string first, std::string second) {
    Turns::Breath breath = turns_.Breathe();
    co_await breath;
    seen_.push_back(first);
    Turns::Breath again = turns_.Breathe();
    co_await again;
    seen_.push_back(second);
  }
  runtime::Task<void> Slow(std::string name) {
    Turns::Breath breath = turns_.Breathe();
    co_await breath;
    clock_.AdvanceNs(2 * Turns::kLongestRoundNs);
    seen_.push_back(name);
  }
  runtime::Task<void> SlowCaller(std::string name, std::string caller) {
    runtime::Task<void> task = Slow(std::move(name));
    co_await task;
    seen_.push_back(caller);
  }
  runtime::Task<void> WaitFor(Waiter& waiter) {
    Waiter::Suspension suspension = waiter.Suspend();
    co_await suspension;
  }
  runtime::Task<void> BreathingBeginner(std::string name, std::string then) {
    Turns::Yield yield = turns_.LetOthersBegin();
    co_await yield;
    turns_.NoteBegin();
    seen_.push_back(name);
    Turns::Breath breath = turns_.Breathe();
    co_await breath;
    seen_.push_back(then);
  }
  void Start(runtime::Task<void> task) {
    const runtime::ReadyQueue::Scope scope(turns_.queue());
    tasks_.push_back(std::move(task));
    tasks_.back().Start();
  }
  size_t Round() {
    const runtime::ReadyQueue::Scope scope(turns_.queue());
    turns_.BeginRound(alone_);
    turns_.WakeSleepers();
    return turns_.ResumeReady([this] { ++given_back_; });
  }

  bool alone_ = true;
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
  turns_.BeginRound(alone_);
  clock_.AdvanceNs(2 * Turns::kLongestRoundNs);
  EXPECT_TRUE(turns_.HasLongGoneOn());
  EXPECT_EQ(turns_.ResumeReady([] {}), 1u);
}

// One that has begun at the end of a long round has gone on for no time.
TEST_F(TurnsTest, HasLongGoneOn_CountsFromWhenItBegan) {
  turns_.BeginRound(alone_);
  clock_.AdvanceNs(Turns::kLongestRoundNs);
  turns_.NoteBegin();
  clock_.AdvanceNs(Turns::kLongestRoundNs);
  EXPECT_FALSE(turns_.HasLongGoneOn());
  clock_.AdvanceNs(1);
  EXPECT_TRUE(turns_.HasLongGoneOn());
}

// Nor does it take a round for each of its callers.
TEST_F(TurnsTest, ResumeReady_CallersOfWhoHasWaitedGoOnInTheSameRound) {
  Start(Caller("called", "caller"));
  Start(Beginner("begins"));
  EXPECT_EQ(Round(), 4u);
  EXPECT_THAT(seen_, testing::ElementsAre("called", "caller", "caller of caller", "begins"));
}

// Not even when the round has become too long for that: it has locks still.
TEST_F(TurnsTest, ResumeReady_NobodyBeginsBesideCallersThatAreLeft) {
  Start(SlowCaller("slow", "caller"));
  Start(Beginner("begins"));
  EXPECT_EQ(Round(), 1u);
  EXPECT_THAT(seen_, testing::ElementsAre("slow"));
  EXPECT_EQ(Round(), 2u);
  EXPECT_THAT(seen_, testing::ElementsAre("slow", "caller", "begins"));
}

// A slot whose transaction has given somebody a lock does not go on to the next in a row.
TEST_F(TurnsTest, MayBegin_OnlyWhileNobodyIsReady) {
  turns_.BeginRound(alone_);
  EXPECT_TRUE(turns_.MayBegin());
  Waiter waiter;
  Start(WaitFor(waiter));
  turns_.Resume(waiter);
  EXPECT_FALSE(turns_.MayBegin());
  turns_.BeginRound(/*alone=*/false);
  EXPECT_TRUE(turns_.MayBegin());
}

// With others on the way there is a round for each step, and whoever has begun late has no time of its own.
TEST_F(TurnsTest, ResumeReady_WithOtherIslandsOneStepARound) {
  alone_ = false;
  Start(Caller("called", "caller"));
  Start(Beginner("begins"));
  EXPECT_EQ(Round(), 2u);
  EXPECT_THAT(seen_, testing::ElementsAre("called", "begins"));
  EXPECT_EQ(Round(), 1u);
  EXPECT_EQ(Round(), 1u);
  EXPECT_THAT(seen_, testing::ElementsAre("called", "begins", "caller", "caller of caller"));
  turns_.BeginRound(alone_);
  clock_.AdvanceNs(Turns::kLongestRoundNs + 1);
  turns_.NoteBegin();
  EXPECT_TRUE(turns_.HasLongGoneOn());
}

TEST_F(TurnsTest, Breathe_LetsTheLoopGoRound) {
  Start(TwiceBreathing("first", "second"));
  EXPECT_EQ(Round(), 1u);
  EXPECT_THAT(seen_, testing::ElementsAre("first"));
  EXPECT_EQ(Round(), 1u);
  EXPECT_THAT(seen_, testing::ElementsAre("first", "second"));
}

// Whoever breathes has locks.
TEST_F(TurnsTest, Breathe_NobodyBeginsBeforeItGoesOn) {
  Start(BreathingBeginner("breathes", "goes on"));
  for (int i = 0; i < 3; ++i) Start(Beginner("begins"));
  EXPECT_EQ(Round(), 1u);
  EXPECT_THAT(seen_, testing::ElementsAre("breathes"));
  EXPECT_EQ(Round(), 4u);
  EXPECT_THAT(seen_, testing::ElementsAre("breathes", "goes on", "begins", "begins", "begins"));
}

TEST_F(TurnsTest, Resume_OfNobodyDoesNothing) {
  Waiter waiter;
  turns_.Resume(waiter);
  EXPECT_EQ(turns_.ready(), 0u);
}

}  // namespace
}  // namespace islands::instance
