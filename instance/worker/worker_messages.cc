// What comes over the links, and news about the links themselves.
#include <spdlog/spdlog.h>

#include <utility>

#include "instance/worker/worker_internal.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using coordinator::CoordinatorEvent;
using coordinator::Outcome;
using coordinator::ParticipantEvent;
using messaging::FrameType;
using messaging::Origin;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

template <typename Message>
bool Parse(std::span<const std::byte> payload, Message* message) {
  return message->ParseFromArray(payload.data(), static_cast<int>(payload.size()));
}

Outcome FromWire(data::v1::Outcome outcome) {
  switch (outcome) {
    case data::v1::OUTCOME_COMMITTED:
      return Outcome::kCommitted;
    case data::v1::OUTCOME_ABORTED:
      return Outcome::kAborted;
    case data::v1::OUTCOME_PENDING:
      return Outcome::kPending;
    default:
      return Outcome::kUnknown;
  }
}

coordinator::VoteKind FromWire(data::v1::VoteKind vote) {
  switch (vote) {
    case data::v1::VOTE_YES:
      return coordinator::VoteKind::kYes;
    case data::v1::VOTE_READ:
      return coordinator::VoteKind::kRead;
    default:
      return coordinator::VoteKind::kNo;
  }
}

// A coordinator speaks only of its own transactions of this life, through the worker that runs them.
template <typename Message>
bool SpeaksForItself(const Origin& origin, const Message& id) {
  return id.island() == origin.peer.island && id.worker() == origin.peer.worker &&
         id.boot_epoch() == origin.boot_epoch;
}

}  // namespace

void Worker::OnMessage(const Origin& origin, FrameType type, std::span<const std::byte> payload) {
  Messages& in = *messages_;
  const uint32_t from = origin.peer.island;
  bool understood = false;
  switch (type) {
    // From coordinators to participants.
    case FrameType::kExecuteRequest:
      understood = Parse(payload, &in.execute_in) && SpeaksForItself(origin, in.execute_in);
      if (understood) OnExecuteRequest(origin, in.execute_in);
      break;
    case FrameType::kPrepareRequest:
      understood = Parse(payload, &in.prepare_in) && SpeaksForItself(origin, in.prepare_in) &&
                   FellowsMakeSense(in.prepare_in);
      if (understood) OnPrepare(in.prepare_in);
      break;
    case FrameType::kDecision:
      understood = Parse(payload, &in.decision_in) && SpeaksForItself(origin, in.decision_in);
      if (understood) OnDecision(in.decision_in);
      break;
    case FrameType::kCommitOnePhase:
      understood = Parse(payload, &in.one_phase_in) && SpeaksForItself(origin, in.one_phase_in);
      if (understood) OnCommitOnePhase(in.one_phase_in);
      break;
    case FrameType::kOnePhaseConfirm:
      understood = Parse(payload, &in.confirm_in) && SpeaksForItself(origin, in.confirm_in);
      if (!understood) break;
      if (ParticipantEntry* entry = FindParticipant(DecodeId(in.confirm_in))) {
        StepParticipant(*entry, {.kind = ParticipantEvent::kOnePhaseConfirmed});
      }
      break;
    // From participants to coordinators.
    case FrameType::kExecuteReply:
      understood = Parse(payload, &in.execute_reply_in);
      if (understood) OnExecuteReply(from, in.execute_reply_in);
      break;
    case FrameType::kVote:
      understood = Parse(payload, &in.vote_in);
      if (!understood) break;
      if (CoordinatorEntry* entry = FindCoordinated(DecodeId(in.vote_in))) {
        StepCoordinator(
            *entry, {.kind = CoordinatorEvent::kVote, .island = from, .vote = FromWire(in.vote_in.vote())});
      }
      break;
    case FrameType::kAcknowledge:
      understood = Parse(payload, &in.acknowledge_in);
      if (!understood) break;
      if (CoordinatorEntry* entry = FindCoordinated(DecodeId(in.acknowledge_in))) {
        const bool gone = in.acknowledge_in.gone();
        StepCoordinator(*entry, {.kind = gone ? CoordinatorEvent::kPeerGone : CoordinatorEvent::kAcknowledged,
                                 .island = from});
      }
      break;
    case FrameType::kOnePhaseReply:
      understood = Parse(payload, &in.one_phase_reply_in);
      if (!understood) break;
      if (CoordinatorEntry* entry = FindCoordinated(DecodeId(in.one_phase_reply_in))) {
        StepCoordinator(*entry, {.kind = CoordinatorEvent::kOnePhaseReply,
                                 .island = from,
                                 .outcome = FromWire(in.one_phase_reply_in.outcome())});
      } else {
        AnswerForForgotten(DecodeId(in.one_phase_reply_in),
                           {.kind = CoordinatorEvent::kOnePhaseReply, .island = from});
      }
      break;
    // Either way.
    case FrameType::kInquiry:
      understood = Parse(payload, &in.inquiry_in) &&
                   (!in.inquiry_in.to_decider() || SpeaksForItself(origin, in.inquiry_in.transaction()));
      if (understood) HandleInquiry(from, in.inquiry_in);
      break;
    case FrameType::kInquiryReply:
      understood =
          Parse(payload, &in.inquiry_reply_in) &&
          (in.inquiry_reply_in.from_decider() || SpeaksForItself(origin, in.inquiry_reply_in.transaction()));
      if (understood) HandleInquiryReply(from, in.inquiry_reply_in);
      break;
    // Between participants whose coordinator is dead.
    case FrameType::kDecisionRequest:
      understood = Parse(payload, &in.decision_request_in) &&
                   DecodeId(in.decision_request_in.transaction()).island < shared_.sites->islands();
      if (understood) HandleDecisionRequest(origin, in.decision_request_in);
      break;
    case FrameType::kDecisionReply:
      understood = Parse(payload, &in.decision_reply_in);
      if (understood) HandleDecisionReply(from, in.decision_reply_in);
      break;
    case FrameType::kProbe:
      understood = Parse(payload, &in.probe_in) &&
                   (!in.probe_in.at_participant() || SpeaksForItself(origin, in.probe_in.blocked_on())) &&
                   HandleProbe(in.probe_in);
      break;
    default:
      break;
  }
  if (!understood) {
    spdlog::warn("island {} worker {} sent a message of type {} that makes no sense here; dropped", from,
                 origin.peer.worker, static_cast<int>(type));
  }
}

void Worker::AnswerForForgotten(const coordinator::TransactionId& id, const CoordinatorEvent& event) {
  const bool this_life = id.boot_epoch == options_.boot_epoch;
  std::vector<coordinator::CoordinatorAction> actions;
  coordinator::AnswerWithoutMachine(
      event, this_life ? coordinator::Life::kThis : coordinator::Life::kEarlierLost, &actions);
  for (const coordinator::CoordinatorAction& action : actions) {
    if (action.kind == coordinator::CoordinatorAction::kSendOnePhaseConfirm) {
      SendConfirm(action.island, id);
    } else {
      SendInquiryReply(action.island, id, action.outcome);
    }
  }
}

void Worker::SendConfirm(uint32_t decider, const coordinator::TransactionId& id) {
  data::v1::OnePhaseConfirm& confirm = messages_->confirm_out;
  confirm.Clear();
  EncodeId(id, &confirm);
  links_.Send(decider, FrameType::kOnePhaseConfirm, confirm);
}

void Worker::SendInquiryReply(uint32_t island, const coordinator::TransactionId& id, Outcome outcome) {
  data::v1::InquiryReply& reply = messages_->inquiry_reply_out;
  reply.Clear();
  EncodeId(id, reply.mutable_transaction());
  reply.set_outcome(static_cast<data::v1::Outcome>(outcome));
  links_.Send(island, FrameType::kInquiryReply, reply);
}

void Worker::HandleInquiry(uint32_t from, const data::v1::Inquiry& inquiry) {
  const coordinator::TransactionId id = DecodeId(inquiry.transaction());
  if (inquiry.to_decider()) {
    ParticipantEntry* entry = FindParticipant(id);
    if (entry != nullptr && KnowsThisLife(inquiry.participant_epoch())) {
      StepParticipant(*entry, {.kind = ParticipantEvent::kCoordinatorInquiry});
    } else {
      AnswerForGone(id, {.kind = ParticipantEvent::kCoordinatorInquiry}, inquiry.participant_epoch());
    }
    return;
  }
  if (id.island != options_.island || id.worker != options_.index) return;
  const CoordinatorEvent event{.kind = CoordinatorEvent::kInquiry, .island = from};
  if (CoordinatorEntry* entry = FindCoordinated(id)) {
    StepCoordinator(*entry, event);
  } else {
    AnswerForForgotten(id, event);
  }
}

void Worker::HandleInquiryReply(uint32_t from, const data::v1::InquiryReply& reply) {
  const Outcome outcome = FromWire(reply.outcome());
  const coordinator::TransactionId id = DecodeId(reply.transaction());
  if (reply.from_decider()) {
    if (CoordinatorEntry* entry = FindCoordinated(id)) {
      StepCoordinator(*entry, {.kind = CoordinatorEvent::kInquiryReply, .island = from, .outcome = outcome});
    }
  } else if (ParticipantEntry* entry = FindParticipant(id)) {
    StepParticipant(*entry, {.kind = ParticipantEvent::kInquiryReply, .outcome = outcome});
  }
}

// The branch is on the worker that its coordinator's worker dials; the answer goes back the way the question
// came, so that whoever asked knows from the end of that link that no answer will follow.
void Worker::HandleDecisionRequest(const Origin& origin, const data::v1::DecisionRequest& request) {
  Worker* const owner =
      shared_.workers[DecodeId(request.transaction()).worker % static_cast<uint32_t>(shared_.workers.size())];
  const auto answer = [this, origin](const std::optional<data::v1::DecisionReply>& reply) {
    if (reply) links_.SendBack(origin, FrameType::kDecisionReply, *reply);
  };
  if (owner == this) return answer(AnswerFellow(origin.peer.island, request));
  owner->Post([this, owner, origin, request, answer] {
    const std::optional<data::v1::DecisionReply> reply = owner->AnswerFellow(origin.peer.island, request);
    Post([answer, reply] { answer(reply); });
  });
}

std::optional<data::v1::DecisionReply> Worker::AnswerFellow(uint32_t island,
                                                            const data::v1::DecisionRequest& request) {
  const coordinator::TransactionId id = DecodeId(request.transaction());
  const ParticipantEvent event{.kind = ParticipantEvent::kDecisionRequest, .island = island};
  const bool planted = Planted(PlantedBug::kAnswerForEarlierLife);
  const uint64_t asked_epoch = planted ? options_.boot_epoch : request.participant_epoch();
  ParticipantEntry* entry = KnowsThisLife(asked_epoch) ? FindParticipant(id) : nullptr;
  std::vector<coordinator::ParticipantAction> actions;
  if (entry != nullptr) {
    entry->machine.Step(event, &actions);
  } else {
    coordinator::AnswerWithoutMachine(event, TraceOf(id, asked_epoch), &actions);
  }
  if (actions.empty()) return std::nullopt;
  data::v1::DecisionReply reply;
  EncodeId(id, reply.mutable_transaction());
  reply.set_outcome(static_cast<data::v1::Outcome>(actions.front().outcome));
  if (entry == nullptr) return reply;
  for (const uint32_t gone : entry->machine.Gone()) reply.add_gone(gone);
  return reply;
}

void Worker::HandleDecisionReply(uint32_t from, const data::v1::DecisionReply& reply) {
  ParticipantEntry* entry = FindParticipant(DecodeId(reply.transaction()));
  if (entry == nullptr) return;
  StepParticipant(*entry, {.kind = ParticipantEvent::kDecisionReply,
                           .island = from,
                           .outcome = FromWire(reply.outcome()),
                           .gone = {reply.gone().data(), static_cast<size_t>(reply.gone_size())}});
}

void Worker::OnPeerUp(uint32_t island, uint64_t boot_epoch) {
  peers_up_.Set(links_.PeersUp());
  for (CoordinatorEntry* entry : Coordinated()) {
    const CoordinatorEntry::Peer* peer = entry->FindPeer(island);
    if (peer == nullptr) continue;
    // Durability `none`: an earlier life kept nothing.
    const bool gone =
        peer->boot_epoch != boot_epoch && !OverlooksEpochs(options_.boot_epoch, peer->boot_epoch);
    StepCoordinator(
        *entry, {.kind = gone ? CoordinatorEvent::kPeerGone : CoordinatorEvent::kPeerUp, .island = island});
  }
}

void Worker::OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) {
  spdlog::info("island {} (epoch {}) lost: {}", island, boot_epoch, std::string(why.message()));
  peers_up_.Set(links_.PeersUp());
  for (CoordinatorEntry* entry : Coordinated()) {
    if (entry->FindPeer(island) == nullptr) continue;
    // While it executes, its procedure is told; what to do about the other participants is the machine's
    // affair.
    RunningTransaction* transaction = entry->transaction;
    if (transaction != nullptr && entry->machine.state() == coordinator::Coordinator::State::kExecuting) {
      if (OverlooksEpochs(options_.boot_epoch, boot_epoch)) continue;
      transaction->Fail(AbortReason::kPeerLost, why);
      Resume(*transaction);
    }
    StepCoordinator(*entry, {.kind = CoordinatorEvent::kPeerLost, .island = island});
  }
}

void Worker::OnOriginUp(const Origin& origin) {
  for (ParticipantEntry* entry : Participants()) {
    if (entry->coordinator() == origin) StepParticipant(*entry, {.kind = ParticipantEvent::kCoordinatorUp});
  }
}

void Worker::OnOriginLost(const Origin& origin, const absl::Status&) {
  for (ParticipantEntry* entry : Participants()) {
    if (entry->coordinator() == origin) StepParticipant(*entry, {.kind = ParticipantEvent::kCoordinatorLost});
  }
}

}  // namespace islands::instance
