#include "instance/worker/lock_waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "instance/worker/mailbox.h"
#include "runtime/check.h"

namespace islands::instance {

runtime::Task<void> LockWaits::Await(Waiter& waiter, const Batch& batch, uint32_t operation) {
  ISLANDS_CHECK(!waiter.branch.quiet);
  const uint64_t token = waiter.branch.locks.wake_token;
  waiter.lock_wait_since_ns = turns_.NowNs();
  waiter.chases = 0;
  counters_.lock_waits.Add(1);
  const bool listed = waiters_.emplace(token, &waiter).second;
  ISLANDS_CHECK(listed);
  while (!waiter.failure.set() && !shared_.locks->WaitOver(waiter.branch.locks)) {
    if (shared_.stuck.any()) FailIfBlockedByStuck(waiter);
    if (waiter.failure.set()) break;
    turns_.Note(waiter, Stay::kLock);
    Waiter::Suspension suspension = waiter.Suspend();
    co_await suspension;
  }
  turns_.Note(waiter, Stay::kRunning);
  waiters_.erase(token);
  const auto waited_ns = static_cast<uint64_t>(turns_.NowNs() - waiter.lock_wait_since_ns);
  counters_.lock_wait_ns.Add(waited_ns);
  const Batch::Operation& wanted = batch.operation(operation);
  rows_.Add(shared_.catalog->table(wanted.table), batch.View(wanted.key), waiter.branch.locks.blocked_by(),
            waited_ns);
}

void LockWaits::Wake(uint64_t token) {
  const auto found = waiters_.find(token);
  if (found != waiters_.end()) turns_.Resume(*found->second);
}

void LockWaits::Deliver(std::vector<locks::Wakeup>* wakeups) {
  for (const locks::Wakeup& wakeup : *wakeups) {
    ISLANDS_CHECK(wakeup.worker < shared_.colleagues.size());
    if (wakeup.worker == options_.index) {
      Wake(wakeup.wake_token);
    } else {
      shared_.colleagues[wakeup.worker].mailbox->PostWakeup(wakeup);
    }
  }
  wakeups->clear();
}

void LockWaits::Sweep() {
  for (auto& [token, waiter] : Sorted()) {
    if (waiter->failure.set()) continue;
    if (turns_.now_ns() - waiter->lock_wait_since_ns >= options_.lock_timeout_ns) {
      waiter->Fail(AbortReason::kLockTimeout, absl::AbortedError("waited too long for a lock"));
    } else if (shared_.stuck.any()) {
      FailIfBlockedByStuck(*waiter);
    }
    if (waiter->failure.set()) turns_.Resume(*waiter);
  }
}

std::vector<std::pair<uint64_t, Waiter*>> LockWaits::Sorted() const {
  std::vector<std::pair<uint64_t, Waiter*>> waiting(waiters_.begin(), waiters_.end());
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

void LockWaits::CheckInvariants() const {
  for (const auto& [token, waiter] : waiters_) {
    ISLANDS_CHECK(waiter->branch.locks.wake_token == token && !waiter->branch.quiet);
    // Whoever sleeps has something to wait for; who has not is in a queue of Turns.
    ISLANDS_CHECK(waiter->suspended == nullptr || (waiter->branch.open && !waiter->failure.set()));
  }
}

void LockWaits::FailIfBlockedByStuck(Waiter& waiter) {
  blockers_.clear();
  shared_.locks->Blockers(waiter.branch.locks, locks::BlockerSet::kHolders, &blockers_);
  for (const coordinator::TransactionId& blocker : blockers_) {
    if (!shared_.stuck.Contains(blocker)) continue;
    waiter.Fail(AbortReason::kPeerUnresponsive,
                absl::UnavailableError(fmt::format(
                    "a row is locked by transaction {}, which is in doubt: island {} does not answer",
                    blocker.ToString(), blocker.island)));
    return;
  }
}

}  // namespace islands::instance
