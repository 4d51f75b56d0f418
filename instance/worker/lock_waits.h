// Who waits for a lock on this worker, and how such waits end: by a grant, by bad news from somebody else
// (Waiter::failure, Turns::Resume), because the lock is held by a branch that nobody can end
// (stuck_branches.h), or because they last too long.
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. A waiter is listed exactly while its coroutine is inside Await.
//  2. Nobody waits who runs without locks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "instance/worker/counters.h"
#include "instance/worker/row_waits.h"
#include "instance/worker/turns.h"
#include "instance/worker/waiter.h"
#include "instance/worker/worker_shared.h"
#include "runtime/task.h"

namespace islands::instance {

class LockWaits {
 public:
  LockWaits(const WorkerOptions& options, WorkerShared& shared, Turns& turns, WorkerCounters& counters)
      : options_(options), shared_(shared), turns_(turns), counters_(counters) {}
  LockWaits(const LockWaits&) = delete;
  LockWaits& operator=(const LockWaits&) = delete;

  // For LockOwner::wake_token: unlike any other of this worker.
  uint64_t NextToken() { return next_token_++; }
  // Suspends until the branch's lock wait is over or a failure is set. `batch`: whose operation wants the
  // lock; it stays until then.
  runtime::Task<void> Await(Waiter& waiter, const Batch& batch, uint32_t operation);
  // The wait with this token may be over.
  void Wake(uint64_t token);
  // Tells those whose waits are over, on whichever worker they are; empties the list.
  void Deliver(std::vector<locks::Wakeup>* wakeups);
  // Ends waits that have lasted too long, or are for a branch that is stuck.
  void Sweep();

  bool empty() const { return waiters_.empty(); }
  void CheckInvariants() const;                   // between two rounds
  const RowWaits& rows() const { return rows_; }  // any thread
  // In the order of their tokens: hash order differs from run to run, and a simulation must not.
  std::vector<std::pair<uint64_t, Waiter*>> Sorted() const;

 private:
  void FailIfBlockedByStuck(Waiter& waiter);

  const WorkerOptions& options_;
  WorkerShared& shared_;
  Turns& turns_;
  WorkerCounters& counters_;
  absl::flat_hash_map<uint64_t, Waiter*> waiters_;  // by token
  RowWaits rows_;
  std::vector<coordinator::TransactionId> blockers_;  // scratch
  uint64_t next_token_ = 1;
};

}  // namespace islands::instance
