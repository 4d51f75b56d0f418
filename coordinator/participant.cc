#include "coordinator/participant.h"

#include "coordinator/planted_bug.h"

namespace islands::coordinator {

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

void Participant::Step(const Event& event, Actions* actions) {
  if (done()) return;
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
      if (event.wrote) {
        state_ = State::kPreparing;
        actions->push_back({.kind = Action::kForcePrepare});
        return;
      }
      actions->push_back({.kind = Action::kSendVote, .vote = VoteKind::kRead});
      actions->push_back({.kind = Action::kApplyCommit});
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
      actions->push_back({.kind = Action::kApplyAbort});
      actions->push_back({.kind = Action::kSendOnePhaseReply, .outcome = decided_});
      return;
    case Event::kDecision:
      if (!event.commit) Abort(actions);  // a commit that was never voted on is not one
      return;
    case Event::kCoordinatorLost:
    case Event::kCoordinatorRestarted:
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
      if (event.outcome == Outcome::kCommitted) BeginCommit(actions);
      if (event.outcome == Outcome::kAborted) Abort(actions);
      return;
    case Event::kInquiryDue:
    case Event::kTimeout:
    case Event::kCoordinatorUp:
    case Event::kCoordinatorRestarted:
      actions->push_back({.kind = Action::kSendInquiry});
      return;
    default:
      return;
  }
}

void Participant::StepCommitting(const Event& event, Actions* actions) {
  if (event.kind != Event::kCommitDurable) return;
  actions->push_back({.kind = Action::kApplyCommit});
  actions->push_back({.kind = Action::kSendAcknowledge});
  Finish(actions);
}

void Participant::StepDeciding(const Event& event, Actions* actions) {
  if (event.kind == Event::kCoordinatorRestarted) nobody_asks_ = true;
  if (event.kind != Event::kCommitDurable) return;
  actions->push_back({.kind = Action::kApplyCommit});
  if (nobody_asks_) return Finish(actions);
  state_ = State::kDecided;
  decided_ = Outcome::kCommitted;
  actions->push_back({.kind = Action::kSendOnePhaseReply, .outcome = decided_});
}

// An answer is repeated until it is confirmed: a coordinator that has forgotten the transaction confirms too.
void Participant::StepDecided(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kOnePhaseConfirmed:
    case Event::kCoordinatorRestarted:
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

void Participant::BeginCommit(Actions* actions) {
  state_ = State::kCommitting;
  actions->push_back({.kind = Action::kForceCommit});
}

void Participant::Abort(Actions* actions) {
  actions->push_back({.kind = Action::kApplyAbort});
  Finish(actions);
}

void Participant::Finish(Actions* actions) {
  state_ = State::kDone;
  actions->push_back({.kind = Action::kForget});
}

void AnswerWithoutMachine(const ParticipantEvent& event, bool same_life,
                          std::vector<ParticipantAction>* actions) {
  switch (event.kind) {
    case Event::kPrepare:
      actions->push_back(
          {.kind = Action::kSendVote,
           .vote = Planted(PlantedBug::kVoteYesWithoutBranch) ? VoteKind::kYes : VoteKind::kNo});
      return;
    case Event::kCommitOnePhase:
      actions->push_back(
          {.kind = Action::kSendOnePhaseReply, .outcome = same_life ? Outcome::kAborted : Outcome::kUnknown});
      return;
    case Event::kDecision:
      if (event.commit) actions->push_back({.kind = Action::kSendAcknowledge});
      return;
    case Event::kCoordinatorInquiry:
      actions->push_back({.kind = Action::kSendInquiryReply, .outcome = OutcomeOfForgotten(true)});
      return;
    default:
      return;
  }
}

void AnswerWithoutMachine(const CoordinatorEvent& event, bool same_life,
                          std::vector<CoordinatorAction>* actions) {
  if (event.kind == CoordinatorEvent::kOnePhaseReply && same_life) {
    actions->push_back({.kind = CoordinatorAction::kSendOnePhaseConfirm, .island = event.island});
  } else if (event.kind == CoordinatorEvent::kInquiry) {
    actions->push_back({.kind = CoordinatorAction::kSendInquiryReply,
                        .island = event.island,
                        .outcome = OutcomeOfForgotten(false)});
  }
}

}  // namespace islands::coordinator
