#include "instance/worker/peer_watch.h"

#include <algorithm>
#include <limits>

namespace islands::instance {

using messaging::Address;

PeerWatch::PeerWatch(runtime::PulseBoard* board, Address self, std::span<const uint32_t> workers_per_island)
    : board_(board), self_(self), seen_(workers_per_island.size()) {
  for (uint32_t island = 0; island < seen_.size(); ++island) {
    if (island != self.island) seen_[island].resize(workers_per_island[island]);
  }
  const bool alone = board == nullptr || seen_.size() == 1;
  next_look_ns_ = alone ? std::numeric_limits<int64_t>::max() : 0;
}

void PeerWatch::Look(int64_t now_ns, absl::FunctionRef<void(Address)> on_silent) {
  next_look_ns_ = now_ns + kLookIntervalNs;
  for (uint32_t island = 0; island < seen_.size(); ++island) {
    for (uint32_t worker = 0; worker < seen_[island].size(); ++worker) {
      Seen& seen = seen_[island][worker];
      const uint64_t pulse = board_->Read(island, worker);
      const bool was_silent = seen.silent();
      seen.still = pulse == seen.pulse ? std::min(seen.still + 1, kStillLooks) : 0;
      seen.pulse = pulse;
      if (seen.silent() && !was_silent) on_silent({island, worker});
    }
  }
}

bool PeerWatch::Silent(Address peer) {
  Seen& seen = seen_[peer.island][peer.worker];
  if (!seen.silent()) return false;
  const uint64_t pulse = board_->Read(peer.island, peer.worker);
  if (pulse == seen.pulse) return true;
  seen = {.pulse = pulse, .still = 0};
  return false;
}

bool PeerWatch::IslandSilent(uint32_t island) const {
  return std::any_of(seen_[island].begin(), seen_[island].end(), [](const Seen& s) { return s.silent(); });
}

}  // namespace islands::instance
