// The clients' side of a worker: slots that run one transaction after the other, from a workload's generator.
//
// Thread safety: owned by a worker; running and MarkRunning from any thread.
//
// A transaction that has ended gets its answer at once, or, with durability `sync`, when EPOCH says that it
// may (answers.h). MPL does not count those that wait for that: the slot goes on with another request.
// Counted and told to the generator is the answer.
//
// Invariant: running() holds from MarkRunning, or BeginRun, until the last slot has ended and the last answer
// was given.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "coordinator/coordinator.h"
#include "instance/worker/answers.h"
#include "instance/worker/arrivals.h"
#include "instance/worker/counters.h"
#include "instance/worker/inbox.h"
#include "instance/worker/running_transaction.h"
#include "instance/worker/turns.h"
#include "instance/worker/worker_shared.h"
#include "instance/workload/workload.h"
#include "runtime/random.h"
#include "runtime/task.h"

namespace islands::instance {

class Clients final : public RunInbox {
 public:
  Clients(const WorkerOptions& options, WorkerShared& shared, Turns& turns, LockWaits& lock_waits,
          Engine& engine, Peers& peers, Outbox& outbox, Coordinated& coordinated, WorkerCounters& counters)
      : options_(options),
        shared_(shared),
        turns_(turns),
        counters_(counters),
        coordinated_(coordinated),
        arrivals_(options, shared, turns, outbox, counters),
        random_(options.seed),
        parts_{options, turns, lock_waits, engine, peers, coordinated, random_, counters} {}
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  void MarkRunning() { running_.store(true, std::memory_order_relaxed); }
  // After false, nothing of the run's workload is used any more.
  bool running() const { return running_.load(std::memory_order_acquire); }
  // The run before has ended. `arrivals`: none: each slot draws one transaction after the other.
  // `commands_of`: the workload as recovery finds it again (recovery/command_replay.h).
  void BeginRun(const Workload& workload, std::unique_ptr<Generator> generator, uint32_t mpl, uint64_t seed,
                const ArrivalPlan& arrivals = {}, std::vector<std::byte> commands_of = {});
  // Transactions under way finish; running() turns false when the last one has.
  void EndRun();
  bool active() const { return active_ != 0 || waits(); }
  // Clients of the deployment that are with this worker: they wait, are at a slot or are about to leave.
  size_t here() const { return arrivals_.here(); }
  // Any slot has something to do.
  bool busy() const { return active_ != resting_.size() + thinking_ || waits(); }

  // Once in a round: takes in the transactions that have become due, wakes as many slots; says how many.
  size_t Arrive();
  // Likewise, before links are flushed: clients set out for other islands.
  void Send() { arrivals_.Send(); }
  // From another island (RunInbox).
  void OnClients(uint64_t run_id, std::span<const int64_t> due_ns) override {
    arrivals_.OnClients(run_id, due_ns);
  }
  bool leaves() const { return arrivals_.leaves(); }
  int64_t NextDeadlineNs() const {
    return arrivals_.waiting() != 0 && !resting_.empty() ? turns_.now_ns() : arrivals_.NextDeadlineNs();
  }

  // Durability `sync`: whether answers wait; gives those that EPOCH has reached, and says how many.
  bool waits() const { return !answers_.empty(); }
  size_t GiveDurable() { return waits() ? GiveUpTo(shared_.board->durable()) : 0; }
  // The island stops, and nobody will see to it any more: what waits ends as unknown.
  void GiveUp();

  // Deadlines of transactions that wait for a lock.
  void Sweep();
  // Sequence of the oldest transaction that has begun and has no answer yet; UINT64_MAX if there is none.
  uint64_t OldestBegun() const;
  // Those that have begun and have no answer yet, and when.
  void VisitBegun(absl::FunctionRef<void(const RunningTransaction&, int64_t begun_ns)> visit) const;
  void CheckInvariants() const;  // between two rounds
  // Null when it is not executing (any more) or has failed.
  CoordinatedTransaction* FindExecuting(const coordinator::TransactionId& id);

 private:
  struct Slot {
    explicit Slot(const TransactionParts& parts) : transaction(parts) {}
    RunningTransaction transaction;
    std::unique_ptr<Request> request;
    std::vector<std::byte> input;  // of the request, for the log
    int64_t begun_ns = 0;          // of the transaction that has no answer yet; 0 = none
    int64_t due_ns = 0;            // of what has arrived; 0 = it is drawn when the slot is free to do it
    runtime::Task<void> loop;
  };
  // Until something arrives or the run ends.
  struct Rest {
    Clients& clients;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) { clients.resting_.push_back(self); }
    void await_resume() const noexcept {}
  };

  runtime::Task<void> SlotLoop(Slot& slot);
  runtime::Task<void> Think(int64_t pause_ns);
  void WakeOne();  // of those that rest
  runtime::Task<bool> RunOne(Slot& slot);
  void NoteCommand(Slot& slot);
  void Blame(RunningTransaction& transaction, absl::Status status);
  // An attempt has ended: its answer is given, or (false) waits.
  bool End(Slot& slot, coordinator::Outcome outcome);
  bool MustWait(const RunningTransaction& transaction, coordinator::Outcome outcome, uint64_t* epoch) const;
  void Give(const Answer& answer, const Request& request, Stays* stays);
  void GiveUnknown(WaitingAnswer waited);
  size_t GiveUpTo(uint64_t durable);
  void GiveOverdue();
  void EndRunIfOver();
  void NoteWait(int64_t waited_ns);
  void Watch(Slot& slot);

  const WorkerOptions& options_;
  WorkerShared& shared_;
  Turns& turns_;
  WorkerCounters& counters_;
  Coordinated& coordinated_;
  Arrivals arrivals_;
  runtime::Random random_;
  const TransactionParts parts_;

  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::coroutine_handle<>> resting_;  // of slots
  WaitingAnswers answers_;
  std::vector<std::unique_ptr<Request>> spare_requests_;  // whose answers have waited
  const Workload* workload_ = nullptr;
  std::unique_ptr<Generator> generator_;
  uint32_t until_watched_ = 1;
  uint32_t active_ = 0;
  uint32_t thinking_ = 0;  // of them
  bool ending_ = false;
  bool commands_ = false;  // of this run
  std::vector<std::byte> commands_of_;
  std::atomic<bool> running_{false};
};

}  // namespace islands::instance
