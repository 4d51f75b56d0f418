// Which islands stand still, and since when, as their supervisor sees it: by the pulses of their workers
// (runtime/pulse_board.h).
//
// Time is counted in looks: one look counts for no more than the interval between looks, so that a machine
// that was paused, or a supervisor that was, makes nobody look hung.
//
// Thread safety: none. Time is handed in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/descriptor.h"
#include "runtime/pulse_board.h"

namespace islands::deploy {

class HangWatch {
 public:
  static constexpr int64_t kLookMs = 250;
  // Shorter than that is no news: a core may be busy with something else.
  static constexpr int64_t kWorthSayingMs = 1'000;

  HangWatch(const runtime::PulseBoard& board, std::span<const uint32_t> workers_per_island);

  // Does nothing until kLookMs have passed since the last look.
  void Look(int64_t now_ms);
  // For how long the island's slowest worker has not moved; 0 = all move, or rest on purpose, or it is said
  // soon enough.
  int64_t HungMs(uint32_t island) const;
  // A new life of the island begins.
  void Forget(uint32_t island);

 private:
  struct Seen {
    uint64_t pulse = 0;
    int64_t still_ms = 0;
  };

  const runtime::PulseBoard& board_;
  std::vector<std::vector<Seen>> seen_;  // by island and worker
  int64_t last_look_ms_ = 0;
};

// A board for processes that are to be watched, and who watches it.
struct WatchedPulses {
  static absl::StatusOr<WatchedPulses> Make(std::span<const uint32_t> workers_per_process);

  runtime::UniqueFd descriptor;  // for them
  std::unique_ptr<runtime::PulseBoard> board;
  HangWatch watch;
};

}  // namespace islands::deploy
