#include "runtime/pulse_board.h"

#include <utility>

namespace islands::runtime {
namespace {

constexpr char kWhat[] = "the memory in which islands show that they move";

}  // namespace

PulseBoard::PulseBoard(std::span<const uint32_t> workers_per_island)
    : PulseBoard(FirstOfIslands(workers_per_island)) {
  own_ = std::make_unique<Line[]>(first_.back());
  lines_ = own_.get();
}

PulseBoard::~PulseBoard() = default;

absl::StatusOr<int> PulseBoard::MakeShared(std::span<const uint32_t> workers_per_island) {
  return MakeSharedMemory(FirstOfIslands(workers_per_island).back() * sizeof(Line), kWhat);
}

absl::StatusOr<std::unique_ptr<PulseBoard>> PulseBoard::Map(int descriptor,
                                                            std::span<const uint32_t> workers_per_island) {
  std::unique_ptr<PulseBoard> board(new PulseBoard(FirstOfIslands(workers_per_island)));
  absl::StatusOr<Mapping> mapping =
      Mapping::OfSharedMemory(descriptor, board->first_.back() * sizeof(Line), kWhat);
  if (!mapping.ok()) return mapping.status();
  board->mapping_ = std::move(*mapping);
  board->lines_ = static_cast<Line*>(board->mapping_.address());
  return board;
}

}  // namespace islands::runtime
