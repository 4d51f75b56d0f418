#include "instance/worker/coordinated.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "proto/data.pb.h"
#include "runtime/check.h"

namespace islands::instance {

using coordinator::CoordinatorAction;
using coordinator::CoordinatorEvent;
using coordinator::Outcome;
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

bool IsExecuting(const CoordinatorEntry& entry) {
  return entry.machine.state() == coordinator::Coordinator::State::kExecuting;
}

}  // namespace

CoordinatorEntry& Coordinated::EntryFor(CoordinatedTransaction& transaction) {
  if (transaction.entry != nullptr) return *transaction.entry;
  std::unique_ptr<CoordinatorEntry> entry;
  if (spare_.empty()) {
    entry = std::make_unique<CoordinatorEntry>();
  } else {
    entry = std::move(spare_.back());
    spare_.pop_back();
  }
  entry->id = transaction.own_id;
  entry->machine.Reset();
  entry->transaction = &transaction;
  entry->begun_ns = turns_.now_ns();
  entry->deadline_ns = transaction.deadline_ns;
  entry->logged_ns = 0;
  entry->overdue = entry->over = entry->early = false;
  entry->peers.clear();
  transaction.entry = entry.get();
  CoordinatorEntry& added = *(entries_[transaction.own_id.sequence] = std::move(entry));
  counters_.coordinated.Set(entries_.size() + restored_.size());
  return added;
}

void Coordinated::Ship(CoordinatedTransaction& transaction, const Batch& batch) {
  EntryFor(transaction);
  if (transaction.nothing_more) {
    return transaction.Fail(
        AbortReason::kProcedure,
        absl::FailedPreconditionError("a batch has operations on other islands, after one that said it was "
                                      "the last to have any (Batch::LastElsewhere)"));
  }
  for (const RoutePlan::Share& share : transaction.plan.remote()) {
    if (!ShipShare(transaction, batch, share)) return;
  }
}

const Fellow* Coordinated::LostVoter(const CoordinatorEntry& entry) const {
  if (!entry.early || Planted(PlantedBug::kTrustEarlierVotes)) return nullptr;
  for (const CoordinatorEntry::Peer& peer : entry.peers) {
    if (OverlooksEpochs(options_.boot_epoch, peer.boot_epoch)) continue;
    if (!peers_.IsLast(peer.island, peer.boot_epoch)) return &peer;
  }
  return nullptr;
}

void Coordinated::PrepareEarly(CoordinatedTransaction& transaction, const Batch& batch) {
  CoordinatorEntry& entry = *transaction.entry;
  entry.early = true;
  const auto is_sent_changes = [&](uint32_t island) {
    const auto changes = [&](const RoutedOperation& routed) {
      return IsWrite(batch.operation(routed.operation).kind);
    };
    for (const RoutePlan::Share& share : transaction.plan.remote()) {
      if (share.island == island) {
        return std::any_of(share.operations.begin(), share.operations.end(), changes);
      }
    }
    return false;
  };
  for (const CoordinatorEntry::Peer& peer : entry.peers) {
    if (entry.machine.Wrote(peer.island) || is_sent_changes(peer.island))
      Step(entry, {.kind = CoordinatorEvent::kPrepareEarly, .island = peer.island});
  }
}

bool Coordinated::ShipShare(CoordinatedTransaction& transaction, const Batch& batch,
                            const RoutePlan::Share& share) {
  CoordinatorEntry& entry = *transaction.entry;
  if (!links_.IsUp(share.island)) {
    transaction.Fail(AbortReason::kPeerLost,
                     absl::UnavailableError(fmt::format("island {} cannot be reached", share.island)));
    return false;
  }
  if (peers_.Silent(share.island)) {
    transaction.Fail(AbortReason::kPeerUnresponsive,
                     absl::UnavailableError(fmt::format("island {} does not move", share.island)));
    return false;
  }
  const uint64_t boot_epoch = links_.BootEpoch(share.island);
  CoordinatorEntry::Peer* peer = entry.FindPeer(share.island);
  if (peer == nullptr) peer = &entry.peers.emplace_back(CoordinatorEntry::Peer{{share.island, boot_epoch}});
  if (peer->boot_epoch != boot_epoch && !OverlooksEpochs(options_.boot_epoch, peer->boot_epoch)) {
    transaction.Fail(AbortReason::kPeerRestarted,
                     absl::AbortedError(fmt::format("island {} restarted in mid-transaction", share.island)));
    return false;
  }
  Step(entry, {.kind = CoordinatorEvent::kParticipant, .island = share.island});
  const Outbox::Step step{.participant_epoch = boot_epoch,
                          .number = ++peer->step,
                          .deadline_us = (transaction.deadline_ns - turns_.now_ns()) / runtime::kNsPerUs,
                          .idle_us = transaction.idle_ns / runtime::kNsPerUs,
                          .layout_generation = shared_.layout_generation};
  if (!outbox_.SendExecute(share.island, entry.id, step, ended_, batch, share.operations)) {
    transaction.Fail(AbortReason::kProcedure,
                     absl::ResourceExhaustedError(fmt::format(
                         "the operations for island {} do not fit into one message", share.island)));
    return false;
  }
  ++transaction.pending_replies;
  peer->answer_due = true;
  return true;
}

CoordinatorEntry* Coordinated::Find(const Id& id) {
  if (!options_.Began(id)) {
    const auto restored = restored_.find(id);
    return restored == restored_.end() ? nullptr : restored->second.get();
  }
  const auto found = entries_.find(id.sequence);
  return found == entries_.end() ? nullptr : found->second.get();
}

void Coordinated::Restore(const Id& id, const recovery::Unsettled::Decision& decision) {
  ISLANDS_CHECK(id.island == options_.island && id.worker == options_.index && !options_.Began(id));
  auto entry = std::make_unique<CoordinatorEntry>();
  entry->id = id;
  entry->begun_ns = entry->logged_ns = turns_.now_ns();
  std::vector<CoordinatorAction> carried_out;  // by the life that decided
  const auto replay = [&](const CoordinatorEvent& event) { entry->machine.Step(event, &carried_out); };
  for (const Fellow& fellow : decision.participants) {
    entry->peers.push_back(CoordinatorEntry::Peer{fellow});
    replay({.kind = CoordinatorEvent::kParticipant, .island = fellow.island});
  }
  replay({.kind = CoordinatorEvent::kCommitRequested, .local_wrote = true});
  for (const Fellow& fellow : decision.participants) {
    replay({.kind = CoordinatorEvent::kVote, .island = fellow.island, .vote = coordinator::VoteKind::kYes});
  }
  replay({.kind = CoordinatorEvent::kCommitRecordDurable});
  ISLANDS_CHECK(entry->machine.state() == coordinator::Coordinator::State::kCommitting);
  restored_[id] = std::move(entry);
  engine_.NoteEarlier(log::EntryKind::kDecision, id, decision.since);
  counters_.coordinated.Set(entries_.size() + restored_.size());
}

std::vector<CoordinatorEntry*> Coordinated::All() const {
  std::vector<CoordinatorEntry*> entries;
  for (const auto& [sequence, entry] : entries_) entries.push_back(entry.get());
  for (const auto& [id, entry] : restored_) entries.push_back(entry.get());
  std::sort(entries.begin(), entries.end(),
            [](const CoordinatorEntry* a, const CoordinatorEntry* b) { return a->id < b->id; });
  return entries;
}

bool Coordinated::Step(CoordinatorEntry& entry, const CoordinatorEvent& event) {
  const runtime::WorkScope committing(runtime::Work::kCommitting);
  std::vector<CoordinatorAction> actions = std::move(actions_);
  actions.clear();
  entry.machine.Step(event, &actions);
  CoordinatedTransaction* transaction = entry.transaction;
  for (size_t i = 0; i < actions.size(); ++i) {
    const CoordinatorAction action = actions[i];
    if (action.kind == CoordinatorAction::kForceCommitRecord) {
      Decide(entry);
      // In the log before any message leaves, or there is none: durable at once.
      entry.machine.Step({.kind = CoordinatorEvent::kCommitRecordDurable}, &actions);
    } else if (const Performer perform = PerformerOf(action.kind)) {
      (this->*perform)(entry, action);
    }
  }
  actions_ = std::move(actions);
  if (transaction != nullptr && transaction->outcome == Outcome::kAborted && !transaction->failure.set()) {
    transaction->failure = FailureOf(event);
  }
  const bool over = entry.over;
  if (over) Forget(entry);
  return over;
}

Coordinated::Performer Coordinated::PerformerOf(Action::Kind kind) {
  static constexpr auto kPerformers = [] {
    std::array<Performer, Action::kForget + 1> performers{};
    performers[Action::kSendPrepare] = &Coordinated::SendPrepare;
    performers[Action::kSendCommitOnePhase] = &Coordinated::SendCommitOnePhase;
    performers[Action::kSendDecision] = &Coordinated::SendDecision;
    performers[Action::kSendOnePhaseConfirm] = &Coordinated::SendConfirm;
    performers[Action::kSendInquiry] = &Coordinated::SendInquiry;
    performers[Action::kSendInquiryReply] = &Coordinated::SendInquiryReply;
    performers[Action::kCommitLocal] = &Coordinated::CommitLocal;
    performers[Action::kAbortLocal] = &Coordinated::AbortLocal;
    performers[Action::kAnswer] = &Coordinated::Answer;
    performers[Action::kLoseShare] = &Coordinated::LoseShare;
    performers[Action::kWriteEnd] = &Coordinated::WriteEnd;
    performers[Action::kForget] = &Coordinated::EndEntry;
    return performers;
  }();
  return kPerformers[kind];
}

// That have something to commit.
void Coordinated::FindParticipants(const CoordinatorEntry& entry) {
  participants_.clear();
  for (const CoordinatorEntry::Peer& peer : entry.peers) {
    if (entry.machine.VotedYes(peer.island)) participants_.push_back(peer);
  }
}

// Where no other island has anything to commit, the branch's own commit says it all.
void Coordinated::Decide(CoordinatorEntry& entry) {
  FindParticipants(entry);
  if (participants_.empty()) return;
  ISLANDS_CHECK(entry.transaction != nullptr);  // whoever asked for the commit waits for this
  engine_.Decide(entry.transaction->branch, participants_);
  entry.logged_ns = turns_.now_ns();
}

// As Branches::Repeat.
void Coordinated::Repeat(CoordinatorEntry& entry) {
  if (entry.logged_ns == 0 || turns_.now_ns() - entry.logged_ns < kRepeatIntervalNs) return;
  FindParticipants(entry);
  if (engine_.RepeatDecision(entry.id, participants_)) entry.logged_ns = turns_.now_ns();
}

void Coordinated::WriteEnd(CoordinatorEntry& entry, const Action&) { engine_.NoteEnd(entry.id); }

void Coordinated::SendPrepare(CoordinatorEntry& entry, const Action& action) {
  participants_.assign(entry.peers.begin(), entry.peers.end());
  outbox_.SendPrepare(*entry.FindPeer(action.island), entry.id, action.early, participants_);
}

void Coordinated::SendCommitOnePhase(CoordinatorEntry& entry, const Action& action) {
  outbox_.SendCommitOnePhase(*entry.FindPeer(action.island), entry.id);
}

void Coordinated::SendDecision(CoordinatorEntry& entry, const Action& action) {
  const bool first = action.island == entry.peers.front().island;
  if (Planted(PlantedBug::kForgetVictimBranch) && !action.commit && first) return;
  // Again: only to one who takes it. It will be said again.
  CoordinatorEntry::Peer& peer = *entry.FindPeer(action.island);
  if (std::exchange(peer.told, true) && !peers_.WorthSaying(action.island)) return;
  outbox_.SendDecision(peer, entry.id, action.commit);
}

void Coordinated::SendConfirm(CoordinatorEntry& entry, const Action& action) {
  outbox_.SendConfirm(action.island, entry.id);
}

void Coordinated::SendInquiry(CoordinatorEntry& entry, const Action& action) {
  if (!peers_.WorthSaying(action.island)) return;
  outbox_.SendInquiryToDecider(*entry.FindPeer(action.island), entry.id);
}

void Coordinated::SendInquiryReply(CoordinatorEntry& entry, const Action& action) {
  outbox_.SendInquiryReply(action.island, entry.id, action.outcome);
}

void Coordinated::CommitLocal(CoordinatorEntry& entry, const Action&) {
  if (entry.transaction != nullptr) engine_.Commit(entry.transaction->branch);
}

void Coordinated::AbortLocal(CoordinatorEntry& entry, const Action&) {
  if (entry.transaction != nullptr) engine_.Rollback(entry.transaction->branch);
}

void Coordinated::Answer(CoordinatorEntry& entry, const Action& action) {
  if (entry.transaction == nullptr) return;
  entry.transaction->outcome = action.outcome;
  turns_.Resume(*entry.transaction);
}

void Coordinated::LoseShare(CoordinatorEntry& entry, const Action& action) {
  counters_.shares_lost.Add(1);
  spdlog::warn("transaction {} is committed, but island {} died before it had done so: its share is lost",
               entry.id.ToString(), action.island);
}

void Coordinated::EndEntry(CoordinatorEntry& entry, const Action&) { entry.over = true; }

void Coordinated::Forget(CoordinatorEntry& entry) {
  if (entry.transaction != nullptr) {
    ISLANDS_CHECK(entry.transaction->entry == &entry);
    entry.transaction->entry = nullptr;  // invariant 2
  }
  ISLANDS_CHECK(entry.machine.done());
  if (options_.Began(entry.id)) {
    const auto found = entries_.find(entry.id.sequence);
    ISLANDS_CHECK(found != entries_.end());
    entry.over = false;
    spare_.push_back(std::move(found->second));
    entries_.erase(found);
  } else {
    restored_.erase(entry.id);
  }
  counters_.coordinated.Set(entries_.size() + restored_.size());
}

void Coordinated::CheckInvariants() const {
  for (const auto& [sequence, entry] : entries_) {
    ISLANDS_CHECK(options_.Began(entry->id) && entry->id.sequence == sequence && sequence < next_sequence_);
    ISLANDS_CHECK(!entry->over && !entry->machine.done());
    entry->machine.CheckInvariants();
    const CoordinatedTransaction* transaction = entry->transaction;
    if (transaction == nullptr) continue;
    ISLANDS_CHECK(transaction->entry == entry.get() && transaction->own_id == entry->id);
    const auto due = std::count_if(entry->peers.begin(), entry->peers.end(),
                                   [](const CoordinatorEntry::Peer& peer) { return peer.answer_due; });
    ISLANDS_CHECK(!transaction->Executes() || transaction->pending_replies == due);
  }
}

void Coordinated::StepOrAnswer(const Id& id, const CoordinatorEvent& event) {
  if (CoordinatorEntry* entry = Find(id)) {
    Step(*entry, event);
    return;
  }
  using coordinator::Life;
  const bool this_life = id.boot_epoch == options_.boot_epoch;
  const Life earlier = shared_.keeps ? Life::kEarlierKept : Life::kEarlierLost;
  std::vector<CoordinatorAction> actions;
  coordinator::AnswerWithoutMachine(event, this_life ? Life::kThis : earlier, &actions);
  for (const CoordinatorAction& action : actions) {
    if (action.kind == CoordinatorAction::kSendOnePhaseConfirm) {
      outbox_.SendConfirm(action.island, id);
    } else {
      outbox_.SendInquiryReply(action.island, id, action.outcome);
    }
  }
}

void Coordinated::OnExecuteReply(uint32_t from, const data::v1::ExecuteReply& reply) {
  CoordinatorEntry* entry = Find(DecodeId(reply));
  if (entry == nullptr || entry->transaction == nullptr) return;  // late: the transaction has ended
  CoordinatedTransaction& transaction = *entry->transaction;
  CoordinatorEntry::Peer* peer = entry->FindPeer(from);
  const bool expected =
      peer != nullptr && peer->answer_due && peer->step == reply.step() && transaction.Executes();
  if (!expected) return;  // late or twice: its step is over
  peer->answer_due = false;
  transaction.others_epoch = std::max(transaction.others_epoch, reply.commit_epoch());
  if (reply.code() != 0) {
    const auto reason = reply.abort_reason() < kAbortReasons ? static_cast<AbortReason>(reply.abort_reason())
                                                             : AbortReason::kRefused;
    transaction.Fail(reason == AbortReason::kNone ? AbortReason::kRefused : reason,
                     absl::Status(static_cast<absl::StatusCode>(reply.code()),
                                  fmt::format("island {}: {}", from, reply.message())));
    turns_.Resume(transaction);
    return;
  }
  for (const RoutePlan::Share& share : transaction.plan.remote()) {
    if (share.island != from) continue;
    absl::Status status =
        DecodeResults(reply, from, share.operations, transaction.executing, &transaction.chunks);
    if (!status.ok()) transaction.Fail(AbortReason::kRefused, std::move(status));
  }
  if (reply.wrote()) Step(*entry, {.kind = CoordinatorEvent::kWrote, .island = from});
  if (--transaction.pending_replies == 0 || transaction.failure.set()) turns_.Resume(transaction);
}

void Coordinated::OnVote(uint32_t from, const Id& id, coordinator::VoteKind vote) {
  StepOrAnswer(id, {.kind = CoordinatorEvent::kVote, .island = from, .vote = vote});
}

void Coordinated::OnAcknowledge(uint32_t from, const Id& id, bool gone) {
  StepOrAnswer(
      id, {.kind = gone ? CoordinatorEvent::kPeerGone : CoordinatorEvent::kAcknowledged, .island = from});
}

void Coordinated::DependOn(const Id& id, uint64_t epoch) {
  const CoordinatorEntry* entry = epoch == 0 ? nullptr : Find(id);
  if (entry == nullptr || entry->transaction == nullptr) return;
  entry->transaction->others_epoch = std::max(entry->transaction->others_epoch, epoch);
}

void Coordinated::OnOnePhaseReply(uint32_t from, const Id& id, Outcome outcome, uint64_t epoch) {
  DependOn(id, epoch);
  StepOrAnswer(id, {.kind = CoordinatorEvent::kOnePhaseReply, .island = from, .outcome = outcome});
}

void Coordinated::OnInquiry(uint32_t from, const Id& id) {
  if (id.island != options_.island || id.worker != options_.index) return;  // invariant 3
  StepOrAnswer(id, {.kind = CoordinatorEvent::kInquiry, .island = from});
}

void Coordinated::OnDecidersReply(uint32_t from, const Id& id, Outcome outcome, uint64_t epoch) {
  DependOn(id, epoch);
  StepOrAnswer(id, {.kind = CoordinatorEvent::kInquiryReply, .island = from, .outcome = outcome});
}

void Coordinated::OnPeerUp(uint32_t island, uint64_t boot_epoch) {
  for (CoordinatorEntry* entry : All()) {
    const CoordinatorEntry::Peer* peer = entry->FindPeer(island);
    if (peer == nullptr) continue;
    const bool restarted =
        peer->boot_epoch != boot_epoch && !OverlooksEpochs(options_.boot_epoch, peer->boot_epoch);
    const bool gone = restarted && !shared_.keeps;
    Step(*entry, {.kind = gone ? CoordinatorEvent::kPeerGone : CoordinatorEvent::kPeerUp,
                  .island = island,
                  .restarted = restarted});
  }
}

// While it executes, its procedure is told; what to do about the other participants is the machine's affair.
void Coordinated::FailExecuting(CoordinatorEntry& entry, AbortReason reason, absl::Status why) {
  if (entry.transaction == nullptr || !IsExecuting(entry)) return;
  entry.transaction->Fail(reason, std::move(why));
  turns_.Resume(*entry.transaction);
}

void Coordinated::OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) {
  const bool overlooked = OverlooksEpochs(options_.boot_epoch, boot_epoch);
  for (CoordinatorEntry* entry : All()) {
    if (entry->FindPeer(island) == nullptr) continue;
    if (overlooked && entry->transaction != nullptr && IsExecuting(*entry)) continue;
    FailExecuting(*entry, AbortReason::kPeerLost, why);
    Step(*entry, {.kind = CoordinatorEvent::kPeerLost, .island = island});
  }
}

void Coordinated::OnPeerSilent(uint32_t island) {
  for (CoordinatorEntry* entry : All()) {
    if (entry->FindPeer(island) == nullptr) continue;
    FailExecuting(*entry, AbortReason::kPeerUnresponsive,
                  absl::UnavailableError(fmt::format("island {} does not move", island)));
    Step(*entry, {.kind = CoordinatorEvent::kPeerSilent, .island = island});
  }
}

// Those that do not end for long, because a participant does not answer, are named; they are few, since
// nothing new is begun with it. A transaction that has begun may yet ship its first operation.
void Coordinated::NoteEnded(uint64_t oldest_begun) {
  uint64_t below = std::min(next_sequence_, oldest_begun);
  std::vector<uint64_t> overdue;
  for (const auto& [sequence, entry] : entries_) {
    if (Planted(PlantedBug::kForgetOpenCommits) && entry->transaction == nullptr) continue;
    if (entry->overdue) {
      overdue.push_back(sequence);
    } else {
      below = std::min(below, sequence);
    }
  }
  ended_ = WhatEnded(below, std::move(overdue));
}

void Coordinated::Sweep() {
  for (CoordinatorEntry* entry : All()) {
    if (LookForDeadParticipants(*entry)) continue;
    Repeat(*entry);
    if (turns_.now_ns() < entry->deadline_ns) continue;
    entry->deadline_ns = turns_.now_ns() + options_.transaction_timeout_ns;
    if (entry->transaction != nullptr && IsExecuting(*entry)) {
      // Its procedure is told, and aborts it.
      FailExecuting(*entry, AbortReason::kDeadline,
                    absl::DeadlineExceededError("no answer within the deadline"));
    } else if (!Step(*entry, {.kind = CoordinatorEvent::kTimeout})) {
      entry->overdue = entry->transaction == nullptr;
    }
  }
}

// True when the entry is forgotten.
bool Coordinated::LookForDeadParticipants(CoordinatorEntry& entry) {
  if (shared_.keeps) return false;  // who comes back has what it has voted for
  for (size_t i = 0; i < entry.peers.size(); ++i) {
    const Fellow peer = entry.peers[i];
    if (peers_.Reaches(peer.island, peer.boot_epoch)) continue;
    if (!peers_.ProvenDead(peer.island, peer.boot_epoch, turns_.now_ns())) continue;
    if (IsExecuting(entry) && OverlooksEpochs(options_.boot_epoch, peer.boot_epoch)) continue;
    if (Step(entry, {.kind = CoordinatorEvent::kPeerGone, .island = peer.island})) return true;
  }
  return false;
}

}  // namespace islands::instance
