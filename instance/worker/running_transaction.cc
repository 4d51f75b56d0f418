#include "instance/worker/running_transaction.h"

#include <fmt/format.h>

#include <algorithm>

#include "instance/worker/worker_internal.h"
#include "runtime/check.h"

namespace islands::instance {

using coordinator::Outcome;

namespace {

constexpr int64_t kCongestionPauseNs = 100 * runtime::kNsPerUs;

}  // namespace

const storage::Catalog& RunningTransaction::catalog() const { return *worker_.shared_.catalog; }

runtime::Random& RunningTransaction::random() { return worker_.random_; }

void RunningTransaction::Begin(const coordinator::TransactionId& id, int64_t deadline_ns) {
  ISLANDS_CHECK(entry_ == nullptr && branch.locks.held() == 0 && branch.undo.empty());
  id_ = id;
  deadline_ns_ = deadline_ns;
  touched_ = {};
  distributed_ = false;
  pending_replies_ = 0;
  batches_ = 0;
  outcome_.reset();
  failure = {};
  batch_.Clear();
  branch.locks.transaction = id;
  branch.locks.worker = worker_.options_.index;
  branch.locks.wake_token = worker_.next_token_++;
}

void RunningTransaction::Fail(AbortReason reason, absl::Status status) {
  if (!failure.set()) failure = {reason, std::move(status)};
}

Scope RunningTransaction::scope() const {
  if (distributed_) return Scope::kDistributed;
  return touched_.several ? Scope::kMultisite : Scope::kLocal;
}

runtime::Task<absl::Status> RunningTransaction::Execute(Batch& batch) {
  // Between batches others have their turn, if this one has gone on for long without having to wait.
  if (++batches_ > 1 && worker_.LongSinceRoundBegan()) {
    Worker::Breath breath{worker_};
    co_await breath;
  }
  if (!failure.set() && worker_.now_ns_ > deadline_ns_) {
    Fail(AbortReason::kDeadline, absl::DeadlineExceededError("the transaction's deadline has passed"));
  }
  if (!failure.set() && batch.stored_bytes() > Batch::kMaxBytes) {
    Fail(AbortReason::kProcedure,
         absl::OutOfRangeError(fmt::format("a batch holds more than {} MiB, results of earlier executions "
                                           "included; use several, and clear each before it is filled again",
                                           Batch::kMaxBytes >> 20)));
  }
  if (failure.set()) co_return failure.status;
  batch.ResetResults();
  batch.scanned().clear();
  chunks_.clear();
  if (absl::Status status = worker_.router_->Route(batch, &plan_, &touched_); !status.ok()) {
    Fail(AbortReason::kProcedure, status);
    co_return failure.status;
  }
  // Remote shares leave first, so that other islands work while this one does.
  executing_ = &batch;
  if (!plan_.remote().empty()) {
    distributed_ = true;
    // A transaction that has begun nothing is not in anybody's way.
    while (entry_ == nullptr && !branch.open && worker_.now_ns_ < deadline_ns_ &&
           worker_.MustWaitForPeers(plan_)) {
      Worker::Pause pause{worker_, worker_.now_ns_ + kCongestionPauseNs};
      co_await pause;
    }
    worker_.Ship(*this, batch);
  }
  for (size_t cursor = 0; !failure.set() && cursor < plan_.local().size();) {
    const Progress progress = worker_.RunSome(branch, batch, plan_.local(), &cursor, &failure);
    if (progress == Progress::kWaiting) {
      runtime::Task<void> lock = worker_.AwaitLock(*this);
      co_await lock;
    } else if (progress == Progress::kDone && cursor < plan_.local().size() &&
               worker_.LongSinceRoundBegan()) {
      Worker::Breath breath{worker_};
      co_await breath;
      if (worker_.now_ns_ > deadline_ns_) {
        Fail(AbortReason::kDeadline, absl::DeadlineExceededError("the transaction's deadline has passed"));
      }
    }
  }
  while (pending_replies_ != 0 && !failure.set()) {
    Suspension suspension = Suspend();
    co_await suspension;
  }
  executing_ = nullptr;
  pending_replies_ = 0;
  if (failure.set()) co_return failure.status;
  if (!chunks_.empty()) KeepLocalScans(batch);
  co_return absl::OkStatus();
}

// A scan over several islands: what this island found joins the others' rows in key order.
void RunningTransaction::KeepLocalScans(Batch& batch) {
  const auto from_others = static_cast<ptrdiff_t>(chunks_.size());
  for (const RoutedOperation& routed : plan_.local()) {
    const bool joined =
        std::any_of(chunks_.begin(), chunks_.begin() + from_others,
                    [&](const ScanChunk& chunk) { return chunk.operation == routed.operation; });
    if (!joined) continue;
    const Batch::Result& result = batch.result(routed.operation);
    chunks_.push_back({routed.operation, worker_.options_.island, result.first_scanned, result.scanned});
  }
  JoinScans(&batch, &chunks_);
}

runtime::Task<Outcome> RunningTransaction::Commit() {
  if (entry_ == nullptr) {
    worker_.CommitBranch(*this);
    co_return Outcome::kCommitted;
  }
  worker_.StepCoordinator(
      *entry_, {.kind = coordinator::CoordinatorEvent::kCommitRequested, .local_wrote = branch.wrote()});
  runtime::Task<Outcome> outcome = AwaitOutcome();
  co_return co_await outcome;
}

runtime::Task<Outcome> RunningTransaction::Abort() {
  // An outcome at this point: the coordinator's machine ended it already, because a participant was lost.
  if (!outcome_) {
    if (entry_ == nullptr) {
      worker_.RollbackBranch(*this);
      co_return Outcome::kAborted;
    }
    worker_.StepCoordinator(*entry_, {.kind = coordinator::CoordinatorEvent::kAbortRequested});
  }
  runtime::Task<Outcome> outcome = AwaitOutcome();
  co_return co_await outcome;
}

runtime::Task<Outcome> RunningTransaction::AwaitOutcome() {
  while (!outcome_) {
    Suspension suspension = Suspend();
    co_await suspension;
  }
  if (entry_ != nullptr) {
    // The outcome is known; acks may still come in for the entry.
    entry_->transaction = nullptr;
    entry_ = nullptr;
  }
  co_return *outcome_;
}

}  // namespace islands::instance
