#include "coordinator/participant.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::coordinator {

using runtime::Planted;
using runtime::PlantedBug;

using Event = ParticipantEvent;
using Action = ParticipantAction;

std::string_view StateName(Participant::State state) {
  switch (state) {
    case Participant::State::kActive:
      return "active";
    case Participant::State::kPreparing:
      return "preparing";
    case Participant::State::kPrepared:
      return "prepared";
    case Participant::State::kOrphaned:
      return "orphaned";
    case Participant::State::kCommitting:
      return "committing";
    case Participant::State::kDeciding:
      return "deciding";
    case Participant::State::kDecided:
      return "decided";
    case Participant::State::kDone:
      return "done";
  }
  return "invalid";
}

void Participant::Reset() {
  state_ = State::kActive;
  applied_ = false;
  decided_ = Outcome::kUnknown;
  nobody_asks_ = false;
  fellows_.clear();
}

void Participant::Step(const Event& event, Actions* actions) {
  if (done()) return;  // invariant 5
  if (event.kind == Event::kCoordinatorInquiry) {
    const Outcome outcome = state_ == State::kDecided ? decided_ : Outcome::kPending;
    actions->push_back({.kind = Action::kSendInquiryReply, .outcome = outcome});
    return;
  }
  switch (state_) {
    case State::kActive:
      return StepActive(event, actions);
    case State::kPreparing:
      return StepPreparing(event, actions);
    case State::kPrepared:
      return StepPrepared(event, actions);
    case State::kOrphaned:
      return StepOrphaned(event, actions);
    case State::kCommitting:
      return StepCommitting(event, actions);
    case State::kDeciding:
      return StepDeciding(event, actions);
    case State::kDecided:
      return StepDecided(event, actions);
    case State::kDone:
      return;
  }
}

void Participant::StepActive(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kPrepare:
      if (event.wrote) return BeginPrepare(event, actions);  // invariant 2: no YES before it is durable
      if (event.early && !Planted(PlantedBug::kVoteReadEarly)) return;  // invariant 3: it is asked again
      actions->push_back({.kind = Action::kSendVote, .vote = VoteKind::kRead});  // invariant 3: locks go
      Apply(Action::kApplyCommit, actions);
      return Finish(actions);
    case Event::kCommitOnePhase:
      if (event.wrote) {
        state_ = State::kDeciding;
        actions->push_back({.kind = Action::kForceCommit});
        return;
      }
      // The coordinator was told of changes that are not here any more.
      state_ = State::kDecided;
      decided_ = Outcome::kAborted;
      Apply(Action::kApplyAbort, actions);
      actions->push_back({.kind = Action::kSendOnePhaseReply, .outcome = decided_});
      return;
    case Event::kDecision:
      if (!event.commit) Abort(actions);  // a commit that was never voted on is not one
      return;
    case Event::kCoordinatorLost:
    case Event::kCoordinatorRestarted:
    case Event::kCoordinatorGone:
    case Event::kTimeout:
    case Event::kAbortLocally:
      return Abort(actions);
    default:
      return;
  }
}

void Participant::StepPreparing(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kPrepareDurable:
      state_ = State::kPrepared;
      actions->push_back({.kind = Action::kSendVote, .vote = VoteKind::kYes});
      return;
    case Event::kDecision:
      if (!event.commit) Abort(actions);
      return;
    case Event::kTimeout:
    case Event::kAbortLocally:
      actions->push_back({.kind = Action::kSendVote, .vote = VoteKind::kNo});
      return Abort(actions);
    case Event::kCoordinatorLost:
    case Event::kCoordinatorRestarted:
    case Event::kCoordinatorGone:
      return Abort(actions);
    default:
      return;
  }
}

void Participant::StepPrepared(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kPrepare:
      actions->push_back({.kind = Action::kSendVote, .vote = VoteKind::kYes});
      return;
    case Event::kDecision:
      return event.commit ? BeginCommit(actions) : Abort(actions);
    case Event::kInquiryReply:
      if (event.outcome == Outcome::kCommitted) BeginCommit(actions);  // invariant 1: the coordinator's word
      if (event.outcome == Outcome::kAborted) Abort(actions);
      return;
    case Event::kInquiryDue:
    case Event::kTimeout:
    case Event::kCoordinatorUp:
    case Event::kCoordinatorRestarted:
      actions->push_back({.kind = Action::kSendInquiry});  // invariant 1: it asks, and goes on waiting
      return;
    case Event::kCoordinatorGone:
      if (Planted(PlantedBug::kOrphanAsksNobody)) return Abort(actions);
      state_ = State::kOrphaned;  // invariant 1: proven gone; now what the fellows know
      AskFellows(actions);
      return AbortIfNobodyKnows(actions);
    default:
      return;
  }
}

void Participant::StepOrphaned(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kFellowGone:
      return TakeGone(event.island, actions);
    case Event::kDecisionReply:
      return TakeReply(event, actions);
    case Event::kDecisionRequest:
      actions->push_back(
          {.kind = Action::kAnswerFellow, .outcome = Outcome::kPending, .island = event.island});
      return;
    case Event::kInquiryDue:
    case Event::kTimeout:
      return AskFellows(actions);
    default:
      return;
  }
}

// Whoever said that it was in doubt may have meant: unless I hear from the one who is now known to be gone.
void Participant::TakeGone(uint32_t island, Actions* actions) {
  Fellow* const fellow = FindFellow(island);
  if (fellow == nullptr || fellow->gone) return;
  fellow->gone = true;
  for (Fellow& other : fellows_) other.in_doubt = false;
  AskFellows(actions);
  AbortIfNobodyKnows(actions);
}

void Participant::TakeReply(const Event& event, Actions* actions) {
  Fellow* const fellow = FindFellow(event.island);
  if (fellow == nullptr || fellow->gone) return;
  const auto known_there = [&](const Fellow& other) {
    return !other.gone || std::find(event.gone.begin(), event.gone.end(), other.island) != event.gone.end();
  };
  switch (event.outcome) {
    case Outcome::kCommitted:
      return BeginCommit(actions);
    case Outcome::kAborted:
      fellow->nothing = true;
      break;
    case Outcome::kPending:
      fellow->in_doubt =
          Planted(PlantedBug::kBelieveAnyDoubt) || std::all_of(fellows_.begin(), fellows_.end(), known_there);
      break;
    case Outcome::kUnknown:
      return;
  }
  AbortIfNobodyKnows(actions);
}

void Participant::AskFellows(Actions* actions) {
  for (const Fellow& fellow : fellows_) {
    if (!fellow.settled()) actions->push_back({.kind = Action::kAskFellow, .island = fellow.island});
  }
}

void Participant::AbortIfNobodyKnows(Actions* actions) {
  const bool all = std::all_of(fellows_.begin(), fellows_.end(), [](const Fellow& f) { return f.settled(); });
  if (all) Abort(actions);  // nobody alive has heard of a commit, nor will
}

Participant::Fellow* Participant::FindFellow(uint32_t island) {
  for (Fellow& fellow : fellows_) {
    if (fellow.island == island) return &fellow;
  }
  return nullptr;
}

std::vector<uint32_t> Participant::OpenFellows() const {
  std::vector<uint32_t> open;
  for (const Fellow& fellow : fellows_) {
    if (orphaned() && !fellow.gone && !fellow.nothing) open.push_back(fellow.island);
  }
  return open;
}

std::vector<uint32_t> Participant::Gone() const {
  std::vector<uint32_t> gone;
  for (const Fellow& fellow : fellows_) {
    if (orphaned() && fellow.gone) gone.push_back(fellow.island);
  }
  return gone;
}

void Participant::StepCommitting(const Event& event, Actions* actions) {
  if (event.kind != Event::kCommitDurable) return;
  Apply(Action::kApplyCommit, actions);
  actions->push_back({.kind = Action::kSendAcknowledge});
  Finish(actions);
}

void Participant::StepDeciding(const Event& event, Actions* actions) {
  if (event.kind == Event::kCoordinatorRestarted || event.kind == Event::kCoordinatorGone)
    nobody_asks_ = true;
  if (event.kind != Event::kCommitDurable) return;
  Apply(Action::kApplyCommit, actions);
  if (nobody_asks_) return Finish(actions);  // invariant 4: its coordinator's life is over
  state_ = State::kDecided;
  decided_ = Outcome::kCommitted;
  actions->push_back({.kind = Action::kSendOnePhaseReply, .outcome = decided_});
}

// An answer is repeated until it is confirmed: a coordinator that has forgotten the transaction confirms too.
void Participant::StepDecided(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kOnePhaseConfirmed:
    case Event::kCoordinatorRestarted:
    case Event::kCoordinatorGone:
      return Finish(actions);
    case Event::kCommitOnePhase:
    case Event::kCoordinatorUp:
    case Event::kTimeout:
    case Event::kInquiryDue:
      actions->push_back({.kind = Action::kSendOnePhaseReply, .outcome = decided_});
      return;
    default:
      return;
  }
}

void Participant::BeginPrepare(const Event& event, Actions* actions) {
  ISLANDS_CHECK(state_ == State::kActive && fellows_.empty());
  state_ = State::kPreparing;
  for (const uint32_t island : event.fellows) fellows_.push_back({.island = island});
  actions->push_back({.kind = Action::kForcePrepare});
}

void Participant::BeginCommit(Actions* actions) {
  ISLANDS_CHECK(in_doubt());  // nothing else has voted YES
  state_ = State::kCommitting;
  actions->push_back({.kind = Action::kForceCommit});
}

void Participant::Apply(Action::Kind how, Actions* actions) {
  ISLANDS_CHECK(!applied_);
  applied_ = true;
  actions->push_back({.kind = how});
}

void Participant::Abort(Actions* actions) {
  Apply(Action::kApplyAbort, actions);
  Finish(actions);
}

void Participant::Finish(Actions* actions) {
  ISLANDS_CHECK(applied_ && !done());
  state_ = State::kDone;
  actions->push_back({.kind = Action::kForget});
}

void Participant::CheckInvariants() const {
  ISLANDS_CHECK(applied_ == (done() || decided()));
  bool all_settled = true;
  for (const Fellow& fellow : fellows_) {
    const auto same = [&](const Fellow& other) { return other.island == fellow.island; };
    ISLANDS_CHECK(std::count_if(fellows_.begin(), fellows_.end(), same) == 1);
    ISLANDS_CHECK(state_ != State::kPrepared || !fellow.settled());
    all_settled &= fellow.settled();
  }
  ISLANDS_CHECK(!orphaned() || !all_settled);  // it would have aborted
}

void AnswerWithoutMachine(const Event& event, Trace trace, std::vector<Action>* actions) {
  const bool this_life = trace != Trace::kEarlierLife;
  const bool committed = trace == Trace::kCommitted || trace == Trace::kKept;
  const Outcome decided = this_life ? Outcome::kAborted : Outcome::kUnknown;
  switch (event.kind) {
    case Event::kPrepare:
      actions->push_back(
          {.kind = Action::kSendVote,
           .vote = Planted(PlantedBug::kVoteYesWithoutBranch) ? VoteKind::kYes : VoteKind::kNo});
      return;
    case Event::kCommitOnePhase:
      actions->push_back({.kind = Action::kSendOnePhaseReply, .outcome = decided});
      return;
    case Event::kCoordinatorInquiry:
      actions->push_back({.kind = Action::kSendInquiryReply, .outcome = decided});
      return;
    case Event::kDecision:
      if (!event.commit) return;
      actions->push_back({.kind = committed || Planted(PlantedBug::kAcknowledgeUnapplied)
                                      ? Action::kSendAcknowledge
                                      : Action::kSendGone});
      return;
    case Event::kDecisionRequest:
      if (!this_life || trace == Trace::kKept) return;  // who keeps all never needs to ask a fellow
      actions->push_back({.kind = Action::kAnswerFellow,
                          .outcome = trace == Trace::kCommitted ? Outcome::kCommitted : Outcome::kAborted,
                          .island = event.island});
      return;
    default:
      return;
  }
}

}  // namespace islands::coordinator
