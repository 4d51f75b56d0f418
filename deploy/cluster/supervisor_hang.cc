#include "deploy/cluster/supervisor_hang.h"

#include <algorithm>
#include <utility>

namespace islands::deploy {

HangWatch::HangWatch(const runtime::PulseBoard& board, std::span<const uint32_t> workers_per_island)
    : board_(board) {
  for (const uint32_t workers : workers_per_island) seen_.emplace_back(workers);
}

void HangWatch::Look(int64_t now_ms) {
  if (now_ms - last_look_ms_ < kLookMs) return;
  last_look_ms_ = now_ms;
  for (uint32_t island = 0; island < seen_.size(); ++island) {
    for (uint32_t worker = 0; worker < seen_[island].size(); ++worker) {
      Seen& seen = seen_[island][worker];
      const uint64_t pulse = board_.Read(island, worker);
      const bool moves = pulse != seen.pulse || board_.Resting(island, worker);
      seen.still_ms = moves ? 0 : seen.still_ms + kLookMs;
      seen.pulse = pulse;
    }
  }
}

int64_t HangWatch::HungMs(uint32_t island) const {
  int64_t still_ms = 0;
  for (const Seen& seen : seen_[island]) still_ms = std::max(still_ms, seen.still_ms);
  return still_ms >= kWorthSayingMs ? still_ms : 0;
}

void HangWatch::Forget(uint32_t island) {
  for (Seen& seen : seen_[island]) seen.still_ms = 0;
}

absl::StatusOr<WatchedPulses> WatchedPulses::Make(std::span<const uint32_t> workers_per_process) {
  const absl::StatusOr<int> made = runtime::PulseBoard::MakeShared(workers_per_process);
  if (!made.ok()) return made.status();
  runtime::UniqueFd descriptor(*made);
  auto board = runtime::PulseBoard::Map(descriptor.get(), workers_per_process);
  if (!board.ok()) return board.status();
  HangWatch watch(**board, workers_per_process);
  return WatchedPulses{std::move(descriptor), *std::move(board), std::move(watch)};
}

}  // namespace islands::deploy
