// Signs of life: one counter for every worker of a deployment, in memory that its processes share. A worker
// raises its own in every round of its loop; whoever wants to know whether it moves looks twice.
//
// Messages could not say this: a worker that stands still does not read its sockets, and heartbeats between
// all pairs of workers would wake idle cores for nothing. A pulse costs its worker a store, and its watchers
// a load a few times a second.
//
// Beside them stands which life of an island was the last to begin: whatever a later one does comes after
// that, so whoever still finds the one that it knows can be sure that none has done anything yet.
//
// What a pulse does not say is that somebody is dead. Who stands still may go on at any moment and finish
// what it was about to do: only the kernel's lock is a proof of death.
//
// Thread safety: Beat by the worker whose pulse it is, SetResting by whoever stops it, SetLife by the island
// that begins it, the rest by anybody.
//
// Invariants: 1. pulses share no cache line; 2. the shared memory cannot be made smaller while it is in use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/shared_memory.h"

namespace islands::runtime {

class PulseBoard {
 public:
  // Of this process only: for tests and simulations.
  explicit PulseBoard(std::span<const uint32_t> workers_per_island);
  ~PulseBoard();
  PulseBoard(const PulseBoard&) = delete;
  PulseBoard& operator=(const PulseBoard&) = delete;

  // A new board; the descriptor (of memory without a name) is the caller's, for its children to inherit.
  static absl::StatusOr<int> MakeShared(std::span<const uint32_t> workers_per_island);
  // The board behind the descriptor, which may be closed afterwards. INVALID_ARGUMENT: it has another size.
  static absl::StatusOr<std::unique_ptr<PulseBoard>> Map(int descriptor,
                                                         std::span<const uint32_t> workers_per_island);

  void Beat(uint32_t island, uint32_t worker) {
    std::atomic<uint64_t>& pulse = At(island, worker);
    pulse.store(pulse.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  uint64_t Read(uint32_t island, uint32_t worker) const {
    return At(island, worker).load(std::memory_order_relaxed);
  }

  // Its boot epoch, before the island says anything to anybody or changes anything that others see.
  void SetLife(uint32_t island, uint64_t boot_epoch) { LineOf(island, 0).life.store(boot_epoch); }
  uint64_t Life(uint32_t island) const { return LineOf(island, 0).life.load(); }

  // Whoever stands still on purpose says so: while its island loads rows, or counts them.
  void SetResting(uint32_t island, uint32_t worker, bool resting) {
    LineOf(island, worker).resting.store(resting, std::memory_order_relaxed);
  }
  bool Resting(uint32_t island, uint32_t worker) const {
    return LineOf(island, worker).resting.load(std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Line {
    std::atomic<uint64_t> pulse;  // no initializers: zeroed memory is a valid array of these
    std::atomic<bool> resting;
    std::atomic<uint64_t> life;  // of the island; worker 0's counts
  };
  explicit PulseBoard(std::vector<size_t> first) : first_(std::move(first)) {}
  Line& LineOf(uint32_t island, uint32_t worker) const { return lines_[first_[island] + worker]; }
  std::atomic<uint64_t>& At(uint32_t island, uint32_t worker) const { return LineOf(island, worker).pulse; }

  std::vector<size_t> first_;    // line of each island's worker 0; last: number of lines
  std::unique_ptr<Line[]> own_;  // of this process only, or
  Mapping mapping_;
  Line* lines_ = nullptr;
};

}  // namespace islands::runtime
