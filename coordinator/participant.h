// The participant's side of two-phase commit with presumed abort, for one transaction: a pure state machine.
//
//   active --prepare, wrote--> preparing --durable, vote YES--> prepared --commit--> committing
//      |  |                                                        |                     |
//      |  |                                                        |        durable, acknowledge --> done
//      |  |                                                        '--abort--> done
//      |  '--prepare, read only: vote READ, release--> done
//      |--one-phase--> deciding --durable, answer--> decided --confirmed--> done
//      '--abort, coordinator lost, timeout--> done (from preparing too)
//
// Thread safety: none; it lives on the worker that got the transaction's first message.
//
// Invariants:
//  1. After vote YES (kSendVote yes) nothing but the coordinator's word ends the transaction: neither loss of
//     the connection nor a timeout applies an abort (in doubt). It asks instead (kSendInquiry), again at
//     every kInquiryDue and when the coordinator is up.
//  2. kSendVote(YES) only after kPrepareDurable; kSendAcknowledge and kSendOnePhaseReply(committed) only
//     after kCommitDurable.
//  3. Exactly one of kApplyCommit and kApplyAbort is produced, once; for a read-only participant kApplyCommit
//     (it releases its locks, and by invariant 3 of coordinator.h every operation has answered everywhere by
//     then).
//  4. A one-phase decider keeps its outcome until kOnePhaseConfirmed or kCoordinatorRestarted.
//  5. Late and duplicate events change nothing, except that a duplicate request whose answer may be lost is
//     answered again.
//  6. A branch that no longer holds the changes its coordinator counts on never says that it committed them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "coordinator/coordinator.h"

namespace islands::coordinator {

struct ParticipantEvent {
  enum Kind : uint8_t {
    kPrepare,
    kPrepareDurable,
    kDecision,  // commit
    kCommitDurable,
    kCommitOnePhase,
    kOnePhaseConfirmed,
    kCoordinatorInquiry,  // the coordinator lost our one-phase answer and asks
    kCoordinatorLost,
    kCoordinatorUp,         // connected again, same boot epoch
    kCoordinatorRestarted,  // connected again, later boot epoch: it remembers only what it forced
    kInquiryDue,    // time to ask (again); a decider repeats its answer, whose confirmation may be lost
    kInquiryReply,  // outcome
    kTimeout,       // nothing was heard for the transaction's deadline
    kAbortLocally,  // an operation failed here, or a deadlock victim: only possible before voting YES
  };
  Kind kind;
  bool commit = false;
  bool wrote = false;  // kPrepare, kCommitOnePhase: this branch holds changes
  Outcome outcome = Outcome::kUnknown;
};

struct ParticipantAction {
  enum Kind : uint8_t {
    kForcePrepare,
    kForceCommit,
    kSendVote,  // vote
    kSendAcknowledge,
    kSendOnePhaseReply,  // outcome
    kSendInquiry,        // to the coordinator
    kSendInquiryReply,   // outcome, to the coordinator that asked
    kApplyCommit,        // keep changes, release locks
    kApplyAbort,         // undo changes, release locks
    kForget,             // the machine can be destroyed
  };
  Kind kind;
  VoteKind vote = VoteKind::kNo;
  Outcome outcome = Outcome::kUnknown;
};

class Participant {
 public:
  enum class State : uint8_t { kActive, kPreparing, kPrepared, kCommitting, kDeciding, kDecided, kDone };

  void Step(const ParticipantEvent& event, std::vector<ParticipantAction>* actions);

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  bool in_doubt() const { return state_ == State::kPrepared; }
  void Reset() { *this = Participant(); }

 private:
  using Actions = std::vector<ParticipantAction>;

  void StepActive(const ParticipantEvent& event, Actions* actions);
  void StepPreparing(const ParticipantEvent& event, Actions* actions);
  void StepPrepared(const ParticipantEvent& event, Actions* actions);
  void StepCommitting(const ParticipantEvent& event, Actions* actions);
  void StepDeciding(const ParticipantEvent& event, Actions* actions);
  void StepDecided(const ParticipantEvent& event, Actions* actions);

  void BeginCommit(Actions* actions);
  void Abort(Actions* actions);
  void Finish(Actions* actions);

  State state_ = State::kActive;
  Outcome decided_ = Outcome::kUnknown;  // kDecided: what was answered
  bool nobody_asks_ = false;             // kDeciding: the coordinator has restarted and will not ask
};

std::string_view StateName(Participant::State state);

// What an island answers about a transaction it has no machine for (never a fresh machine: it would commit
// an empty branch in the name of the one that is gone). `same_life`: the message names the boot epoch that
// this island has now.
//  - Prepare: vote NO. The branch was aborted here, or an earlier life of the island held it.
//  - CommitOnePhase: aborted in the same life, since it is sent only once and a branch that has decided
//    keeps its machine; unknown when it was meant for an earlier life.
//  - Decision commit: acknowledge. It was committed here before, or forgotten in a restart without
//    durability.
//  - Inquiry of the coordinator (this was its one-phase decider): unknown, it kept nothing.
//  - Anything else: nothing.
void AnswerWithoutMachine(const ParticipantEvent& event, bool same_life,
                          std::vector<ParticipantAction>* actions);
// The same for the coordinator of the transaction:
//  - OnePhaseReply: confirm. This life is done with it, so the confirmation was lost. In a later life
//    nothing: the decider hears of the restart.
//  - Inquiry: aborted, presumed. A commit is not forgotten before everybody who might ask has acknowledged.
//  - Anything else: nothing.
void AnswerWithoutMachine(const CoordinatorEvent& event, bool same_life,
                          std::vector<CoordinatorAction>* actions);

inline Outcome OutcomeOfForgotten(bool asked_as_decider) {
  return asked_as_decider ? Outcome::kUnknown : Outcome::kAborted;
}

}  // namespace islands::coordinator
