// What comes over the links, and news about the links themselves.
#include <spdlog/spdlog.h>

#include <utility>

#include "coordinator/planted_bug.h"
#include "instance/worker_internal.h"

namespace islands::instance {

using coordinator::CoordinatorEvent;
using coordinator::Outcome;
using coordinator::ParticipantEvent;
using coordinator::Planted;
using coordinator::PlantedBug;
using messaging::FrameType;
using messaging::Origin;

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
      understood = Parse(payload, &in.prepare_in) && SpeaksForItself(origin, in.prepare_in);
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
        StepCoordinator(*entry, {.kind = CoordinatorEvent::kAcknowledged, .island = from});
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
        ConfirmForgotten(from, DecodeId(in.one_phase_reply_in));
      }
      break;
    // Either way; any worker may be asked and passes on.
    case FrameType::kInquiry:
      understood = Parse(payload, &in.inquiry_in) && in.inquiry_in.from_island() == from;
      if (understood) HandleInquiry(in.inquiry_in);
      break;
    case FrameType::kInquiryReply:
      understood = Parse(payload, &in.inquiry_reply_in) && in.inquiry_reply_in.from_island() == from;
      if (understood) HandleInquiryReply(in.inquiry_reply_in);
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

// A decider repeats its answer until it is confirmed; for a transaction that is over here the first
// confirmation was lost.
void Worker::ConfirmForgotten(uint32_t decider, const coordinator::TransactionId& id) {
  if (id.island != options_.island || id.boot_epoch != options_.boot_epoch) return;
  data::v1::OnePhaseConfirm& confirm = messages_->confirm_out;
  confirm.Clear();
  EncodeId(id, &confirm);
  links_.Send(decider, FrameType::kOnePhaseConfirm, confirm);
}

void Worker::HandleInquiry(const data::v1::Inquiry& inquiry) {
  const coordinator::TransactionId id = DecodeId(inquiry.transaction());
  if (inquiry.to_decider()) {
    if (id.island != inquiry.from_island()) return;
    if (ParticipantEntry* entry = FindParticipant(id)) {
      StepParticipant(*entry, {.kind = ParticipantEvent::kCoordinatorInquiry});
    } else {
      SendInquiryReply(id, coordinator::OutcomeOfForgotten(true), inquiry.from_island(),
                       inquiry.from_worker(), true);
    }
    return;
  }
  if (id.island != options_.island) return;
  const bool elsewhere = id.boot_epoch == options_.boot_epoch && id.worker != options_.index &&
                         id.worker < shared_.workers.size();
  if (elsewhere) {
    Worker* owner = shared_.workers[id.worker];
    owner->Post([owner, inquiry] { owner->HandleInquiry(inquiry); });
    return;
  }
  CoordinatorEntry* entry = FindCoordinated(id);
  Outcome outcome = coordinator::OutcomeOfForgotten(false);
  if (entry != nullptr) {
    // The machine answers the participant's island; its answer is sent to the worker that asked.
    std::vector<coordinator::CoordinatorAction> actions;
    entry->machine.Step({.kind = CoordinatorEvent::kInquiry, .island = inquiry.from_island()}, &actions);
    for (const coordinator::CoordinatorAction& action : actions) {
      if (action.kind == coordinator::CoordinatorAction::kSendInquiryReply) outcome = action.outcome;
    }
  }
  SendInquiryReply(id, outcome, inquiry.from_island(), inquiry.from_worker(), false);
}

void Worker::SendInquiryReply(const coordinator::TransactionId& id, Outcome outcome, uint32_t to_island,
                              uint32_t to_worker, bool from_decider) {
  data::v1::InquiryReply& reply = messages_->inquiry_reply_out;
  reply.Clear();
  EncodeId(id, reply.mutable_transaction());
  reply.set_outcome(static_cast<data::v1::Outcome>(outcome));
  reply.set_from_island(options_.island);
  reply.set_from_decider(from_decider);
  reply.set_to_worker(to_worker);
  links_.Send(to_island, FrameType::kInquiryReply, reply);
}

void Worker::HandleInquiryReply(const data::v1::InquiryReply& reply) {
  if (reply.to_worker() != options_.index && reply.to_worker() < shared_.workers.size()) {
    Worker* asker = shared_.workers[reply.to_worker()];
    asker->Post([asker, reply] { asker->HandleInquiryReply(reply); });
    return;
  }
  const Outcome outcome = FromWire(reply.outcome());
  if (reply.from_decider()) {
    if (CoordinatorEntry* entry = FindCoordinated(DecodeId(reply.transaction()))) {
      StepCoordinator(
          *entry,
          {.kind = CoordinatorEvent::kInquiryReply, .island = reply.from_island(), .outcome = outcome});
    }
  } else if (reply.transaction().island() == reply.from_island()) {
    if (ParticipantEntry* entry = FindParticipant(DecodeId(reply.transaction()))) {
      StepParticipant(*entry, {.kind = ParticipantEvent::kInquiryReply, .outcome = outcome});
    }
  }
}

void Worker::OnPeerUp(uint32_t island, uint64_t boot_epoch) {
  peers_up_.Set(links_.PeersUp());
  for (CoordinatorEntry* entry : Coordinated()) {
    const CoordinatorEntry::Peer* peer = entry->FindPeer(island);
    if (peer == nullptr) continue;
    const bool restarted = peer->boot_epoch != boot_epoch && !Planted(PlantedBug::kIgnoreBootEpoch);
    StepCoordinator(*entry, {.kind = CoordinatorEvent::kPeerUp, .island = island, .restarted = restarted});
  }
  for (ParticipantEntry* entry : Participants()) {
    if (entry->id.island != island) continue;
    entry->lost_since_ns = 0;
    const bool restarted = entry->id.boot_epoch != boot_epoch;
    StepParticipant(*entry, {.kind = restarted ? ParticipantEvent::kCoordinatorRestarted
                                               : ParticipantEvent::kCoordinatorUp});
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
      if (Planted(PlantedBug::kIgnoreBootEpoch)) continue;
      transaction->Fail(AbortReason::kPeerLost, why);
      Resume(*transaction);
    }
    StepCoordinator(*entry, {.kind = CoordinatorEvent::kPeerLost, .island = island});
  }
  for (ParticipantEntry* entry : Participants()) {
    if (entry->id.island != island) continue;
    entry->lost_since_ns = now_ns_;
    StepParticipant(*entry, {.kind = ParticipantEvent::kCoordinatorLost});
  }
}

}  // namespace islands::instance
