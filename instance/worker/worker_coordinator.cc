// The coordinator's side of distributed transactions: shipping operations, and carrying out what the state
// machine says.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "instance/worker/worker_internal.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using coordinator::CoordinatorAction;
using coordinator::CoordinatorEvent;
using coordinator::Outcome;
using messaging::FrameType;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

// Why a commit that was asked for ended as an abort.
Failure FailureOf(const CoordinatorEvent& event) {
  switch (event.kind) {
    case CoordinatorEvent::kVote:
      return {AbortReason::kVoteNo, absl::AbortedError(fmt::format("island {} voted no", event.island))};
    case CoordinatorEvent::kPeerSilent:
      return {AbortReason::kPeerUnresponsive,
              absl::UnavailableError(fmt::format("island {} does not move", event.island))};
    case CoordinatorEvent::kPeerLost:
    case CoordinatorEvent::kPeerUp:
    case CoordinatorEvent::kPeerGone:
      return {AbortReason::kPeerLost,
              absl::UnavailableError(fmt::format("island {} was lost", event.island))};
    case CoordinatorEvent::kTimeout:
      return {AbortReason::kDeadline, absl::DeadlineExceededError("the transaction's deadline has passed")};
    default:
      return {AbortReason::kRefused, absl::AbortedError("aborted by its participants")};
  }
}

}  // namespace

CoordinatorEntry& Worker::EntryFor(RunningTransaction& transaction) {
  if (transaction.entry_ != nullptr) return *transaction.entry_;
  std::unique_ptr<CoordinatorEntry> entry;
  if (spare_coordinators_.empty()) {
    entry = std::make_unique<CoordinatorEntry>();
  } else {
    entry = std::move(spare_coordinators_.back());
    spare_coordinators_.pop_back();
  }
  entry->id = transaction.id_;
  entry->machine.Reset();
  entry->transaction = &transaction;
  entry->deadline_ns = transaction.deadline_ns_;
  entry->overdue = false;
  entry->peers.clear();
  transaction.entry_ = entry.get();
  CoordinatorEntry& added = *(coordinators_[transaction.id_.sequence] = std::move(entry));
  counters_.coordinated.Set(coordinators_.size());
  return added;
}

// Some island that it needs does not keep up with what is sent to it. One that stands still is not waited
// for.
bool Worker::MustWaitForPeers(const RoutePlan& plan) {
  return std::any_of(plan.remote().begin(), plan.remote().end(), [this](const RoutePlan::Share& share) {
    return links_.QueuedBytes(share.island) > kCongestionBytes &&
           !watch_.Silent({share.island, links_.ServingWorker(share.island, options_.index)});
  });
}

void Worker::Ship(RunningTransaction& transaction, const Batch& batch) {
  CoordinatorEntry& entry = EntryFor(transaction);
  for (const RoutePlan::Share& share : transaction.plan_.remote()) {
    if (!links_.IsUp(share.island)) {
      transaction.Fail(AbortReason::kPeerLost,
                       absl::UnavailableError(fmt::format("island {} cannot be reached", share.island)));
      return;
    }
    if (watch_.Silent({share.island, links_.ServingWorker(share.island, options_.index)})) {
      transaction.Fail(AbortReason::kPeerUnresponsive,
                       absl::UnavailableError(fmt::format("island {} does not move", share.island)));
      return;
    }
    const uint64_t boot_epoch = links_.BootEpoch(share.island);
    CoordinatorEntry::Peer* peer = entry.FindPeer(share.island);
    if (peer == nullptr) peer = &entry.peers.emplace_back(CoordinatorEntry::Peer{share.island, boot_epoch});
    if (peer->boot_epoch != boot_epoch && !OverlooksEpochs(options_.boot_epoch, peer->boot_epoch)) {
      transaction.Fail(
          AbortReason::kPeerRestarted,
          absl::AbortedError(fmt::format("island {} restarted in mid-transaction", share.island)));
      return;
    }
    StepCoordinator(entry, {.kind = CoordinatorEvent::kParticipant, .island = share.island});
    data::v1::ExecuteRequest& request = messages_->execute_out;
    request.Clear();
    EncodeId(entry.id, &request);
    request.set_participant_epoch(boot_epoch);
    request.set_step(++peer->step);
    request.set_deadline_us((transaction.deadline_ns_ - now_ns_) / runtime::kNsPerUs);
    request.set_layout_generation(shared_.layout_generation);
    request.set_ended_below(ended_.below);
    for (const uint64_t sequence : ended_.open) request.add_still_open(sequence);
    EncodeOperations(batch, share.operations, &request);
    if (!links_.Send(share.island, FrameType::kExecuteRequest, request)) {
      transaction.Fail(AbortReason::kProcedure,
                       absl::ResourceExhaustedError(fmt::format(
                           "the operations for island {} do not fit into one message", share.island)));
      return;
    }
    ++transaction.pending_replies_;
    peer->answer_due = true;
  }
}

CoordinatorEntry* Worker::FindCoordinated(const coordinator::TransactionId& id) {
  if (id.island != options_.island || id.worker != options_.index || id.boot_epoch != options_.boot_epoch) {
    return nullptr;
  }
  const auto found = coordinators_.find(id.sequence);
  return found == coordinators_.end() ? nullptr : found->second.get();
}

void Worker::OnExecuteReply(uint32_t island, const data::v1::ExecuteReply& reply) {
  CoordinatorEntry* entry = FindCoordinated(DecodeId(reply));
  if (entry == nullptr || entry->transaction == nullptr) return;  // late: the transaction has ended
  RunningTransaction& transaction = *entry->transaction;
  CoordinatorEntry::Peer* peer = entry->FindPeer(island);
  const bool expected = peer != nullptr && peer->answer_due && peer->step == reply.step() &&
                        transaction.executing_ != nullptr && !transaction.failure.set();
  if (!expected) return;
  peer->answer_due = false;
  if (reply.code() != 0) {
    const auto reason = reply.abort_reason() < kAbortReasons ? static_cast<AbortReason>(reply.abort_reason())
                                                             : AbortReason::kRefused;
    transaction.Fail(reason == AbortReason::kNone ? AbortReason::kRefused : reason,
                     absl::Status(static_cast<absl::StatusCode>(reply.code()),
                                  fmt::format("island {}: {}", island, reply.message())));
    Resume(transaction);
    return;
  }
  for (const RoutePlan::Share& share : transaction.plan_.remote()) {
    if (share.island != island) continue;
    absl::Status status =
        DecodeResults(reply, island, share.operations, transaction.executing_, &transaction.chunks_);
    if (!status.ok()) transaction.Fail(AbortReason::kRefused, std::move(status));
  }
  if (reply.wrote()) StepCoordinator(*entry, {.kind = CoordinatorEvent::kWrote, .island = island});
  if (--transaction.pending_replies_ == 0 || transaction.failure.set()) Resume(transaction);
}

bool Worker::StepCoordinator(CoordinatorEntry& entry, const CoordinatorEvent& event) {
  std::vector<CoordinatorAction> actions = std::move(coordinator_actions_);
  actions.clear();
  entry.machine.Step(event, &actions);
  RunningTransaction* transaction = entry.transaction;
  bool forget = false;
  for (size_t i = 0; i < actions.size(); ++i) {
    const CoordinatorAction action = actions[i];
    if (action.kind == CoordinatorAction::kForceCommitRecord) {
      // Durability `none`: there is no log, so what is forced is durable at once.
      entry.machine.Step({.kind = CoordinatorEvent::kCommitRecordDurable}, &actions);
    } else if (action.kind == CoordinatorAction::kForget) {
      forget = true;
    } else {
      Perform(entry, action);
    }
  }
  coordinator_actions_ = std::move(actions);
  if (transaction != nullptr && transaction->outcome_ == Outcome::kAborted && !transaction->failure.set()) {
    transaction->failure = FailureOf(event);
  }
  if (forget) ForgetCoordinator(entry);
  return forget;
}

void Worker::Perform(CoordinatorEntry& entry, const CoordinatorAction& action) {
  switch (action.kind) {
    case CoordinatorAction::kSendPrepare: {
      data::v1::PrepareRequest& request = messages_->prepare_out;
      request.Clear();
      EncodeId(entry.id, &request);
      for (const CoordinatorEntry::Peer& peer : entry.peers) {
        if (peer.island == action.island) {
          request.set_participant_epoch(peer.boot_epoch);
        } else {
          request.add_fellows(peer.island);
          request.add_fellow_epochs(peer.boot_epoch);
        }
      }
      CountTwoPhase(TwoPhaseStep::kPrepareSent);
      links_.Send(action.island, FrameType::kPrepareRequest, request);
      break;
    }
    case CoordinatorAction::kSendCommitOnePhase: {
      data::v1::CommitOnePhase& request = messages_->one_phase_out;
      request.Clear();
      EncodeId(entry.id, &request);
      request.set_participant_epoch(entry.FindPeer(action.island)->boot_epoch);
      CountTwoPhase(TwoPhaseStep::kOnePhaseSent);
      links_.Send(action.island, FrameType::kCommitOnePhase, request);
      break;
    }
    case CoordinatorAction::kSendDecision: {
      if (Planted(PlantedBug::kForgetVictimBranch) && !action.commit &&
          action.island == entry.peers.front().island) {
        break;
      }
      // Again: only to one who takes it. It will be said again.
      CoordinatorEntry::Peer& peer = *entry.FindPeer(action.island);
      if (std::exchange(peer.told, true) && !WorthSaying(action.island)) break;
      data::v1::Decision& decision = messages_->decision_out;
      decision.Clear();
      EncodeId(entry.id, &decision);
      decision.set_commit(action.commit);
      decision.set_participant_epoch(peer.boot_epoch);
      CountTwoPhase(action.commit ? TwoPhaseStep::kCommitSent : TwoPhaseStep::kAbortSent);
      links_.Send(action.island, FrameType::kDecision, decision);
      break;
    }
    case CoordinatorAction::kSendOnePhaseConfirm:
      SendConfirm(action.island, entry.id);
      break;
    case CoordinatorAction::kSendInquiry: {
      if (!WorthSaying(action.island)) break;
      data::v1::Inquiry& inquiry = messages_->inquiry_out;
      inquiry.Clear();
      EncodeId(entry.id, inquiry.mutable_transaction());
      inquiry.set_to_decider(true);
      inquiry.set_participant_epoch(entry.FindPeer(action.island)->boot_epoch);
      CountTwoPhase(TwoPhaseStep::kInquirySent);
      links_.Send(action.island, FrameType::kInquiry, inquiry);
      break;
    }
    case CoordinatorAction::kSendInquiryReply:
      SendInquiryReply(action.island, entry.id, action.outcome);
      break;
    case CoordinatorAction::kCommitLocal:
      if (entry.transaction != nullptr) CommitBranch(*entry.transaction);
      break;
    case CoordinatorAction::kAbortLocal:
      if (entry.transaction != nullptr) RollbackBranch(*entry.transaction);
      break;
    case CoordinatorAction::kAnswer:
      if (entry.transaction == nullptr) break;
      entry.transaction->outcome_ = action.outcome;
      Resume(*entry.transaction);
      break;
    case CoordinatorAction::kLoseShare:
      counters_.shares_lost.Add(1);
      spdlog::warn("transaction {} is committed, but island {} died before it had done so: its share is lost",
                   entry.id.ToString(), action.island);
      break;
    case CoordinatorAction::kForceCommitRecord:
    case CoordinatorAction::kWriteEnd:  // nothing to write without a log
    case CoordinatorAction::kForget:
      break;
  }
}

void Worker::ForgetCoordinator(CoordinatorEntry& entry) {
  if (entry.transaction != nullptr) entry.transaction->entry_ = nullptr;
  const auto found = coordinators_.find(entry.id.sequence);
  ISLANDS_CHECK(found != coordinators_.end());
  spare_coordinators_.push_back(std::move(found->second));
  coordinators_.erase(found);
  counters_.coordinated.Set(coordinators_.size());
}

std::vector<CoordinatorEntry*> Worker::Coordinated() const {
  std::vector<CoordinatorEntry*> entries;
  for (const auto& [sequence, entry] : coordinators_) entries.push_back(entry.get());
  std::sort(entries.begin(), entries.end(), [](const CoordinatorEntry* a, const CoordinatorEntry* b) {
    return a->id.sequence < b->id.sequence;
  });
  return entries;
}

// Those that do not end for long, because a participant does not answer, are named; they are few, since
// nothing new is begun with it. A transaction that has begun may yet ship its first operation.
void Worker::NoteEnded() {
  uint64_t below = next_sequence_;
  std::vector<uint64_t> overdue;
  for (const auto& [sequence, entry] : coordinators_) {
    if (Planted(PlantedBug::kForgetOpenCommits) && entry->transaction == nullptr) continue;
    if (entry->overdue) {
      overdue.push_back(sequence);
    } else {
      below = std::min(below, sequence);
    }
  }
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (slot->begun_ns != 0) below = std::min(below, slot->transaction.id_.sequence);
  }
  ended_ = WhatEnded(below, std::move(overdue));
}

void Worker::SweepCoordinators() {
  for (CoordinatorEntry* entry : Coordinated()) {
    if (LookForDeadParticipants(*entry)) continue;
    if (now_ns_ < entry->deadline_ns) continue;
    entry->deadline_ns = now_ns_ + options_.transaction_timeout_ns;
    RunningTransaction* transaction = entry->transaction;
    if (transaction != nullptr && entry->machine.state() == coordinator::Coordinator::State::kExecuting) {
      // Its procedure is told, and aborts it.
      transaction->Fail(AbortReason::kDeadline, absl::DeadlineExceededError("no answer within the deadline"));
      Resume(*transaction);
    } else if (!StepCoordinator(*entry, {.kind = CoordinatorEvent::kTimeout})) {
      entry->overdue = entry->transaction == nullptr;
    }
  }
}

}  // namespace islands::instance
