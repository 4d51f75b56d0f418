#include "instance/log/board.h"

#include <algorithm>

#include "runtime/descriptor.h"

namespace islands::log {
namespace {

constexpr char kWhat[] = "the memory with the epochs of the log";

}  // namespace

Board::Board(std::span<const uint32_t> workers_per_island)
    : Board(runtime::FirstOfIslands(workers_per_island)) {
  constexpr size_t kLinesOfBox = sizeof(Box) / sizeof(Line);
  own_ = std::make_unique<Line[]>(kLinesOfBox + first_.back());
  Place(own_.get());
  Clear();
}

absl::StatusOr<int> Board::MakeShared(std::span<const uint32_t> workers_per_island) {
  absl::StatusOr<int> made =
      runtime::MakeSharedMemory(Board(runtime::FirstOfIslands(workers_per_island)).Bytes(), kWhat);
  if (!made.ok()) return made;
  runtime::UniqueFd memory(*made);
  absl::StatusOr<std::unique_ptr<Board>> board = Map(memory.get(), workers_per_island);
  if (!board.ok()) return board.status();
  (*board)->Clear();
  return memory.Release();
}

absl::StatusOr<std::unique_ptr<Board>> Board::Map(int descriptor,
                                                  std::span<const uint32_t> workers_per_island) {
  std::unique_ptr<Board> board(new Board(runtime::FirstOfIslands(workers_per_island)));
  absl::StatusOr<runtime::Mapping> mapping =
      runtime::Mapping::OfSharedMemory(descriptor, board->Bytes(), kWhat);
  if (!mapping.ok()) return mapping.status();
  board->mapping_ = std::move(*mapping);
  board->Place(board->mapping_.address());
  return board;
}

void Board::Place(void* memory) {
  box_ = static_cast<Box*>(memory);
  lines_ = reinterpret_cast<Line*>(box_ + 1);
}

// Of new memory: G is 1, nothing is durable, nobody holds anything.
void Board::Clear() {
  box_->epoch.store(1);
  for (size_t worker = 0; worker < workers(); ++worker) lines_[worker].hold.store(kNoHold);
}

uint64_t Board::Complete() const {
  uint64_t least = box_->epoch.load();
  for (size_t worker = 0; worker < workers(); ++worker) least = std::min(least, lines_[worker].hold.load());
  return least - 1;
}

uint64_t EpochHold::Take() {
  uint64_t epoch = board_.epoch();
  if (held_) return epoch;
  held_ = true;
  // Invariant 3: G may have moved between our look at it and the logger's look at the hold, and then the
  // epoch that we held would be complete already.
  for (;;) {
    hold_.exchange(epoch);
    const uint64_t now = board_.epoch();
    if (now == epoch) return epoch;
    epoch = now;
  }
}

}  // namespace islands::log
