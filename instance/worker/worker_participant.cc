// The participant's side of distributed transactions: branches served for coordinators on other islands.
#include <fmt/format.h>

#include <utility>

#include "instance/worker/worker_internal.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using coordinator::Outcome;
using coordinator::ParticipantAction;
using coordinator::ParticipantEvent;
using messaging::FrameType;
using messaging::Origin;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

// What a frame has room for beside the other fields of an ExecuteReply.
constexpr size_t kMaxResultBytes = messaging::kMaxFrameBytes - 1024;

// Of a step, whatever its coordinator says.
constexpr int64_t kLongestDeadlineUs = int64_t{24} * 3600 * 1'000'000;

data::v1::VoteKind WireVote(coordinator::VoteKind vote) {
  switch (vote) {
    case coordinator::VoteKind::kYes:
      return data::v1::VOTE_YES;
    case coordinator::VoteKind::kRead:
      return data::v1::VOTE_READ;
    case coordinator::VoteKind::kNo:
      break;
  }
  return data::v1::VOTE_NO;
}

TwoPhaseStep StepOf(coordinator::VoteKind vote) {
  switch (vote) {
    case coordinator::VoteKind::kYes:
      return TwoPhaseStep::kVotedYes;
    case coordinator::VoteKind::kRead:
      return TwoPhaseStep::kVotedRead;
    case coordinator::VoteKind::kNo:
      break;
  }
  return TwoPhaseStep::kVotedNo;
}

void FillFailure(const Failure& failure, data::v1::ExecuteReply* reply) {
  reply->set_code(static_cast<uint32_t>(failure.status.code()));
  reply->set_message(std::string(failure.status.message()));
  reply->set_abort_reason(static_cast<uint32_t>(failure.reason));
}

}  // namespace

std::vector<ParticipantEntry*> Worker::Participants() const {
  std::vector<ParticipantEntry*> entries;
  for (const auto& [id, entry] : participants_) entries.push_back(entry.get());
  std::sort(entries.begin(), entries.end(),
            [](const ParticipantEntry* a, const ParticipantEntry* b) { return a->id < b->id; });
  return entries;
}

ParticipantEntry* Worker::FindParticipant(const coordinator::TransactionId& id) {
  const auto found = participants_.find(id);
  return found == participants_.end() ? nullptr : found->second.get();
}

bool Worker::KnowsThisLife(uint64_t participant_epoch) const {
  return participant_epoch == options_.boot_epoch || OverlooksEpochs(options_.boot_epoch, participant_epoch);
}

void Worker::Refuse(const Origin& origin, const data::v1::ExecuteRequest& request, AbortReason reason,
                    const absl::Status& why) {
  data::v1::ExecuteReply& reply = messages_->execute_reply_out;
  reply.Clear();
  EncodeId(DecodeId(request), &reply);
  reply.set_step(request.step());
  FillFailure({reason, why}, &reply);
  links_.SendBack(origin, FrameType::kExecuteReply, reply);
}

void Worker::OnExecuteRequest(const Origin& origin, const data::v1::ExecuteRequest& request) {
  const coordinator::TransactionId id = DecodeId(request);
  committed_.EndedBelow(id, request.ended_below(),
                        {request.still_open().data(), static_cast<size_t>(request.still_open_size())});
  if (!KnowsThisLife(request.participant_epoch())) {
    return Refuse(origin, request, AbortReason::kPeerRestarted,
                  absl::AbortedError("restarted in mid-transaction"));
  }
  if (request.layout_generation() != shared_.layout_generation) {
    return Refuse(origin, request, AbortReason::kRefused,
                  absl::FailedPreconditionError("routed by another layout"));
  }
  ParticipantEntry* entry = FindParticipant(id);
  if (entry == nullptr) {
    if (request.step() != 1 && !OverlooksEpochs(options_.boot_epoch, id.boot_epoch)) {
      return Refuse(origin, request, AbortReason::kRefused,
                    absl::AbortedError("transaction was aborted here before"));
    }
    std::unique_ptr<ParticipantEntry> fresh;
    if (spare_participants_.empty()) {
      fresh = std::make_unique<ParticipantEntry>();
    } else {
      fresh = std::move(spare_participants_.back());
      spare_participants_.pop_back();
    }
    fresh->id = id;
    if (OverlooksEpochs(options_.boot_epoch, id.boot_epoch)) fresh->step = request.step() - 1;
    fresh->branch.locks.transaction = id;
    fresh->branch.locks.worker = options_.index;
    fresh->branch.locks.wake_token = next_token_++;
    entry = (participants_[id] = std::move(fresh)).get();
    counters_.branches_open.Set(participants_.size());
  }
  if (request.step() != entry->step + 1 || entry->executing) return;  // duplicate, or out of turn
  if (entry->machine.state() != coordinator::Participant::State::kActive) {
    return Refuse(origin, request, AbortReason::kRefused,
                  absl::FailedPreconditionError("the branch has voted"));
  }
  const Executing executing(*this);
  entry->step = request.step();
  entry->last_heard_ns = now_ns_;
  const partitioner::SiteRun own = shared_.sites->SitesOf(options_.island);
  absl::Status status = DecodeOperations(request, *shared_.catalog, own, &entry->batch, &entry->operations);
  if (!status.ok()) entry->failure = {AbortReason::kRefused, std::move(status)};
  entry->cursor = 0;
  entry->deadline_ns =
      now_ns_ + std::clamp<int64_t>(request.deadline_us(), 0, kLongestDeadlineUs) * runtime::kNsPerUs;
  entry->task = ExecuteStep(*entry);
  entry->task.Start();
  executor_->EndQuiet();
}

runtime::Task<void> Worker::ExecuteStep(ParticipantEntry& entry) {
  entry.executing = true;
  while (!entry.failure.set() && !entry.ended && entry.cursor < entry.operations.size()) {
    const Progress progress =
        RunSome(entry.branch, entry.batch, entry.operations, &entry.cursor, &entry.failure);
    if (progress == Progress::kWaiting) {
      runtime::Task<void> lock = AwaitLock(entry);
      co_await lock;
    } else if (progress == Progress::kDone && entry.cursor < entry.operations.size() &&
               LongSinceRoundBegan()) {
      Breath breath{*this};
      co_await breath;
      if (now_ns_ > entry.deadline_ns && !entry.failure.set()) {
        entry.failure = {AbortReason::kDeadline,
                         absl::DeadlineExceededError("the transaction's deadline has passed")};
      }
    }
  }
  entry.executing = false;
  if (entry.ended) co_return;  // aborted while it waited
  if (Planted(PlantedBug::kReleaseReadLocksEarly) && !entry.branch.wrote()) CommitBranch(entry);
  SendExecuteReply(entry);
  if (entry.failure.set()) StepParticipant(entry, {.kind = ParticipantEvent::kAbortLocally});
}

void Worker::SendExecuteReply(ParticipantEntry& entry) {
  data::v1::ExecuteReply& reply = messages_->execute_reply_out;
  reply.Clear();
  EncodeId(entry.id, &reply);
  reply.set_step(entry.step);
  reply.set_wrote(entry.branch.wrote());
  if (entry.failure.set()) {
    FillFailure(entry.failure, &reply);
  } else {
    EncodeResults(entry.batch, entry.operations, &reply);
  }
  if (reply.results().size() > kMaxResultBytes) {
    entry.failure = {AbortReason::kRefused,
                     absl::ResourceExhaustedError("the result is too large; scan with a limit")};
    reply.clear_results();
    FillFailure(entry.failure, &reply);
  }
  links_.SendBack(entry.coordinator(), FrameType::kExecuteReply, reply);
}

// Each once, and others than the two who are there anyhow.
bool Worker::FellowsMakeSense(const data::v1::PrepareRequest& request) const {
  const auto& fellows = request.fellows();
  if (request.fellow_epochs_size() != fellows.size()) return false;
  for (auto fellow = fellows.begin(); fellow != fellows.end(); ++fellow) {
    if (*fellow >= shared_.sites->islands() || *fellow == options_.island) return false;
    if (*fellow == DecodeId(request).island || std::find(fellows.begin(), fellow, *fellow) != fellow)
      return false;
  }
  return true;
}

void Worker::OnPrepare(const data::v1::PrepareRequest& request) {
  const coordinator::TransactionId id = DecodeId(request);
  ParticipantEntry* entry = FindParticipant(id);
  if (entry != nullptr && entry->executing) {
    StepParticipant(*entry, {.kind = ParticipantEvent::kAbortLocally});
    entry = nullptr;
  }
  if (entry == nullptr || !KnowsThisLife(request.participant_epoch())) {
    return AnswerForGone(id, {.kind = ParticipantEvent::kPrepare}, request.participant_epoch());
  }
  entry->last_heard_ns = now_ns_;
  const int fellows = request.fellows_size();
  if (entry->fellows.empty()) {
    for (int i = 0; i < fellows; ++i)
      entry->fellows.push_back({request.fellows(i), request.fellow_epochs(i)});
  }
  const std::span<const uint32_t> islands(request.fellows().data(), static_cast<size_t>(fellows));
  StepParticipant(*entry,
                  {.kind = ParticipantEvent::kPrepare, .wrote = entry->branch.wrote(), .fellows = islands});
}

void Worker::OnCommitOnePhase(const data::v1::CommitOnePhase& request) {
  const coordinator::TransactionId id = DecodeId(request);
  ParticipantEntry* entry = FindParticipant(id);
  if (entry != nullptr && entry->executing) {
    StepParticipant(*entry, {.kind = ParticipantEvent::kAbortLocally});
    entry = nullptr;
  }
  if (entry == nullptr || !KnowsThisLife(request.participant_epoch())) {
    return AnswerForGone(id, {.kind = ParticipantEvent::kCommitOnePhase}, request.participant_epoch());
  }
  entry->last_heard_ns = now_ns_;
  StepParticipant(*entry, {.kind = ParticipantEvent::kCommitOnePhase, .wrote = entry->branch.wrote()});
}

void Worker::OnDecision(const data::v1::Decision& decision) {
  const coordinator::TransactionId id = DecodeId(decision);
  ParticipantEntry* entry = FindParticipant(id);
  if (entry != nullptr && KnowsThisLife(decision.participant_epoch())) {
    entry->last_heard_ns = now_ns_;
    StepParticipant(*entry, {.kind = ParticipantEvent::kDecision, .commit = decision.commit()});
    return;
  }
  AnswerForGone(id, {.kind = ParticipantEvent::kDecision, .commit = decision.commit()},
                decision.participant_epoch());
}

void Worker::AnswerForGone(const coordinator::TransactionId& id, const ParticipantEvent& event,
                           uint64_t participant_epoch) {
  std::vector<ParticipantAction> actions;
  coordinator::AnswerWithoutMachine(event, TraceOf(id, participant_epoch), &actions);
  for (const ParticipantAction& action : actions) SendToCoordinator(id, action);
}

coordinator::Trace Worker::TraceOf(const coordinator::TransactionId& id, uint64_t participant_epoch) const {
  if (!KnowsThisLife(participant_epoch)) return coordinator::Trace::kEarlierLife;
  return committed_.Knows(id) ? coordinator::Trace::kCommitted : coordinator::Trace::kNothing;
}

void Worker::StepParticipant(ParticipantEntry& entry, const ParticipantEvent& event) {
  std::vector<ParticipantAction> actions = std::move(participant_actions_);
  actions.clear();
  const bool was_in_doubt = entry.machine.in_doubt();
  entry.machine.Step(event, &actions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const ParticipantAction action = actions[i];
    // Durability `none`: there is no log, so what is forced is durable at once.
    if (action.kind == ParticipantAction::kForcePrepare) {
      entry.machine.Step({.kind = ParticipantEvent::kPrepareDurable}, &actions);
    } else if (action.kind == ParticipantAction::kForceCommit) {
      entry.machine.Step({.kind = ParticipantEvent::kCommitDurable}, &actions);
    } else {
      Perform(entry, action);
    }
  }
  participant_actions_ = std::move(actions);
  if (was_in_doubt != entry.machine.in_doubt()) {
    entry.in_doubt_since_ns = now_ns_;
    counters_.in_doubt.Set(was_in_doubt ? counters_.in_doubt.Get() - 1 : counters_.in_doubt.Get() + 1);
  }
  if (!entry.ended) return;
  if (entry.stuck) SetStuck(entry, false);
  Resume(entry);  // if it waits for a lock, its coroutine has to come to its end
  const auto found = participants_.find(entry.id);
  ISLANDS_CHECK(found != participants_.end());
  graveyard_.push_back(std::move(found->second));
  participants_.erase(found);
  counters_.branches_open.Set(participants_.size());
}

void Worker::Perform(ParticipantEntry& entry, const ParticipantAction& action) {
  switch (action.kind) {
    case ParticipantAction::kApplyCommit:
      CommitBranch(entry);
      break;
    case ParticipantAction::kApplyAbort:
      RollbackBranch(entry);
      break;
    case ParticipantAction::kForget:
      entry.ended = true;
      break;
    case ParticipantAction::kAskFellow: {
      if (!WorthSaying(action.island)) break;  // asked again soon
      const auto asked = std::find_if(entry.fellows.begin(), entry.fellows.end(),
                                      [&](const auto& fellow) { return fellow.island == action.island; });
      data::v1::DecisionRequest& request = messages_->decision_request_out;
      request.Clear();
      EncodeId(entry.id, request.mutable_transaction());
      request.set_participant_epoch(asked->boot_epoch);
      CountTwoPhase(TwoPhaseStep::kFellowAsked);
      links_.Send(action.island, FrameType::kDecisionRequest, request);
      break;
    }
    default:
      // Only a branch that has voted YES acknowledges.
      if (action.kind == ParticipantAction::kSendAcknowledge) committed_.Remember(entry.id);
      SendToCoordinator(entry.id, action);
      if (Planted(PlantedBug::kReleaseAtYes) && action.vote == coordinator::VoteKind::kYes) {
        shared_.locks->ReleaseAll(entry.branch.locks, &wakeups_);
        Deliver(&wakeups_);
      }
  }
}

// On the link that the coordinating worker has dialled, or not at all.
void Worker::SendToCoordinator(const coordinator::TransactionId& id, const ParticipantAction& action) {
  const Origin coordinator{{id.island, id.worker}, id.boot_epoch};
  switch (action.kind) {
    case ParticipantAction::kSendVote: {
      data::v1::Vote& vote = messages_->vote_out;
      vote.Clear();
      EncodeId(id, &vote);
      vote.set_vote(WireVote(action.vote));
      CountTwoPhase(StepOf(action.vote));
      links_.SendBack(coordinator, FrameType::kVote, vote);
      break;
    }
    case ParticipantAction::kSendAcknowledge:
    case ParticipantAction::kSendGone: {
      data::v1::Acknowledge& acknowledge = messages_->acknowledge_out;
      acknowledge.Clear();
      EncodeId(id, &acknowledge);
      acknowledge.set_gone(action.kind == ParticipantAction::kSendGone);
      if (!acknowledge.gone()) CountTwoPhase(TwoPhaseStep::kAcknowledged);
      links_.SendBack(coordinator, FrameType::kAcknowledge, acknowledge);
      break;
    }
    case ParticipantAction::kSendOnePhaseReply: {
      data::v1::OnePhaseReply& reply = messages_->one_phase_reply_out;
      reply.Clear();
      EncodeId(id, &reply);
      reply.set_outcome(static_cast<data::v1::Outcome>(action.outcome));
      links_.SendBack(coordinator, FrameType::kOnePhaseReply, reply);
      break;
    }
    case ParticipantAction::kSendInquiry: {
      data::v1::Inquiry& inquiry = messages_->inquiry_out;
      inquiry.Clear();
      EncodeId(id, inquiry.mutable_transaction());
      CountTwoPhase(TwoPhaseStep::kInquirySent);
      links_.SendBack(coordinator, FrameType::kInquiry, inquiry);
      break;
    }
    case ParticipantAction::kSendInquiryReply: {
      data::v1::InquiryReply& reply = messages_->inquiry_reply_out;
      reply.Clear();
      EncodeId(id, reply.mutable_transaction());
      reply.set_outcome(static_cast<data::v1::Outcome>(action.outcome));
      reply.set_from_decider(true);
      links_.SendBack(coordinator, FrameType::kInquiryReply, reply);
      break;
    }
    default:
      break;  // not for the coordinator
  }
}

void Worker::SweepParticipants() {
  for (ParticipantEntry* entry : Participants()) {
    const int64_t silent_ns = now_ns_ - entry->last_heard_ns;
    // Who stands still would find all of them when it goes on.
    const bool say = !watch_.Silent(entry->coordinator().peer);
    if (entry->machine.orphaned()) {
      LookForDeadFellows(*entry);
    } else {
      LookForDeadCoordinator(*entry);
    }
    if (entry->ended) continue;
    LookWhetherStuck(*entry);
    const int64_t interval_ns = entry->machine.orphaned() ? kFellowIntervalNs : kInquiryIntervalNs;
    if (entry->machine.in_doubt() && silent_ns > interval_ns) {
      entry->last_heard_ns = now_ns_;
      if (say || entry->machine.orphaned()) StepParticipant(*entry, {.kind = ParticipantEvent::kInquiryDue});
    } else if (silent_ns > 2 * options_.transaction_timeout_ns) {
      entry->last_heard_ns = now_ns_;
      if (say || !entry->machine.decided()) StepParticipant(*entry, {.kind = ParticipantEvent::kTimeout});
    }
  }
}

}  // namespace islands::instance
