// The coordinator's side of two-phase commit with presumed abort, for one transaction: a pure state machine.
//
// It does no I/O and holds no clock: events go in, actions come out, and the island's worker carries them
// out. Executing operations is not its business; it learns of participants as the first operation is shipped
// to them and of the end of execution by kCommitRequested. Gray, Reuter: Transaction Processing, ch. 11;
// Mohan, Lindsay, Obermarck 1986.
//
//   executing --commit--> voting --all yes/read--> forcing --durable--> committing --all acks--> done
//       |  no participant wrote                 \-- one writer only --> one-phase --answer--> done
//       |                                                                  \-- answer lost --> inquiring
//       '--abort, NO, lost, timeout--> done (abort decisions are neither forced nor acknowledged)
//
// Whoever was sent the last operations that the transaction has for other islands may be asked to prepare
// with them (kPrepareEarly): its vote comes with their answer, so that at the commit there is nothing to
// wait for. The unsolicited vote: Stonebraker 1979 (Distributed INGRES); Stamos, Cristian 1990.
//
// Thread safety: none; it lives on the worker that coordinates.
//
// Invariants:
//  1. kAnswer is produced exactly once, and kForget exactly once, last.
//  2. Once kForceCommitRecord was produced no abort decision is ever sent; before kCommitRecordDurable no
//     commit decision.
//  3. kSendPrepare and kSendCommitOnePhase only follow kCommitRequested: every operation has answered by
//     then. Only an early kSendPrepare does not: who has changed nothing leaves it alone, for a vote READ
//     releases locks while others still take theirs, and is asked again. And kCommitRequested is given only
//     while all who were asked early still live the lives that were: a later one has only the rows locked
//     that were changed.
//  4. The one-phase writer gets kSendCommitOnePhase only after every reader voted READ, and only if nobody
//     else wrote.
//  5. Late, duplicate and misdirected events change nothing (a vote after the decision, an ack twice, a
//     stranger's vote).
//  6. An outcome that cannot be known is answered kUnknown, never guessed.
//  7. A participant that wrote and votes READ has lost its changes: that counts as NO.
//  8. Exactly one of kCommitLocal and kAbortLocal is produced, once. On the one-phase path it is kCommitLocal
//     whatever the decider says: the own branch has written nothing then, so it only releases its read locks.
//  9. A participant whose life has ended and kept nothing (kPeerGone) is not waited for, and does not count
//     as one that has committed: before the decision it means abort, after it its share is lost.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "coordinator/transaction_id.h"

namespace islands::coordinator {

enum class Outcome : uint8_t { kCommitted = 1, kAborted = 2, kPending = 3, kUnknown = 4 };
enum class VoteKind : uint8_t { kYes = 1, kNo = 2, kRead = 3 };

std::string_view OutcomeName(Outcome outcome);
std::string_view VoteName(VoteKind vote);

struct CoordinatorEvent {
  enum Kind : uint8_t {
    kParticipant,      // island: operations are being shipped to it (idempotent)
    kWrote,            // island: it has answered that it holds changes
    kPrepareEarly,     // island: nothing more will be shipped to anybody, and it was sent changes
    kCommitRequested,  // local_wrote: whether the coordinator's own branch holds changes
    kAbortRequested,   // by the procedure, a failed operation, or a deadlock
    kVote,             // island, vote
    kCommitRecordDurable,
    kAcknowledged,   // island
    kOnePhaseReply,  // island, outcome
    kPeerLost,       // island: its connection is gone; it may come back
    kPeerSilent,     // island: connected, but it does not move: nothing new is expected of it
    kPeerUp,         // island: connected (again); restarted: with a later boot epoch than the transaction saw
    kPeerGone,       // island: proven to have died, or its next life says so, and nothing was kept of it
    kInquiry,        // island: a participant in doubt asks
    kInquiryReply,   // island (the decider), outcome
    kTimeout,        // the transaction's deadline has passed; while the machine lives it may be given again
  };
  Kind kind;
  uint32_t island = 0;
  bool local_wrote = false;
  bool restarted = false;
  VoteKind vote = VoteKind::kNo;
  Outcome outcome = Outcome::kUnknown;
};

struct CoordinatorAction {
  enum Kind : uint8_t {
    kSendPrepare,          // island, early
    kSendCommitOnePhase,   // island
    kSendDecision,         // island, commit
    kForceCommitRecord,    // with the participants that voted YES; then kCommitRecordDurable
    kLoseShare,            // island: it is gone, and with it its share of the commit
    kWriteEnd,             // all of them have acknowledged: the commit record needs no answering for any more
    kCommitLocal,          // keep the changes of the own branch, release its locks
    kAbortLocal,           // undo, release
    kSendInquiry,          // island: ask the one-phase decider
    kSendOnePhaseConfirm,  // island
    kSendInquiryReply,     // island, outcome
    kAnswer,               // outcome, to whoever began the transaction
    kForget,               // the machine can be destroyed
  };
  Kind kind;
  uint32_t island = 0;
  bool commit = false;
  bool early = false;
  Outcome outcome = Outcome::kUnknown;
};

class Coordinator {
 public:
  enum class State : uint8_t { kExecuting, kVoting, kForcing, kCommitting, kOnePhase, kInquiring, kDone };

  Coordinator() = default;

  // Appends what has to be done, in order, to `actions`.
  void Step(const CoordinatorEvent& event, std::vector<CoordinatorAction>* actions);

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  // Whether any participant has said that it wrote.
  bool OthersWrote() const;
  // Whether this one has.
  bool Wrote(uint32_t island) const;
  // Whether it has voted YES, and is told the decision.
  bool VotedYes(uint32_t island) const;
  // Whose votes, acknowledgements or decision it waits for; nobody's while it executes.
  std::vector<uint32_t> Awaited() const;
  // Makes the object ready for another transaction; keeps its memory.
  void Reset();
  // Between two steps. The numbered invariants are checked as they happen.
  void CheckInvariants() const;

 private:
  using Actions = std::vector<CoordinatorAction>;

  struct Participant {
    uint32_t island = 0;
    bool wrote = false;
    bool asked = false;  // to prepare
    bool voted = false;
    VoteKind vote = VoteKind::kNo;
    bool acknowledged = false;

    bool voted_yes() const { return voted && vote == VoteKind::kYes; }
  };

  void StepExecuting(const CoordinatorEvent& event, Actions* actions);
  void StepVoting(const CoordinatorEvent& event, Actions* actions);
  void StepForcing(const CoordinatorEvent& event, Actions* actions);
  void StepCommitting(const CoordinatorEvent& event, Actions* actions);
  void StepOnePhase(const CoordinatorEvent& event, Actions* actions);  // and kInquiring

  void PrepareEarly(Participant& participant, Actions* actions);
  void TakeEarlyVote(Participant& participant, VoteKind vote, Actions* actions);
  void BeginVoting(Actions* actions);
  void TakeVote(Participant& participant, VoteKind vote, Actions* actions);
  void CountVotes(Actions* actions);
  void BeginOnePhase(uint32_t decider, Actions* actions);
  void AskDecider(Actions* actions);
  void LearnOutcome(Outcome outcome, Actions* actions);
  void Abort(Actions* actions);
  void EndLocal(CoordinatorAction::Kind how, Actions* actions);
  void AnswerOnce(Outcome outcome, Actions* actions);
  void Finish(Actions* actions);

  Participant* Find(uint32_t island);
  Participant* OnlyWriter();  // null unless exactly one participant and nobody else wrote
  bool AnyYes() const;

  State state_ = State::kExecuting;
  bool answered_ = false;
  bool local_wrote_ = false;
  bool local_ended_ = false;  // by kCommitLocal or kAbortLocal
  uint32_t decider_ = 0;
  std::vector<Participant> participants_;  // few; searched linearly
};

std::string_view StateName(Coordinator::State state);

// The life of its island that a message speaks of, as seen by the island that gets it.
enum class Life : uint8_t {
  kThis,
  kEarlierKept,  // an earlier one, and all that it forced is known (it has a log)
  kEarlierLost,  // an earlier one that kept nothing (durability `none`)
};

// What an island answers as coordinator of a transaction that it has no machine for:
//  - OnePhaseReply: confirm. This life is done with it, so the confirmation was lost; an earlier one that has
//    kept all it forced is done with it as well. About one that kept nothing: nothing, the decider hears of
//    its end.
//  - Inquiry: aborted, presumed. A commit is not forgotten before everybody who might ask has acknowledged.
//    About a life that kept nothing: unknown.
//  - Anything else: nothing.
void AnswerWithoutMachine(const CoordinatorEvent& event, Life life, std::vector<CoordinatorAction>* actions);

}  // namespace islands::coordinator
