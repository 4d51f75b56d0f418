// The participant's side of two-phase commit with presumed abort, for one transaction: a pure state machine.
//
//   active --prepare, wrote--> preparing --durable, vote YES--> prepared --commit--> committing
//      |  |                                                     |    |                  |
//      |  |                                                     |  gone        durable, acknowledge --> done
//      |  |                                                     |    v
//      |  |                                                     | orphaned --a fellow did--> committing
//      |  |                                                     '--abort--> done   '--nobody did--> done
//      |  '--prepare, read only: vote READ, release--> done
//      |--one-phase--> deciding --durable, answer--> decided --confirmed--> done
//      '--abort, coordinator lost, timeout--> done (from preparing too)
//
// PREPARE may be early: sent with operations, while others still execute theirs (coordinator.h). Whoever
// holds changes when it has executed them votes; who has only read keeps its locks and waits to be asked
// again.
//
// A coordinator that has died and kept nothing (durability `none`) leaves its participants orphaned. They ask
// each other (the cooperative termination protocol: Bernstein, Hadzilacos, Goodman 1987, ch. 7.4). A commit
// that reached one of them reaches them all; where it reached none that is alive, the transaction is aborted.
// What makes it safe that two who are in doubt agree to abort, although fellows and links may go at any
// moment: each first makes sure that it hears nothing more from those who are gone, and an answer "in
// doubt, too" counts only if it names at least the same dead. Say A aborts. Then every fellow alive has
// answered that it is in doubt and hears nothing more from anybody whom A counts as dead. The first of them
// to learn of a commit after its answer would have learnt it from one of the others, who had learnt it
// after its own answer, before: there is no first.
//
// kCoordinatorGone and kFellowGone are given only after proof of death, and when the link from there was
// read to its end: what the dead have said is lost otherwise, for from then on nothing is taken from them.
//
// Thread safety: none; it lives on the worker that got the transaction's first message.
//
// Invariants:
//  1. After vote YES (kSendVote yes) nothing ends the transaction but the coordinator's word or, once it is
//     proven to be gone, what the fellows know: neither loss of the connection nor a clock. It asks instead
//     (kSendInquiry), again at every kInquiryDue and when the coordinator is up.
//  2. kSendVote(YES) only after kPrepareDurable; kSendAcknowledge and kSendOnePhaseReply(committed) only
//     after kCommitDurable.
//  3. Exactly one of kApplyCommit and kApplyAbort is produced, once; for a read-only participant kApplyCommit
//     (it releases its locks, and by invariant 3 of coordinator.h every operation has answered everywhere by
//     then, since it leaves an early PREPARE alone).
//  4. A one-phase decider keeps its outcome until kOnePhaseConfirmed, kCoordinatorRestarted or
//     kCoordinatorGone.
//  5. Late and duplicate events change nothing, except that a duplicate request whose answer may be lost is
//     answered again.
//  6. A branch that no longer holds the changes its coordinator counts on never says that it committed them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/coordinator.h"

namespace islands::coordinator {

struct ParticipantEvent {
  enum Kind : uint8_t {
    kPrepare,  // wrote; early; fellows, which count when it is the first one. Nothing executes here.
    kPrepareDurable,
    kDecision,  // commit
    kCommitDurable,
    kCommitOnePhase,
    kOnePhaseConfirmed,
    kCoordinatorInquiry,  // the coordinator lost our one-phase answer and asks
    kCoordinatorLost,
    kCoordinatorUp,         // connected again, same boot epoch
    kCoordinatorRestarted,  // connected again, later boot epoch: it remembers only what it forced
    kCoordinatorGone,       // proven dead, kept nothing, and nothing that it said is still under way
    kInquiryDue,       // time to ask (again); a decider repeats its answer, whose confirmation may be lost
    kInquiryReply,     // outcome
    kFellowGone,       // island: as kCoordinatorGone
    kDecisionRequest,  // island: a fellow asks what is known here
    kDecisionReply,    // island, outcome, gone
    kTimeout,          // nothing was heard for the transaction's deadline
    kAbortLocally,     // an operation failed here, or a deadlock victim: only possible before voting YES
  };
  Kind kind;
  bool commit = false;
  bool wrote = false;   // kPrepare, kCommitOnePhase: this branch holds changes
  bool early = false;   // kPrepare: others may still execute
  uint32_t island = 0;  // of the fellow
  // kInquiryReply: the coordinator's. kDecisionReply: the fellow's: committed; aborted = there is nothing of
  // it here, and nothing will be; pending = in doubt, too, and hears nothing more from `gone`.
  Outcome outcome = Outcome::kUnknown;
  std::span<const uint32_t> fellows = {};  // islands of the other participants
  std::span<const uint32_t> gone = {};
};

struct ParticipantAction {
  enum Kind : uint8_t {
    kForcePrepare,
    kForceCommit,
    kSendVote,  // vote
    kSendAcknowledge,
    kSendGone,           // instead of an acknowledgement: the changes that it is to commit are not here
    kSendOnePhaseReply,  // outcome
    kSendInquiry,        // to the coordinator
    kSendInquiryReply,   // outcome, to the coordinator that asked
    kAskFellow,          // island
    kAnswerFellow,       // island, outcome; with the machine's Gone()
    kApplyCommit,        // keep changes, release locks
    kApplyAbort,         // undo changes, release locks
    kForget,             // the machine can be destroyed
  };
  Kind kind;
  VoteKind vote = VoteKind::kNo;
  Outcome outcome = Outcome::kUnknown;
  uint32_t island = 0;
};

class Participant {
 public:
  enum class State : uint8_t {
    kActive,
    kPreparing,
    kPrepared,
    kOrphaned,
    kCommitting,
    kDeciding,
    kDecided,
    kDone
  };

  void Step(const ParticipantEvent& event, std::vector<ParticipantAction>* actions);

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  bool in_doubt() const { return state_ == State::kPrepared || state_ == State::kOrphaned; }
  bool orphaned() const { return state_ == State::kOrphaned; }
  bool decided() const { return state_ == State::kDecided; }
  // Of whose end the machine waits for news while it is orphaned: fellows that have not said anything final.
  std::vector<uint32_t> OpenFellows() const;
  // The fellows that are gone, while it is orphaned.
  std::vector<uint32_t> Gone() const;
  // Makes the object ready for another transaction; keeps its memory.
  void Reset();
  // Between two steps. The numbered invariants are checked as they happen.
  void CheckInvariants() const;

 private:
  using Actions = std::vector<ParticipantAction>;

  struct Fellow {
    uint32_t island = 0;
    bool gone = false;
    bool nothing = false;   // it has said that there is nothing of the transaction, and never will be
    bool in_doubt = false;  // it has said so, and that it knows all our dead to be dead

    bool settled() const { return gone || nothing || in_doubt; }
  };

  void StepActive(const ParticipantEvent& event, Actions* actions);
  void StepPreparing(const ParticipantEvent& event, Actions* actions);
  void StepPrepared(const ParticipantEvent& event, Actions* actions);
  void StepOrphaned(const ParticipantEvent& event, Actions* actions);
  void StepCommitting(const ParticipantEvent& event, Actions* actions);
  void StepDeciding(const ParticipantEvent& event, Actions* actions);
  void StepDecided(const ParticipantEvent& event, Actions* actions);

  void BeginPrepare(const ParticipantEvent& event, Actions* actions);
  void BeginCommit(Actions* actions);
  void TakeGone(uint32_t island, Actions* actions);
  void TakeReply(const ParticipantEvent& event, Actions* actions);
  void AskFellows(Actions* actions);
  void AbortIfNobodyKnows(Actions* actions);
  void Apply(ParticipantAction::Kind how, Actions* actions);
  void Abort(Actions* actions);
  void Finish(Actions* actions);
  Fellow* FindFellow(uint32_t island);

  State state_ = State::kActive;
  bool applied_ = false;                 // by kApplyCommit or kApplyAbort
  Outcome decided_ = Outcome::kUnknown;  // kDecided: what was answered
  bool nobody_asks_ = false;             // kDeciding: the coordinator has restarted and will not ask
  std::vector<Fellow> fellows_;
};

std::string_view StateName(Participant::State state);

// What an island remembers of a transaction that it has no machine for.
enum class Trace : uint8_t {
  kNothing,      // this life has not committed it, and was not asked to by a PREPARE that it said YES to
  kCommitted,    // this life has committed it
  kEarlierLife,  // the message is meant for an earlier life, which kept nothing
  kKept,         // whatever was forced is known (there is a log): it was not prepared here, or that is over
};

// What an island answers about a transaction it has no machine for (never a fresh machine: it would commit
// an empty branch in the name of the one that is gone).
//  - Prepare: vote NO. The branch was aborted here, or an earlier life of the island held it.
//  - CommitOnePhase, and the coordinator's inquiry about it: aborted in the same life, since the request is
//    sent only once, a connection that it went down on is closed before the inquiry comes, and a branch that
//    has decided keeps its machine; unknown when it was meant for an earlier life.
//  - Decision commit: acknowledged if this life has committed it, otherwise gone. Where all that was forced
//    is kept, acknowledged: it is said to who has voted YES, and a branch that has ends by it alone.
//  - A fellow's decision request: committed, or that there is nothing here. An earlier life's: nothing, the
//    fellow has to learn that it is gone.
//  - Anything else: nothing.
void AnswerWithoutMachine(const ParticipantEvent& event, Trace trace,
                          std::vector<ParticipantAction>* actions);

}  // namespace islands::coordinator
