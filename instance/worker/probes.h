// Deadlocks over several islands, found by probes: edge chasing in the AND model (Chandy, Misra, Haas:
// Distributed Deadlock Detection, 1983), with priorities so that one transaction of a cycle falls and not all
// of them (Mitchell, Merritt 1984).
//
//   T waits for a lock that U holds: the worker of T's waiting branch sends (T, U) to U's coordinator.
//   There, while U executes:  U waits for a lock here   -> (T, V) to the coordinator of each V that holds it
//                             U waits for an answer     -> (T, U) to the branch of U on that island, which
//                                                          goes on from there if that branch waits for a lock
//   (T, T) has come round: T fails, and its abort ends its waits on all islands.
//
// A probe only goes on to transactions of a lower priority than its initiator, so of a cycle's transactions
// just the highest one hears of it. The priority is a hash of the transaction's id: no island is favoured,
// and a victim draws again when it retries. A victim is no mistake unless one of the same cycle has aborted
// for another reason meanwhile: everybody else a probe has passed still waits, and strict two-phase locking
// keeps what they hold.
//
// A wait for a lock is one for its holders and for those who wait ahead. Most chases follow the holders
// only (locks::BlockerSet): where all wait for one row that is one probe each instead of one per pair,
// and of all who are in the same trouble one falls. But a cycle through a queue then stays hidden for as
// long as a holder outside of it may move, and whoever is next holds the lock after him. So one chase in
// kQueuesEvery goes through the queues as well. It takes every way on which its initiator outranks all
// others, so every cycle that stands is found by such a chase of its highest transaction.
//
// Cycles within one island never get here: the lock table finds them at once. Probes may be lost (budgets, a
// link that is down); waits that last are chased again and again, and the lock timeout is the backstop.
//
// Work is bounded: of one chase a worker sends one probe to a transaction and follows one, of all chases no
// more than kProbesSeen in kForgetNs, and it sends no more than kProbesSentPerRound between two rounds.
//
// Thread safety: owned by a worker.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "instance/worker/branch_table.h"
#include "instance/worker/coordinated.h"
#include "instance/worker/counters.h"
#include "instance/worker/inbox.h"
#include "instance/worker/lock_waits.h"
#include "instance/worker/outbox.h"
#include "instance/worker/peers.h"
#include "instance/worker/probe.h"
#include "instance/worker/turns.h"
#include "instance/worker/worker_shared.h"

namespace islands::instance {

class Probes final : public ProbeInbox {
 public:
  using Id = coordinator::TransactionId;
  // Begun here, in the midst of a batch; null for all others.
  using FindExecuting = std::function<CoordinatedTransaction*(const Id&)>;
  using FindBranch = std::function<ParticipantEntry*(const Id&)>;

  Probes(const WorkerOptions& options, const WorkerShared& shared, Turns& turns, const LockWaits& lock_waits,
         Peers& peers, Outbox& outbox, WorkerCounters& counters, FindExecuting find_executing,
         FindBranch find_branch)
      : options_(options),
        shared_(shared),
        turns_(turns),
        lock_waits_(lock_waits),
        peers_(peers),
        outbox_(outbox),
        counters_(counters),
        find_executing_(std::move(find_executing)),
        find_branch_(std::move(find_branch)) {}
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

  // A round of chases, when it is due: more often than a sweep, because nothing else happens in a deadlock.
  void ChaseWaits();
  // When the next round is due; INT64_MAX while nobody waits for a lock.
  int64_t NextDeadlineNs() const {
    return lock_waits_.empty() ? std::numeric_limits<int64_t>::max() : next_chase_ns_;
  }
  // ProbeInbox: from another island.
  void OnProbe(const Probe& probe) override;
  // From a colleague, on this worker's thread.
  void Take(const Probe& probe);

 private:
  // (initiator, blocked_on, at_participant, chase)
  using Key = std::tuple<Id, Id, bool, uint32_t>;

  void Drain();
  bool IsNew(const Probe& probe);
  void Follow(const Probe& probe);
  void FollowAtCoordinator(const Probe& probe);
  void FollowAtParticipant(const Probe& probe);
  // From a wait for a lock to everybody it waits for.
  void ProbeBlockers(const Waiter& waiter, Probe probe);
  void Send(const Probe& probe);
  void SendToIsland(uint32_t island, const Probe& probe);
  void PostTo(uint32_t worker, const Probe& probe);
  void FailVictim(CoordinatedTransaction& transaction, uint32_t waits_on_island);

  const WorkerOptions& options_;
  const WorkerShared& shared_;
  Turns& turns_;
  const LockWaits& lock_waits_;
  Peers& peers_;
  Outbox& outbox_;
  WorkerCounters& counters_;
  const FindExecuting find_executing_;
  const FindBranch find_branch_;

  absl::flat_hash_set<Key> seen_;  // followed or sent lately
  int64_t forgotten_ns_ = 0;
  std::vector<Probe> here_;   // to be followed on this worker
  std::vector<Id> blockers_;  // scratch
  uint32_t left_ = 0;         // that may be sent before the next round
  uint64_t last_chased_token_ = 0;
  int64_t next_chase_ns_ = 0;
};

}  // namespace islands::instance
