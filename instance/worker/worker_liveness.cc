// Who of the others stands still, and who is dead: two different things (peer_watch.h, Seams::proven_dead).
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "instance/worker/worker_internal.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using coordinator::CoordinatorEvent;
using coordinator::ParticipantEvent;
using messaging::Address;
using messaging::Origin;
using runtime::Planted;
using runtime::PlantedBug;

namespace {

// Proof costs a look at a file.
constexpr int64_t kProofIntervalNs = 50 * runtime::kNsPerMs;

}  // namespace

void Worker::LookAtPeers() {
  // Who is not there is not silent. But its own link to us may be up when ours to it is not.
  watch_.Look(now_ns_, [this](Address peer) {
    if (links_.IsUp(peer.island)) OnPeerSilent(peer);
    LoseSilentCoordinator(peer);
  });
  for (uint32_t island = 0; island < shared_.sites->islands(); ++island)
    peer_silent_[island].Set(links_.IsUp(island) && watch_.IslandSilent(island) ? 1 : 0);
}

// Transactions that it has not voted on are not worth waiting for it, nor its own that have not been asked to
// vote. Whatever has voted waits: it may go on.
void Worker::OnPeerSilent(Address peer) {
  spdlog::warn("island {} worker {} does not move; nothing new is begun with it", peer.island, peer.worker);
  if (peer.worker == links_.ServingWorker(peer.island, options_.index)) {
    for (CoordinatorEntry* entry : Coordinated()) {
      if (entry->FindPeer(peer.island) == nullptr) continue;
      RunningTransaction* transaction = entry->transaction;
      if (transaction != nullptr && entry->machine.state() == coordinator::Coordinator::State::kExecuting) {
        transaction->Fail(AbortReason::kPeerUnresponsive,
                          absl::UnavailableError(fmt::format("island {} does not move", peer.island)));
        Resume(*transaction);
      }
      StepCoordinator(*entry, {.kind = CoordinatorEvent::kPeerSilent, .island = peer.island});
    }
  }
}

void Worker::LoseSilentCoordinator(Address peer) {
  for (ParticipantEntry* entry : Participants()) {
    if (entry->coordinator().peer == peer)
      StepParticipant(*entry, {.kind = ParticipantEvent::kCoordinatorLost});
  }
}

bool Worker::WorthSaying(uint32_t island) {
  return !watch_.Silent({island, links_.ServingWorker(island, options_.index)}) &&
         links_.QueuedBytes(island) <= kCongestionBytes;
}

bool Worker::ProvenDead(uint32_t island, uint64_t boot_epoch) {
  Proof& proof = proofs_[island];
  if (boot_epoch < links_.NewestEpoch(island) || boot_epoch <= proof.dead_up_to) return true;
  if (!shared_.proven_dead || (proof.asked_ns != 0 && now_ns_ - proof.asked_ns < kProofIntervalNs))
    return false;
  proof.asked_ns = now_ns_;
  if (!shared_.proven_dead(island, boot_epoch)) return false;
  proof.dead_up_to = boot_epoch;
  return true;
}

// For as long as a wait for a lock may take it is not worth a word.
void Worker::LookWhetherStuck(ParticipantEntry& entry) {
  const Origin coordinator = entry.coordinator();
  const bool stuck = entry.machine.in_doubt() &&
                     now_ns_ - entry.in_doubt_since_ns > options_.lock_timeout_ns &&
                     (watch_.Silent(coordinator.peer) || !links_.Hears(coordinator));
  if (stuck != entry.stuck) SetStuck(entry, stuck);
}

void Worker::SetStuck(ParticipantEntry& entry, bool stuck) {
  entry.stuck = stuck;
  shared_.stuck.Set(entry.id, stuck);
}

void Worker::FailIfBlockedByStuck(Waiter& waiter) {
  blockers_.clear();
  shared_.locks->Blockers(waiter.branch.locks, locks::BlockerSet::kHolders, &blockers_);
  for (const coordinator::TransactionId& blocker : blockers_) {
    if (!shared_.stuck.Contains(blocker)) continue;
    waiter.failure = {AbortReason::kPeerUnresponsive,
                      absl::UnavailableError(fmt::format(
                          "a row is locked by transaction {}, which is in doubt: island {} does not answer",
                          blocker.ToString(), blocker.island))};
    return;
  }
}

// Durability `none`: a coordinator's life that is over has kept nothing. A link that it may have dialled
// since the last look at the sockets carries nothing: whoever dials says nothing before it is answered.
//
// Links of the dead are read to their end first. Orphans agree without that, since they take nothing from
// whom they count as gone; but a commit that all of them were told, and a client, too, would be lost.
void Worker::LookForDeadCoordinator(ParticipantEntry& entry) {
  const Origin coordinator = entry.coordinator();
  const bool gives_up = Planted(PlantedBug::kGiveUpByClock) && entry.machine.in_doubt() &&
                        now_ns_ - entry.in_doubt_since_ns > 10 * runtime::kNsPerSecond;
  const bool unread = links_.Hears(coordinator) && !Planted(PlantedBug::kIgnoreLastWords);
  if (!gives_up && (unread || !ProvenDead(entry.id.island, entry.id.boot_epoch))) return;
  if (entry.machine.in_doubt()) {
    spdlog::info("transaction {} has lost its coordinator; asking {} other participants", entry.id.ToString(),
                 entry.fellows.size());
  }
  StepParticipant(entry, {.kind = ParticipantEvent::kCoordinatorGone});
}

void Worker::LookForDeadFellows(ParticipantEntry& entry) {
  for (const uint32_t island : entry.machine.OpenFellows()) {
    for (const ParticipantEntry::Fellow& fellow : entry.fellows) {
      if (fellow.island != island || !ProvenDead(island, fellow.boot_epoch)) continue;
      // Its answers came, if any, over the link that was dialled to it.
      const bool unread = links_.IsUp(island) && links_.BootEpoch(island) == fellow.boot_epoch;
      if (unread && !Planted(PlantedBug::kIgnoreLastWords)) continue;
      StepParticipant(entry, {.kind = ParticipantEvent::kFellowGone, .island = island});
    }
    if (entry.ended) return;
  }
}

// True when the entry is forgotten.
bool Worker::LookForDeadParticipants(CoordinatorEntry& entry) {
  for (size_t i = 0; i < entry.peers.size(); ++i) {
    const CoordinatorEntry::Peer peer = entry.peers[i];
    if (links_.IsUp(peer.island) && links_.BootEpoch(peer.island) == peer.boot_epoch) continue;
    if (!ProvenDead(peer.island, peer.boot_epoch)) continue;
    if (entry.machine.state() == coordinator::Coordinator::State::kExecuting &&
        OverlooksEpochs(options_.boot_epoch, peer.boot_epoch)) {
      continue;
    }
    if (StepCoordinator(entry, {.kind = CoordinatorEvent::kPeerGone, .island = peer.island})) return true;
  }
  return false;
}

}  // namespace islands::instance
