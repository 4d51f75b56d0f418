#include "instance/worker/outbox.h"

#include <string>

#include "instance/worker/messages.h"
#include "instance/worker/wire.h"
#include "runtime/check.h"
#include "runtime/work_account.h"

namespace islands::instance {

using coordinator::Outcome;
using coordinator::VoteKind;
using messaging::FrameType;
using messaging::Origin;
using runtime::Work;
using runtime::WorkScope;

namespace {

// What a frame has room for beside the other fields of an ExecuteReply.
constexpr size_t kMaxResultBytes = messaging::kMaxFrameBytes - 1024;

// A message, emptied, that names its transaction in plain fields.
template <typename Message>
Message& Begin(const coordinator::TransactionId& id, Message& message) {
  ISLANDS_CHECK(id.valid());
  message.Clear();
  EncodeId(id, &message);
  return message;
}

// The same for those that have a TransactionId inside.
template <typename Message>
Message& BeginRare(const coordinator::TransactionId& id, Message& message) {
  ISLANDS_CHECK(id.valid());
  message.Clear();
  EncodeId(id, message.mutable_transaction());
  return message;
}

Origin CoordinatorOf(const coordinator::TransactionId& id) { return {{id.island, id.worker}, id.boot_epoch}; }

data::v1::VoteKind ToWire(VoteKind vote) {
  switch (vote) {
    case VoteKind::kYes:
      return data::v1::VOTE_YES;
    case VoteKind::kRead:
      return data::v1::VOTE_READ;
    case VoteKind::kNo:
      break;
  }
  return data::v1::VOTE_NO;
}

TwoPhaseStep StepOf(VoteKind vote) {
  switch (vote) {
    case VoteKind::kYes:
      return TwoPhaseStep::kVotedYes;
    case VoteKind::kRead:
      return TwoPhaseStep::kVotedRead;
    case VoteKind::kNo:
      break;
  }
  return TwoPhaseStep::kVotedNo;
}

void FillFailure(const Failure& failure, data::v1::ExecuteReply* reply) {
  ISLANDS_CHECK(failure.set() && !failure.status.ok());  // or it would be taken for one with results
  reply->set_code(static_cast<uint32_t>(failure.status.code()));
  reply->set_message(std::string(failure.status.message()));
  reply->set_abort_reason(static_cast<uint32_t>(failure.reason));
}

}  // namespace

Outbox::Outbox(messaging::Links& links, const WorkerShared& shared, WorkerCounters& counters,
               const log::Journal* journal)
    : links_(links),
      shared_(shared),
      counters_(counters),
      journal_(journal),
      held_(shared, journal),
      messages_(std::make_unique<Messages>()) {}

Outbox::~Outbox() = default;

bool Outbox::SendExecute(uint32_t island, const Id& id, const Step& step, const Ended& ended,
                         const Batch& batch, std::span<const RoutedOperation> operations) {
  const WorkScope building(Work::kBuilding);
  data::v1::ExecuteRequest& request = Begin(id, messages_->execute);
  request.set_participant_epoch(step.participant_epoch);
  request.set_step(step.number);
  request.set_deadline_us(step.deadline_us);
  request.set_idle_us(step.idle_us);
  request.set_layout_generation(step.layout_generation);
  request.set_ended_below(ended.below);
  for (const uint64_t sequence : ended.open) request.add_still_open(sequence);
  EncodeOperations(batch, operations, &request);
  return links_.Send(island, FrameType::kExecuteRequest, request);
}

void Outbox::SendPrepare(const Fellow& to, const Id& id, bool early, std::span<const Fellow> participants) {
  const WorkScope building(Work::kBuilding);
  data::v1::PrepareRequest& request = Begin(id, messages_->prepare);
  request.set_participant_epoch(to.boot_epoch);
  for (const Fellow& fellow : participants) {
    if (fellow.island == to.island) continue;
    request.add_fellows(fellow.island);
    request.add_fellow_epochs(fellow.boot_epoch);
  }
  request.set_early(early);
  Count(TwoPhaseStep::kPrepareSent);
  links_.Send(to.island, FrameType::kPrepareRequest, request);
}

void Outbox::SendCommitOnePhase(const Fellow& to, const Id& id) {
  const WorkScope building(Work::kBuilding);
  data::v1::CommitOnePhase& request = Begin(id, messages_->one_phase);
  request.set_participant_epoch(to.boot_epoch);
  Count(TwoPhaseStep::kOnePhaseSent);
  links_.Send(to.island, FrameType::kCommitOnePhase, request);
}

void Outbox::SendDecision(const Fellow& to, const Id& id, bool commit) {
  const WorkScope building(Work::kBuilding);
  if (commit && held_.Hold([=, this] { SendDecision(to, id, commit); })) return;
  data::v1::Decision& decision = Begin(id, messages_->decision);
  decision.set_commit(commit);
  decision.set_participant_epoch(to.boot_epoch);
  Count(commit ? TwoPhaseStep::kCommitSent : TwoPhaseStep::kAbortSent);
  links_.Send(to.island, FrameType::kDecision, decision);
}

void Outbox::SendConfirm(uint32_t decider, const Id& id) {
  const WorkScope building(Work::kBuilding);
  links_.Send(decider, FrameType::kOnePhaseConfirm, Begin(id, messages_->confirm));
}

void Outbox::SendInquiryToDecider(const Fellow& decider, const Id& id) {
  data::v1::Inquiry& inquiry = BeginRare(id, messages_->inquiry);
  inquiry.set_to_decider(true);
  inquiry.set_participant_epoch(decider.boot_epoch);
  Count(TwoPhaseStep::kInquirySent);
  links_.Send(decider.island, FrameType::kInquiry, inquiry);
}

void Outbox::SendInquiryReply(uint32_t island, const Id& id, Outcome outcome) {
  const bool committed = outcome == Outcome::kCommitted;
  if (committed && held_.Hold([=, this] { SendInquiryReply(island, id, outcome); })) return;
  data::v1::InquiryReply& reply = BeginRare(id, messages_->inquiry_reply);
  reply.set_outcome(ToWire(outcome));
  links_.Send(island, FrameType::kInquiryReply, reply);
}

void Outbox::SendResults(const Id& id, uint32_t step, bool wrote, const Batch& batch,
                         std::span<const RoutedOperation> operations, Failure* failure) {
  const WorkScope building(Work::kBuilding);
  data::v1::ExecuteReply& reply = Begin(id, messages_->execute_reply);
  reply.set_step(step);
  reply.set_wrote(wrote);
  if (!runtime::Planted(runtime::PlantedBug::kForgetReplyEpoch)) reply.set_commit_epoch(CommitEpoch());
  if (failure->set()) {
    FillFailure(*failure, &reply);
  } else {
    EncodeResults(batch, operations, reply.mutable_results());
  }
  if (reply.results().size() > kMaxResultBytes) {
    *failure = {AbortReason::kRefused,
                absl::ResourceExhaustedError("the result is too large; scan with a limit")};
    reply.clear_results();
    FillFailure(*failure, &reply);
  }
  links_.SendBack(CoordinatorOf(id), FrameType::kExecuteReply, reply);
}

void Outbox::SendRefusal(const Origin& to, const Id& id, uint32_t step, const Failure& why) {
  data::v1::ExecuteReply& reply = Begin(id, messages_->execute_reply);
  reply.set_step(step);
  FillFailure(why, &reply);
  links_.SendBack(to, FrameType::kExecuteReply, reply);
}

// Over the link of the worker that coordinates it: what it says later follows what it has said.
void Outbox::SendToSettle(const Id& id, FrameType type, const google::protobuf::MessageLite& message) {
  const Origin coordinator = CoordinatorOf(id);
  if (shared_.keeps) {
    links_.SendBack(coordinator.peer, type, message);
  } else {
    links_.SendBack(coordinator, type, message);
  }
}

void Outbox::SendVote(const Id& id, VoteKind vote) {
  const WorkScope building(Work::kBuilding);
  if (vote == VoteKind::kYes && held_.Hold([=, this] { SendVote(id, vote); })) return;
  data::v1::Vote& message = Begin(id, messages_->vote);
  message.set_vote(ToWire(vote));
  Count(StepOf(vote));
  links_.SendBack(CoordinatorOf(id), FrameType::kVote, message);
}

void Outbox::SendAcknowledge(const Id& id) {
  if (held_.Hold([=, this] { SendAcknowledge(id); })) return;
  Count(TwoPhaseStep::kAcknowledged);
  SendAcknowledgement(id, false);
}

void Outbox::SendGone(const Id& id) { SendAcknowledgement(id, true); }

void Outbox::SendAcknowledgement(const Id& id, bool gone) {
  const WorkScope building(Work::kBuilding);
  data::v1::Acknowledge& acknowledge = Begin(id, messages_->acknowledge);
  acknowledge.set_gone(gone);
  SendToSettle(id, FrameType::kAcknowledge, acknowledge);
}

void Outbox::SendOnePhaseReply(const Id& id, Outcome outcome) {
  const WorkScope building(Work::kBuilding);
  const bool committed = outcome == Outcome::kCommitted;
  if (committed && held_.Hold([=, this] { SendOnePhaseReply(id, outcome); })) return;
  data::v1::OnePhaseReply& reply = Begin(id, messages_->one_phase_reply);
  reply.set_outcome(ToWire(outcome));
  reply.set_commit_epoch(CommitEpoch());
  SendToSettle(id, FrameType::kOnePhaseReply, reply);
}

void Outbox::SendInquiry(const Id& id) {
  Count(TwoPhaseStep::kInquirySent);
  SendToSettle(id, FrameType::kInquiry, BeginRare(id, messages_->inquiry));
}

void Outbox::SendDecidersReply(const Id& id, Outcome outcome) {
  const bool committed = outcome == Outcome::kCommitted;
  if (committed && held_.Hold([=, this] { SendDecidersReply(id, outcome); })) return;
  data::v1::InquiryReply& reply = BeginRare(id, messages_->inquiry_reply);
  reply.set_outcome(ToWire(outcome));
  reply.set_from_decider(true);
  reply.set_commit_epoch(CommitEpoch());
  SendToSettle(id, FrameType::kInquiryReply, reply);
}

void Outbox::SendDecisionRequest(const Fellow& to, const Id& id) {
  data::v1::DecisionRequest& request = BeginRare(id, messages_->decision_request);
  request.set_participant_epoch(to.boot_epoch);
  Count(TwoPhaseStep::kFellowAsked);
  links_.Send(to.island, FrameType::kDecisionRequest, request);
}

void Outbox::SendDecisionReply(const Origin& to, const Id& id, Outcome outcome,
                               std::span<const uint32_t> gone) {
  data::v1::DecisionReply& reply = BeginRare(id, messages_->decision_reply);
  reply.set_outcome(ToWire(outcome));
  for (const uint32_t island : gone) reply.add_gone(island);
  links_.SendBack(to, FrameType::kDecisionReply, reply);
}

bool Outbox::SendClients(uint32_t island, uint64_t run_id, std::span<const int64_t> due_ns) {
  data::v1::Clients& message = messages_->clients;
  message.Clear();
  message.set_run_id(run_id);
  for (const int64_t due : due_ns) message.add_due_ns(static_cast<uint64_t>(due));
  return links_.Send(island, FrameType::kClients, message);
}

bool Outbox::SendProbe(uint32_t island, const Probe& probe) {
  ISLANDS_CHECK(probe.initiator.valid() && probe.blocked_on.valid());  // or the far inbox drops it
  data::v1::Probe& message = messages_->probe;
  message.Clear();
  EncodeId(probe.initiator, message.mutable_initiator());
  EncodeId(probe.blocked_on, message.mutable_blocked_on());
  message.set_hops(probe.hops);
  message.set_at_participant(probe.at_participant);
  message.set_from_island(probe.from_island);
  message.set_chase(probe.chase);
  return links_.Send(island, FrameType::kProbe, message);
}

}  // namespace islands::instance
