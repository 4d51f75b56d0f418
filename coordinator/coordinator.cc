#include "coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::coordinator {

using runtime::Planted;
using runtime::PlantedBug;

using Event = CoordinatorEvent;
using Action = CoordinatorAction;

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCommitted:
      return "committed";
    case Outcome::kAborted:
      return "aborted";
    case Outcome::kPending:
      return "pending";
    case Outcome::kUnknown:
      return "unknown";
  }
  return "invalid";
}

std::string_view VoteName(VoteKind vote) {
  switch (vote) {
    case VoteKind::kYes:
      return "yes";
    case VoteKind::kNo:
      return "no";
    case VoteKind::kRead:
      return "read";
  }
  return "invalid";
}

std::string_view StateName(Coordinator::State state) {
  switch (state) {
    case Coordinator::State::kExecuting:
      return "executing";
    case Coordinator::State::kVoting:
      return "voting";
    case Coordinator::State::kForcing:
      return "forcing";
    case Coordinator::State::kCommitting:
      return "committing";
    case Coordinator::State::kOnePhase:
      return "one-phase";
    case Coordinator::State::kInquiring:
      return "inquiring";
    case Coordinator::State::kDone:
      return "done";
  }
  return "invalid";
}

void Coordinator::Reset() {
  state_ = State::kExecuting;
  answered_ = false;
  local_wrote_ = local_ended_ = false;
  decider_ = 0;
  participants_.clear();
}

void Coordinator::Step(const Event& event, Actions* actions) {
  if (event.kind == Event::kInquiry) {
    if (done() || Find(event.island) == nullptr) return;  // invariant 5: a stranger learns nothing
    const Outcome outcome = state_ == State::kCommitting ? Outcome::kCommitted : Outcome::kPending;
    actions->push_back({.kind = Action::kSendInquiryReply, .island = event.island, .outcome = outcome});
    return;
  }
  switch (state_) {
    case State::kExecuting:
      return StepExecuting(event, actions);
    case State::kVoting:
      return StepVoting(event, actions);
    case State::kForcing:
      return StepForcing(event, actions);
    case State::kCommitting:
      return StepCommitting(event, actions);
    case State::kOnePhase:
    case State::kInquiring:
      return StepOnePhase(event, actions);
    case State::kDone:
      return;
  }
}

void Coordinator::StepExecuting(const Event& event, Actions* actions) {
  Participant* const participant = Find(event.island);
  switch (event.kind) {
    case Event::kParticipant:
      if (participant == nullptr) participants_.push_back({.island = event.island});
      return;
    case Event::kWrote:
      if (participant != nullptr) participant->wrote = true;  // for invariant 7
      return;
    case Event::kPrepareEarly:
      if (participant != nullptr) PrepareEarly(*participant, actions);
      return;
    case Event::kVote:
      if (participant != nullptr) TakeEarlyVote(*participant, event.vote, actions);
      return;
    case Event::kCommitRequested:
      local_wrote_ = event.local_wrote;
      return BeginVoting(actions);
    case Event::kAbortRequested:
    case Event::kTimeout:
      return Abort(actions);
    case Event::kPeerLost:  // operations or their answers went with the connection
    case Event::kPeerSilent:
    case Event::kPeerGone:
      if (participant != nullptr) Abort(actions);
      return;
    case Event::kPeerUp:
      if (participant != nullptr && event.restarted) Abort(actions);
      return;
    default:
      return;
  }
}

void Coordinator::StepVoting(const Event& event, Actions* actions) {
  Participant* const participant = Find(event.island);
  switch (event.kind) {
    case Event::kVote:
      if (participant != nullptr) TakeVote(*participant, event.vote, actions);
      return;
    case Event::kAbortRequested:
    case Event::kTimeout:
      return Abort(actions);
    case Event::kPeerLost:  // a vote that has been given stands: its giver asks if it has to
    case Event::kPeerSilent:
      if (participant != nullptr && !participant->voted) Abort(actions);
      return;
    case Event::kPeerGone:  // the changes that it voted for are gone with it
      if (participant != nullptr && !(participant->voted && !participant->voted_yes())) Abort(actions);
      return;
    case Event::kPeerUp:
      if (participant != nullptr && !participant->voted && event.restarted) Abort(actions);
      return;
    default:
      return;
  }
}

// The commit record may already be on its way to the disk: nothing but its arrival matters now.
void Coordinator::StepForcing(const Event& event, Actions* actions) {
  if (event.kind != Event::kCommitRecordDurable) return;  // invariant 2
  for (const Participant& participant : participants_) {
    if (!participant.voted_yes()) continue;
    actions->push_back({.kind = Action::kSendDecision, .island = participant.island, .commit = true});
  }
  EndLocal(Action::kCommitLocal, actions);
  AnswerOnce(Outcome::kCommitted, actions);
  if (!AnyYes() || Planted(PlantedBug::kForgetBeforeAcks)) return Finish(actions);
  state_ = State::kCommitting;
}

void Coordinator::StepCommitting(const Event& event, Actions* actions) {
  const auto waits_for = [](const Participant& p) { return p.voted_yes() && !p.acknowledged; };
  if (event.kind == Event::kPeerUp || event.kind == Event::kTimeout) {
    for (const Participant& participant : participants_) {
      if (!waits_for(participant)) continue;
      if (event.kind == Event::kPeerUp && participant.island != event.island) continue;
      actions->push_back({.kind = Action::kSendDecision, .island = participant.island, .commit = true});
    }
  } else if (event.kind == Event::kAcknowledged || event.kind == Event::kPeerGone) {
    Participant* const participant = Find(event.island);
    if (participant == nullptr || !waits_for(*participant)) return;  // invariant 5: twice, or never voted YES
    participant->acknowledged = true;
    if (event.kind == Event::kPeerGone)
      actions->push_back({.kind = Action::kLoseShare, .island = event.island});
    if (std::any_of(participants_.begin(), participants_.end(), waits_for)) return;
    actions->push_back({.kind = Action::kWriteEnd});
    Finish(actions);
  }
}

void Coordinator::StepOnePhase(const Event& event, Actions* actions) {
  switch (event.kind) {
    case Event::kOnePhaseReply:
      if (event.island == decider_) LearnOutcome(event.outcome, actions);
      return;
    case Event::kInquiryReply:
      if (event.island == decider_ && state_ == State::kInquiring) LearnOutcome(event.outcome, actions);
      return;
    case Event::kPeerLost:
      if (event.island != decider_) return;
      if (Planted(PlantedBug::kPresumeOnePhaseCommit)) return LearnOutcome(Outcome::kCommitted, actions);
      state_ = State::kInquiring;
      return;
    case Event::kPeerUp:
      if (event.island == decider_) AskDecider(actions);
      return;
    case Event::kPeerGone:
      if (event.island == decider_) LearnOutcome(Outcome::kUnknown, actions);  // invariant 6
      return;
    case Event::kTimeout:
      if (!answered_) AnswerOnce(Outcome::kUnknown, actions);  // invariants 1 and 6: we ask on
      return AskDecider(actions);
    default:
      return;
  }
}

void Coordinator::PrepareEarly(Participant& participant, Actions* actions) {
  if (std::exchange(participant.asked, true)) return;  // invariant 5
  actions->push_back({.kind = Action::kSendPrepare, .island = participant.island, .early = true});
}

// It counts at the commit. READ is none: others may not have all their locks yet (invariant 3).
void Coordinator::TakeEarlyVote(Participant& participant, VoteKind vote, Actions* actions) {
  if (participant.voted || !participant.asked) return;  // invariant 5
  participant.voted = true;
  participant.vote = vote;
  if (vote != VoteKind::kYes) Abort(actions);
}

void Coordinator::BeginVoting(Actions* actions) {
  ISLANDS_CHECK(state_ == State::kExecuting);
  const Participant* const only_writer = OnlyWriter();
  state_ = State::kVoting;
  for (Participant& participant : participants_) {
    if (participant.asked && (participant.wrote || participant.voted)) continue;  // its vote is on its way
    if (&participant == only_writer) continue;  // invariant 4: it is asked last, to decide
    participant.asked = true;
    actions->push_back({.kind = Action::kSendPrepare, .island = participant.island});
  }
  CountVotes(actions);
}

void Coordinator::TakeVote(Participant& participant, VoteKind vote, Actions* actions) {
  if (participant.voted) return;                            // invariant 5
  if (!participant.asked && vote != VoteKind::kNo) return;  // the decider-to-be has nothing to vote on
  participant.voted = true;
  participant.vote = vote;
  // READ from one that has written: its changes are gone.
  const bool lost_changes = vote == VoteKind::kRead && participant.wrote;
  if (vote == VoteKind::kNo || lost_changes) return Abort(actions);  // invariant 7
  CountVotes(actions);
}

void Coordinator::CountVotes(Actions* actions) {
  Participant* unasked = nullptr;  // at most one: the only writer
  for (Participant& participant : participants_) {
    if (!participant.asked) {
      unasked = &participant;
    } else if (!participant.voted) {
      return;
    }
  }
  if (unasked != nullptr) {
    if (!AnyYes()) return BeginOnePhase(unasked->island, actions);  // invariant 4: readers have voted
    // A supposed reader voted YES, so it holds changes too: both phases after all.
    unasked->asked = true;
    actions->push_back({.kind = Action::kSendPrepare, .island = unasked->island});
    return;
  }
  ISLANDS_CHECK(state_ == State::kVoting);
  if (local_wrote_ || AnyYes()) {
    actions->push_back({.kind = Action::kForceCommitRecord});
    state_ = State::kForcing;
    return;
  }
  EndLocal(Action::kCommitLocal, actions);
  AnswerOnce(Outcome::kCommitted, actions);
  Finish(actions);
}

void Coordinator::BeginOnePhase(uint32_t decider, Actions* actions) {
  ISLANDS_CHECK(state_ == State::kVoting && !local_wrote_);  // and every reader has voted READ
  decider_ = decider;
  state_ = State::kOnePhase;
  actions->push_back({.kind = Action::kSendCommitOnePhase, .island = decider});
  EndLocal(Action::kCommitLocal, actions);
}

void Coordinator::AskDecider(Actions* actions) {
  state_ = State::kInquiring;
  actions->push_back({.kind = Action::kSendInquiry, .island = decider_});
}

// Pending: the decider will send its reply; should that be lost too, the next kPeerUp or kTimeout asks again.
void Coordinator::LearnOutcome(Outcome outcome, Actions* actions) {
  if (outcome == Outcome::kPending) return;
  if (!answered_) AnswerOnce(outcome, actions);
  if (outcome != Outcome::kUnknown) {
    actions->push_back({.kind = Action::kSendOnePhaseConfirm, .island = decider_});
  }
  Finish(actions);
}

void Coordinator::Abort(Actions* actions) {
  // Once a commit record was forced, or another decides, no abort is said.
  ISLANDS_CHECK(state_ == State::kExecuting || state_ == State::kVoting);
  for (const Participant& participant : participants_) {
    if (participant.voted && !participant.voted_yes()) continue;  // READ or NO: its branch has ended
    actions->push_back({.kind = Action::kSendDecision, .island = participant.island, .commit = false});
  }
  EndLocal(Action::kAbortLocal, actions);
  AnswerOnce(Outcome::kAborted, actions);
  Finish(actions);
}

void Coordinator::EndLocal(Action::Kind how, Actions* actions) {
  ISLANDS_CHECK(!local_ended_);
  local_ended_ = true;
  actions->push_back({.kind = how});
}

void Coordinator::AnswerOnce(Outcome outcome, Actions* actions) {
  ISLANDS_CHECK(!answered_);
  answered_ = true;
  actions->push_back({.kind = Action::kAnswer, .outcome = outcome});
}

void Coordinator::Finish(Actions* actions) {
  ISLANDS_CHECK(answered_ && local_ended_ && !done());
  state_ = State::kDone;
  actions->push_back({.kind = Action::kForget});
}

Coordinator::Participant* Coordinator::Find(uint32_t island) {
  for (Participant& participant : participants_) {
    if (participant.island == island) return &participant;
  }
  return nullptr;
}

bool Coordinator::OthersWrote() const {
  return std::any_of(participants_.begin(), participants_.end(),
                     [](const Participant& participant) { return participant.wrote; });
}

bool Coordinator::Wrote(uint32_t island) const {
  return std::any_of(participants_.begin(), participants_.end(),
                     [&](const Participant& p) { return p.island == island && p.wrote; });
}

bool Coordinator::VotedYes(uint32_t island) const {
  return std::any_of(participants_.begin(), participants_.end(),
                     [&](const Participant& p) { return p.island == island && p.voted_yes(); });
}

std::vector<uint32_t> Coordinator::Awaited() const {
  if (state_ == State::kOnePhase || state_ == State::kInquiring) return {decider_};
  std::vector<uint32_t> awaited;
  for (const Participant& participant : participants_) {
    const bool vote = state_ == State::kVoting && participant.asked && !participant.voted;
    const bool acknowledgement =
        state_ == State::kCommitting && participant.voted_yes() && !participant.acknowledged;
    if (vote || acknowledgement) awaited.push_back(participant.island);
  }
  return awaited;
}

Coordinator::Participant* Coordinator::OnlyWriter() {
  if (local_wrote_) return nullptr;  // invariant 4: nobody else may have written, we neither
  Participant* writer = nullptr;
  for (Participant& participant : participants_) {
    if (!participant.wrote) continue;
    if (writer != nullptr) return nullptr;
    writer = &participant;
  }
  return writer;
}

bool Coordinator::AnyYes() const {
  return std::any_of(participants_.begin(), participants_.end(),
                     [](const Participant& participant) { return participant.voted_yes(); });
}

void Coordinator::CheckInvariants() const {
  for (const Participant& participant : participants_) {
    const auto same = [&](const Participant& other) { return other.island == participant.island; };
    ISLANDS_CHECK(std::count_if(participants_.begin(), participants_.end(), same) == 1);
    ISLANDS_CHECK(state_ != State::kExecuting || !participant.voted || participant.voted_yes());
    ISLANDS_CHECK(!participant.voted || participant.asked || participant.vote == VoteKind::kNo);
    ISLANDS_CHECK(!participant.acknowledged || participant.voted_yes());
  }
  const bool committing = state_ == State::kCommitting;
  ISLANDS_CHECK(!committing || (AnyYes() && answered_ && local_ended_));
  ISLANDS_CHECK(state_ != State::kVoting || !(answered_ || local_ended_));
  ISLANDS_CHECK(state_ != State::kExecuting || !(answered_ || local_ended_));
  ISLANDS_CHECK(!done() || (answered_ && local_ended_));
}

void AnswerWithoutMachine(const Event& event, Life life, std::vector<Action>* actions) {
  if (event.kind == Event::kOnePhaseReply && life != Life::kEarlierLost) {
    actions->push_back({.kind = Action::kSendOnePhaseConfirm, .island = event.island});
  } else if (event.kind == Event::kInquiry) {
    actions->push_back({.kind = Action::kSendInquiryReply,
                        .island = event.island,
                        .outcome = life == Life::kEarlierLost ? Outcome::kUnknown : Outcome::kAborted});
  }
}

}  // namespace islands::coordinator
