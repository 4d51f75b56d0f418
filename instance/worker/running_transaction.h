// A transaction that runs on the worker that began it: what a procedure sees as Transaction.
//
// One object per slot (MPL), used for one transaction after the other, so that everything in it stays warm.
//
// Thread safety: none; it lives on one worker.
//
// Invariants:
//  1. Between Begin and the end of Commit or Abort the branch may hold locks; outside it holds none.
//  2. After a failure is set no operation is carried out for this transaction any more.
//  3. `entry_` is set exactly while the worker's coordinator table knows this transaction, which is from the
//     first operation shipped to another island.
#pragma once

#include <coroutine>
#include <optional>
#include <vector>

#include "coordinator/coordinator.h"
#include "instance/execution/abort_reason.h"
#include "instance/execution/branch.h"
#include "instance/execution/router.h"
#include "instance/worker/counters.h"
#include "instance/worker/wire.h"
#include "instance/workload/transaction.h"

namespace islands::instance {

class Worker;
struct CoordinatorEntry;

// A coroutine of this worker that waits: for a lock, for answers, or for both.
struct Waiter {
  std::coroutine_handle<> suspended;  // null while running or in the ready queue
  Branch branch;
  Failure failure;  // set by whoever ends the wait with bad news
  int64_t lock_wait_since_ns = 0;
  uint32_t chases = 0;  // of that wait: worker_probes.cc

  struct Suspension {
    Waiter& waiter;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) noexcept { waiter.suspended = self; }
    void await_resume() const noexcept {}
  };
  Suspension Suspend() { return {*this}; }
};

class RunningTransaction final : public Transaction, public Waiter {
 public:
  explicit RunningTransaction(Worker& worker) : worker_(worker) {}

  const coordinator::TransactionId& id() const override { return id_; }
  const storage::Catalog& catalog() const override;
  Batch& batch() override { return batch_; }
  runtime::Task<absl::Status> Execute(Batch& batch) override;
  runtime::Random& random() override;

  void Begin(const coordinator::TransactionId& id, int64_t deadline_ns);
  // After the procedure returned OK. kUnknown: the decision was made elsewhere and could not be learned in
  // time.
  runtime::Task<coordinator::Outcome> Commit();
  runtime::Task<coordinator::Outcome> Abort();
  // Records why the transaction cannot go on; the first reason stays.
  void Fail(AbortReason reason, absl::Status status);
  Scope scope() const;

 private:
  friend class Worker;

  runtime::Task<coordinator::Outcome> AwaitOutcome();
  void KeepLocalScans(Batch& batch);

  Worker& worker_;
  coordinator::TransactionId id_;
  int64_t deadline_ns_ = 0;
  TouchedSites touched_;
  bool distributed_ = false;
  CoordinatorEntry* entry_ = nullptr;
  Batch batch_;
  Batch* executing_ = nullptr;  // the batch whose answers are awaited
  RoutePlan plan_;
  std::vector<ScanChunk> chunks_;
  uint32_t pending_replies_ = 0;
  uint32_t batches_ = 0;  // begun
  std::optional<coordinator::Outcome> outcome_;
};

}  // namespace islands::instance
