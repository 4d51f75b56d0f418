// The distributed transactions that this worker coordinates: ships their operations, gives their state
// machines (coordinator/coordinator.h) what is heard and carries out what they say.
//
//   Transaction --first remote operation--> entry --until all acknowledgements--> forgotten
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. An entry is here from the first operation that was shipped until its machine says kForget.
//  2. entry.transaction and transaction.entry point at each other, or the outcome was taken and both are
//     null.
//  3. Messages about a transaction of another worker never reach an entry, nor about one of an earlier life
//     unless it had decided to commit it, and that was kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/coordinator.h"
#include "instance/recovery/unsettled.h"
#include "instance/worker/commit_memory.h"
#include "instance/worker/counters.h"
#include "instance/worker/engine.h"
#include "instance/worker/inbox.h"
#include "instance/worker/outbox.h"
#include "instance/worker/peers.h"
#include "instance/worker/turns.h"
#include "instance/worker/waiter.h"
#include "instance/worker/wire.h"
#include "instance/worker/worker_shared.h"

namespace islands::instance {

struct CoordinatorEntry;

// A transaction begun here, as its coordination sees it (running_transaction.h is the whole of it).
struct CoordinatedTransaction : Waiter {
  coordinator::TransactionId own_id;
  int64_t deadline_ns = 0;
  CoordinatorEntry* entry = nullptr;
  RoutePlan plan;              // of the batch that is being executed
  Batch* executing = nullptr;  // the batch whose answers are awaited
  uint32_t pending_replies = 0;
  std::vector<ScanChunk> chunks;
  std::optional<coordinator::Outcome> outcome;
  int64_t idle_ns = 0;        // that its client may let it wait between two steps
  uint64_t others_epoch = 0;  // of what it has seen on other islands (answers.h)
  bool nothing_more = false;  // for other islands (Batch::LastElsewhere)

  bool Executes() const { return executing != nullptr && !failure.set(); }
};

struct CoordinatorEntry {
  struct Peer : Fellow {
    uint32_t step = 0;
    bool answer_due = false;  // to the last step
    bool told = false;        // the decision
  };
  coordinator::TransactionId id;
  coordinator::Coordinator machine;
  CoordinatedTransaction* transaction = nullptr;  // until its outcome was taken
  int64_t begun_ns = 0;  // when its first operation was shipped, or the log has brought it back
  int64_t deadline_ns = 0;
  int64_t logged_ns = 0;  // when the log has heard of its decision last; 0: it has not
  bool early = false;     // who holds changes was asked to prepare while it executes
  bool overdue = false;   // its deadline has passed, and its client has an answer
  bool over = false;      // its machine said kForget
  std::vector<Peer> peers;

  Peer* FindPeer(uint32_t island) {
    for (Peer& peer : peers) {
      if (peer.island == island) return &peer;
    }
    return nullptr;
  }
};

class Coordinated final : public CoordinatorInbox {
 public:
  Coordinated(const WorkerOptions& options, const WorkerShared& shared, Turns& turns, Engine& engine,
              Peers& peers, const messaging::Links& links, Outbox& outbox, WorkerCounters& counters)
      : options_(options),
        shared_(shared),
        turns_(turns),
        engine_(engine),
        peers_(peers),
        links_(links),
        outbox_(outbox),
        counters_(counters) {}
  Coordinated(const Coordinated&) = delete;
  Coordinated& operator=(const Coordinated&) = delete;

  // Of the next transaction that begins on this worker, distributed or not.
  Id NextId() { return {options_.island, options_.index, options_.boot_epoch, next_sequence_++}; }

  // What an earlier life has decided, and these may not have heard; before anybody is let in.
  void Restore(const Id& id, const recovery::Unsettled::Decision& decision);

  // Sends the remote shares of transaction.plan; a failure is set if that cannot be done.
  void Ship(CoordinatedTransaction& transaction, const Batch& batch);
  // After the last batch of the transaction that has anything for other islands (Batch::LastElsewhere): asks
  // those with changes to prepare.
  void PrepareEarly(CoordinatedTransaction& transaction, const Batch& batch);
  // Before the commit is asked for: of those who were asked early, one in whose place a later life has begun.
  // That one has the rows locked that were changed, and none of those that were only read.
  const Fellow* LostVoter(const CoordinatorEntry& entry) const;
  // True when the entry is forgotten.
  bool Step(CoordinatorEntry& entry, const coordinator::CoordinatorEvent& event);
  // Null: none of this worker, or forgotten.
  CoordinatorEntry* Find(const Id& id);
  // In the order of their ids: hash order differs from run to run, and a simulation must not.
  std::vector<CoordinatorEntry*> All() const;
  bool empty() const { return entries_.empty() && restored_.empty(); }

  // Between two rounds.
  void CheckInvariants() const;

  // Deadlines, and participants that are proven dead.
  void Sweep();
  // Brings up to date what other islands are told of those that have ended. `oldest_begun`: sequence of the
  // oldest transaction that has begun on this worker, and has no answer yet.
  void NoteEnded(uint64_t oldest_begun);

  void OnPeerUp(uint32_t island, uint64_t boot_epoch);
  void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why);
  // The worker of that island that serves this one stands still. Transactions that it has not voted on are
  // not worth waiting for it; whatever has voted waits.
  void OnPeerSilent(uint32_t island);

  // CoordinatorInbox.
  void OnExecuteReply(uint32_t from, const data::v1::ExecuteReply& reply) override;
  void OnVote(uint32_t from, const Id& id, coordinator::VoteKind vote) override;
  void OnAcknowledge(uint32_t from, const Id& id, bool gone) override;
  void OnOnePhaseReply(uint32_t from, const Id& id, coordinator::Outcome outcome, uint64_t epoch) override;
  void OnInquiry(uint32_t from, const Id& id) override;
  void OnDecidersReply(uint32_t from, const Id& id, coordinator::Outcome outcome, uint64_t epoch) override;

 private:
  using Action = coordinator::CoordinatorAction;
  using Event = coordinator::CoordinatorEvent;
  using Performer = void (Coordinated::*)(CoordinatorEntry&, const Action&);

  CoordinatorEntry& EntryFor(CoordinatedTransaction& transaction);
  bool ShipShare(CoordinatedTransaction& transaction, const Batch& batch, const RoutePlan::Share& share);
  // Gives the event to the entry's machine, or, where there is none, to the rule for that.
  void StepOrAnswer(const Id& id, const Event& event);
  // What was heard of it says what is to be seen elsewhere.
  void DependOn(const Id& id, uint64_t epoch);
  void FailExecuting(CoordinatorEntry& entry, AbortReason reason, absl::Status why);
  bool LookForDeadParticipants(CoordinatorEntry& entry);
  void Forget(CoordinatorEntry& entry);

  static Performer PerformerOf(Action::Kind kind);
  void FindParticipants(const CoordinatorEntry& entry);
  void Decide(CoordinatorEntry& entry);
  void Repeat(CoordinatorEntry& entry);
  void WriteEnd(CoordinatorEntry& entry, const Action& action);
  void SendPrepare(CoordinatorEntry& entry, const Action& action);
  void SendCommitOnePhase(CoordinatorEntry& entry, const Action& action);
  void SendDecision(CoordinatorEntry& entry, const Action& action);
  void SendConfirm(CoordinatorEntry& entry, const Action& action);
  void SendInquiry(CoordinatorEntry& entry, const Action& action);
  void SendInquiryReply(CoordinatorEntry& entry, const Action& action);
  void CommitLocal(CoordinatorEntry& entry, const Action& action);
  void AbortLocal(CoordinatorEntry& entry, const Action& action);
  void Answer(CoordinatorEntry& entry, const Action& action);
  void LoseShare(CoordinatorEntry& entry, const Action& action);
  void EndEntry(CoordinatorEntry& entry, const Action& action);

  const WorkerOptions& options_;
  const WorkerShared& shared_;
  Turns& turns_;
  Engine& engine_;
  Peers& peers_;
  const messaging::Links& links_;
  Outbox& outbox_;
  WorkerCounters& counters_;

  absl::flat_hash_map<uint64_t, std::unique_ptr<CoordinatorEntry>> entries_;  // by sequence
  std::map<Id, std::unique_ptr<CoordinatorEntry>> restored_;                  // of earlier lives
  std::vector<std::unique_ptr<CoordinatorEntry>> spare_;
  std::vector<Action> actions_;       // scratch
  std::vector<Fellow> participants_;  // scratch
  uint64_t next_sequence_ = 1;
  Ended ended_;  // as of the last NoteEnded
};

}  // namespace islands::instance
