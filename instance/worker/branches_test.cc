#include "instance/worker/branches.h"

#include <gmock/gmock.h>

#include <functional>

#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using coordinator::Outcome;
using testing::ElementsAre;
using testing::IsEmpty;

class BranchesTest : public WorkerPartsTest {
 protected:
  using WorkerPartsTest::WorkerPartsTest;
  static constexpr Fellow kUs{0, kOurEpoch};

  // Adds 1 to a row here, on behalf of island 1.
  void Execute(uint64_t sequence, uint64_t row, uint32_t step = 1, uint64_t epoch = kOurEpoch) {
    Batch batch;
    batch.Add(0, Key(0, row), 0, 1);
    const RoutedOperation route{0, 0, 0};
    far_.outbox.SendExecute(0, TheirId(sequence),
                            {.participant_epoch = epoch, .number = step, .deadline_us = 1'000'000}, {}, batch,
                            {&route, 1});
    Pump();
  }
  void Prepare(uint64_t sequence, std::span<const Fellow> fellows = {}) {
    far_.outbox.SendPrepare(kUs, TheirId(sequence), /*early=*/false, fellows);
    Pump();
  }
  void PrepareEarly(uint64_t sequence) {
    far_.outbox.SendPrepare(kUs, TheirId(sequence), /*early=*/true, {});
    Pump();
  }
};

constexpr const char* kDone = "execute reply from 0: step 1 code 0 reason 0 wrote true";

TEST_F(BranchesTest, Commit_KeepsAndIsAcknowledgedAgain) {
  PutRow(1);
  Execute(7, 1);
  EXPECT_THAT(FarHeard(), ElementsAre(kDone));
  EXPECT_EQ(counters_.branches_open.Get(), 1u);
  Prepare(7);
  EXPECT_EQ(counters_.in_doubt.Get(), 1u);
  far_.outbox.SendDecision(kUs, TheirId(7), true);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 7: yes", "acknowledge from 0 of 7"));
  EXPECT_EQ(Counter(1), 1);
  EXPECT_TRUE(branches_.empty());
  EXPECT_EQ(counters_.in_doubt.Get(), 0u);
  // The acknowledgement is lost, the decision comes again.
  far_.outbox.SendDecision(kUs, TheirId(7), true);
  EXPECT_THAT(FarHeard(), ElementsAre("acknowledge from 0 of 7"));
  EXPECT_EQ(branches_.commits_remembered(), 1u);
}

// As recovery finds it: changed in an earlier life, and prepared there.
TEST_F(BranchesTest, Restored_IsInDoubtWithItsLocksUntilItIsTold) {
  shared_.keeps = true;
  for (const bool commit : {true, false}) {
    const uint64_t row = commit ? 1 : 2;
    PutRow(row);
    recovery::Unsettled::Prepared prepared{.fellows = {{2, 8}}};
    const int64_t before = 41;
    prepared.undo.RecordWrite(0, 0, Key(0, row), 0, std::as_bytes(std::span(&before, 1)));
    ASSERT_TRUE(branches_.RestorePrepared(TheirId(row), prepared).ok());
    EXPECT_EQ(counters_.in_doubt.Get(), 1u);
    Batch batch;
    batch.Read(0, Key(0, row));
    Branch reader;
    reader.locks.transaction = OurId(row);
    EXPECT_EQ(Run(reader, batch), Progress::kWaiting);
    Advance(runtime::kNsPerSecond);
    branches_.Sweep();
    EXPECT_THAT(FarHeard(), ElementsAre(testing::HasSubstr("inquiry from 0")));
    // It was promised in an earlier life; this one speaks for it.
    branches_.OnDecision(TheirId(row), kOurEpoch - 1, commit);
    const std::vector<std::string> heard = FarHeard();
    EXPECT_EQ(heard.size(), commit ? 1u : 0u);
    EXPECT_EQ(Counter(row), commit ? 0 : before);
    EXPECT_TRUE(branches_.empty());
    EXPECT_EQ(Run(reader, batch), Progress::kDone);
    engine_.Commit(reader);
  }
}

// Whatever the log's bytes are.
TEST_F(BranchesTest, Restored_RefusesTwoThatHaveChangedTheSame) {
  recovery::Unsettled::Prepared prepared;
  prepared.undo.RecordInsert(0, 0, Key(0, 1));
  ASSERT_TRUE(branches_.RestorePrepared(TheirId(7), prepared).ok());
  EXPECT_EQ(branches_.RestorePrepared(TheirId(8), prepared).code(), absl::StatusCode::kDataLoss);
}

TEST_F(BranchesTest, Restored_OutcomeIsSaidUntilItIsConfirmed) {
  shared_.keeps = true;
  branches_.RestoreDecided(TheirId(7), {});
  branches_.OnInquiryToDecider(TheirId(7), kOurEpoch - 1);
  EXPECT_THAT(FarHeard(), ElementsAre(testing::HasSubstr("on 7: committed")));
  branches_.OnConfirm(TheirId(7));
  EXPECT_TRUE(branches_.empty());
  // Of another, nothing is there: it was never decided.
  branches_.OnInquiryToDecider(TheirId(8), kOurEpoch - 1);
  EXPECT_THAT(FarHeard(), ElementsAre(testing::HasSubstr("on 8: aborted")));
}

TEST_F(BranchesTest, Abort_UndoesAndSaysNothing) {
  PutRow(1);
  Execute(7, 1);
  Prepare(7);
  FarHeard();
  far_.outbox.SendDecision(kUs, TheirId(7), false);
  EXPECT_THAT(FarHeard(), IsEmpty());
  EXPECT_EQ(Counter(1), 0);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(BranchesTest, EarlierLife_IsNeverServed) {
  PutRow(1);
  Execute(7, 1, 1, kOurEpoch - 1);
  EXPECT_THAT(FarHeard(), ElementsAre("execute reply from 0: step 1 code 10 reason 6 wrote false"));
  // What an earlier life voted for is not here: never acknowledged.
  far_.outbox.SendPrepare({0, kOurEpoch - 1}, TheirId(7), /*early=*/false, {});
  far_.outbox.SendDecision({0, kOurEpoch - 1}, TheirId(7), true);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 7: no", "gone from 0 of 7"));
  EXPECT_EQ(Counter(1), 0);
}

TEST_F(BranchesTest, Gone_VotesNoAndWasNotCommitted) {
  Prepare(7);
  far_.outbox.SendDecision(kUs, TheirId(7), true);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 7: no", "gone from 0 of 7"));
}

TEST_F(BranchesTest, Steps_OncePerNumberAndInTurn) {
  PutRow(1);
  Execute(7, 1);
  Execute(7, 1);     // a duplicate
  Execute(7, 1, 3);  // out of turn
  EXPECT_THAT(FarHeard(), ElementsAre(kDone));
  Execute(8, 1, 2);  // its first step was for a branch that is gone
  EXPECT_THAT(FarHeard(), ElementsAre("execute reply from 0: step 2 code 10 reason 9 wrote false"));
  Prepare(7);
  Execute(7, 1, 2);  // has voted
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 7: yes",
                                      "execute reply from 0: step 2 code 9 reason 9 wrote false"));
}

TEST_F(BranchesTest, Prepare_WhileItStillExecutesIsNo) {
  PutRow(1);
  Execute(7, 1);
  Execute(8, 1);  // waits for 7
  FarHeard();
  EXPECT_EQ(lock_waits_.Sorted().size(), 1u);
  Prepare(8);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 8: no"));
  Pump();
  EXPECT_TRUE(lock_waits_.empty());
  EXPECT_EQ(branches_.All().size(), 1u);
}

TEST_F(BranchesTest, EarlyPrepare_VotesBehindItsAnswer) {
  PutRow(1);
  Execute(7, 1);
  Execute(8, 1);  // waits for 7
  PrepareEarly(8);
  EXPECT_THAT(FarHeard(), ElementsAre(kDone));
  EXPECT_EQ(counters_.in_doubt.Get(), 0u);
  PrepareEarly(7);
  far_.outbox.SendDecision(kUs, TheirId(7), true);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 7: yes", "acknowledge from 0 of 7", kDone,
                                      "vote from 0 on 8: yes"));
  EXPECT_EQ(counters_.in_doubt.Get(), 1u);
  far_.outbox.SendDecision(kUs, TheirId(8), true);
  EXPECT_THAT(FarHeard(), ElementsAre("acknowledge from 0 of 8"));
  EXPECT_EQ(Counter(1), 2);
  // What waited is forgotten with its branch.
  Execute(9, 1);
  EXPECT_THAT(FarHeard(), ElementsAre(kDone));
  EXPECT_EQ(counters_.in_doubt.Get(), 0u);
}

TEST_F(BranchesTest, EarlyPrepare_OfOneThatIsAbortedWhileItWaits) {
  PutRow(1);
  Execute(7, 1);
  Execute(8, 1);  // waits for 7
  PrepareEarly(8);
  far_.outbox.SendDecision(kUs, TheirId(8), false);
  far_.outbox.SendDecision(kUs, TheirId(7), true);
  EXPECT_THAT(FarHeard(), ElementsAre(kDone));
  EXPECT_EQ(branches_.All().size(), 1u);  // a commit that was never voted on is not one
  Execute(8, 2);
  EXPECT_EQ(counters_.in_doubt.Get(), 0u);
}

// Its locks go with its vote, which others may need while they execute.
TEST_F(BranchesTest, EarlyPrepare_ReaderIsAskedAgain) {
  Execute(7, 1);  // there is no such row: nothing is changed
  PrepareEarly(7);
  EXPECT_THAT(FarHeard(), ElementsAre("execute reply from 0: step 1 code 0 reason 0 wrote false"));
  EXPECT_GT(locks_.LocksHeld(), 0u);
  Prepare(7);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 7: read"));
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// Who is asked again may be told of other fellows, by a peer that is not what it should be.
TEST_F(BranchesTest, EarlyPrepare_FellowsAreThoseOfThePrepareThatCounts) {
  const Fellow other[] = {{3, 8}}, fellow[] = {{2, 8}};
  PutRow(1);
  Execute(7, 2);  // there is no such row
  branches_.OnPrepare(TheirId(7), kOurEpoch, /*early=*/true, other);
  Execute(7, 1, 2);
  branches_.OnPrepare(TheirId(7), kOurEpoch, /*early=*/false, fellow);
  ASSERT_EQ(counters_.in_doubt.Get(), 1u);
  shared_.proven_dead = [](uint32_t island, uint64_t) { return island == 1; };
  hub_.Drop(1);
  Pump();
  Advance(runtime::kNsPerSecond);
  branches_.Sweep();
  ASSERT_NE(branches_.Find(TheirId(7)), nullptr);
  EXPECT_TRUE(branches_.Find(TheirId(7))->machine.orphaned());  // and has asked island 2
}

TEST_F(BranchesTest, EarlyPrepare_OfAnotherLifeOrOfNothingIsNo) {
  PutRow(1);
  Execute(7, 1);
  Execute(8, 1);  // waits for 7
  FarHeard();
  far_.outbox.SendPrepare({0, kOurEpoch - 1}, TheirId(8), /*early=*/true, {});
  PrepareEarly(9);
  EXPECT_THAT(FarHeard(), ElementsAre("vote from 0 on 8: no", "vote from 0 on 9: no"));
}

TEST_F(BranchesTest, OnePhase_KeepsItsAnswerUntilItIsConfirmed) {
  PutRow(1);
  Execute(7, 1);
  FarHeard();
  far_.outbox.SendCommitOnePhase(kUs, TheirId(7));
  EXPECT_THAT(FarHeard(), ElementsAre("one-phase reply from 0 on 7: committed"));
  far_.outbox.SendInquiryToDecider(kUs, TheirId(7));
  EXPECT_THAT(FarHeard(), ElementsAre("decider's reply from 0 on 7: committed"));
  far_.outbox.SendConfirm(0, TheirId(7));
  Pump();
  EXPECT_TRUE(branches_.empty());
  EXPECT_EQ(Counter(1), 1);
}

TEST_F(BranchesTest, InDoubt_AsksAndEndsByNothingElse) {
  PutRow(1);
  Execute(7, 1);
  Prepare(7);
  FarHeard();
  for (int i = 0; i < 50; ++i) {
    Advance(options_.transaction_timeout_ns);
    branches_.Sweep();
  }
  EXPECT_EQ(FarHeard().size(), 50u);
  EXPECT_EQ(counters_.in_doubt.Get(), 1u);
  far_.outbox.SendInquiryReply(0, TheirId(7), Outcome::kCommitted);
  EXPECT_THAT(FarHeard(), ElementsAre("acknowledge from 0 of 7"));
  EXPECT_EQ(Counter(1), 1);
}

TEST_F(BranchesTest, Orphan_IsBornByProofOnly) {
  PutRow(1);
  Execute(7, 1);
  Prepare(7);
  FarHeard();
  bool dead = false;
  shared_.proven_dead = [&](uint32_t island, uint64_t epoch) {
    EXPECT_TRUE(island == 1 && epoch == kTheirEpoch);
    return dead;
  };
  hub_.Drop(1);
  Pump();
  Advance(100 * runtime::kNsPerSecond);
  branches_.Sweep();
  EXPECT_EQ(counters_.in_doubt.Get(), 1u);
  dead = true;
  Advance(runtime::kNsPerSecond);
  branches_.Sweep();  // no fellows: nobody knows of a commit
  EXPECT_TRUE(branches_.empty());
  EXPECT_EQ(Counter(1), 0);
}

TEST_F(BranchesTest, Stuck_WhileNobodyAnswers) {
  PutRow(1);
  Execute(7, 1);
  Prepare(7);
  Advance(2 * options_.lock_timeout_ns);
  branches_.Sweep();
  EXPECT_FALSE(shared_.stuck.any());
  hub_.Partition(0, 1);
  Pump();
  branches_.Sweep();
  EXPECT_TRUE(shared_.stuck.Contains(TheirId(7)));
}

TEST_F(BranchesTest, Fellow_IsToldWhatIsKnown) {
  PutRow(1);
  Execute(7, 1);
  const Id id{2, 0, 1, 7};  // of a third island, of which there is nothing here
  far_.outbox.SendDecisionRequest(kUs, id);
  far_.outbox.SendDecisionRequest({0, kOurEpoch - 1}, id);
  EXPECT_THAT(FarHeard(), ElementsAre(kDone, "decision reply from 0 on 7: aborted, 0 gone"));
}

// Where there is a log: since when it is needed.
class LoggedBranchesTest : public BranchesTest {
 protected:
  LoggedBranchesTest() : BranchesTest(/*log=*/true) { board_.RaiseEpoch(20); }
  // With the step's changes in the log; then comes the next epoch.
  void Step(const std::function<void()>& step) {
    engine_.BeginStep();
    step();
    Pump();
    engine_.EndStep();
    board_.RaiseEpoch(board_.epoch() + 1);
  }
  uint64_t Oldest() const { return journal_.open().oldest(); }
  static constexpr uint64_t kNone = log::OpenTransactions::kNone;
};

TEST_F(LoggedBranchesTest, Branch_FromItsFirstChangeUntilItIsTold) {
  for (const bool commit : {true, false}) {
    const uint64_t row = commit ? 1 : 2;
    Step([&] { PutRow(row); });
    EXPECT_EQ(Oldest(), kNone);
    const uint64_t first = board_.epoch();
    Step([&] { Execute(row, row); });
    EXPECT_EQ(Oldest(), first);
    Step([&] { Prepare(row); });
    EXPECT_EQ(counters_.in_doubt.Get(), 1u);
    EXPECT_EQ(Oldest(), first);
    Step([&] { branches_.OnDecision(TheirId(row), kOurEpoch, commit); });
    EXPECT_EQ(Oldest(), kNone);
  }
}

// Planted: a logger that takes nothing for 20 ms.
TEST_F(LoggedBranchesTest, FullRing_IsAWaitWithItsTime) {
  Step([&] { PutRow(1); });
  uint64_t sequence = 1;
  for (;; ++sequence) {
    ASSERT_LT(sequence, 20'000u);
    Step([&] { Execute(sequence, 1); });
    if (turns_.NextDeadlineNs() != INT64_MAX) break;  // it waits
    Step([&] { branches_.OnCommitOnePhase(TheirId(sequence), kOurEpoch); });
    Step([&] { branches_.OnConfirm(TheirId(sequence)); });
  }
  EXPECT_EQ(counters_.room.ns.Get(), 0u);  // of waits that have ended
  (void)FarHeard();
  for (int ms = 0; ms < 20; ++ms) {
    Advance(runtime::kNsPerMs);
    Step([] {});
  }
  EXPECT_THAT(FarHeard(), IsEmpty());
  ring_->SetHead(ring_->tail());
  Advance(runtime::kNsPerMs);
  Step([] {});
  EXPECT_THAT(FarHeard(), ElementsAre(kDone));
  EXPECT_EQ(counters_.room.ns.Get(), 21u * runtime::kNsPerMs);
  Step([&] { branches_.OnDecision(TheirId(sequence), kOurEpoch, /*commit=*/false); });
}

TEST_F(LoggedBranchesTest, Outcome_UntilItIsConfirmed) {
  Step([&] { PutRow(1); });
  const uint64_t first = board_.epoch();
  Step([&] { Execute(7, 1); });
  Step([&] { branches_.OnCommitOnePhase(TheirId(7), kOurEpoch); });
  EXPECT_EQ(Oldest(), first);
  Step([&] { branches_.OnConfirm(TheirId(7)); });
  EXPECT_EQ(Oldest(), kNone);
}

TEST_F(LoggedBranchesTest, Restored_SinceTheFirstRecordOfTheirs) {
  recovery::Unsettled::Prepared prepared{.fellows = {{2, 8}}, .since = 7};
  prepared.undo.RecordInsert(0, 0, Key(0, 1));
  ASSERT_TRUE(branches_.RestorePrepared(TheirId(1), prepared).ok());
  branches_.RestoreDecided(TheirId(2), {.since = 8});
  const Id decided{0, 0, kOurEpoch - 1, 9};
  coordinated_.Restore(decided, {.participants = {{1, kTheirEpoch - 1}}, .since = 9});
  EXPECT_EQ(Oldest(), 7u);
  Step([&] { branches_.OnDecision(TheirId(1), kOurEpoch - 1, /*commit=*/false); });
  EXPECT_EQ(Oldest(), 8u);
  Step([&] { branches_.OnConfirm(TheirId(2)); });
  EXPECT_EQ(Oldest(), 9u);
  Step([&] { coordinated_.OnAcknowledge(1, decided, /*gone=*/false); });
  EXPECT_EQ(Oldest(), kNone);
}

}  // namespace
}  // namespace islands::instance
