// The log of a simulated cluster: board, logger and files of the product, on a disk of memory. What an island
// has appended outlives it, as rings do that lie in shared memory.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "instance/island/island.h"
#include "instance/log/board.h"
#include "instance/log/logger.h"
#include "runtime/clock.h"
#include "runtime/file_system_memory.h"

namespace islands::simulation {

class SimLog {
 public:
  SimLog(const runtime::ManualClock& clock, std::span<const uint32_t> workers_per_island);
  SimLog(const SimLog&) = delete;
  SimLog& operator=(const SimLog&) = delete;

  const instance::LogSeam& seam() const { return seam_; }
  // What the logger can do now.
  void Step();
  void OnCrash(uint32_t island, uint64_t life) { logger_->OnIslandDead(island, life); }
  // Whether all of a dead island is where its next life will read it.
  bool Drained(uint32_t island) { return logger_->ReleaseDrained(island); }

 private:
  absl::StatusOr<std::shared_ptr<log::Ring>> MakeRing(const log::StreamId& stream);
  absl::Status Read(uint32_t island, instance::LogSeam::TakeRecord take);

  runtime::MemoryFileSystem files_;
  log::Board board_;
  std::unique_ptr<log::Logger> logger_;
  instance::LogSeam seam_;
};

}  // namespace islands::simulation
