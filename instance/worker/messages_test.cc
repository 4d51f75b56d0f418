// Outbox and Inbox: what one sends the other understands, and what makes no sense goes nowhere.
#include <gmock/gmock.h>

#include "instance/worker/worker_parts_testing.h"

namespace islands::instance {
namespace {

using coordinator::Outcome;
using coordinator::VoteKind;
using messaging::FrameType;
using testing::ElementsAre;
using testing::IsEmpty;

using MessagesTest = WorkerPartsTest;

TEST_F(MessagesTest, CoordinatorToParticipant) {
  const Id id = OurId(9);
  const Fellow far{1, kTheirEpoch};
  const Fellow both[] = {far, {2, 8}};
  Batch batch;
  batch.Read(0, Key(1, 5));
  const RoutedOperation route{0, 1, 1};
  EXPECT_TRUE(outbox_.SendExecute(1, id, {.participant_epoch = kTheirEpoch, .number = 2}, {.below = 4}, batch,
                                  {&route, 1}));
  outbox_.SendPrepare(far, id, /*early=*/true, both);
  outbox_.SendDecision(far, id, true);
  outbox_.SendDecision(far, id, false);
  outbox_.SendCommitOnePhase(far, id);
  outbox_.SendConfirm(1, id);
  outbox_.SendInquiryToDecider(far, id);
  outbox_.SendInquiryReply(1, id, Outcome::kPending);
  outbox_.SendDecisionRequest(far, {2, 0, 1, 9});
  EXPECT_THAT(FarHeard(), ElementsAre("execute 9 step 2 epoch 5 ended below 4",   //
                                      "prepare 9 epoch 5 early fellows 2/8",      //
                                      "commit 9 epoch 5", "abort 9 epoch 5",      //
                                      "commit one-phase 9 epoch 5", "confirm 9",  //
                                      "inquiry to decider 9 epoch 5",             //
                                      "inquiry reply on 9: pending",              //
                                      "decision request 9 epoch 5"));
}

TEST_F(MessagesTest, ParticipantToCoordinator) {
  const Id id = TheirId(9);
  Batch batch;
  Failure failure;
  outbox_.SendResults(id, 2, true, batch, {}, &failure);
  outbox_.SendRefusal({{1, 0}, kTheirEpoch}, id, 3, {AbortReason::kRefused, absl::AbortedError("no")});
  for (const VoteKind vote : {VoteKind::kYes, VoteKind::kNo, VoteKind::kRead}) outbox_.SendVote(id, vote);
  outbox_.SendAcknowledge(id);
  outbox_.SendGone(id);
  outbox_.SendOnePhaseReply(id, Outcome::kUnknown);
  outbox_.SendInquiry(id);
  outbox_.SendDecidersReply(id, Outcome::kCommitted);
  const uint32_t gone[] = {2};
  outbox_.SendDecisionReply({{1, 0}, kTheirEpoch}, id, Outcome::kAborted, gone);
  EXPECT_THAT(
      FarHeard(),
      ElementsAre("execute reply from 0: step 2 code 0 reason 0 wrote true",
                  "execute reply from 0: step 3 code 10 reason 9 wrote false", "vote from 0 on 9: yes",
                  "vote from 0 on 9: no", "vote from 0 on 9: read", "acknowledge from 0 of 9",
                  "gone from 0 of 9", "one-phase reply from 0 on 9: unknown", "inquiry from 0 about 9",
                  "decider's reply from 0 on 9: committed", "decision reply from 0 on 9: aborted, 1 gone"));
}

TEST_F(MessagesTest, Counted_BySender) {
  outbox_.SendVote(TheirId(1), VoteKind::kYes);
  outbox_.SendGone(TheirId(1));  // is no acknowledgement
  outbox_.SendAcknowledge(TheirId(1));
  EXPECT_EQ(counters_.two_phase[static_cast<uint8_t>(TwoPhaseStep::kVotedYes)].Get(), 1u);
  EXPECT_EQ(counters_.two_phase[static_cast<uint8_t>(TwoPhaseStep::kAcknowledged)].Get(), 1u);
}

TEST_F(MessagesTest, Results_TooLargeAreARefusal) {
  Batch batch;
  const std::string row(1500, 'r');
  std::vector<RoutedOperation> routes;
  for (uint32_t i = 0; i < 12'000; ++i) batch.Read(0, Key(0, i % 1000)), routes.push_back({i, 0, 0});
  batch.ResetResults();
  const Batch::Bytes at = batch.Store(std::as_bytes(std::span(row.data(), row.size())));
  for (uint32_t i = 0; i < 12'000; ++i) batch.result(i) = {.code = absl::StatusCode::kOk, .row = at};
  Failure failure;
  outbox_.SendResults(TheirId(1), 1, false, batch, routes, &failure);
  EXPECT_TRUE(failure.set());
  EXPECT_THAT(FarHeard(), ElementsAre("execute reply from 0: step 1 code 8 reason 9 wrote false"));
}

TEST_F(MessagesTest, Probe) {
  outbox_.SendProbe(
      1, {.initiator = OurId(4), .blocked_on = TheirId(6), .from_island = 0, .hops = 3, .chase = 2});
  EXPECT_THAT(FarHeard(), ElementsAre("probe of 4 to 6 hops 3 chase 2 from 0"));
}

TEST_F(MessagesTest, Nonsense_IsDropped) {
  // Another's transaction; one of an earlier life of ours.
  const Fellow far{1, kTheirEpoch};
  outbox_.SendDecision(far, {2, 0, kOurEpoch, 1}, true);
  outbox_.SendDecision(far, {0, 0, kOurEpoch - 1, 1}, true);
  outbox_.SendDecision(far, {0, 1, kOurEpoch, 1}, true);
  // A fellow twice, the coordinator as a fellow, an island that does not exist.
  const Fellow twice[] = {{2, 1}, {2, 1}}, itself[] = {{0, kOurEpoch}}, nobody[] = {{7, 1}};
  for (const std::span<const Fellow> fellows : {std::span<const Fellow>(twice), {itself}, {nobody}})
    outbox_.SendPrepare(far, OurId(1), /*early=*/false, fellows);
  // A probe for somebody else's island, and for a worker that is not there.
  outbox_.SendProbe(1, {.initiator = OurId(4), .blocked_on = OurId(6)});
  outbox_.SendProbe(1, {.initiator = OurId(4), .blocked_on = {1, 9, kTheirEpoch, 6}});
  // Bytes that are no message; a message that workers do not send each other.
  const std::byte bytes[] = {std::byte{0xff}, std::byte{0xff}};
  far_.inbox.Take({{0, 0}, kOurEpoch}, FrameType::kVote, bytes);
  far_.inbox.Take({{0, 0}, kOurEpoch}, FrameType::kControlRequest, {});
  // Empty messages: they name no transaction, so nobody could answer them.
  for (int type = 0; type < 256; ++type) far_.inbox.Take({{0, 0}, 0}, static_cast<FrameType>(type), {});
  EXPECT_THAT(FarHeard(), IsEmpty());
}

}  // namespace
}  // namespace islands::instance
