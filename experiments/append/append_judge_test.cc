// Histories made by hand: what is fine passes, and every way in which it could go wrong is found.
#include "experiments/append/append_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::experiments {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr uint64_t kHere = MakeLife(0, 5'000'000);   // rows of island 0
constexpr uint64_t kThere = MakeLife(2, 6'000'000);  // of island 1
constexpr uint64_t kThird = MakeLife(4, 6'000'000);  // of island 2
constexpr uint64_t kX = 1, kY = 2, kFar = 100, kFarther = 200;

Element Id(uint64_t sequence, uint32_t island = 0, uint64_t epoch = 1) {
  return Element::Of({.island = island, .worker = 0, .boot_epoch = epoch, .sequence = sequence});
}

RecordedLook Saw(uint64_t key, uint64_t count, const Element& last, uint64_t life = kHere) {
  return {.key = key, .before = {.count = count, .life = life, .last = last}};
}
RecordedLook Appended(uint64_t key, uint64_t count, const Element& last, uint64_t life = kHere) {
  RecordedLook look = Saw(key, count, last, life);
  look.appends = true;
  return look;
}
const Element kNone;

// One file per island that has attempts.
std::vector<RecordedHistory> Files(const std::vector<RecordedAttempt>& attempts) {
  std::vector<RecordedHistory> files = {
      {.island = 0, .first_site = 0}, {.island = 1, .first_site = 2}, {.island = 2, .first_site = 4}};
  for (const RecordedAttempt& attempt : attempts) files[attempt.id.id().island].attempts.push_back(attempt);
  return files;
}

RecordedAttempt Make(const Element& id, RecordedAttempt::Fate fate, int64_t begun, int64_t ended,
                     std::vector<RecordedLook> looks) {
  return {.id = id, .fate = fate, .begun_ns = begun, .ended_ns = ended, .looks = std::move(looks)};
}

constexpr auto kCommitted = RecordedAttempt::kCommitted;
constexpr auto kAborted = RecordedAttempt::kAborted;
constexpr auto kUnknown = RecordedAttempt::kUnknown;
constexpr auto kOpen = RecordedAttempt::kOpen;

TEST(AppendJudge, OneAfterTheOther_IsFine) {
  const Judgement found = JudgeAppends(Files({
      Make(Id(1), kCommitted, 1, 5, {Appended(kX, 0, kNone), Appended(kFar, 0, kNone, kThere)}),
      Make(Id(1, 1), kCommitted, 6, 9, {Appended(kX, 1, Id(1)), Saw(kFar, 1, Id(1), kThere)}),
      Make(Id(2), kAborted, 6, 9, {Appended(kX, 2, Id(1, 1))}),
      Make(Id(3), kCommitted, 10, 12, {Saw(kX, 2, Id(1, 1))}),
  }));
  EXPECT_THAT(found.violations, IsEmpty());
  EXPECT_EQ(found.committed, 3u);
  EXPECT_EQ(found.distributed, 2u);
  EXPECT_EQ(found.aborted, 1u);
  EXPECT_EQ(found.deaths, 0u);
  EXPECT_EQ(found.looks, 6u);
}

TEST(AppendJudge, SameListMadeLongerTwice_IsALostUpdate) {
  const Judgement found = JudgeAppends(Files({
      Make(Id(1), kCommitted, 1, 5, {Appended(kX, 0, kNone)}),
      Make(Id(2), kCommitted, 1, 5, {Appended(kX, 0, kNone)}),
  }));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("P4, lost update")));
}

TEST(AppendJudge, ElementOfAnAbortedOne_IsADirtyRead) {
  const Judgement found = JudgeAppends(Files({
      Make(Id(1), kAborted, 1, 5, {Appended(kX, 0, kNone)}),
      Make(Id(2), kCommitted, 2, 6, {Saw(kX, 1, Id(1))}),
  }));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("G1a")));
}

TEST(AppendJudge, CrossedReads_AreAWriteSkew) {
  const Judgement found = JudgeAppends(Files({
      Make(Id(1), kCommitted, 1, 5, {Appended(kX, 0, kNone), Saw(kY, 0, kNone)}),
      Make(Id(2), kCommitted, 1, 5, {Saw(kX, 0, kNone), Appended(kY, 0, kNone)}),
  }));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("write skew")));
}

TEST(AppendJudge, OldStateAfterTheAnswer_IsARealTimeViolation) {
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kCommitted, 1, 5, {Appended(kX, 0, kNone)}),
      Make(Id(2), kCommitted, 6, 8, {Saw(kX, 0, kNone)}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, ElementsAre(HasSubstr("real-time violation")));
  attempts[1].begun_ns = 5;  // at the same time: nobody knows which was first
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
}

TEST(AppendJudge, TornRow_IsToldByName) {
  RecordedLook torn{.key = kX};
  torn.torn = true;
  const Judgement found = JudgeAppends(Files({Make(Id(1), kAborted, 1, 5, {torn})}));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("torn row: 0.0.1.1")));
}

TEST(AppendJudge, UnknownOutcome_IsDecidedByWhoSawIt) {
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kUnknown, 1, 5, {Appended(kX, 0, kNone), Appended(kFar, 0, kNone, kThere)}),
      Make(Id(2), kCommitted, 6, 8, {Saw(kX, 1, Id(1))}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
  attempts.push_back(Make(Id(3), kCommitted, 6, 8, {Appended(kFar, 0, kNone, kThere)}));
  const Judgement half = JudgeAppends(Files(attempts));
  EXPECT_THAT(half.violations, testing::Contains(HasSubstr("half a commit: of 0.0.1.1 key 1")));
  // Nobody saw any of it: it may never have happened.
  attempts[1].looks = {Saw(kX, 0, kNone)};
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
}

// Island 1 dies after its answer and before island 0 has heard of the commit, and comes back.
TEST(AppendJudge, DeadCoordinator_BindsOnlyItsOwnRows) {
  const uint64_t later = MakeLife(2, 9'000'000);
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1, 1), kCommitted, 1, 5, {Appended(kX, 0, kNone), Appended(kFar, 0, kNone, kThere)}),
      Make(Id(2, 1), kCommitted, 6, 7, {Appended(kFar, 1, Id(1, 1), kThere)}),
      Make(Id(1), kCommitted, 8, 9, {Appended(kX, 0, kNone)}),
      Make(Id(1, 1, 2), kCommitted, 20, 21, {Saw(kX, 1, Id(1)), Saw(kFar, 0, kNone, later)}),
  };
  const Judgement found = JudgeAppends(Files(attempts));
  EXPECT_THAT(found.violations, IsEmpty());
  EXPECT_EQ(found.deaths, 1u);
  EXPECT_EQ(found.cut, 1u);
  // But a life that ended is judged as well: this one lost an update of its own.
  attempts.push_back(Make(Id(3, 1), kCommitted, 6, 7, {Appended(kFar, 1, Id(1, 1), kThere)}));
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, ElementsAre(HasSubstr("P4, lost update")));
}

// What a dead coordinator left is the same on all islands that live.
TEST(AppendJudge, OrphansThatDisagree_AreHalfACommit) {
  const Judgement found = JudgeAppends(Files({
      Make(Id(1), kCommitted, 8, 9, {Saw(kX, 1, Id(1, 2))}),
      Make(Id(1, 1), kCommitted, 8, 9, {Appended(kFar, 0, kNone, kThere)}),
      Make(Id(1, 2), kOpen, 1, 0, {Appended(kX, 0, kNone), Appended(kFar, 0, kNone, kThere)}),
  }));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("half a commit")));
  EXPECT_EQ(found.open, 1u);
  EXPECT_EQ(found.deaths, 1u);
}

// Island 0 has committed on islands 1 and 2, which live to the end, and died later: an attempt of it has no
// end. Who looks at one row finds its element, who looks at the other does not, and nobody replaced it.
TEST(AppendJudge, OldStateBesideTheElement_IsHalfACommitThoughItsCoordinatorDied) {
  const RecordedLook there = Appended(kFar, 0, kNone, kThere), third = Appended(kFarther, 0, kNone, kThird);
  const RecordedLook seen = Saw(kFar, 1, Id(1), kThere), old = Saw(kFarther, 0, kNone, kThird);
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kCommitted, 1, 50, {there, third}),
      Make(Id(2), kOpen, 60, 0, {Saw(kX, 0, kNone)}),
      Make(Id(1, 1), kCommitted, 100, 105, {seen, old}),
  };
  const Judgement found = JudgeAppends(Files(attempts));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("half a commit: of 0.0.1.1 key 100")));
  EXPECT_EQ(found.deaths, 1u);
  // Where nobody knows when it committed, it had when somebody who saw it was through.
  attempts = {
      Make(Id(1), kOpen, 1, 0, {there, third}),
      Make(Id(1, 1), kCommitted, 100, 105, {seen}),
      Make(Id(2, 1), kCommitted, 106, 110, {old}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, ElementsAre(HasSubstr("half a commit")));
  attempts[2].begun_ns = 105;  // it may have looked before
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
}

// The same, and nobody finds anything of it: nobody has to, once the coordinator is dead.
TEST(AppendJudge, OldStateWhileTheCoordinatorLives_IsALostCommitThoughItDiedLater) {
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kCommitted, 1, 50,
           {Appended(kFar, 0, kNone, kThere), Appended(kFarther, 0, kNone, kThird)}),
      Make(Id(2), kOpen, 60, 0, {Saw(kX, 0, kNone)}),
      Make(Id(1, 1), kCommitted, 100, 105, {Saw(kFar, 0, kNone, kThere), Saw(kFarther, 0, kNone, kThird)}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
  attempts[1].begun_ns = 900;
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, Each(HasSubstr("lost commit: of 0.0.1.1 key")));
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, SizeIs(2));
  attempts[2].begun_ns = 40;  // before the answer: it may have looked before
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
}

// Truly cut: the coordinator dies between its answer and the word to island 1, and its own row with it.
TEST(AppendJudge, OldStateOfWhatWasCut_IsFine) {
  const RecordedLook here = Appended(kX, 0, kNone), there = Appended(kFar, 0, kNone, kThere);
  const RecordedLook seen = Saw(kX, 1, Id(1)), old = Saw(kFar, 0, kNone, kThere);
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kCommitted, 1, 50, {here, there}),
      Make(Id(1, 1), kCommitted, 60, 65, {seen}),
      Make(Id(2), kOpen, 60, 0, {seen}),
      Make(Id(2, 1), kCommitted, 100, 105, {old}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());  // it never came back
  attempts.push_back(
      Make(Id(1, 0, 2), kCommitted, 200, 205, {Saw(kX, 0, kNone, MakeLife(0, 9'000'000)), old}));
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
  attempts[0].fate = kUnknown;  // it died before its answer
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
}

// Where islands keep what they acknowledge, the death of a coordinator excuses nothing of the above.
TEST(AppendJudge, WhereIslandsKeep_WhatWasAnsweredIsThereWhoeverDies) {
  const RecordedLook here = Appended(kX, 0, kNone), there = Appended(kFar, 0, kNone, kThere);
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kCommitted, 1, 50, {here, there}),
      Make(Id(2), kOpen, 60, 0, {Saw(kX, 1, Id(1))}),
      Make(Id(1, 1), kCommitted, 100, 105, {Saw(kFar, 0, kNone, kThere)}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasSeen).violations, Not(IsEmpty()));
  attempts[2].looks = {Saw(kFar, 1, Id(1), kThere)};
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasSeen).violations, IsEmpty());
  attempts.push_back(Make(Id(1, 0, 2), kCommitted, 200, 205, {Saw(kX, 0, kNone, MakeLife(0, 9'000'000))}));
  EXPECT_THAT(JudgeAppends(Files(attempts)).violations, IsEmpty());
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasSeen).violations,
              Contains(HasSubstr("lost rows")));
}

// With `sync` an answer waits for the disk, and what others see does not.
TEST(AppendJudge, WherePowerIsLost_WhatOnlyWhoWasNotAnsweredHasSeenMayBeGone) {
  const RecordedLook here = Appended(kX, 0, kNone), there = Appended(kFar, 0, kNone, kThere);
  std::vector<RecordedAttempt> attempts = {
      Make(Id(1), kOpen, 1, 0, {here, there}),
      Make(Id(2), kOpen, 60, 0, {Saw(kX, 1, Id(1))}),
      Make(Id(1, 0, 2), kCommitted, 200, 205, {Saw(kX, 0, kNone), Appended(kFar, 0, kNone, kThere)}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasSeen).violations, Not(IsEmpty()));
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasAnswered).violations, IsEmpty());
  attempts[1] = Make(Id(2), kCommitted, 60, 65, {Saw(kX, 1, Id(1))});
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasAnswered).violations, Not(IsEmpty()));
  attempts[1] = Make(Id(2), kOpen, 60, 0, {Saw(kX, 1, Id(1))});
  attempts[0] = Make(Id(1), kCommitted, 1, 50, {here, there});
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasAnswered).violations, Not(IsEmpty()));
  // Nobody has told of either, but the second was seen, and stands on the first.
  attempts = {
      Make(Id(1), kOpen, 1, 0, {here}),
      Make(Id(2), kOpen, 60, 0, {Appended(kX, 1, Id(1))}),
      Make(Id(1, 0, 2), kCommitted, 200, 205, {Saw(kX, 2, Id(2))}),
  };
  EXPECT_THAT(JudgeAppends(Files(attempts), Keeps::kWhatWasAnswered).violations, IsEmpty());
}

TEST(AppendJudge, TwoLivesOfAnIsland_AreNotSeenByOne) {
  const uint64_t later = MakeLife(2, 9'000'000);
  const Judgement found = JudgeAppends(Files({
      Make(Id(1), kCommitted, 1, 9, {Saw(kFar, 0, kNone, kThere), Saw(kFar + 1, 0, kNone, later)}),
  }));
  EXPECT_THAT(found.violations, ElementsAre(HasSubstr("two lives")));
}

}  // namespace
}  // namespace islands::experiments
