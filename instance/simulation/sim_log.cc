#include "instance/simulation/sim_log.h"

#include <algorithm>
#include <string>
#include <utility>

#include "instance/log/entry.h"
#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/lsn.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace islands::simulation {

namespace {

constexpr char kDirectory[] = "/log";
constexpr uint64_t kCluster = 1;

}  // namespace

SimLog::SimLog(const runtime::ManualClock& clock, std::span<const uint32_t> workers_per_island,
               const Options& options)
    : clock_(clock),
      workers_per_island_(workers_per_island.begin(), workers_per_island.end()),
      options_(options),
      random_(runtime::Random::Stream(options.seed, 0x106)),
      files_({.sector_bytes = options.seed % 2 == 0 ? 512u : 4096u}) {
  seam_.make_ring = [this](const log::StreamId& stream) { return MakeRing(stream); };
  seam_.read = [this](uint32_t island, const log::LogPosition& begin, instance::LogSeam::TakeRecord take) {
    return Read(island, begin, take);
  };
  seam_.answers_wait = options.answers_wait;
  seam_.votes_wait = options.votes_wait;
  seam_.commands = options.commands;
  StartBox();
}

void SimLog::StartBox() {
  paused_ = false;
  board_ = std::make_unique<log::Board>(workers_per_island_);
  absl::StatusOr<std::unique_ptr<log::Logger>> logger =
      log::Logger::Open(files_, clock_, *board_,
                        {.directory = kDirectory,
                         .cluster = kCluster,
                         .segment_bytes = log::kLeastSegmentBytes,
                         .first_epoch = log::FirstEpoch(manifest_)});
  ISLANDS_CHECK(logger.ok());
  logger_ = *std::move(logger);
  for (const std::shared_ptr<log::Ring>& ring : rings_) ISLANDS_CHECK(logger_->Add(ring).ok());
  ISLANDS_CHECK(logger_->Start().ok());
  for (const std::shared_ptr<log::Ring>& ring : rings_)
    logger_->OnIslandDead(ring->stream().island, ring->stream().life);
  seam_.board = board_.get();
  seam_.cuts.clear();
  for (const log::EpochCut& cut : manifest_.cuts) seam_.cuts.push_back({cut.durable, cut.next});
}

void SimLog::StartAgain() {
  files_.ForgetFaults();
  files_.SetRoom(UINT64_MAX);
  logger_.reset();
  StartBox();
}

bool SimLog::Drained(uint32_t island) {
  if (!logger_->ReleaseDrained(island)) return false;
  std::erase_if(rings_, [&](const auto& ring) { return ring->stream().island == island; });
  return true;
}

uint64_t SimLog::LosePower(uint64_t seed) {
  const uint64_t promised = board_->durable();
  rings_.clear();
  std::vector<std::unique_ptr<runtime::MemoryFileSystem>> others;
  for (size_t other = 1; other < options_.images_of_a_loss; ++other)
    others.push_back(files_.AfterPowerLoss(seed + other));
  files_.PowerLoss(seed);
  logger_.reset();
  const Left left = LookAt(files_);
  ISLANDS_CHECK(left.epoch >= promised);
  for (const std::unique_ptr<runtime::MemoryFileSystem>& other : others) {
    const Left left_there = LookAt(*other);
    ISLANDS_CHECK(left_there.epoch >= promised && left_there.AgreesWith(left));
  }
  images_ += 1 + others.size();
  log::Cut(&manifest_, {.epoch = left.epoch, .reaches = left.reaches});
  StartBox();
  return left.epoch;
}

SimLog::Left SimLog::LookAt(runtime::MemoryFileSystem& files) const {
  const absl::StatusOr<log::EpochBlock> block = log::ReadEpochFile(
      files, std::string(kDirectory) + "/" + log::kEpochFileName, kCluster, workers_per_island_.size());
  ISLANDS_CHECK(block.ok());
  Left left{.epoch = block->epoch, .reaches = block->reaches, .records = {}};
  for (uint32_t island = 0; island < workers_per_island_.size(); ++island) {
    log::LogReader reader(
        files, {.directory = log::IslandDirectory(kDirectory, island), .cluster = kCluster, .island = island},
        block->ends[island]);
    const absl::Status read = reader.Read([&](const log::StreamId& stream, const log::Record& record) {
      const uint64_t epoch = log::Lsn::FromValue(record.lsn).epoch();
      const auto drops = [&](const log::EpochCut& cut) { return cut.Drops(epoch); };
      if (epoch > block->epoch || std::any_of(manifest_.cuts.begin(), manifest_.cuts.end(), drops))
        return absl::OkStatus();
      uint64_t& hash = left.records[{island, epoch}];
      for (const uint64_t value : {hash, record.lsn, uint64_t{record.kind}, stream.life})
        hash = (hash ^ value) * 0x100000001b3ull;
      hash ^= runtime::Crc32c(record.body);
      return absl::OkStatus();
    });
    ISLANDS_CHECK(read.ok());
  }
  return left;
}

// What counts in both is the same.
bool SimLog::Left::AgreesWith(const Left& other) const {
  const uint64_t least = std::min(epoch, other.epoch);
  const auto up_to_least = [&](const Left& left) {
    auto records = left.records;
    std::erase_if(records, [&](const auto& of) { return of.first.second > least; });
    return records;
  };
  return up_to_least(*this) == up_to_least(other);
}

void SimLog::Step() {
  if (paused_ || clock_.NowNs() < next_step_ns_) return;
  logger_->RunOnce();
  if (options_.most_pause_ns == 0) return;
  const auto most = static_cast<uint64_t>(options_.most_pause_ns);
  next_step_ns_ = clock_.NowNs() + static_cast<int64_t>(random_.Below(most));
}

absl::StatusOr<std::shared_ptr<log::Ring>> SimLog::MakeRing(const log::StreamId& stream) {
  std::shared_ptr<log::Ring> ring = log::Ring::InMemory(stream, options_.ring_bytes);
  if (absl::Status added = logger_->Add(ring); !added.ok()) return added;
  rings_.push_back(ring);
  return ring;
}

absl::Status SimLog::Read(uint32_t island, const log::LogPosition& begin,
                          instance::LogSeam::TakeRecord take) {
  const absl::StatusOr<log::EpochBlock> block = log::ReadLiveEpochFile(
      files_, std::string(kDirectory) + "/" + log::kEpochFileName, kCluster, board_->islands(), *board_);
  if (!block.ok()) return block.status();
  log::LogReader reader(files_,
                        {.directory = log::IslandDirectory(kDirectory, island),
                         .cluster = kCluster,
                         .island = island,
                         .begin = begin},
                        block->ends[island]);
  const std::optional<uint64_t> most = std::exchange(records_to_read_, std::nullopt);
  uint64_t records = 0;
  return reader.Read([&](const log::StreamId& stream, const log::Record& record) {
    if (most && records++ == *most) return absl::UnavailableError("the island dies here");
    commands_ += log::IsCommand(static_cast<log::EntryKind>(record.kind)) ? 1 : 0;
    return take(stream, record);
  });
}

}  // namespace islands::simulation
