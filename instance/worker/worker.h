// A worker: one run loop on one core, with its links, its running transactions and the branches it serves
// for others.
//
// RunOnce: take what other threads posted, poll the links, resume what is ready, send what was queued. A
// transaction is a coroutine and suspends for a lock or a remote answer; the worker itself never blocks
// (design: "run loop").
//
//   begun here:      slots_ -> RunningTransaction --first remote operation--> coordinators_, until all acks
//   begun elsewhere: participants_ -> ParticipantEntry, on the worker that got the first message
//
// Waits for locks end by a grant, a deadlock found (on one island by the lock table, over several by probes:
// worker_probes.cc), an abort decided elsewhere, or a timeout.
//
// Thread safety: everything belongs to the thread that calls RunOnce, except what is listed under "any
// thread".
//
// Invariants:
//  1. A coroutine handle is in one of the queues or stored in its Waiter, never both.
//  2. An entry is not freed while one of its coroutines is suspended or ready; it waits in the graveyard.
//  3. Messages about a transaction of another boot epoch or another worker never reach an entry.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "coordinator/coordinator.h"
#include "coordinator/participant.h"
#include "instance/execution/executor.h"
#include "instance/messaging/links.h"
#include "instance/worker/commit_memory.h"
#include "instance/worker/counters.h"
#include "instance/worker/peer_watch.h"
#include "instance/worker/running_transaction.h"
#include "instance/worker/stuck_branches.h"
#include "instance/workload/workload.h"
#include "proto/data.pb.h"
#include "runtime/ready_queue.h"
#include "runtime/scheduler.h"
#include "topology/binding.h"

namespace islands::instance {

class Worker;

// Whether the life of an island that had this boot epoch is proven to be over. Never by a clock: its kernel
// lock is free, or held by a later life. False also when nobody can tell.
using ProofOfDeath = std::function<bool(uint32_t island, uint64_t boot_epoch)>;

// Where an island's workers find each other and what they share. Constant while workers run.
struct WorkerShared {
  const runtime::Clock* clock = nullptr;
  const storage::Catalog* catalog = nullptr;
  const partitioner::SiteMap* sites = nullptr;
  storage::Store* store = nullptr;
  locks::LockTable* locks = nullptr;
  std::vector<Worker*> workers;
  bool alone = false;  // the island has one worker (executor.h)
  uint64_t layout_generation = 0;
  ProofOfDeath proven_dead;               // any thread; empty: nobody ever is
  runtime::PulseBoard* pulses = nullptr;  // null: everybody is taken to move
  StuckBranches stuck;
  // Told whenever a worker's run has ended.
  std::mutex run_mutex;
  std::condition_variable run_ended;
};

struct WorkerOptions {
  uint32_t island = 0;
  uint32_t index = 0;
  uint64_t boot_epoch = 0;
  int32_t cpu = -1;            // -1 = not pinned to one
  std::vector<uint32_t> cpus;  // where it may run then; empty = anywhere
  std::vector<uint32_t> numa_nodes;
  topology::MemoryPolicy memory_policy = topology::MemoryPolicy::kDefault;  // of its thread's allocations
  int64_t transaction_timeout_ns = 2 * runtime::kNsPerSecond;
  int64_t lock_timeout_ns = 300 * runtime::kNsPerMs;
  uint64_t seed = 1;
  // Transactions of a slot before it is another's turn: what they use stays in the core's first cache, even
  // where there are hundreds of slots.
  uint32_t begun_in_a_row = 16;
};

// What the coordinator side remembers of a transaction with participants.
struct CoordinatorEntry {
  struct Peer {
    uint32_t island = 0;
    uint64_t boot_epoch = 0;
    uint32_t step = 0;
    bool answer_due = false;  // to the last step
    bool told = false;        // the decision
  };
  coordinator::TransactionId id;
  coordinator::Coordinator machine;
  RunningTransaction* transaction = nullptr;  // until its outcome was taken
  int64_t deadline_ns = 0;
  bool overdue = false;  // its deadline has passed, and its client has an answer
  std::vector<Peer> peers;

  Peer* FindPeer(uint32_t island) {
    for (Peer& peer : peers) {
      if (peer.island == island) return &peer;
    }
    return nullptr;
  }
};

// A deadlock probe (proto/data.proto has the fields' meaning).
struct Probe {
  coordinator::TransactionId initiator;
  coordinator::TransactionId blocked_on;
  uint32_t from_island = 0;
  uint32_t hops = 0;
  bool at_participant = false;
  uint32_t chase = 0;  // which one of the initiator's wait: 1, 2, ...
};

// A branch of a transaction that another island coordinates.
struct ParticipantEntry : Waiter {
  coordinator::TransactionId id;
  coordinator::Participant machine;
  Batch batch;
  std::vector<RoutedOperation> operations;
  size_t cursor = 0;
  uint32_t step = 0;
  bool executing = false;
  bool ended = false;       // its machine said kForget
  bool stuck = false;       // as stuck_branches.h knows it
  int64_t deadline_ns = 0;  // of the step
  int64_t last_heard_ns = 0;
  int64_t in_doubt_since_ns = 0;  // while it is
  struct Fellow {
    uint32_t island = 0;
    uint64_t boot_epoch = 0;
  };
  std::vector<Fellow> fellows;  // other participants, as PREPARE named them
  runtime::Task<void> task;

  // Who coordinates it, in which life.
  messaging::Origin coordinator() const { return {{id.island, id.worker}, id.boot_epoch}; }
};

class Worker final : public runtime::Runnable, private messaging::LinksHandler {
 public:
  Worker(WorkerOptions options, WorkerShared& shared, std::unique_ptr<messaging::Transport> transport,
         messaging::LinksOptions links);
  ~Worker() override;

  absl::Status Start() { return links_.Start(); }

  // Runnable.
  void OnThreadStart() override;
  bool RunOnce() override;
  void Sleep(int64_t timeout_ns) override;
  void Wake() override { transport_->Wake(); }
  int64_t NextDeadlineNs() const override;

  // Any thread.
  void Post(std::function<void()> function);
  void PostWakeup(const locks::Wakeup& wakeup);
  const WorkerCounters& counters() const { return counters_; }
  const messaging::Links& links() const { return links_; }
  // Some worker of the island stands still, as this one sees it.
  bool PeerSilent(uint32_t island) const { return peer_silent_[island].Get() != 0; }
  uint32_t peers_up() const { return static_cast<uint32_t>(peers_up_.Get()); }
  int32_t tid() const { return tid_.load(std::memory_order_acquire); }
  bool running() const { return running_.load(std::memory_order_relaxed); }
  std::string binding_error();
  // A run is about to be posted: running() holds from now on.
  void MarkRunning() { running_.store(true, std::memory_order_relaxed); }

  // On the worker's thread (through Post), or while no scheduler runs it.
  void BeginRun(const Workload& workload, std::unique_ptr<Generator> generator, uint32_t mpl, uint64_t seed);
  // Transactions under way finish; running() turns false when the last one has.
  void EndRun() { run_ending_ = true; }
  // After the island's catalog or store was replaced.
  void Rebind();
  // Whether any transaction has work here; only meaningful while no scheduler runs the worker.
  bool HasOpenBranches() const { return active_slots_ != 0 || !participants_.empty(); }
  const WorkerOptions& options() const { return options_; }
  // The transactions coordinated and served here, in the order of their ids: hash order differs from run to
  // run, and a simulation must not.
  std::vector<CoordinatorEntry*> Coordinated() const;
  std::vector<ParticipantEntry*> Participants() const;
  size_t commits_remembered() const { return committed_.size(); }
  // Branches here that wait for a lock, by wake token: in its order.
  std::vector<std::pair<uint64_t, Waiter*>> LockWaiters() const;
  // Whether a transaction begun here carries out a batch, and nothing has ended it yet.
  bool Executes(const coordinator::TransactionId& id) { return FindExecuting(id) != nullptr; }

 private:
  friend class RunningTransaction;

  static constexpr size_t kOperationsPerLook = 512;

  struct Slot {
    explicit Slot(Worker& worker) : transaction(worker) {}
    RunningTransaction transaction;
    std::unique_ptr<Request> request;
    int64_t begun_ns = 0;  // of the transaction that has no answer yet; 0 = none
    runtime::Task<void> loop;
  };
  struct Sleeper {
    int64_t at_ns;
    std::coroutine_handle<> handle;
    bool operator<(const Sleeper& other) const { return at_ns > other.at_ns; }  // earliest on top
  };
  struct Pause;     // awaits a point in time
  struct Breath;    // lets everybody have a turn
  struct Yield;     // lets the other slots begin theirs first
  class Executing;  // a scope whose time counts as such: worker_internal.h

  // The loop's parts: worker.cc.
  // All time since the last call was spent on `activity`.
  void Account(Activity activity, int64_t now_ns) {
    const int64_t since_ns = std::exchange(accounted_until_ns_, now_ns);
    counters_.activity_ns[static_cast<uint8_t>(activity)].Add(static_cast<uint64_t>(now_ns - since_ns));
  }
  size_t DrainMailbox();
  size_t WakeSleepers();
  size_t ResumeReady();
  // Whether another transaction may begin in this round.
  bool MayBegin() const;
  // Whether it is time to look after the links. Reads the clock.
  bool LongSinceRoundBegan() const;
  // As Executor::Run, but stops (kDone) after so many operations that the clock is worth a look.
  Progress RunSome(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations, size_t* cursor,
                   Failure* failure) {
    const size_t end = std::min(operations.size(), *cursor + kOperationsPerLook);
    return executor_->Run(branch, batch, operations.first(end), cursor, failure);
  }
  void Sweep();
  void Reap();
  void Resume(Waiter& waiter);
  void ResumeToken(uint64_t token);
  void Deliver(std::vector<locks::Wakeup>* wakeups);
  // Suspends until the branch's lock wait is over or a failure is set.
  runtime::Task<void> AwaitLock(Waiter& waiter);
  void CommitBranch(Waiter& waiter);
  void RollbackBranch(Waiter& waiter);
  // The others' signs of life: worker_liveness.cc.
  void LookAtPeers();
  void OnPeerSilent(messaging::Address peer);
  // Whether that life of an island is over; asks for proof now and then only.
  bool ProvenDead(uint32_t island, uint64_t boot_epoch);
  // Whether messages that will be said again anyhow should be said now: not to one who does not take them.
  bool WorthSaying(uint32_t island);
  void LoseSilentCoordinator(messaging::Address peer);
  void LookWhetherStuck(ParticipantEntry& entry);
  void SetStuck(ParticipantEntry& entry, bool stuck);
  // Ends a wait for a lock that one of those has.
  void FailIfBlockedByStuck(Waiter& waiter);
  void LookForDeadCoordinator(ParticipantEntry& entry);
  void LookForDeadFellows(ParticipantEntry& entry);
  bool LookForDeadParticipants(CoordinatorEntry& entry);

  // Clients' side: worker_run.cc.
  runtime::Task<void> SlotLoop(Slot& slot);
  runtime::Task<bool> RunOneTransaction(Slot& slot);
  void CountEnd(Slot& slot, coordinator::Outcome outcome);
  void NoteWait(int64_t waited_ns);
  coordinator::TransactionId NextId();

  // Coordinator side: worker_coordinator.cc.
  bool MustWaitForPeers(const RoutePlan& plan);
  void Ship(RunningTransaction& transaction, const Batch& batch);
  CoordinatorEntry& EntryFor(RunningTransaction& transaction);
  // True when the entry is forgotten.
  bool StepCoordinator(CoordinatorEntry& entry, const coordinator::CoordinatorEvent& event);
  void Perform(CoordinatorEntry& entry, const coordinator::CoordinatorAction& action);
  CoordinatorEntry* FindCoordinated(const coordinator::TransactionId& id);
  void OnExecuteReply(uint32_t island, const data::v1::ExecuteReply& reply);
  void SweepCoordinators();
  void ForgetCoordinator(CoordinatorEntry& entry);
  void NoteEnded();

  // Participant side: worker_participant.cc.
  void OnExecuteRequest(const messaging::Origin& origin, const data::v1::ExecuteRequest& request);
  // Whether a coordinator that names this epoch speaks to the present life of this island.
  bool KnowsThisLife(uint64_t participant_epoch) const;
  void Refuse(const messaging::Origin& origin, const data::v1::ExecuteRequest& request, AbortReason reason,
              const absl::Status& why);
  runtime::Task<void> ExecuteStep(ParticipantEntry& entry);
  void SendExecuteReply(ParticipantEntry& entry);
  void CountTwoPhase(TwoPhaseStep step) { counters_.two_phase[static_cast<uint8_t>(step)].Add(1); }
  void StepParticipant(ParticipantEntry& entry, const coordinator::ParticipantEvent& event);
  void Perform(ParticipantEntry& entry, const coordinator::ParticipantAction& action);
  ParticipantEntry* FindParticipant(const coordinator::TransactionId& id);
  void SendToCoordinator(const coordinator::TransactionId& id, const coordinator::ParticipantAction& action);
  bool FellowsMakeSense(const data::v1::PrepareRequest& request) const;
  void OnPrepare(const data::v1::PrepareRequest& request);
  void OnCommitOnePhase(const data::v1::CommitOnePhase& request);
  void OnDecision(const data::v1::Decision& decision);
  // There is no branch (any more) that the message could be for; `participant_epoch`: the life it names.
  void AnswerForGone(const coordinator::TransactionId& id, const coordinator::ParticipantEvent& event,
                     uint64_t participant_epoch);
  coordinator::Trace TraceOf(const coordinator::TransactionId& id, uint64_t participant_epoch) const;
  void SweepParticipants();

  // Deadlocks over several islands: worker_probes.cc.
  void ChaseWaits();
  void TakeProbe(const Probe& probe);
  void DrainProbes();
  bool IsNew(const Probe& probe);
  void FollowProbe(const Probe& probe);
  void FollowAtCoordinator(const Probe& probe);
  void FollowAtParticipant(const Probe& probe);
  // From a wait for a lock to everybody it waits for.
  void ProbeBlockers(const Waiter& waiter, Probe probe);
  void SendProbe(const Probe& probe);
  void SendProbeMessage(uint32_t island, const Probe& probe);
  // Null when it is not executing (any more) or has failed.
  RunningTransaction* FindExecuting(const coordinator::TransactionId& id);
  void FailVictim(RunningTransaction& transaction, uint32_t waits_on_island);

  // Messages: worker_messages.cc.
  void OnPeerUp(uint32_t island, uint64_t boot_epoch) override;
  void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) override;
  void OnOriginUp(const messaging::Origin& origin) override;
  void OnOriginLost(const messaging::Origin& origin, const absl::Status& why) override;
  void OnMessage(const messaging::Origin& origin, messaging::FrameType type,
                 std::span<const std::byte> payload) override;
  // As coordinator, about a transaction that has no entry.
  void AnswerForForgotten(const coordinator::TransactionId& id, const coordinator::CoordinatorEvent& event);
  void HandleInquiry(uint32_t from, const data::v1::Inquiry& inquiry);
  void HandleInquiryReply(uint32_t from, const data::v1::InquiryReply& reply);
  void HandleDecisionRequest(const messaging::Origin& origin, const data::v1::DecisionRequest& request);
  void HandleDecisionReply(uint32_t from, const data::v1::DecisionReply& reply);
  // What is known here, on the worker that the branch is or would be on. Nothing: it cannot be said yet.
  std::optional<data::v1::DecisionReply> AnswerFellow(uint32_t island,
                                                      const data::v1::DecisionRequest& request);
  // False when it makes no sense.
  bool HandleProbe(const data::v1::Probe& message);
  // As coordinator.
  void SendInquiryReply(uint32_t island, const coordinator::TransactionId& id, coordinator::Outcome outcome);
  void SendConfirm(uint32_t decider, const coordinator::TransactionId& id);

  const WorkerOptions options_;
  WorkerShared& shared_;
  const runtime::Clock& clock_;
  std::unique_ptr<messaging::Transport> transport_;
  messaging::Links links_;
  std::optional<Executor> executor_;  // set by Rebind
  std::optional<Router> router_;
  runtime::Random random_;

  runtime::ReadyQueue ready_;
  runtime::ReadyQueue fresh_;  // slots that wait for their turn to begin a transaction
  uint32_t begun_in_round_ = 0;
  int64_t last_begun_ns_ = 0;
  std::vector<Sleeper> sleepers_;  // heap
  absl::flat_hash_map<uint64_t, Waiter*> lock_waiters_;
  std::vector<locks::Wakeup> wakeups_;  // scratch
  int64_t now_ns_ = 0;                  // of this round
  int64_t next_sweep_ns_ = 0;
  int64_t accounted_until_ns_ = 0;
  Activity between_rounds_ = Activity::kIdle;  // what the time since the last round counts as
  PeerWatch watch_;
  struct Proof {
    int64_t asked_ns = 0;
    uint64_t dead_up_to = 0;  // that epoch and all before it
  };
  std::vector<Proof> proofs_;  // by island
  uint64_t next_sequence_ = 1;
  uint64_t next_token_ = 1;

  // Clients' side.
  std::vector<std::unique_ptr<Slot>> slots_;
  const Workload* workload_ = nullptr;
  std::unique_ptr<Generator> generator_;
  uint32_t active_slots_ = 0;
  bool run_ending_ = false;
  std::atomic<bool> running_{false};

  // Two-phase commit.
  absl::flat_hash_map<uint64_t, std::unique_ptr<CoordinatorEntry>> coordinators_;  // by sequence
  std::vector<std::unique_ptr<CoordinatorEntry>> spare_coordinators_;
  std::vector<coordinator::CoordinatorAction> coordinator_actions_;  // scratch
  absl::flat_hash_map<coordinator::TransactionId, std::unique_ptr<ParticipantEntry>> participants_;
  std::vector<std::unique_ptr<ParticipantEntry>> graveyard_;
  std::vector<std::unique_ptr<ParticipantEntry>> spare_participants_;
  std::vector<coordinator::ParticipantAction> participant_actions_;  // scratch
  CommitMemory committed_;
  Ended ended_;  // as of the last sweep

  // Deadlock probes.
  // (initiator, blocked_on, at_participant, chase) of those followed or sent lately.
  using ProbeKey = std::tuple<coordinator::TransactionId, coordinator::TransactionId, bool, uint32_t>;
  absl::flat_hash_set<ProbeKey> probes_seen_;
  int64_t probes_forgotten_ns_ = 0;
  std::vector<Probe> probes_here_;                    // to be followed on this worker
  std::vector<coordinator::TransactionId> blockers_;  // scratch
  uint32_t probes_left_ = 0;                          // that may be sent before the next round
  uint64_t last_chased_token_ = 0;
  int64_t next_chase_ns_ = 0;

  // Messages are parsed into and built in the same objects again and again.
  struct Messages;
  std::unique_ptr<Messages> messages_;

  WorkerCounters counters_;
  Gauge peers_up_;
  std::vector<Gauge> peer_silent_;  // by island
  std::atomic<int32_t> tid_{0};
  std::atomic<bool> sleeping_{false};

  // Guarded by mail_mutex_.
  std::mutex mail_mutex_;
  std::vector<std::function<void()>> posted_;
  std::vector<locks::Wakeup> posted_wakeups_;
  std::string binding_error_;
  std::atomic<bool> has_mail_{false};
};

}  // namespace islands::instance
