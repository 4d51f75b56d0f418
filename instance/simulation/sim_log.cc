#include "instance/simulation/sim_log.h"

#include <string>
#include <utility>

#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "runtime/check.h"

namespace islands::simulation {

namespace {

constexpr char kDirectory[] = "/log";
constexpr uint64_t kCluster = 1;
constexpr size_t kRingBytes = 4 << 20;

}  // namespace

SimLog::SimLog(const runtime::ManualClock& clock, std::span<const uint32_t> workers_per_island)
    : board_(workers_per_island) {
  absl::StatusOr<std::unique_ptr<log::Logger>> logger = log::Logger::Open(
      files_, clock, board_,
      {.directory = kDirectory, .cluster = kCluster, .segment_bytes = log::kLeastSegmentBytes});
  ISLANDS_CHECK(logger.ok());
  logger_ = *std::move(logger);
  ISLANDS_CHECK(logger_->Start().ok());
  seam_.board = &board_;
  seam_.make_ring = [this](const log::StreamId& stream) { return MakeRing(stream); };
  seam_.read = [this](uint32_t island, instance::LogSeam::TakeRecord take) { return Read(island, take); };
}

void SimLog::Step() {
  logger_->RunOnce();
  ISLANDS_CHECK(logger_->failure().ok() && logger_->full().ok());
}

absl::StatusOr<std::shared_ptr<log::Ring>> SimLog::MakeRing(const log::StreamId& stream) {
  std::shared_ptr<log::Ring> ring = log::Ring::InMemory(stream, kRingBytes);
  if (absl::Status added = logger_->Add(ring); !added.ok()) return added;
  return ring;
}

absl::Status SimLog::Read(uint32_t island, instance::LogSeam::TakeRecord take) {
  const absl::StatusOr<log::EpochBlock> block = log::ReadLiveEpochFile(
      files_, std::string(kDirectory) + "/" + log::kEpochFileName, kCluster, board_.islands(), board_);
  if (!block.ok()) return block.status();
  log::LogReader reader(
      files_, {.directory = log::IslandDirectory(kDirectory, island), .cluster = kCluster, .island = island},
      block->ends[island]);
  return reader.Read(take);
}

}  // namespace islands::simulation
