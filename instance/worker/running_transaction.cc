#include "instance/worker/running_transaction.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/check.h"

namespace islands::instance {

using coordinator::Outcome;

namespace {

constexpr int64_t kCongestionPauseNs = 100 * runtime::kNsPerUs;

}  // namespace

void RunningTransaction::Begin(const coordinator::TransactionId& id, int64_t deadline) {
  ISLANDS_CHECK(entry == nullptr && branch.locks.held() == 0 && branch.undo.empty());
  own_id = id;
  deadline_ns = deadline;
  touched_ = {};
  distributed_ = drew_ = more_follows = nothing_more = false;
  pending_replies = 0;
  others_epoch = 0;
  batches_ = 0;
  outcome.reset();
  failure = {};
  batch_.Clear();
  branch.locks.transaction = id;
  branch.locks.worker = parts_.options.index;
  branch.locks.wake_token = parts_.lock_waits.NextToken();
}

Scope RunningTransaction::scope() const {
  if (distributed_) return Scope::kDistributed;
  return touched_.several ? Scope::kMultisite : Scope::kLocal;
}

void RunningTransaction::FailIfLate() {
  if (parts_.turns.now_ns() > deadline_ns)
    Fail(AbortReason::kDeadline, absl::DeadlineExceededError("the transaction's deadline has passed"));
}

void RunningTransaction::Plan(Batch& batch) {
  FailIfLate();
  if (!failure.set() && batch.stored_bytes() > Batch::kMaxBytes) {
    Fail(AbortReason::kProcedure,
         absl::OutOfRangeError(fmt::format("a batch holds more than {} MiB, results of earlier executions "
                                           "included; use several, and clear each before it is filled again",
                                           Batch::kMaxBytes >> 20)));
  }
  if (failure.set()) return;
  batch.ResetResults();
  batch.scanned().clear();
  chunks.clear();
  absl::Status status = parts_.engine.router().Route(batch, &plan, &touched_);
  if (!status.ok()) Fail(AbortReason::kProcedure, std::move(status));
}

runtime::Task<absl::Status> RunningTransaction::Execute(Batch& batch) {
  Turns& turns = parts_.turns;
  // Between batches others have their turn, if this one has gone on for long without having to wait.
  if (++batches_ > 1 && turns.HasLongGoneOn()) {
    turns.Note(*this, Stay::kTurn);
    Turns::Breath breath = turns.Breathe();
    co_await breath;
    turns.Note(*this, Stay::kRunning);
  }
  Plan(batch);
  if (failure.set()) co_return failure.status;
  // Remote shares leave first, so that other islands work while this one does.
  executing = &batch;
  if (!plan.remote().empty()) {
    distributed_ = true;
    uint32_t congested = 0;
    // A transaction that has begun nothing is not in anybody's way.
    while (entry == nullptr && !branch.open && turns.now_ns() < deadline_ns &&
           parts_.peers.MustWaitFor(plan, &congested)) {
      const int64_t since_ns = turns.NowNs();
      turns.Note(*this, Stay::kRemote);
      Turns::Pause pause = turns.PauseUntil(turns.now_ns() + kCongestionPauseNs);
      co_await pause;
      turns.Note(*this, Stay::kRunning);
      parts_.peers.CountWait(congested, turns.NowNs() - since_ns);
    }
    parts_.coordinated.Ship(*this, batch);
  }
  if (batch.last_elsewhere() && !more_follows) {
    if (entry != nullptr && !failure.set()) parts_.coordinated.PrepareEarly(*this, batch);
    nothing_more = true;
  }
  ISLANDS_CHECK(pending_replies == 0 || entry != nullptr);
  for (size_t cursor = 0; !failure.set() && cursor < plan.local().size();) {
    const Progress progress = parts_.engine.RunSome(branch, batch, plan.local(), &cursor, &failure);
    if (progress == Progress::kWaiting) {
      runtime::Task<void> lock = parts_.lock_waits.Await(*this, batch, plan.local()[cursor].operation);
      co_await lock;
    } else if (progress == Progress::kWaitingForRoom || progress == Progress::kWaitingForPages) {
      const int64_t since_ns = turns.NowNs();
      turns.Note(*this, Stay::kDisk);
      if (progress == Progress::kWaitingForRoom) {
        Turns::Pause pause = turns.PauseUntil(turns.now_ns() + kRoomPauseNs);
        co_await pause;
      } else {
        Engine::PagesComing pages = parts_.engine.AwaitPages(branch);
        co_await pages;
      }
      turns.Note(*this, Stay::kRunning);
      WaitCounters& waits =
          progress == Progress::kWaitingForRoom ? parts_.counters.room : parts_.counters.pages;
      waits.Add(turns.NowNs() - since_ns);
      FailIfLate();
    } else if (progress == Progress::kDone && cursor < plan.local().size() && turns.HasLongGoneOn()) {
      turns.Note(*this, Stay::kTurn);
      Turns::Breath breath = turns.Breathe();
      co_await breath;
      turns.Note(*this, Stay::kRunning);
      FailIfLate();
    }
  }
  while (pending_replies != 0 && !failure.set()) {
    turns.Note(*this, Stay::kRemote);
    Suspension suspension = Suspend();
    co_await suspension;
    turns.Note(*this, Stay::kRunning);
  }
  executing = nullptr;
  pending_replies = 0;
  if (failure.set()) co_return failure.status;
  if (!chunks.empty()) KeepLocalScans(batch);
  co_return absl::OkStatus();
}

// A scan over several islands: what this island found joins the others' rows in key order.
void RunningTransaction::KeepLocalScans(Batch& batch) {
  const auto from_others = static_cast<ptrdiff_t>(chunks.size());
  for (const RoutedOperation& routed : plan.local()) {
    const bool joined =
        std::any_of(chunks.begin(), chunks.begin() + from_others,
                    [&](const ScanChunk& chunk) { return chunk.operation == routed.operation; });
    if (!joined) continue;
    const Batch::Result& result = batch.result(routed.operation);
    chunks.push_back({routed.operation, parts_.options.island, result.first_scanned, result.scanned});
  }
  JoinScans(&batch, &chunks);
}

runtime::Task<Outcome> RunningTransaction::Commit() {
  ISLANDS_CHECK(!failure.set() && executing == nullptr && pending_replies == 0);
  if (entry == nullptr) {
    parts_.engine.Commit(branch);
    co_return Outcome::kCommitted;
  }
  if (const Fellow* lost = parts_.coordinated.LostVoter(*entry)) {
    Fail(AbortReason::kPeerRestarted,
         absl::AbortedError(fmt::format("island {} restarted in mid-transaction", lost->island)));
  }
  const bool wrote = branch.wrote() || entry->machine.OthersWrote();
  if (!failure.set() && wrote && !parts_.engine.ReserveTwoPhases(branch, entry->peers.size())) {
    Fail(AbortReason::kStorage, absl::ResourceExhaustedError("the log ring has no room for the commit of a "
                                                             "distributed transaction: run it again"));
  }
  if (failure.set()) {
    runtime::Task<Outcome> abort_task = Abort();
    co_return co_await abort_task;
  }
  parts_.coordinated.Step(
      *entry, {.kind = coordinator::CoordinatorEvent::kCommitRequested, .local_wrote = branch.wrote()});
  runtime::Task<Outcome> outcome_task = AwaitOutcome();
  co_return co_await outcome_task;
}

runtime::Task<Outcome> RunningTransaction::Abort() {
  // An outcome at this point: the coordinator's machine ended it already, because a participant was lost.
  if (!outcome) {
    if (entry == nullptr) {
      parts_.engine.Rollback(branch);
      co_return Outcome::kAborted;
    }
    parts_.coordinated.Step(*entry, {.kind = coordinator::CoordinatorEvent::kAbortRequested});
  }
  runtime::Task<Outcome> outcome_task = AwaitOutcome();
  co_return co_await outcome_task;
}

runtime::Task<Outcome> RunningTransaction::AwaitOutcome() {
  while (!outcome) {
    parts_.turns.Note(*this, Stay::kVotes);
    Suspension suspension = Suspend();
    co_await suspension;
    parts_.turns.Note(*this, Stay::kRunning);
  }
  ISLANDS_CHECK(branch.locks.held() == 0 && branch.undo.empty());  // the machine has ended it
  if (entry != nullptr) {
    // The outcome is known; acks may still come in for the entry.
    entry->transaction = nullptr;
    entry = nullptr;
  }
  co_return *outcome;
}

}  // namespace islands::instance
