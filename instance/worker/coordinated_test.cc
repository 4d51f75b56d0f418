#include "instance/worker/coordinated.h"

#include <gmock/gmock.h>

#include <limits>

#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using coordinator::CoordinatorEvent;
using coordinator::Outcome;
using coordinator::VoteKind;
using testing::ElementsAre;
using testing::IsEmpty;

class CoordinatedTest : public WorkerPartsTest {
 protected:
  // A transaction that reads, or adds to, a row here and on island 1.
  void Ship(bool writes = false) {
    transaction_.own_id = coordinated_.NextId();
    transaction_.deadline_ns = clock_.NowNs() + options_.transaction_timeout_ns;
    writes ? batch_.Add(0, Key(1, 5), 0, 1) : batch_.Read(0, Key(1, 5));
    batch_.ResetResults();
    transaction_.plan.Clear();
    transaction_.plan.Add(1, 0, {0, 1, 1});
    transaction_.executing = &batch_;
    coordinated_.Ship(transaction_, batch_);
  }
  void Answer(bool wrote) {
    Batch results;
    results.Read(0, Key(1, 5));
    results.ResetResults();
    results.result(0).code = absl::StatusCode::kNotFound;
    const RoutedOperation route{0, 1, 1};
    Failure failure;
    far_.outbox.SendResults(transaction_.own_id, 1, wrote, results, {&route, 1}, &failure);
    Pump();
  }
  bool Commit(bool local_wrote) {
    transaction_.executing = nullptr;
    return coordinated_.Step(*transaction_.entry,
                             {.kind = CoordinatorEvent::kCommitRequested, .local_wrote = local_wrote});
  }

  CoordinatedTransaction transaction_;
  Batch batch_;
};

TEST_F(CoordinatedTest, TwoPhases_FromTheFirstOperationToForgetting) {
  Ship();
  ASSERT_FALSE(transaction_.failure.set()) << transaction_.failure.status;
  EXPECT_THAT(FarHeard(), ElementsAre("execute 1 step 1 epoch 5 ended below 1"));
  EXPECT_EQ(transaction_.pending_replies, 1u);
  Answer(/*wrote=*/true);
  EXPECT_EQ(transaction_.pending_replies, 0u);
  EXPECT_EQ(batch_.code(0), absl::StatusCode::kNotFound);
  EXPECT_FALSE(Commit(/*local_wrote=*/true));
  EXPECT_THAT(FarHeard(), ElementsAre("prepare 1 epoch 5 fellows"));
  far_.outbox.SendVote(transaction_.own_id, VoteKind::kYes);
  EXPECT_THAT(FarHeard(), ElementsAre("commit 1 epoch 5"));
  EXPECT_EQ(transaction_.outcome, Outcome::kCommitted);
  ASSERT_EQ(coordinated_.All().size(), 1u);
  far_.outbox.SendAcknowledge(transaction_.own_id);
  Pump();
  EXPECT_TRUE(coordinated_.empty());
  EXPECT_EQ(transaction_.entry, nullptr);
  EXPECT_EQ(counters_.coordinated.Get(), 0u);
}

TEST_F(CoordinatedTest, PrepareEarly_TheCommitWaitsForNothing) {
  Ship(/*writes=*/true);
  coordinated_.PrepareEarly(transaction_, batch_);
  EXPECT_THAT(FarHeard(),
              ElementsAre("execute 1 step 1 epoch 5 ended below 1", "prepare 1 epoch 5 early fellows"));
  Answer(/*wrote=*/true);
  far_.outbox.SendVote(transaction_.own_id, VoteKind::kYes);
  EXPECT_THAT(FarHeard(), IsEmpty());
  EXPECT_FALSE(transaction_.failure.set() || transaction_.outcome);
  Commit(/*local_wrote=*/true);
  EXPECT_EQ(transaction_.outcome, Outcome::kCommitted);
  EXPECT_THAT(FarHeard(), ElementsAre("commit 1 epoch 5"));
}

TEST_F(CoordinatedTest, PrepareEarly_OnlyThoseWithChanges) {
  Ship();
  coordinated_.PrepareEarly(transaction_, batch_);
  EXPECT_THAT(FarHeard(), ElementsAre("execute 1 step 1 epoch 5 ended below 1"));
  Answer(/*wrote=*/false);
  Commit(/*local_wrote=*/true);
  EXPECT_THAT(FarHeard(), ElementsAre("prepare 1 epoch 5 fellows"));
}

// A batch that changes nothing elsewhere any more: those that hold changes are asked.
TEST_F(CoordinatedTest, PrepareEarly_WhoeverHasWrittenBefore) {
  Ship(/*writes=*/true);
  Answer(/*wrote=*/true);
  FarHeard();
  transaction_.plan.Clear();
  coordinated_.PrepareEarly(transaction_, batch_);
  coordinated_.PrepareEarly(transaction_, batch_);
  EXPECT_THAT(FarHeard(), ElementsAre("prepare 1 epoch 5 early fellows"));
}

// Its next life has what was read there unlocked, whatever it has voted.
TEST_F(CoordinatedTest, LostVoter_OneWhoseNextLifeHasBegun) {
  runtime::PulseBoard pulses(std::vector<uint32_t>{1, 1, 1});
  shared_.pulses = &pulses;
  pulses.SetLife(1, kTheirEpoch);
  Ship(/*writes=*/true);
  EXPECT_EQ(coordinated_.LostVoter(*transaction_.entry), nullptr);
  coordinated_.PrepareEarly(transaction_, batch_);
  EXPECT_EQ(coordinated_.LostVoter(*transaction_.entry), nullptr);
  pulses.SetLife(1, kTheirEpoch + 1);
  ASSERT_NE(coordinated_.LostVoter(*transaction_.entry), nullptr);
  EXPECT_EQ(coordinated_.LostVoter(*transaction_.entry)->island, 1u);
  coordinated_.Step(*transaction_.entry, {.kind = CoordinatorEvent::kAbortRequested});
  shared_.pulses = nullptr;
}

TEST_F(CoordinatedTest, PrepareEarly_NoFailsTheProcedure) {
  Ship(/*writes=*/true);
  coordinated_.PrepareEarly(transaction_, batch_);
  Answer(/*wrote=*/true);
  far_.outbox.SendVote(transaction_.own_id, VoteKind::kNo);
  Pump();
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kVoteNo);
  EXPECT_EQ(transaction_.outcome, Outcome::kAborted);
}

// They have voted, or will: nothing more can be shipped.
TEST_F(CoordinatedTest, PrepareEarly_NothingFollows) {
  Ship(/*writes=*/true);
  transaction_.nothing_more = true;
  coordinated_.PrepareEarly(transaction_, batch_);
  Answer(/*wrote=*/true);
  FarHeard();
  coordinated_.Ship(transaction_, batch_);
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kProcedure);
  EXPECT_THAT(FarHeard(), IsEmpty());
}

TEST_F(CoordinatedTest, OnePhase_TheOnlyWriterDecides) {
  Ship();
  Answer(/*wrote=*/true);
  Commit(/*local_wrote=*/false);
  far_.outbox.SendOnePhaseReply(transaction_.own_id, Outcome::kCommitted);
  EXPECT_THAT(FarHeard(), ElementsAre("execute 1 step 1 epoch 5 ended below 1", "commit one-phase 1 epoch 5",
                                      "confirm 1"));
  EXPECT_EQ(transaction_.outcome, Outcome::kCommitted);
  EXPECT_TRUE(coordinated_.empty());
  // The confirmation is lost, the decider repeats its answer: it is confirmed without an entry, too.
  far_.outbox.SendOnePhaseReply({0, 0, kOurEpoch, 1}, Outcome::kCommitted);
  EXPECT_THAT(FarHeard(), ElementsAre("confirm 1"));
}

// What a client's answer waits for, with durability `sync`.
TEST_F(CoordinatedTest, Epochs_TheHighestThatOthersHaveSaid) {
  Ship();
  data::v1::ExecuteReply reply;
  reply.set_island(0);
  reply.set_boot_epoch(kOurEpoch);
  reply.set_sequence(1);
  reply.set_step(1);
  reply.set_code(static_cast<uint32_t>(absl::StatusCode::kAlreadyExists));
  reply.set_wrote(true);
  reply.set_commit_epoch(40);
  coordinated_.OnExecuteReply(1, reply);  // a refusal tells something, too
  EXPECT_EQ(transaction_.others_epoch, 40u);
  coordinated_.OnOnePhaseReply(1, transaction_.own_id, Outcome::kPending, 39);
  EXPECT_EQ(transaction_.others_epoch, 40u);
  coordinated_.OnDecidersReply(1, transaction_.own_id, Outcome::kPending, 41);
  EXPECT_EQ(transaction_.others_epoch, 41u);
  coordinated_.Step(*transaction_.entry, {.kind = CoordinatorEvent::kAbortRequested});
}

TEST_F(CoordinatedTest, Inquiry_OfWhatIsForgottenIsPresumedAborted) {
  far_.outbox.SendInquiry(OurId(77));
  EXPECT_THAT(FarHeard(), ElementsAre("inquiry reply on 77: aborted"));
}

// As recovery finds it: decided in an earlier life, and not known to have been heard.
TEST_F(CoordinatedTest, Restored_DecisionIsSaidUntilItIsAcknowledged) {
  shared_.keeps = far_.shared.keeps = true;
  const Id id{0, 0, kOurEpoch - 1, 9};
  coordinated_.Restore(id, {.participants = {{1, kTheirEpoch - 1}}});
  Advance(runtime::kNsPerSecond);
  coordinated_.Sweep();
  EXPECT_THAT(FarHeard(), ElementsAre("commit 9 epoch 4"));
  coordinated_.OnInquiry(1, id);
  EXPECT_THAT(FarHeard(), ElementsAre(testing::HasSubstr("9: committed")));
  coordinated_.OnAcknowledge(1, id, /*gone=*/false);
  EXPECT_TRUE(coordinated_.empty());
  coordinated_.OnInquiry(1, id);
  EXPECT_THAT(FarHeard(), ElementsAre(testing::HasSubstr("9: aborted")));
}

TEST_F(CoordinatedTest, OtherLives_NeverReachAnEntry) {
  Ship();
  FarHeard();
  coordinated_.OnVote(1, {0, 0, kOurEpoch - 1, 1}, VoteKind::kNo);
  coordinated_.OnVote(1, {0, 1, kOurEpoch, 1}, VoteKind::kNo);
  coordinated_.OnInquiry(1, {0, 1, kOurEpoch, 1});
  EXPECT_EQ(transaction_.entry->machine.state(), coordinator::Coordinator::State::kExecuting);
  EXPECT_THAT(FarHeard(), IsEmpty());
  EXPECT_EQ(coordinated_.Find({0, 0, kOurEpoch - 1, 1}), nullptr);
  EXPECT_NE(coordinated_.Find(OurId(1)), nullptr);
}

TEST_F(CoordinatedTest, OnPeerLost_FailsWhatExecutes) {
  Ship();
  coordinated_.OnPeerLost(2, 1, absl::UnavailableError("gone"));  // has no part in it
  EXPECT_FALSE(transaction_.failure.set());
  coordinated_.OnPeerLost(1, kTheirEpoch, absl::UnavailableError("gone"));
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kPeerLost);
}

TEST_F(CoordinatedTest, OnPeerUp_ALaterLifeHasLostItsShare) {
  Ship();
  Answer(/*wrote=*/true);
  Commit(/*local_wrote=*/true);
  far_.outbox.SendVote(transaction_.own_id, VoteKind::kYes);
  Pump();
  EXPECT_EQ(transaction_.outcome, Outcome::kCommitted);
  coordinated_.OnPeerUp(1, kTheirEpoch);  // the same: told again
  ASSERT_FALSE(coordinated_.empty());
  coordinated_.OnPeerUp(1, kTheirEpoch + 1);
  EXPECT_TRUE(coordinated_.empty());
  EXPECT_EQ(counters_.shares_lost.Get(), 1u);
}

TEST_F(CoordinatedTest, Ship_NotToAnIslandThatIsNotThere) {
  transaction_.own_id = coordinated_.NextId();
  transaction_.plan.Clear();
  transaction_.plan.Add(2, 0, {0, 2, 2});
  batch_.Read(0, Key(2, 5));
  coordinated_.Ship(transaction_, batch_);
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kPeerLost);
  EXPECT_EQ(transaction_.pending_replies, 0u);
}

TEST_F(CoordinatedTest, Sweep_TellsAProcedureThatItsDeadlineHasPassed) {
  Ship();
  Advance(options_.transaction_timeout_ns - 1);
  coordinated_.Sweep();
  EXPECT_FALSE(transaction_.failure.set());
  Advance(1);
  coordinated_.Sweep();
  EXPECT_EQ(transaction_.failure.reason, AbortReason::kDeadline);
}

// 1 is committed, and island 1 does not acknowledge it: first nothing from it on has ended, then it is named.
TEST_F(CoordinatedTest, NoteEnded_NamesWhatStaysOpen) {
  constexpr uint64_t kNobody = std::numeric_limits<uint64_t>::max();
  const auto told_with = [&](CoordinatedTransaction& next) {
    coordinated_.NoteEnded(/*oldest_begun=*/kNobody);
    next.own_id = coordinated_.NextId();
    next.deadline_ns = clock_.NowNs() + options_.transaction_timeout_ns;
    next.plan.Clear();
    next.plan.Add(1, 0, {0, 1, 1});
    FarHeard();
    coordinated_.Ship(next, batch_);
    return FarHeard();
  };
  Ship();
  Answer(/*wrote=*/true);
  Commit(/*local_wrote=*/true);
  far_.outbox.SendVote(transaction_.own_id, VoteKind::kYes);
  Pump();
  ASSERT_EQ(transaction_.outcome, Outcome::kCommitted);
  transaction_.entry->transaction = nullptr;  // its client has its answer
  transaction_.entry = nullptr;
  CoordinatedTransaction second, third;
  EXPECT_THAT(told_with(second), ElementsAre("execute 2 step 1 epoch 5 ended below 1"));
  Advance(options_.transaction_timeout_ns);
  coordinated_.Sweep();
  EXPECT_THAT(told_with(third), ElementsAre("execute 3 step 1 epoch 5 ended below 2 open 1"));
}

// One that has begun may yet ship its first operation.
TEST_F(CoordinatedTest, NoteEnded_NothingFromTheOldestBegunOn) {
  for (int i = 0; i < 5; ++i) (void)coordinated_.NextId();
  coordinated_.NoteEnded(/*oldest_begun=*/4);
  Ship();
  EXPECT_THAT(FarHeard(), ElementsAre("execute 6 step 1 epoch 5 ended below 4"));
}

}  // namespace
}  // namespace islands::instance
