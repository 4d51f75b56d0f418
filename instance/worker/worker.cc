#include "instance/worker/worker.h"

#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>

#include "instance/worker/worker_internal.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "topology/binding.h"

namespace islands::instance {

namespace {

// Transactions begun per round, and for how long: so much that polling the links costs a fraction of each,
// and so little that others do not wait long for their answers.
constexpr uint32_t kBegunPerRound = 64;
constexpr int64_t kLongestRoundNs = 200 * runtime::kNsPerUs;

}  // namespace

Worker::Worker(WorkerOptions options, WorkerShared& shared, std::unique_ptr<messaging::Transport> transport,
               messaging::LinksOptions links)
    : options_(std::move(options)),
      shared_(shared),
      clock_(*shared.clock),
      transport_(std::move(transport)),
      links_(std::move(links), *transport_, clock_, *this),
      random_(options_.seed),
      now_ns_(clock_.NowNs()),
      accounted_until_ns_(now_ns_),
      watch_(shared.pulses, links_.self(), links_.workers_per_island()),
      proofs_(links_.workers_per_island().size()),
      messages_(std::make_unique<Messages>()),
      peer_silent_(links_.workers_per_island().size()) {
  Rebind();
}

Worker::~Worker() = default;

void Worker::Rebind() {
  executor_.emplace(*shared_.catalog, *shared_.store, *shared_.locks,
                    ExecutorOptions{.worker = options_.index, .alone = shared_.alone});
  router_.emplace(*shared_.catalog, *shared_.sites, options_.island);
}

void Worker::OnThreadStart() {
  Account(Activity::kIdle, clock_.NowNs());  // while no scheduler ran it
  absl::Status status;
  if (options_.cpu >= 0) {
    status = topology::BindThreadToCpu(static_cast<uint32_t>(options_.cpu));
  } else if (!options_.cpus.empty()) {
    status = topology::BindThreadToCpus(options_.cpus);
  }
  if (options_.memory_policy != topology::MemoryPolicy::kDefault) {
    const absl::Status memory = topology::SetThreadMemoryPolicy(options_.numa_nodes, options_.memory_policy);
    if (status.ok()) status = memory;
  }
  {
    const std::unique_lock lock = ISLANDS_LATCH("worker.mailbox", std::unique_lock(mail_mutex_));
    binding_error_ = std::string(status.message());
  }
  // Last: whoever looks at the thread of this number sees it bound, or knows why it is not.
  tid_.store(static_cast<int32_t>(syscall(SYS_gettid)), std::memory_order_release);
}

std::string Worker::binding_error() {
  const std::unique_lock lock = ISLANDS_LATCH("worker.mailbox", std::unique_lock(mail_mutex_));
  return binding_error_;
}

bool Worker::RunOnce() {
  const runtime::ReadyQueue::Scope scope(&ready_);
  now_ns_ = clock_.NowNs();
  Account(between_rounds_, now_ns_);
  watch_.Beat();
  size_t work = DrainMailbox();
  work += links_.Poll();
  const bool sweep_due = now_ns_ >= next_sweep_ns_;
  if (now_ns_ >= watch_.next_look_ns()) LookAtPeers();
  if (sweep_due) Sweep();
  if (now_ns_ >= next_chase_ns_) ChaseWaits();
  work += WakeSleepers();
  const size_t ready = ready_.size() + fresh_.size();
  counters_.ready.Set(ready);
  if (ready != 0) {
    const Executing executing(*this);
    work += ResumeReady();
  }
  links_.Flush();
  if (sweep_due) links_.PublishQueues();  // of what the peers do not take
  if (!graveyard_.empty()) Reap();
  // A round without work is part of the wait.
  const bool open = active_slots_ != 0 || !participants_.empty() || !coordinators_.empty();
  between_rounds_ = work != 0 ? Activity::kMessaging : open ? Activity::kWaiting : Activity::kIdle;
  return work != 0;
}

void Worker::Sleep(int64_t timeout_ns) {
  // Whoever posts looks at sleeping_ after setting has_mail_, and we look at has_mail_ after setting
  // sleeping_: one of the two sees the other (both orders are sequentially consistent).
  sleeping_.store(true);
  if (!has_mail_.load()) transport_->Wait(timeout_ns);
  sleeping_.store(false);
}

int64_t Worker::NextDeadlineNs() const {
  if (!ready_.empty() || !fresh_.empty()) return now_ns_;
  int64_t next_ns = std::min(links_.NextDeadlineNs(), watch_.next_look_ns());
  if (!sleepers_.empty()) next_ns = std::min(next_ns, sleepers_.front().at_ns);
  if (!lock_waiters_.empty()) next_ns = std::min(next_ns, next_chase_ns_);
  const bool timed =
      !lock_waiters_.empty() || !coordinators_.empty() || !participants_.empty() || executor_->ghosts() != 0;
  return timed ? std::min(next_ns, next_sweep_ns_) : next_ns;
}

void Worker::Post(std::function<void()> function) {
  {
    const std::unique_lock lock = ISLANDS_LATCH("worker.mailbox", std::unique_lock(mail_mutex_));
    posted_.push_back(std::move(function));
    has_mail_.store(true);
  }
  if (sleeping_.load()) Wake();
}

void Worker::PostWakeup(const locks::Wakeup& wakeup) {
  {
    const std::unique_lock lock = ISLANDS_LATCH("worker.mailbox", std::unique_lock(mail_mutex_));
    posted_wakeups_.push_back(wakeup);
    has_mail_.store(true);
  }
  if (sleeping_.load()) Wake();
}

size_t Worker::DrainMailbox() {
  if (!has_mail_.load()) return 0;
  std::vector<std::function<void()>> functions;
  std::vector<locks::Wakeup> wakeups;
  {
    const std::unique_lock lock = ISLANDS_LATCH("worker.mailbox", std::unique_lock(mail_mutex_));
    functions.swap(posted_);
    wakeups.swap(posted_wakeups_);
    has_mail_.store(false);
  }
  for (const locks::Wakeup& wakeup : wakeups) ResumeToken(wakeup.wake_token);
  for (const std::function<void()>& function : functions) function();
  return functions.size() + wakeups.size();
}

size_t Worker::WakeSleepers() {
  size_t woken = 0;
  while (!sleepers_.empty() && sleepers_.front().at_ns <= now_ns_) {
    std::pop_heap(sleepers_.begin(), sleepers_.end());
    ready_.Push(sleepers_.back().handle);
    sleepers_.pop_back();
    ++woken;
  }
  return woken;
}

bool Worker::MayBegin() const {
  return begun_in_round_ < kBegunPerRound && last_begun_ns_ - now_ns_ < kLongestRoundNs;
}

bool Worker::LongSinceRoundBegan() const { return clock_.NowNs() - now_ns_ > kLongestRoundNs; }

// Who has what it waited for goes on before anybody begins: its locks are in others' way.
size_t Worker::ResumeReady() {
  size_t resumed = 0;
  begun_in_round_ = 0;
  const auto resume = [&](runtime::ReadyQueue& queue) {
    queue.Pop().resume();
    executor_->EndQuiet();
    ++resumed;
  };
  for (size_t left = ready_.size(); left > 0; --left) resume(ready_);
  for (size_t left = fresh_.size(); left > 0 && (begun_in_round_ == 0 || MayBegin()); --left) resume(fresh_);
  return resumed;
}

void Worker::Resume(Waiter& waiter) {
  if (waiter.suspended) ready_.Push(std::exchange(waiter.suspended, nullptr));
}

void Worker::ResumeToken(uint64_t token) {
  const auto found = lock_waiters_.find(token);
  if (found != lock_waiters_.end()) Resume(*found->second);
}

void Worker::Deliver(std::vector<locks::Wakeup>* wakeups) {
  for (const locks::Wakeup& wakeup : *wakeups) {
    if (wakeup.worker == options_.index) {
      ResumeToken(wakeup.wake_token);
    } else {
      shared_.workers[wakeup.worker]->PostWakeup(wakeup);
    }
  }
  wakeups->clear();
}

runtime::Task<void> Worker::AwaitLock(Waiter& waiter) {
  ISLANDS_CHECK(!waiter.branch.quiet);
  const uint64_t token = waiter.branch.locks.wake_token;
  waiter.lock_wait_since_ns = clock_.NowNs();
  waiter.chases = 0;
  counters_.lock_waits.Add(1);
  lock_waiters_[token] = &waiter;
  while (!waiter.failure.set() && !shared_.locks->WaitOver(waiter.branch.locks)) {
    if (shared_.stuck.any()) FailIfBlockedByStuck(waiter);
    if (waiter.failure.set()) break;
    Waiter::Suspension suspension = waiter.Suspend();
    co_await suspension;
  }
  lock_waiters_.erase(token);
  counters_.lock_wait_ns.Add(static_cast<uint64_t>(clock_.NowNs() - waiter.lock_wait_since_ns));
}

void Worker::CommitBranch(Waiter& waiter) {
  executor_->Commit(waiter.branch, &wakeups_);
  Deliver(&wakeups_);
}

void Worker::RollbackBranch(Waiter& waiter) {
  executor_->Rollback(waiter.branch, &wakeups_);
  Deliver(&wakeups_);
}

// Deadlines are checked a hundred times a second by looking at what is open, which costs less than a timer
// per wait.
void Worker::Sweep() {
  next_sweep_ns_ = now_ns_ + kSweepIntervalNs;
  std::vector<std::pair<uint64_t, Waiter*>> waiting(lock_waiters_.begin(), lock_waiters_.end());
  std::sort(waiting.begin(), waiting.end());
  for (auto& [token, waiter] : waiting) {
    if (waiter->failure.set()) continue;
    if (now_ns_ - waiter->lock_wait_since_ns >= options_.lock_timeout_ns) {
      waiter->failure = {AbortReason::kLockTimeout, absl::AbortedError("waited too long for a lock")};
    } else if (shared_.stuck.any()) {
      FailIfBlockedByStuck(*waiter);
    }
    if (waiter->failure.set()) Resume(*waiter);
  }
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (slot->begun_ns == 0) continue;
    NoteWait(now_ns_ - slot->begun_ns);  // one that hangs is seen as well
    RunningTransaction& transaction = slot->transaction;
    if (now_ns_ < transaction.deadline_ns_ || !transaction.branch.locks.waiting()) continue;
    transaction.Fail(AbortReason::kDeadline, absl::DeadlineExceededError("still waits for a lock"));
    Resume(transaction);
  }
  SweepCoordinators();
  SweepParticipants();
  NoteEnded();
  if (executor_->ghosts() != 0) {
    executor_->RemoveGhosts(&wakeups_);
    Deliver(&wakeups_);
  }
  peers_up_.Set(links_.PeersUp());
}

void Worker::Reap() {
  std::erase_if(graveyard_, [this](std::unique_ptr<ParticipantEntry>& entry) {
    if (!entry->task.done()) return false;
    ISLANDS_CHECK(entry->branch.locks.held() == 0 && entry->branch.undo.empty());
    entry->task = {};
    entry->machine.Reset();
    entry->batch.Clear();
    entry->operations.clear();
    entry->failure = {};
    entry->executing = entry->ended = false;
    entry->step = 0;
    entry->fellows.clear();
    spare_participants_.push_back(std::move(entry));
    return true;
  });
}

}  // namespace islands::instance
