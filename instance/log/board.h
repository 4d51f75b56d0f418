// What all workers of a box and the logger tell each other: the box epoch G, one hold per worker, up to which
// epoch everything is durable everywhere, up to which somebody waits for that, whether the disk is full, and
// where checkpoints begin (Silo's epochs; Tu et al. 2013, section 4.1 and 4.10).
//
// A hold says: what I stamp from this epoch on may not be in my ring yet. Together with G it tells the logger
// which epochs are complete, so that nobody will ever append to them again:
//
//   worker   before it stamps: hold = G, until G has not moved meanwhile (EpochHold::Take)
//            stamps with G as it is then; appends; shows its ring's new tail; lets go of the hold
//   logger   g = G; then the holds; then the tails; complete = min(g, holds) - 1
//
// Why that is right: all accesses to G and to holds are sequentially consistent. If the logger sees no hold
// of a worker, then either the worker takes one later, and then reads a G not below g and stamps with that;
// or it has let go of it, and then the logger sees the tail that was shown before. If it sees hold h,
// whatever is not in the ring was stamped with h or more.
//
// Thread safety: each hold is written by its worker, or by the logger once the worker's process is dead;
// durable and full are written by the logger; G by anybody; all is read by anybody.
//
// Invariants:
//  1. G and durable never fall, and durable < G.
//  2. Lines of different writers share no cache line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/check.h"
#include "runtime/shared_memory.h"

namespace islands::log {

class Board {
 public:
  static constexpr uint64_t kNoHold = UINT64_MAX;

  // Of this process only: for tests and simulations.
  explicit Board(std::span<const uint32_t> workers_per_island);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // As of runtime::PulseBoard.
  static absl::StatusOr<int> MakeShared(std::span<const uint32_t> workers_per_island);
  static absl::StatusOr<std::unique_ptr<Board>> Map(int descriptor,
                                                    std::span<const uint32_t> workers_per_island);

  uint64_t epoch() const { return box_->epoch.load(); }
  // G is at least `epoch` from now on.
  void RaiseEpoch(uint64_t epoch) {
    uint64_t now = box_->epoch.load();
    while (now < epoch && !box_->epoch.compare_exchange_weak(now, epoch)) {
    }
  }

  // The highest epoch of which everything is on disk, on every island.
  uint64_t durable() const { return box_->durable.load(std::memory_order_acquire); }
  void SetDurable(uint64_t epoch) {
    ISLANDS_CHECK(epoch >= durable() && epoch < box_->epoch.load());
    box_->durable.store(epoch, std::memory_order_release);
  }

  // The log's disk is full: nobody changes anything more until it has room again, and what has begun can end.
  bool full() const { return box_->full.load(std::memory_order_relaxed); }
  void SetFull(bool full) {
    if (full != this->full()) box_->full.store(full, std::memory_order_relaxed);
  }

  // Pages of the island find no room on their disk, which may be the log's.
  bool pages_full(uint32_t island) const {
    return lines_[Number(island, 0)].pages_full.load(std::memory_order_relaxed);
  }
  void SetPagesFull(uint32_t island, bool full) {
    lines_[Number(island, 0)].pages_full.store(full, std::memory_order_relaxed);
  }

  // Somebody waits for this epoch to be durable, though nothing that was appended asks for it: the logger
  // raises G beyond it.
  uint64_t wanted() const { return box_->wanted.load(std::memory_order_relaxed); }
  void Want(uint64_t epoch) {
    uint64_t now = wanted();
    while (now < epoch && !box_->wanted.compare_exchange_weak(now, epoch, std::memory_order_relaxed)) {
    }
  }
  // The log segment from which on an island's log is needed: a checkpoint on disk says so. 0: all of it.
  uint64_t needed_segment(uint32_t island) const {
    return lines_[Number(island, 0)].needed_segment.load(std::memory_order_relaxed);
  }
  void SetNeededSegment(uint32_t island, uint64_t segment) {
    lines_[Number(island, 0)].needed_segment.store(segment, std::memory_order_relaxed);
  }

  // By number among all workers of the box.
  std::atomic<uint64_t>& Hold(size_t worker) { return lines_[worker].hold; }
  size_t Number(uint32_t island, uint32_t worker) const { return first_[island] + worker; }
  size_t workers() const { return first_.back(); }
  uint32_t islands() const { return static_cast<uint32_t>(first_.size() - 1); }
  // min(g, holds) - 1, with g and the holds read in this order: everything up to it has been appended, and
  // whoever reads tails now sees it.
  uint64_t Complete() const;

 private:
  struct alignas(64) Box {
    std::atomic<uint64_t> epoch;
    alignas(64) std::atomic<uint64_t> durable;
    std::atomic<bool> full;
    alignas(64) std::atomic<uint64_t> wanted;
  };
  struct alignas(64) Line {
    std::atomic<uint64_t> hold;
    std::atomic<uint64_t> needed_segment;  // of the island; worker 0's counts
    std::atomic<bool> pages_full;          // likewise
  };
  explicit Board(std::vector<size_t> first) : first_(std::move(first)) {}
  size_t Bytes() const { return sizeof(Box) + first_.back() * sizeof(Line); }
  void Place(void* memory);
  void Clear();

  std::vector<size_t> first_;    // number of each island's worker 0; last: how many there are
  std::unique_ptr<Line[]> own_;  // of this process only, or
  runtime::Mapping mapping_;
  Box* box_ = nullptr;
  Line* lines_ = nullptr;
};

// A worker's side of it. Owned by one worker.
//
// Invariant: 3. a held epoch is at most every epoch that was stamped since and is not shown in the ring.
class EpochHold {
 public:
  EpochHold(Board& board, uint32_t island, uint32_t worker)
      : board_(board), hold_(board.Hold(board.Number(island, worker))) {}

  // The epoch to stamp with; until Release nothing stamped with it or later counts as complete. Cheap when
  // held already.
  uint64_t Take();
  // Everything stamped is appended and its tail is shown.
  void Release() {
    if (held_) hold_.store(Board::kNoHold);
    held_ = false;
  }
  bool held() const { return held_; }

 private:
  Board& board_;
  std::atomic<uint64_t>& hold_;
  bool held_ = false;
};

}  // namespace islands::log
