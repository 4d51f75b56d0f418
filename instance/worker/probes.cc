#include "instance/worker/probes.h"

#include <algorithm>
#include <utility>

#include "instance/worker/mailbox.h"
#include "runtime/check.h"

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

void Probes::ChaseWaits() {
  if (turns_.now_ns() < next_chase_ns_) return;
  const int64_t now_ns = turns_.now_ns();
  next_chase_ns_ = now_ns + kRoundNs;
  if (now_ns - forgotten_ns_ >= kForgetNs) {
    forgotten_ns_ = now_ns;
    seen_.clear();
  }
  left_ = kProbesSentPerRound;
  if (shared_.sites->islands() == 1 || lock_waits_.empty()) return;
  const std::vector<std::pair<uint64_t, Waiter*>> waiting = lock_waits_.Sorted();
  // In turns, should there be more waits than one round may chase.
  const auto after = [](uint64_t token, const auto& entry) { return token < entry.first; };
  const auto first = std::upper_bound(waiting.begin(), waiting.end(), last_chased_token_, after);
  auto next = static_cast<size_t>(first - waiting.begin());
  for (size_t n = 0; n < waiting.size(); ++n, ++next) {
    if (left_ < kProbesSentPerRound / 2) break;  // the rest is for probes of others
    const auto& [token, waiter] = waiting[next % waiting.size()];
    const int64_t late = ChasesUntil(now_ns - waiter->lock_wait_since_ns) - waiter->chases;
    if (waiter->failure.set() || late <= 0) continue;
    last_chased_token_ = token;
    // Of those that fell out, for want of budget or time, none through the queues may be lost for another.
    waiter->chases += 1 + static_cast<uint32_t>(late - 1) / kQueuesEvery * kQueuesEvery;
    ProbeBlockers(*waiter, {.initiator = waiter->branch.locks.transaction,
                            .from_island = options_.island,
                            .chase = waiter->chases});
  }
  Drain();
}

void Probes::OnProbe(const Probe& probe) {
  if (!probe.at_participant) {
    if (probe.blocked_on.boot_epoch != options_.boot_epoch) return;  // it died with an earlier life
    if (probe.blocked_on.worker != options_.index) return PostTo(probe.blocked_on.worker, probe);
  }
  Take(probe);
}

void Probes::Take(const Probe& probe) {
  // Whose transactions these are: OnProbe and PostTo have brought it to the right worker.
  ISLANDS_CHECK(probe.at_participant || probe.blocked_on.worker == options_.index);
  here_.push_back(probe);
  Drain();
}

void Probes::Drain() {
  for (size_t i = 0; i < here_.size(); ++i) {
    const Probe probe = here_[i];  // following it may add others
    Follow(probe);
  }
  here_.clear();
}

void Probes::Follow(const Probe& probe) {
  if (Planted(PlantedBug::kDropProbes)) return;
  if (!probe.at_participant && probe.blocked_on == probe.initiator) {
    if (CoordinatedTransaction* victim = find_executing_(probe.initiator))
      FailVictim(*victim, probe.from_island);
    return;
  }
  if (probe.hops >= kMaxHops || !IsNew(probe)) return;
  if (probe.at_participant) {
    FollowAtParticipant(probe);
  } else {
    FollowAtCoordinator(probe);
  }
}

void Probes::FollowAtCoordinator(const Probe& probe) {
  const CoordinatedTransaction* transaction = find_executing_(probe.blocked_on);
  if (transaction == nullptr) return;
  Probe onward = probe;
  ++onward.hops;
  ProbeBlockers(*transaction, onward);
  if (transaction->entry == nullptr) return;
  onward.at_participant = true;
  for (const CoordinatorEntry::Peer& peer : transaction->entry->peers) {
    if (peer.answer_due && peers_.LastEpoch(peer.island) == peer.boot_epoch)
      SendToIsland(peer.island, onward);
  }
}

void Probes::FollowAtParticipant(const Probe& probe) {
  const ParticipantEntry* entry = find_branch_(probe.blocked_on);
  if (entry == nullptr || entry->failure.set()) return;
  Probe onward = probe;
  ++onward.hops;
  ProbeBlockers(*entry, onward);
}

void Probes::ProbeBlockers(const Waiter& waiter, Probe probe) {
  if (!waiter.branch.locks.waiting()) return;
  probe.at_participant = false;
  blockers_.clear();
  const bool through_queues = probe.chase % kQueuesEvery == 0;
  shared_.locks->Blockers(waiter.branch.locks,
                          through_queues ? locks::BlockerSet::kAll : locks::BlockerSet::kHolders, &blockers_);
  for (const TransactionId& blocker : blockers_) {
    probe.blocked_on = blocker;
    if (blocker.valid() && (blocker == probe.initiator || Outranks(probe.initiator, blocker))) Send(probe);
  }
}

void Probes::Send(const Probe& probe) {
  const TransactionId& to = probe.blocked_on;
  if (to.island == options_.island && to.worker == options_.index) return here_.push_back(probe);
  if (!IsNew(probe)) return;
  if (to.island != options_.island) return SendToIsland(to.island, probe);
  if (left_ == 0) return;
  --left_;
  counters_.probes_sent.Add(1);
  PostTo(to.worker, probe);
}

void Probes::PostTo(uint32_t worker, const Probe& probe) {
  ISLANDS_CHECK(worker < shared_.colleagues.size());  // inbox.cc has compared ids with the island's workers
  const Colleague& owner = shared_.colleagues[worker];
  owner.mailbox->Post([probes = owner.probes, probe] { probes->Take(probe); });
}

bool Probes::IsNew(const Probe& probe) {
  if (seen_.size() >= kProbesSeen) return false;
  return seen_.emplace(probe.initiator, probe.blocked_on, probe.at_participant, probe.chase).second;
}

void Probes::SendToIsland(uint32_t island, const Probe& probe) {
  if (left_ == 0 || !peers_.WorthSaying(island)) return;
  --left_;
  if (outbox_.SendProbe(island, probe)) counters_.probes_sent.Add(1);
}

// If it still waits where the chase began.
void Probes::FailVictim(CoordinatedTransaction& transaction, uint32_t waits_on_island) {
  ISLANDS_CHECK(transaction.branch.locks.transaction.island == options_.island);
  if (waits_on_island == options_.island) {
    if (!transaction.branch.locks.waiting()) return;
  } else {
    const CoordinatorEntry::Peer* peer =
        transaction.entry == nullptr ? nullptr : transaction.entry->FindPeer(waits_on_island);
    if (peer == nullptr || !peer->answer_due) return;
  }
  counters_.probe_victims.Add(1);
  transaction.Fail(AbortReason::kDeadlock,
                   absl::AbortedError("chosen as victim of a deadlock over several islands"));
  turns_.Resume(transaction);
}

}  // namespace islands::instance
