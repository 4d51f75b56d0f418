// The log of a simulated cluster: board, logger and files of the product, on a disk of memory. What an island
// has appended outlives it, as rings do that lie in shared memory, unless the whole box loses power.
//
// A loss of power is looked at in several images: the same box, and another part each time of what its disk
// had not synced. With one of them the box goes on, and its history is judged. Of the others as much as both
// have must be the same, record by record; rows are a function of the records that count.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "instance/island/island.h"
#include "instance/log/board.h"
#include "instance/log/box_manifest.h"
#include "instance/log/logger.h"
#include "runtime/clock.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::simulation {

class SimLog {
 public:
  struct Options {
    uint64_t seed = 0;
    int64_t most_pause_ns = 0;  // of the logger, before each of its steps: what its disk takes
    bool answers_wait = false;  // as LogSeam has them
    bool votes_wait = false;
    bool commands = false;
    size_t ring_bytes = 4 << 20;  // of each worker
    size_t images_of_a_loss = 4;  // of power
  };
  SimLog(const runtime::ManualClock& clock, std::span<const uint32_t> workers_per_island,
         const Options& options);
  SimLog(const SimLog&) = delete;
  SimLog& operator=(const SimLog&) = delete;

  const instance::LogSeam& seam() const { return seam_; }
  // What the logger can do now.
  void Step();
  // Its disk, for faults. One that ends the logger is told by failure(); nothing becomes durable any more
  // until the box has stopped and begun again, or lost power.
  runtime::MemoryFileSystem& disk() { return files_; }
  const absl::Status& failure() const { return logger_->failure(); }
  // All processes of the box have ended; the rings are there, and the machine. Its disk has no more faults.
  void StartAgain();
  void OnCrash(uint32_t island, uint64_t life) { logger_->OnIslandDead(island, life); }
  // Whether all of a dead island is where its next life will read it.
  bool Drained(uint32_t island);
  // All islands have died at once, with all rings and the board. What is beyond EPOCH does not count any
  // more. Returns up to which epoch everything does.
  uint64_t LosePower(uint64_t seed);
  uint64_t images() const { return images_; }      // of all losses of power
  uint64_t commands() const { return commands_; }  // that islands have read
  log::Board& board() { return *board_; }
  // Its logger stands still until it goes on, or power is lost: nothing more becomes durable.
  void Pause() { paused_ = true; }
  void GoOn() { paused_ = false; }
  // The next island that reads its log comes to this many records: UNAVAILABLE then, as if it died there.
  void BreakOffNextRead(uint64_t records) { records_to_read_ = records; }

 private:
  absl::StatusOr<std::shared_ptr<log::Ring>> MakeRing(const log::StreamId& stream);
  absl::Status Read(uint32_t island, const log::LogPosition& begin, instance::LogSeam::TakeRecord take);

  void StartBox();
  // What a disk has after a loss of power: up to which epoch all counts, and a hash of the records that do,
  // by island and epoch.
  struct Left {
    uint64_t epoch = 0;
    uint64_t reaches = 0;
    std::map<std::pair<uint32_t, uint64_t>, uint64_t> records;
    bool AgreesWith(const Left& other) const;
  };
  Left LookAt(runtime::MemoryFileSystem& files) const;

  const runtime::ManualClock& clock_;
  const std::vector<uint32_t> workers_per_island_;
  const Options options_;
  runtime::Random random_;
  runtime::MemoryFileSystem files_;
  log::BoxManifest manifest_;  // its cuts
  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::Logger> logger_;
  std::vector<std::shared_ptr<log::Ring>> rings_;  // not all of which is in EPOCH
  int64_t next_step_ns_ = 0;
  bool paused_ = false;
  std::optional<uint64_t> records_to_read_;
  uint64_t images_ = 0;
  uint64_t commands_ = 0;
  instance::LogSeam seam_;
};

}  // namespace islands::simulation
