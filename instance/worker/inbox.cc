#include "instance/worker/inbox.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "instance/worker/messages.h"
#include "instance/worker/wire.h"

namespace islands::instance {

using coordinator::Outcome;
using coordinator::VoteKind;
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

VoteKind FromWire(data::v1::VoteKind vote) {
  switch (vote) {
    case data::v1::VOTE_YES:
      return VoteKind::kYes;
    case data::v1::VOTE_READ:
      return VoteKind::kRead;
    default:
      return VoteKind::kNo;
  }
}

// Whether it names a transaction at all: what answers does (Outbox checks it).
template <typename Message>
bool NamesOne(const Message& id) {
  return id.sequence() != 0;
}

// A coordinator speaks only of its own transactions of this life, through the worker that runs them.
template <typename Message>
bool SpeaksForItself(const Origin& origin, const Message& id) {
  return NamesOne(id) && id.island() == origin.peer.island && id.worker() == origin.peer.worker &&
         id.boot_epoch() == origin.boot_epoch;
}

}  // namespace

// What ends a transaction of an earlier life, where that is kept, its coordinator says in a later one.
template <typename Message>
bool Inbox::SpeaksForEarlier(const Origin& origin, const Message& id) const {
  if (!options_.keeps || id.boot_epoch() >= origin.boot_epoch) return SpeaksForItself(origin, id);
  return NamesOne(id) && id.island() == origin.peer.island && id.worker() == origin.peer.worker;
}

Inbox::Inbox(Options options, CoordinatorInbox& coordinator, ParticipantInbox& participant,
             ProbeInbox& probes, RunInbox& run)
    : options_(options),
      coordinator_(coordinator),
      participant_(participant),
      probes_(probes),
      run_(run),
      messages_(std::make_unique<Messages>()) {}

Inbox::~Inbox() = default;

Inbox::Reader Inbox::ReaderOf(FrameType type) {
  static constexpr auto kReaders = [] {
    std::array<Reader, 256> readers{};
    const auto set = [&](FrameType of, Reader reader) { readers[static_cast<uint8_t>(of)] = reader; };
    set(FrameType::kExecuteRequest, &Inbox::ReadExecute);
    set(FrameType::kPrepareRequest, &Inbox::ReadPrepare);
    set(FrameType::kDecision, &Inbox::ReadDecision);
    set(FrameType::kCommitOnePhase, &Inbox::ReadCommitOnePhase);
    set(FrameType::kOnePhaseConfirm, &Inbox::ReadConfirm);
    set(FrameType::kExecuteReply, &Inbox::ReadExecuteReply);
    set(FrameType::kVote, &Inbox::ReadVote);
    set(FrameType::kAcknowledge, &Inbox::ReadAcknowledge);
    set(FrameType::kOnePhaseReply, &Inbox::ReadOnePhaseReply);
    set(FrameType::kInquiry, &Inbox::ReadInquiry);
    set(FrameType::kInquiryReply, &Inbox::ReadInquiryReply);
    set(FrameType::kDecisionRequest, &Inbox::ReadDecisionRequest);
    set(FrameType::kDecisionReply, &Inbox::ReadDecisionReply);
    set(FrameType::kProbe, &Inbox::ReadProbe);
    set(FrameType::kClients, &Inbox::ReadClients);
    return readers;
  }();
  const auto number = static_cast<size_t>(type);
  return number < kReaders.size() ? kReaders[number] : nullptr;
}

void Inbox::Take(const Origin& origin, FrameType type, Payload payload) {
  const Reader reader = ReaderOf(type);
  if (reader != nullptr && (this->*reader)(origin, payload)) return;
  spdlog::warn("island {} worker {} sent a message of type {} that makes no sense here; dropped",
               origin.peer.island, origin.peer.worker, static_cast<int>(type));
}

bool Inbox::ReadExecute(const Origin& origin, Payload payload) {
  data::v1::ExecuteRequest& request = messages_->execute;
  if (!Parse(payload, &request) || !SpeaksForItself(origin, request)) return false;
  participant_.OnExecute(origin, request);
  return true;
}

bool Inbox::ReadPrepare(const Origin& origin, Payload payload) {
  data::v1::PrepareRequest& request = messages_->prepare;
  if (!Parse(payload, &request) || !SpeaksForItself(origin, request)) return false;
  if (request.fellow_epochs_size() != request.fellows_size()) return false;
  // Each once, and others than the two who are there anyhow.
  fellows_.clear();
  for (int i = 0; i < request.fellows_size(); ++i) {
    const uint32_t island = request.fellows(i);
    const bool known = std::any_of(fellows_.begin(), fellows_.end(),
                                   [&](const Fellow& fellow) { return fellow.island == island; });
    if (known || island >= options_.islands || island == options_.island || island == request.island())
      return false;
    fellows_.push_back({island, request.fellow_epochs(i)});
  }
  participant_.OnPrepare(DecodeId(request), request.participant_epoch(), request.early(), fellows_);
  return true;
}

bool Inbox::ReadDecision(const Origin& origin, Payload payload) {
  data::v1::Decision& decision = messages_->decision;
  if (!Parse(payload, &decision) || !SpeaksForEarlier(origin, decision)) return false;
  participant_.OnDecision(DecodeId(decision), decision.participant_epoch(), decision.commit());
  return true;
}

bool Inbox::ReadCommitOnePhase(const Origin& origin, Payload payload) {
  data::v1::CommitOnePhase& request = messages_->one_phase;
  if (!Parse(payload, &request) || !SpeaksForItself(origin, request)) return false;
  participant_.OnCommitOnePhase(DecodeId(request), request.participant_epoch());
  return true;
}

bool Inbox::ReadConfirm(const Origin& origin, Payload payload) {
  data::v1::OnePhaseConfirm& confirm = messages_->confirm;
  if (!Parse(payload, &confirm) || !SpeaksForEarlier(origin, confirm)) return false;
  participant_.OnConfirm(DecodeId(confirm));
  return true;
}

bool Inbox::ReadExecuteReply(const Origin& origin, Payload payload) {
  data::v1::ExecuteReply& reply = messages_->execute_reply;
  if (!Parse(payload, &reply) || !NamesOne(reply)) return false;
  coordinator_.OnExecuteReply(origin.peer.island, reply);
  return true;
}

bool Inbox::ReadVote(const Origin& origin, Payload payload) {
  data::v1::Vote& vote = messages_->vote;
  if (!Parse(payload, &vote) || !NamesOne(vote)) return false;
  coordinator_.OnVote(origin.peer.island, DecodeId(vote), FromWire(vote.vote()));
  return true;
}

bool Inbox::ReadAcknowledge(const Origin& origin, Payload payload) {
  data::v1::Acknowledge& acknowledge = messages_->acknowledge;
  if (!Parse(payload, &acknowledge) || !NamesOne(acknowledge)) return false;
  coordinator_.OnAcknowledge(origin.peer.island, DecodeId(acknowledge), acknowledge.gone());
  return true;
}

bool Inbox::ReadOnePhaseReply(const Origin& origin, Payload payload) {
  data::v1::OnePhaseReply& reply = messages_->one_phase_reply;
  if (!Parse(payload, &reply) || !NamesOne(reply)) return false;
  coordinator_.OnOnePhaseReply(origin.peer.island, DecodeId(reply), FromWire(reply.outcome()),
                               reply.commit_epoch());
  return true;
}

bool Inbox::ReadInquiry(const Origin& origin, Payload payload) {
  data::v1::Inquiry& inquiry = messages_->inquiry;
  if (!Parse(payload, &inquiry) || !NamesOne(inquiry.transaction())) return false;
  const coordinator::TransactionId id = DecodeId(inquiry.transaction());
  if (!inquiry.to_decider()) {
    coordinator_.OnInquiry(origin.peer.island, id);
    return true;
  }
  if (!SpeaksForEarlier(origin, inquiry.transaction())) return false;
  participant_.OnInquiryToDecider(id, inquiry.participant_epoch());
  return true;
}

bool Inbox::ReadInquiryReply(const Origin& origin, Payload payload) {
  data::v1::InquiryReply& reply = messages_->inquiry_reply;
  if (!Parse(payload, &reply) || !NamesOne(reply.transaction())) return false;
  const coordinator::TransactionId id = DecodeId(reply.transaction());
  const Outcome outcome = FromWire(reply.outcome());
  if (reply.from_decider()) {
    coordinator_.OnDecidersReply(origin.peer.island, id, outcome, reply.commit_epoch());
    return true;
  }
  if (!SpeaksForEarlier(origin, reply.transaction())) return false;
  participant_.OnInquiryReply(id, outcome);
  return true;
}

bool Inbox::ReadDecisionRequest(const Origin& origin, Payload payload) {
  data::v1::DecisionRequest& request = messages_->decision_request;
  if (!Parse(payload, &request) || !NamesOne(request.transaction())) return false;
  if (request.transaction().island() >= options_.islands) return false;
  participant_.OnDecisionRequest(origin, DecodeId(request.transaction()), request.participant_epoch());
  return true;
}

bool Inbox::ReadDecisionReply(const Origin& origin, Payload payload) {
  data::v1::DecisionReply& reply = messages_->decision_reply;
  if (!Parse(payload, &reply) || !NamesOne(reply.transaction())) return false;
  participant_.OnDecisionReply(origin.peer.island, DecodeId(reply.transaction()), FromWire(reply.outcome()),
                               {reply.gone().data(), static_cast<size_t>(reply.gone_size())});
  return true;
}

bool Inbox::ReadProbe(const Origin& origin, Payload payload) {
  data::v1::Probe& message = messages_->probe;
  if (!Parse(payload, &message)) return false;
  if (message.at_participant() && !SpeaksForItself(origin, message.blocked_on())) return false;
  const Probe probe{.initiator = DecodeId(message.initiator()),
                    .blocked_on = DecodeId(message.blocked_on()),
                    .from_island = message.from_island(),
                    .hops = message.hops(),
                    .at_participant = message.at_participant(),
                    .chase = message.chase()};
  if (!MakesSense(probe)) return false;
  probes_.OnProbe(probe);
  return true;
}

bool Inbox::ReadClients(const Origin&, Payload payload) {
  data::v1::Clients& clients = messages_->clients;
  if (!Parse(payload, &clients) || clients.run_id() == 0) return false;
  due_ns_.assign(clients.due_ns().begin(), clients.due_ns().end());
  if (std::any_of(due_ns_.begin(), due_ns_.end(), [](int64_t due_ns) { return due_ns < 0; })) return false;
  run_.OnClients(clients.run_id(), due_ns_);
  return true;
}

bool Inbox::MakesSense(const Probe& probe) const {
  if (!probe.initiator.valid() || !probe.blocked_on.valid()) return false;
  if (probe.initiator.island >= options_.islands || probe.from_island >= options_.islands) return false;
  if (probe.at_participant) return true;
  // An earlier life may have had more workers.
  const bool ours = probe.blocked_on.boot_epoch == options_.boot_epoch;
  return probe.blocked_on.island == options_.island && (!ours || probe.blocked_on.worker < options_.workers);
}

}  // namespace islands::instance
