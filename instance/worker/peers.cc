#include "instance/worker/peers.h"

#include <algorithm>

#include "runtime/check.h"

namespace islands::instance {

namespace {

// Proof costs a look at a file.
constexpr int64_t kProofIntervalNs = 50 * runtime::kNsPerMs;

}  // namespace

Peers::Peers(const WorkerOptions& options, WorkerShared& shared, const messaging::Links& links)
    : options_(options),
      shared_(shared),
      links_(links),
      watch_(shared.pulses, links.self(), links.workers_per_island()),
      proofs_(links.workers_per_island().size()),
      silent_(links.workers_per_island().size()),
      waits_(links.workers_per_island().size()) {}

void Peers::Look(int64_t now_ns, absl::FunctionRef<void(messaging::Address)> on_silent) {
  watch_.Look(now_ns, on_silent);
  for (uint32_t island = 0; island < silent_.size(); ++island)
    silent_[island].Set(links_.IsUp(island) && watch_.IslandSilent(island) ? 1 : 0);
}

bool Peers::WorthSaying(uint32_t island) {
  return !Silent(island) && links_.QueuedBytes(island) <= kCongestionBytes;
}

bool Peers::MustWaitFor(const RoutePlan& plan, uint32_t* congested) {
  for (const RoutePlan::Share& share : plan.remote()) {
    if (links_.QueuedBytes(share.island) <= kCongestionBytes || Silent(share.island)) continue;
    *congested = share.island;
    return true;
  }
  return false;
}

bool Peers::ProvenDead(uint32_t island, uint64_t boot_epoch, int64_t now_ns) {
  ISLANDS_CHECK(island < proofs_.size());
  Proof& proof = proofs_[island];
  if (boot_epoch < links_.NewestEpoch(island) || boot_epoch <= proof.dead_up_to) return true;
  if (!shared_.proven_dead || (proof.asked_ns != 0 && now_ns - proof.asked_ns < kProofIntervalNs))
    return false;
  proof.asked_ns = now_ns;
  if (!shared_.proven_dead(island, boot_epoch)) return false;
  proof.dead_up_to = boot_epoch;
  return true;
}

}  // namespace islands::instance
