// Which workers of other islands stand still: they have not moved for half a second or a bit more, be it that
// somebody stopped them, that their core is busy elsewhere, or that they are stuck. Nothing new is begun with
// them, so that one island that hangs does not hang the others.
//
// Standing still is counted in looks, not in time: whoever was stopped itself has looked once since, and
// accuses nobody when it goes on.
//
// Thread safety: owned by a worker.
//
// Invariants: 1. nobody is silent who has moved since the last look; 2. silence is never taken for death.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "instance/messaging/transport.h"
#include "runtime/clock.h"
#include "runtime/pulse_board.h"

namespace islands::instance {

class PeerWatch {
 public:
  static constexpr int64_t kLookIntervalNs = 200 * runtime::kNsPerMs;
  static constexpr uint32_t kStillLooks = 3;  // so many in a row without a move: silent

  // Without a board everybody moves.
  PeerWatch(runtime::PulseBoard* board, messaging::Address self,
            std::span<const uint32_t> workers_per_island);

  // This worker moves.
  void Beat() {
    if (board_ != nullptr) board_->Beat(self_.island, self_.worker);
  }
  // When the next look is due; INT64_MAX if there is nobody to look at.
  int64_t next_look_ns() const { return next_look_ns_; }
  // Looks at all; `on_silent` hears of those that are silent from now on.
  void Look(int64_t now_ns, absl::FunctionRef<void(messaging::Address)> on_silent);
  // With a fresh look at one that was silent: who goes on is trusted at once.
  bool Silent(messaging::Address peer);
  // Some worker of it, at the last look: for people.
  bool IslandSilent(uint32_t island) const;

 private:
  struct Seen {
    uint64_t pulse = 0;
    uint32_t still = 0;  // looks without a move
    bool silent() const { return still >= kStillLooks; }
  };

  runtime::PulseBoard* const board_;
  const messaging::Address self_;
  std::vector<std::vector<Seen>> seen_;  // by island and worker; own island: empty
  int64_t next_look_ns_;
};

}  // namespace islands::instance
