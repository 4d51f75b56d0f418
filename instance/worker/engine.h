// What a worker does with this island's rows: routes and carries out operations, ends branches, and tells
// those who waited for their locks.
//
// Thread safety: owned by a worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/fellow.h"
#include "instance/execution/executor.h"
#include "instance/execution/router.h"
#include "instance/worker/lock_waits.h"
#include "instance/worker/waiter.h"
#include "instance/worker/worker_shared.h"
#include "runtime/work_account.h"

namespace islands::instance {

// Before an operation that found no room in the log is tried again.
inline constexpr int64_t kRoomPauseNs = 100 * runtime::kNsPerUs;
// Before what the log has of a branch in doubt, or of a decision, is appended again: as long as the cleaner
// takes from one checkpoint to the next (worker.cc).
inline constexpr int64_t kRepeatIntervalNs = 5 * runtime::kNsPerSecond;

class Engine {
 public:
  Engine(const WorkerOptions& options, WorkerShared& shared, LockWaits& lock_waits)
      : options_(options), shared_(shared), lock_waits_(lock_waits) {
    Rebind();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // After the island's catalog or store was replaced.
  void Rebind() {
    executor_.emplace(
        *shared_.catalog, *shared_.store, *shared_.locks,
        ExecutorOptions{.worker = options_.index, .alone = shared_.alone, .journal = options_.journal});
    router_.emplace(*shared_.catalog, *shared_.sites, options_.island);
  }

  // After tables were added to both.
  void NoteTables() { executor_->NoteTables(); }

  const storage::Catalog& catalog() const { return *shared_.catalog; }
  const Router& router() const { return *router_; }
  // As Executor::Run, but stops (kDone) after so many operations that the clock is worth a look.
  Progress RunSome(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations, size_t* cursor,
                   Failure* failure) {
    const size_t end = std::min(operations.size(), *cursor + kOperationsPerLook);
    return executor_->Run(branch, batch, operations.first(end), cursor, failure);
  }
  // Whenever a coroutine has given control back (Executor::EndQuiet).
  void EndQuiet() { executor_->EndQuiet(); }
  void CheckInvariants() const { executor_->CheckInvariants(); }  // between two rounds

  // End the branch: its changes stay or are undone, its locks are free.
  void Commit(Branch& branch) {
    const runtime::WorkScope committing(runtime::Work::kCommitting);
    executor_->Commit(branch, &wakeups_);
    lock_waits_.Deliver(&wakeups_);
  }
  void Rollback(Branch& branch) {
    const runtime::WorkScope committing(runtime::Work::kCommitting);
    executor_->Rollback(branch, &wakeups_);
    lock_waits_.Deliver(&wakeups_);
  }

  // Executor::ReserveTwoPhases.
  bool ReserveTwoPhases(Branch& branch, size_t fellows) {
    return executor_->ReserveTwoPhases(branch, fellows);
  }
  // What two-phase commit forces, where there is a log (Executor). It is there for good, whatever dies, with
  // the end of the step.
  void Prepare(Branch& branch, std::span<const coordinator::Fellow> fellows) {
    if (!runtime::Planted(runtime::PlantedBug::kVoteUnprepared)) executor_->Prepare(branch, fellows);
  }
  void Decide(Branch& branch, std::span<const coordinator::Fellow> participants) {
    if (!runtime::Planted(runtime::PlantedBug::kDecideUnlogged)) executor_->Decide(branch, participants);
  }
  void DecideAlone(Branch& branch) {
    if (!runtime::Planted(runtime::PlantedBug::kForgetOutcome)) executor_->DecideAlone(branch);
  }
  // Executor::RepeatPrepare and its like.
  bool RepeatPrepare(const Branch& branch, std::span<const coordinator::Fellow> fellows) {
    return executor_->RepeatPrepare(branch, fellows);
  }
  bool RepeatDecision(const coordinator::TransactionId& id,
                      std::span<const coordinator::Fellow> participants) {
    return executor_->RepeatDecision(id, participants);
  }
  bool RepeatDecided(const coordinator::TransactionId& id) { return executor_->RepeatDecided(id); }
  // Nobody will ask for what was decided.
  void NoteEnd(const coordinator::TransactionId& id) {
    if (options_.journal != nullptr) options_.journal->AppendEnd(id);
  }
  absl::Status AdoptPrepared(Branch& branch, uint64_t since) {
    NoteEarlier(log::EntryKind::kPrepare, branch.locks.transaction, since);
    return executor_->AdoptPrepared(branch);
  }
  // An earlier life has left it (Journal::NoteEarlier).
  void NoteEarlier(log::EntryKind kind, const coordinator::TransactionId& id, uint64_t since) {
    if (options_.journal != nullptr) options_.journal->NoteEarlier(kind, id, since);
  }
  // Of the last transaction that has committed on this island (log::CommitEpoch); 0 where there is no log.
  uint64_t commit_epoch() const { return options_.journal != nullptr ? options_.journal->commit_epoch() : 0; }

  // What is changed between the two goes to the log, and is there whatever dies once the second has returned.
  void BeginStep() {
    if (options_.journal != nullptr) options_.journal->Listen();
  }
  void EndStep() {
    if (options_.journal == nullptr) return;
    const runtime::WorkScope logging(runtime::Work::kLogging);
    options_.journal->EndStep();
    options_.journal->EndListening();
  }

  // Planted bugs only: the locks go before their time.
  void ReleaseLocks(Branch& branch) {
    shared_.locks->ReleaseAll(branch.locks, &wakeups_);
    lock_waits_.Deliver(&wakeups_);
  }
  bool HasGhosts() const { return executor_->ghosts() != 0; }
  void RemoveGhosts() {
    executor_->RemoveGhosts(&wakeups_);
    lock_waits_.Deliver(&wakeups_);
  }

 private:
  static constexpr size_t kOperationsPerLook = 512;

  const WorkerOptions& options_;
  WorkerShared& shared_;
  LockWaits& lock_waits_;
  std::optional<Executor> executor_;
  std::optional<Router> router_;
  std::vector<locks::Wakeup> wakeups_;  // scratch
};

}  // namespace islands::instance
