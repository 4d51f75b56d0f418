// What other islands' transactions do on this worker: carries out the operations of their branches, gives
// their state machines (coordinator/participant.h) what is heard and carries out what they say.
//
//   first operation --> ParticipantEntry --until its machine says kForget--> graveyard --> used again
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. A message meant for an earlier life of this island never reaches a branch, unless that life's branches
//     are kept: then what ends a branch does, and nothing that would begin one, go on with it, or ask it to
//     vote.
//  2. What this life has committed is remembered before it is acknowledged (commit_memory.h), where it is not
//     in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/participant.h"
#include "instance/recovery/recovery.h"
#include "instance/worker/branch_table.h"
#include "instance/worker/commit_memory.h"
#include "instance/worker/counters.h"
#include "instance/worker/engine.h"
#include "instance/worker/inbox.h"
#include "instance/worker/lock_waits.h"
#include "instance/worker/outbox.h"
#include "instance/worker/peers.h"
#include "instance/worker/time_account.h"
#include "instance/worker/turns.h"
#include "instance/worker/worker_shared.h"

namespace islands::instance {

class Branches final : public ParticipantInbox {
 public:
  Branches(const WorkerOptions& options, WorkerShared& shared, Turns& turns, TimeAccount& time,
           LockWaits& lock_waits, Engine& engine, Peers& peers, const messaging::Links& links, Outbox& outbox,
           WorkerCounters& counters)
      : options_(options),
        shared_(shared),
        turns_(turns),
        time_(time),
        lock_waits_(lock_waits),
        engine_(engine),
        peers_(peers),
        links_(links),
        outbox_(outbox),
        counters_(counters) {}
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  ParticipantEntry* Find(const Id& id) { return table_.Find(id); }
  std::vector<ParticipantEntry*> All() const { return table_.All(); }
  bool empty() const { return table_.empty(); }
  void Reap() { table_.Reap(); }
  void CheckInvariants() const;  // between two rounds
  size_t commits_remembered() const { return committed_.size(); }

  // What an earlier life has left, before anybody is let in; of coordinators that recovery::CheckDeployment
  // knows. DATA_LOSS: see Executor::AdoptPrepared.
  absl::Status RestorePrepared(const Id& id, recovery::Unsettled::Prepared prepared);
  void RestoreDecided(const Id& id, recovery::Unsettled::Decided decided);

  // Questions that are due, coordinators and fellows that are proven dead, branches that are stuck.
  void Sweep();
  void OnCoordinatorUp(const messaging::Origin& origin);
  void OnCoordinatorLost(const messaging::Origin& origin);
  // It stands still: active branches of its transactions end; whatever has voted waits.
  void OnCoordinatorSilent(messaging::Address peer);

  // What a fellow is told that asks on behalf of `island`, on the worker that the branch is or would be on.
  // Nothing: it cannot be said yet.
  struct FellowAnswer {
    coordinator::Outcome outcome{};
    std::vector<uint32_t> gone;
  };
  std::optional<FellowAnswer> AnswerFellow(uint32_t island, const Id& id, uint64_t epoch);

  // ParticipantInbox.
  void OnExecute(const messaging::Origin& origin, const data::v1::ExecuteRequest& request) override;
  void OnPrepare(const Id& id, uint64_t epoch, bool early, std::span<const Fellow> fellows) override;
  void OnDecision(const Id& id, uint64_t epoch, bool commit) override;
  void OnCommitOnePhase(const Id& id, uint64_t epoch) override;
  void OnConfirm(const Id& id) override;
  void OnInquiryToDecider(const Id& id, uint64_t epoch) override;
  void OnInquiryReply(const Id& id, coordinator::Outcome outcome) override;
  void OnDecisionRequest(const messaging::Origin& origin, const Id& id, uint64_t epoch) override;
  void OnDecisionReply(uint32_t from, const Id& id, coordinator::Outcome outcome,
                       std::span<const uint32_t> gone) override;

 private:
  using Action = coordinator::ParticipantAction;
  using Event = coordinator::ParticipantEvent;
  using Performer = void (Branches::*)(ParticipantEntry&, const Action&);
  // To the coordinator of a transaction, whether there is a branch of it or not.
  using Sender = void (*)(Outbox&, const Id&, const Action&);

  // Whether a coordinator that names this epoch speaks to the present life of this island.
  bool KnowsThisLife(uint64_t epoch) const;
  // The branch that a message is for. Null: there is none, or not of this life.
  ParticipantEntry* FindFor(const Id& id, uint64_t epoch);
  // The branch that a request to vote is for, if it may: one that still executes, or for whose vote the log
  // has no room, ends.
  ParticipantEntry* ToVote(ParticipantEntry* entry, uint64_t epoch, size_t fellows);
  // `entry`: of that transaction; null: none.
  void Prepare(const Id& id, ParticipantEntry* entry, uint64_t epoch, bool early);
  ParticipantEntry& Open(const Id& id);
  // OK: the step may be carried out. Nothing: it is a duplicate, or out of turn.
  std::optional<Failure> CheckStep(const data::v1::ExecuteRequest& request, ParticipantEntry* entry) const;
  runtime::Task<void> ExecuteStep(ParticipantEntry& entry);

  void Step(ParticipantEntry& entry, const Event& event);
  // What the log proves; what has to be done then was done by an earlier life.
  static void Replay(ParticipantEntry& entry, const Event& event);
  void Decide(ParticipantEntry& entry);
  // There is no branch (any more) that the message could be for; `epoch`: the life it names.
  void AnswerForGone(const Id& id, const Event& event, uint64_t epoch);
  coordinator::Trace TraceOf(const Id& id, uint64_t epoch) const;

  static Performer PerformerOf(Action::Kind kind);
  static Sender SenderOf(Action::Kind kind);
  void ApplyCommit(ParticipantEntry& entry, const Action& action);
  void ApplyAbort(ParticipantEntry& entry, const Action& action);
  void EndEntry(ParticipantEntry& entry, const Action& action);
  void AskFellow(ParticipantEntry& entry, const Action& action);
  void Vote(ParticipantEntry& entry, const Action& action);
  void Acknowledge(ParticipantEntry& entry, const Action& action);

  void NoteDoubt(ParticipantEntry& entry);
  void NoteDecided();
  void Repeat(ParticipantEntry& entry);
  void LookWhetherStuck(ParticipantEntry& entry);
  void SetStuck(ParticipantEntry& entry, bool stuck);
  void LookForDeadCoordinator(ParticipantEntry& entry);
  void LookForDeadFellows(ParticipantEntry& entry);

  const WorkerOptions& options_;
  WorkerShared& shared_;
  Turns& turns_;
  TimeAccount& time_;
  LockWaits& lock_waits_;
  Engine& engine_;
  Peers& peers_;
  const messaging::Links& links_;
  Outbox& outbox_;
  WorkerCounters& counters_;

  BranchTable table_;
  CommitMemory committed_;
  std::vector<Action> actions_;    // scratch
  std::vector<uint32_t> islands_;  // scratch
};

}  // namespace islands::instance
