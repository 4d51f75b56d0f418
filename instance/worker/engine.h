// What a worker does with this island's rows: routes and carries out operations, ends branches, and tells
// those who waited for their locks.
//
// Thread safety: owned by a worker.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/fellow.h"
#include "instance/execution/executor.h"
#include "instance/execution/router.h"
#include "instance/worker/lock_waits.h"
#include "instance/worker/waiter.h"
#include "instance/worker/worker_shared.h"
#include "runtime/ready_queue.h"
#include "runtime/work_account.h"

namespace islands::instance {

// Before an operation that found no room in the log is tried again.
inline constexpr int64_t kRoomPauseNs = 100 * runtime::kNsPerUs;
// While pages are being read a worker that has nothing else to do sleeps for them alone, and so long.
inline constexpr int64_t kLongestReadWaitNs = 100 * runtime::kNsPerUs;
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
    executor_.reset();
    fetcher_.reset();
    if (shared_.store->pager() != nullptr) fetcher_.emplace(*shared_.store->pager());
    executor_.emplace(*shared_.catalog, *shared_.store, *shared_.locks,
                      ExecutorOptions{.worker = options_.index,
                                      .alone = shared_.alone,
                                      .journal = options_.journal,
                                      .look_ahead = shared_.look_ahead,
                                      .fetcher = fetcher_ ? &*fetcher_ : nullptr});
    router_.emplace(*shared_.catalog, *shared_.sites, options_.island);
  }

  // After tables were added to both.
  void NoteTables() {
    executor_->NoteTables();
    router_->NoteTables();
  }

  const storage::Catalog& catalog() const { return *shared_.catalog; }
  const Router& router() const { return *router_; }
  // As Executor::Run, but stops (kDone) after so many operations that the clock is worth a look.
  Progress RunSome(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations, size_t* cursor,
                   Failure* failure) {
    const size_t end = std::min(operations.size(), *cursor + kOperationsPerLook);
    return executor_->Run(branch, batch, operations.first(end), cursor, failure);
  }
  // Waits for what kWaitingForPages has begun to read, whatever else happens: the reads refer to the branch.
  struct PagesComing {
    Branch& branch;
    bool await_ready() const noexcept { return branch.pages.left == 0; }
    void await_suspend(std::coroutine_handle<> self) noexcept { branch.pages.waiter = self.address(); }
    void await_resume() const noexcept {}
  };
  PagesComing AwaitPages(Branch& branch) { return {branch}; }
  bool reading() const { return fetcher_ && fetcher_->reading(); }
  // Who waited for pages that have come is ready. Returns how many.
  size_t PollPages(runtime::ReadyQueue* ready) {
    pages_over_.clear();
    if (fetcher_) fetcher_->Poll(&pages_over_);
    for (storage::PagesWanted* wait : pages_over_)
      ready->Push(std::coroutine_handle<>::from_address(std::exchange(wait->waiter, nullptr)));
    return pages_over_.size();
  }
  void WaitForPages(int64_t timeout_ns) { fetcher_->WaitFor(timeout_ns); }

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
    if (options_.journal != nullptr) {
      options_.journal->Listen();
    } else if (fetcher_) {
      storage::page_change_sink = &swaps_;
    }
  }
  void EndStep() {
    if (options_.journal == nullptr) {
      if (fetcher_) storage::page_change_sink = nullptr;
      return;
    }
    const runtime::WorkScope logging(runtime::Work::kLogging);
    options_.journal->EndStep();
    options_.journal->EndListening();
  }

  // Whether all that was changed is in the log for good, so that messages may speak of it.
  bool shown() const { return options_.journal == nullptr || options_.journal->shown(); }

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
  std::optional<storage::PageFetcher> fetcher_;  // of a paged store
  storage::MarksChanges swaps_;                  // of one without a log
  std::optional<Executor> executor_;
  std::optional<Router> router_;
  std::vector<locks::Wakeup> wakeups_;             // scratch
  std::vector<storage::PagesWanted*> pages_over_;  // scratch
};

}  // namespace islands::instance
