// A transaction that runs on the worker that began it: what a procedure sees as Transaction.
//
// One object per slot (MPL), used for one transaction after the other, so that everything in it stays warm.
//
// Thread safety: none; it lives on one worker.
//
// Invariants:
//  1. Between Begin and the end of Commit or Abort the branch may hold locks; outside it holds none.
//  2. After a failure is set no operation is carried out for this transaction any more.
//  3. `entry` is set exactly while the worker's coordinator table knows this transaction, which is from the
//     first operation shipped to another island.
#pragma once

#include <cstdint>

#include "instance/worker/coordinated.h"
#include "instance/worker/counters.h"
#include "instance/worker/engine.h"
#include "instance/worker/lock_waits.h"
#include "instance/worker/peers.h"
#include "instance/worker/turns.h"
#include "instance/workload/transaction.h"
#include "runtime/random.h"
#include "runtime/task.h"

namespace islands::instance {

// Of the worker, what its transactions need.
struct TransactionParts {
  const WorkerOptions& options;
  Turns& turns;
  LockWaits& lock_waits;
  Engine& engine;
  Peers& peers;
  Coordinated& coordinated;
  runtime::Random& random;
  WorkerCounters& counters;
};

class RunningTransaction final : public Transaction, public CoordinatedTransaction {
 public:
  explicit RunningTransaction(const TransactionParts& parts) : parts_(parts) {}

  const coordinator::TransactionId& id() const override { return own_id; }
  const storage::Catalog& catalog() const override { return parts_.engine.catalog(); }
  Batch& batch() override { return batch_; }
  runtime::Task<absl::Status> Execute(Batch& batch) override;
  runtime::Random& random() override {
    drew_ = true;
    return parts_.random;
  }
  // Nobody but this island has had a part in it, and what it does can be done again.
  bool repeatable() const { return entry == nullptr && !drew_; }

  void Begin(const coordinator::TransactionId& id, int64_t deadline);
  // After the procedure returned OK. kUnknown: the decision was made elsewhere and could not be learned in
  // time.
  runtime::Task<coordinator::Outcome> Commit();
  runtime::Task<coordinator::Outcome> Abort();
  Scope scope() const;

  // Its procedure's last batch need not be the transaction's: LastElsewhere says nothing then.
  bool more_follows = false;

 private:
  runtime::Task<coordinator::Outcome> AwaitOutcome();
  // Fails unless the batch can be executed now. Sets `plan`.
  void Plan(Batch& batch);
  void FailIfLate();
  void KeepLocalScans(Batch& batch);

  const TransactionParts& parts_;
  TouchedSites touched_;
  bool distributed_ = false;
  bool drew_ = false;
  Batch batch_;
  uint32_t batches_ = 0;  // begun
};

}  // namespace islands::instance
