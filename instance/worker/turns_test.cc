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
  runtime::Task<void> Slow(std::string name, int64_t ns) {
    Turns::Breath breath = turns_.Breathe();
    co_await breath;
    clock_.AdvanceNs(ns);
    seen_.push_back(name);
  }
  struct Rest {
    std::vector<std::coroutine_handle<>>* resting;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) { resting->push_back(self); }
    void await_resume() const noexcept {}
  };
  runtime::Task<void> RestingBeginner(std::vector<std::coroutine_handle<>>* resting) {
    Rest rest{resting};
    co_await rest;
    turns_.NoteBegin();
  }
  // As a slot does.
  runtime::Task<void> GreedyBeginner(int transactions) {
    Turns::Yield yield = turns_.LetOthersBegin();
    co_await yield;
    while (transactions-- > 0) {
      turns_.NoteBegin();
      seen_.push_back("begins");
      if (!turns_.MayBegin()) co_await yield;
    }
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
    may_begin_.push_back(turns_.MayBegin());
  }
  void Start(runtime::Task<void> task) {
    tasks_.push_back(std::move(task));
    tasks_.back().Start();
  }
  size_t Round() {
    turns_.BeginRound(alone_, hurries_);
    turns_.WakeSleepers();
    return turns_.ResumeReady([this] { ++given_back_; }, [this] { before_begin_ = seen_; });
  }

  bool alone_ = true;
  bool hurries_ = false;
  runtime::ManualClock clock_;
  Turns turns_{clock_};
  std::vector<runtime::Task<void>> tasks_;
  std::vector<std::string> seen_;
  std::vector<std::string> before_begin_;  // seen by then
  std::vector<bool> may_begin_;
  int given_back_ = 0;
};

TEST_F(TurnsTest, ResumeReady_WhoWaitedGoesBeforeWhoBegins) {
  Start(Beginner("begins"));
  Start(Breather("breathes"));
  EXPECT_EQ(turns_.ready(), 2u);
  EXPECT_EQ(Round(), 2u);
  EXPECT_THAT(seen_, testing::ElementsAre("breathes", "begins"));
  EXPECT_THAT(before_begin_, testing::ElementsAre("breathes"));
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
  for (int i = 0; i < 3; ++i) Start(Beginner("begins"));
  Start(Slow("slow", Turns::kLongestRoundNs));
  EXPECT_EQ(Round(), 2u);
  EXPECT_THAT(seen_, testing::ElementsAre("slow", "begins"));
}

// What others have sent may be much: who is here has its time all the same.
TEST_F(TurnsTest, ResumeReady_HoweverLongItTookToReadMessages) {
  for (int i = 0; i < 3; ++i) Start(Beginner("begins"));
  turns_.BeginRound(alone_, hurries_);
  clock_.AdvanceNs(2 * Turns::kLongestTurnNs);
  EXPECT_TRUE(turns_.HasLongGoneOn());
  EXPECT_EQ(turns_.ResumeReady([] {}, [] {}), 3u);
}

// One that has begun at the end of a long round has gone on for no time.
TEST_F(TurnsTest, HasLongGoneOn_CountsFromWhenItBegan) {
  turns_.BeginRound(alone_, hurries_);
  clock_.AdvanceNs(Turns::kLongestTurnNs);
  turns_.NoteBegin();
  clock_.AdvanceNs(Turns::kLongestTurnNs);
  EXPECT_FALSE(turns_.HasLongGoneOn());
  clock_.AdvanceNs(1);
  EXPECT_TRUE(turns_.HasLongGoneOn());
}

TEST_F(TurnsTest, ResumeReady_CallersOfWhoHasWaitedGoOnAtOnce) {
  for (const bool alone : {true, false}) {
    alone_ = alone;
    seen_.clear();
    Start(Caller("called", "caller"));
    Start(Beginner("begins"));
    EXPECT_EQ(Round(), 2u);
    EXPECT_THAT(seen_, testing::ElementsAre("called", "caller", "caller of caller", "begins"));
  }
}

// The slots, too, of those who go on: a transaction that begins would be in the way of others who wait.
TEST_F(TurnsTest, MayBegin_NotWhileThoseGoOnWhoHaveWaited) {
  for (const bool alone : {true, false}) {
    alone_ = alone;
    may_begin_.clear();
    Start(BreathingBeginner("begins", "goes on"));
    Start(Beginner("begins"));
    Round();
    Round();
    EXPECT_THAT(may_begin_, testing::ElementsAre(false));
  }
}

// A slot whose transaction has given somebody a lock does not go on to the next in a row.
TEST_F(TurnsTest, MayBegin_OnlyWhileNobodyIsReady) {
  turns_.BeginRound(alone_, hurries_);
  EXPECT_TRUE(turns_.MayBegin());
  Waiter waiter;
  Start(WaitFor(waiter));
  turns_.Resume(waiter);
  EXPECT_FALSE(turns_.MayBegin());
  turns_.BeginRound(/*alone=*/false, hurries_);
  EXPECT_TRUE(turns_.MayBegin());
}

// With other islands, so that they do not wait for long.
TEST_F(TurnsTest, MayBegin_WithOtherIslandsOnceForEachSlot) {
  alone_ = false;
  for (int i = 0; i < 2; ++i) Start(GreedyBeginner(3));
  EXPECT_EQ(Round(), 1u) << "the first has begun twice, for both";
  EXPECT_EQ(seen_.size(), 2u);
  alone_ = true;
  Round();
  EXPECT_EQ(seen_.size(), 6u);
}

TEST_F(TurnsTest, ResumeReady_HurriesWhereLocksAreWaitedForBesideOtherIslands) {
  for (const bool alone : {true, false}) {
    for (const bool hurries : {true, false}) {
      alone_ = alone;
      hurries_ = hurries;
      seen_.clear();
      Start(Slow("slow", 2 * Turns::kHurriedRoundNs));
      Start(Breather("goes on"));
      Start(Beginner("begins"));
      Round();
      if (hurries && !alone) {
        EXPECT_THAT(seen_, testing::ElementsAre("slow", "begins"));
        Round();
        EXPECT_THAT(seen_, testing::ElementsAre("slow", "begins", "goes on"));
      } else {
        EXPECT_THAT(seen_, testing::ElementsAre("slow", "goes on", "begins"));
      }
    }
  }
}

// However much there is to go on with beside other islands: a slot would starve, and with it who ends a run.
TEST_F(TurnsTest, ResumeReady_OneBeginsBesideThoseWhoTakeAllOfTheRound) {
  alone_ = false;
  for (const bool hurries : {true, false}) {
    hurries_ = hurries;
    seen_.clear();
    for (int i = 0; i < 3; ++i) Start(Slow("slow", 2 * Turns::kLongestRoundNs));
    Start(Beginner("begins"));
    Round();
    EXPECT_THAT(seen_, testing::ElementsAre("slow", "begins"));
    Round();
    Round();
  }
}

TEST_F(TurnsTest, QueueToBegin_OnlySoManyInARound) {
  std::vector<std::coroutine_handle<>> resting;
  for (uint32_t i = 0; i < Turns::kBegunPerRound + 3; ++i) Start(RestingBeginner(&resting));
  for (const std::coroutine_handle<> slot : resting) turns_.QueueToBegin(slot);
  EXPECT_EQ(Round(), Turns::kBegunPerRound);
  turns_.CheckInvariants();
  EXPECT_EQ(Round(), 3u);
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
