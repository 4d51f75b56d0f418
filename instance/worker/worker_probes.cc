// Deadlocks over several islands, found by probes: edge chasing in the AND model (Chandy, Misra, Haas:
// Distributed Deadlock Detection, 1983), with priorities so that one transaction of a cycle falls and not all
// of them (Mitchell, Merritt 1984).
//
//   T waits for a lock that U holds: the worker of T's waiting branch sends (T, U) to U's coordinator.
//   There, while U executes:  U waits for a lock here   -> (T, V) to the coordinator of each V that holds it
//                             U waits for an answer     -> (T, U) to the branch of U on that island, which
//                                                          goes on from there if that branch waits for a lock
//   (T, T) has come round: T fails, and its abort ends its waits on all islands.
//
// A probe only goes on to transactions of a lower priority than its initiator, so of a cycle's transactions
// just the highest one hears of it. The priority is a hash of the transaction's id: no island is favoured,
// and a victim draws again when it retries. A victim is no mistake unless one of the same cycle has aborted
// for another reason meanwhile: everybody else a probe has passed still waits, and strict two-phase locking
// keeps what they hold.
//
// A wait for a lock is one for its holders and for those who wait ahead. Most chases follow the holders
// only (locks::BlockerSet): where all wait for one row that is one probe each instead of one per pair,
// and of all who are in the same trouble one falls. But a cycle through a queue then stays hidden for as
// long as a holder outside of it may move, and whoever is next holds the lock after him. So one chase in
// kQueuesEvery goes through the queues as well. It takes every way on which its initiator outranks all
// others, so every cycle that stands is found by such a chase of its highest transaction.
//
// Cycles within one island never get here: the lock table finds them at once. Probes may be lost (budgets, a
// link that is down); waits that last are chased again and again, and the lock timeout is the backstop.
//
// Work is bounded: of one chase a worker sends one probe to a transaction and follows one, of all chases no
// more than kProbesSeen in kForgetNs, and it sends no more than kProbesSentPerRound between two rounds.
#include <utility>

#include "instance/worker/worker_internal.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using coordinator::TransactionId;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

constexpr int64_t kRoundNs = 2 * runtime::kNsPerMs;
constexpr uint32_t kProbesSentPerRound = 1024;  // by a worker
// For how long it remembers what it has followed and sent: about as long as until a wait is chased again. The
// ways through a queue meet again and again; without this they would be gone again from there.
constexpr int64_t kForgetNs = 8 * runtime::kNsPerMs;
constexpr size_t kProbesSeen = 16384;
// Each transaction of a chain takes two at most, at its coordinator and at a participant. Ends probes that
// have got into a cycle without their initiator; longer cycles than this are left to the lock timeout.
constexpr uint32_t kMaxHops = 64;

// How often a wait of this age should have been chased: after 2, 4 and 8 ms, then every 8 ms.
int64_t ChasesUntil(int64_t age_ns) {
  const int64_t rounds = age_ns / kRoundNs;
  if (rounds < 4) return rounds < 1 ? 0 : rounds < 2 ? 1 : 2;
  return 2 + rounds / 4;
}

// One in so many of these goes through the queues of locks: after 16 ms, then every 32 ms.
constexpr uint32_t kQueuesEvery = 4;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The same on every island.
uint64_t PriorityOf(const TransactionId& id) {
  const uint64_t place = uint64_t{id.island} << 32 | id.worker;
  return Mix(Mix(place + 0x9e3779b97f4a7c15ull) ^ Mix(id.boot_epoch) ^ id.sequence);
}

bool Outranks(const TransactionId& a, const TransactionId& b) {
  return std::pair(PriorityOf(a), a) > std::pair(PriorityOf(b), b);
}

}  // namespace

// A round: every kRoundNs, more often than Sweep, because nothing else happens in a deadlock.
void Worker::ChaseWaits() {
  next_chase_ns_ = now_ns_ + kRoundNs;
  if (now_ns_ - probes_forgotten_ns_ >= kForgetNs) {
    probes_forgotten_ns_ = now_ns_;
    probes_seen_.clear();
  }
  probes_left_ = kProbesSentPerRound;
  if (shared_.sites->islands() == 1 || lock_waiters_.empty()) return;
  const std::vector<std::pair<uint64_t, Waiter*>> waiting = LockWaiters();
  // In turns, should there be more waits than one round may chase.
  const auto after = [](uint64_t token, const auto& entry) { return token < entry.first; };
  const auto first = std::upper_bound(waiting.begin(), waiting.end(), last_chased_token_, after);
  auto next = static_cast<size_t>(first - waiting.begin());
  for (size_t n = 0; n < waiting.size(); ++n, ++next) {
    if (probes_left_ < kProbesSentPerRound / 2) break;  // the rest is for probes of others
    const auto& [token, waiter] = waiting[next % waiting.size()];
    const int64_t late = ChasesUntil(now_ns_ - waiter->lock_wait_since_ns) - waiter->chases;
    if (waiter->failure.set() || late <= 0) continue;
    last_chased_token_ = token;
    // Of those that fell out, for want of budget or time, none through the queues may be lost for another.
    waiter->chases += 1 + static_cast<uint32_t>(late - 1) / kQueuesEvery * kQueuesEvery;
    ProbeBlockers(*waiter, {.initiator = waiter->branch.locks.transaction,
                            .from_island = options_.island,
                            .chase = waiter->chases});
  }
  DrainProbes();
}

void Worker::TakeProbe(const Probe& probe) {
  probes_here_.push_back(probe);
  DrainProbes();
}

void Worker::DrainProbes() {
  for (size_t i = 0; i < probes_here_.size(); ++i) {
    const Probe probe = probes_here_[i];  // following it may add others
    FollowProbe(probe);
  }
  probes_here_.clear();
}

void Worker::FollowProbe(const Probe& probe) {
  if (Planted(PlantedBug::kDropProbes)) return;
  if (!probe.at_participant && probe.blocked_on == probe.initiator) {
    if (RunningTransaction* victim = FindExecuting(probe.initiator)) FailVictim(*victim, probe.from_island);
    return;
  }
  if (probe.hops >= kMaxHops || !IsNew(probe)) return;
  if (probe.at_participant) {
    FollowAtParticipant(probe);
  } else {
    FollowAtCoordinator(probe);
  }
}

void Worker::FollowAtCoordinator(const Probe& probe) {
  RunningTransaction* transaction = FindExecuting(probe.blocked_on);
  if (transaction == nullptr) return;
  Probe onward = probe;
  ++onward.hops;
  ProbeBlockers(*transaction, onward);
  if (transaction->entry_ == nullptr) return;
  onward.at_participant = true;
  for (const CoordinatorEntry::Peer& peer : transaction->entry_->peers) {
    if (peer.answer_due && links_.BootEpoch(peer.island) == peer.boot_epoch) {
      SendProbeMessage(peer.island, onward);
    }
  }
}

void Worker::FollowAtParticipant(const Probe& probe) {
  const auto found = participants_.find(probe.blocked_on);
  if (found == participants_.end() || found->second->failure.set()) return;
  Probe onward = probe;
  ++onward.hops;
  ProbeBlockers(*found->second, onward);
}

void Worker::ProbeBlockers(const Waiter& waiter, Probe probe) {
  if (!waiter.branch.locks.waiting()) return;
  probe.at_participant = false;
  blockers_.clear();
  const bool through_queues = probe.chase % kQueuesEvery == 0;
  shared_.locks->Blockers(waiter.branch.locks,
                          through_queues ? locks::BlockerSet::kAll : locks::BlockerSet::kHolders, &blockers_);
  for (const TransactionId& blocker : blockers_) {
    probe.blocked_on = blocker;
    if (blocker.valid() && (blocker == probe.initiator || Outranks(probe.initiator, blocker)))
      SendProbe(probe);
  }
}

void Worker::SendProbe(const Probe& probe) {
  const TransactionId& to = probe.blocked_on;
  if (to.island == options_.island && to.worker == options_.index) return probes_here_.push_back(probe);
  if (!IsNew(probe)) return;
  if (to.island != options_.island) return SendProbeMessage(to.island, probe);
  if (probes_left_ == 0) return;
  --probes_left_;
  counters_.probes_sent.Add(1);
  Worker* owner = shared_.workers[to.worker];
  owner->Post([owner, probe] { owner->TakeProbe(probe); });
}

bool Worker::IsNew(const Probe& probe) {
  if (probes_seen_.size() >= kProbesSeen) return false;
  return probes_seen_.emplace(probe.initiator, probe.blocked_on, probe.at_participant, probe.chase).second;
}

void Worker::SendProbeMessage(uint32_t island, const Probe& probe) {
  if (probes_left_ == 0 || !WorthSaying(island)) return;
  --probes_left_;
  data::v1::Probe& message = messages_->probe_out;
  message.Clear();
  EncodeId(probe.initiator, message.mutable_initiator());
  EncodeId(probe.blocked_on, message.mutable_blocked_on());
  message.set_hops(probe.hops);
  message.set_at_participant(probe.at_participant);
  message.set_from_island(probe.from_island);
  message.set_chase(probe.chase);
  if (links_.Send(island, messaging::FrameType::kProbe, message)) counters_.probes_sent.Add(1);
}

bool Worker::HandleProbe(const data::v1::Probe& message) {
  const Probe probe{.initiator = DecodeId(message.initiator()),
                    .blocked_on = DecodeId(message.blocked_on()),
                    .from_island = message.from_island(),
                    .hops = message.hops(),
                    .at_participant = message.at_participant(),
                    .chase = message.chase()};
  const uint32_t islands = shared_.sites->islands();
  if (!probe.initiator.valid() || !probe.blocked_on.valid()) return false;
  if (probe.initiator.island >= islands || probe.from_island >= islands) return false;
  if (!probe.at_participant) {
    if (probe.blocked_on.island != options_.island) return false;
    if (probe.blocked_on.boot_epoch != options_.boot_epoch) return true;  // it died with an earlier life
    if (probe.blocked_on.worker >= shared_.workers.size()) return false;
    if (probe.blocked_on.worker != options_.index) {
      Worker* owner = shared_.workers[probe.blocked_on.worker];
      owner->Post([owner, probe] { owner->TakeProbe(probe); });
      return true;
    }
  }
  TakeProbe(probe);
  return true;
}

std::vector<std::pair<uint64_t, Waiter*>> Worker::LockWaiters() const {
  std::vector<std::pair<uint64_t, Waiter*>> waiting(lock_waiters_.begin(), lock_waiters_.end());
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

RunningTransaction* Worker::FindExecuting(const TransactionId& id) {
  if (id.island != options_.island || id.worker != options_.index || id.boot_epoch != options_.boot_epoch) {
    return nullptr;
  }
  RunningTransaction* transaction = nullptr;
  if (const auto found = coordinators_.find(id.sequence); found != coordinators_.end()) {
    transaction = found->second->transaction;
  } else {
    for (const std::unique_ptr<Slot>& slot : slots_) {
      if (slot->transaction.id_ == id) transaction = &slot->transaction;
    }
  }
  const bool executing =
      transaction != nullptr && transaction->executing_ != nullptr && !transaction->failure.set();
  return executing ? transaction : nullptr;
}

// If it still waits where the chase began.
void Worker::FailVictim(RunningTransaction& transaction, uint32_t waits_on_island) {
  if (waits_on_island == options_.island) {
    if (!transaction.branch.locks.waiting()) return;
  } else {
    const CoordinatorEntry::Peer* peer =
        transaction.entry_ == nullptr ? nullptr : transaction.entry_->FindPeer(waits_on_island);
    if (peer == nullptr || !peer->answer_due) return;
  }
  counters_.probe_victims.Add(1);
  transaction.Fail(AbortReason::kDeadlock,
                   absl::AbortedError("chosen as victim of a deadlock over several islands"));
  Resume(transaction);
}

}  // namespace islands::instance
