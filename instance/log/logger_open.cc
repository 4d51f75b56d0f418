// How a logger begins: EPOCH, the islands' files, and the rings that are there.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "instance/log/logger.h"
#include "instance/log/lsn.h"
#include "instance/log/ring_check.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::log {
namespace {

using runtime::IoKind;
using runtime::IoRequest;
using runtime::Planted;
using runtime::PlantedBug;

// Whoever makes an EPOCH begins the log anew.
absl::Status CheckNoSegments(runtime::FileSystem& files, const std::string& directory, uint32_t islands) {
  for (uint32_t island = 0; island < islands; ++island) {
    const std::string path = IslandDirectory(directory, island);
    if (!files.Exists(path)) continue;
    const absl::StatusOr<std::vector<std::string>> names = files.List(path);
    if (!names.ok()) return names.status();
    const auto is_segment = [](const std::string& name) { return SegmentNumber(name) != 0; };
    if (std::none_of(names->begin(), names->end(), is_segment)) continue;
    return absl::DataLossError(
        fmt::format("{} has no {}, but {} has segments of a log: restore data and log from a copy, or remove "
                    "them to begin anew",
                    directory, kEpochFileName, path));
  }
  return absl::OkStatus();
}

}  // namespace

std::string IslandDirectory(const std::string& log_directory, uint32_t island) {
  return fmt::format("{}/island-{}", log_directory, island);
}

Logger::Logger(runtime::FileSystem& files, const runtime::Clock& clock, Board& board, Options options)
    : files_(files),
      clock_(clock),
      board_(board),
      options_(std::move(options)),
      queue_(files.MakeQueue()),
      needed_(board.islands()) {}

Logger::~Logger() {
  queue_.reset();  // waits for what is in flight
  for (LogFiles& log : logs_) log.Close();
  if (epoch_file_ >= 0) files_.Close(epoch_file_).IgnoreError();
}

absl::StatusOr<std::unique_ptr<Logger>> Logger::Open(runtime::FileSystem& files, const runtime::Clock& clock,
                                                     Board& board, Options options) {
  std::unique_ptr<Logger> logger(new Logger(files, clock, board, std::move(options)));
  absl::Status opened = logger->OpenEpoch();
  if (opened.ok()) opened = logger->OpenLogs();
  if (!opened.ok()) return opened;
  // Above all that is in the files: what they hold beyond the epoch of the file may be seen by the next
  // lives.
  const EpochBlock& block = logger->block_;
  logger->covers_ = block.reaches;
  board.RaiseEpoch(std::max({block.epoch, block.reaches, logger->options_.first_epoch - 1}) + 1);
  board.SetDurable(block.epoch);
  board.SetFull(false);  // as far as it is known
  return logger;
}

absl::Status Logger::OpenEpoch() {
  if (absl::Status made = files_.MakeDirectories(options_.directory); !made.ok()) return made;
  const std::string path = options_.directory + "/" + kEpochFileName;
  if (!files_.Exists(path)) {
    absl::Status made = CheckNoSegments(files_, options_.directory, board_.islands());
    if (made.ok()) made = MakeEpochFile(files_, path, options_.cluster, board_.islands(), /*epoch=*/0);
    if (!made.ok()) return made;
  }
  const absl::StatusOr<runtime::FileHandle> file = files_.Open(path, /*create=*/false, /*direct=*/false);
  if (!file.ok()) return file.status();
  epoch_file_ = *file;
  if (absl::Status locked = files_.Lock(epoch_file_); !locked.ok()) return locked;
  absl::StatusOr<EpochBlock> block = ReadEpochFile(files_, path, options_.cluster, board_.islands());
  if (!block.ok()) return block.status();
  block_ = *std::move(block);
  if (block_.epoch < board_.durable()) {
    return absl::DataLossError(fmt::format(
        "{} says that epoch {} is durable, after it has said {}: it is damaged, or an old copy; restore data "
        "and log from a copy",
        path, block_.epoch, board_.durable()));
  }
  return SecureEpoch();
}

// What the logger before us has written there and not synced can be read, and is not durable; nor would a
// sync make it so if an earlier one has failed. So it is written once more. Every sector of it is on disk
// already, or of no use.
absl::Status Logger::SecureEpoch() {
  if (Planted(PlantedBug::kTrustUnsyncedEpoch)) return absl::OkStatus();
  epoch_bytes_ = EncodeEpochBlock(block_);
  absl::Status secured = DoNow(EpochWrite(block_.number));
  if (secured.ok()) secured = DoNow({.kind = IoKind::kSync, .file = epoch_file_});
  return secured;
}

absl::Status Logger::OpenLogs() {
  for (uint32_t island = 0; island < board_.islands(); ++island) {
    absl::StatusOr<LogFiles> log = LogFiles::Open(files_,
                                                  {.directory = IslandDirectory(options_.directory, island),
                                                   .cluster = options_.cluster,
                                                   .island = island,
                                                   .segment_bytes = options_.segment_bytes},
                                                  block_.ends[island]);
    if (!log.ok()) return log.status();
    logs_.push_back(*std::move(log));
  }
  return files_.SyncDirectory(options_.directory);  // a logger may have died before it came to that
}

absl::Status Logger::DoNow(const IoRequest& request) {
  completions_.clear();
  queue_->Submit(request);
  while (queue_->Poll(&completions_) == 0) queue_->Wait(runtime::kNsPerSecond);
  return completions_.front().status;
}

absl::Status Logger::Add(std::shared_ptr<Ring> ring) {
  const auto [life, island, worker] = ring->stream();
  if (island >= board_.islands() || worker >= board_.Number(island + 1, 0) - board_.Number(island, 0)) {
    return absl::FailedPreconditionError(
        fmt::format("a log ring of worker {} of island {} was found, and there is no such worker; it belongs "
                    "to other data",
                    worker, island));
  }
  for (const Stream& stream : streams_) {
    if (stream.ring->stream() != ring->stream()) continue;
    return absl::AlreadyExistsError(fmt::format(
        "the log ring of worker {} of island {} in life {} is drained already", worker, island, life));
  }
  if (ring->epoch_block() > block_.number) {
    return absl::DataLossError(fmt::format(
        "{} in {} is an old copy: its block {} is the newest, and the log ring of worker {} of island {} was "
        "freed of what block {} says is on disk. Restore data and log from one time; or, to go on with what "
        "is there as after a loss of power, remove the log's rings",
        kEpochFileName, options_.directory, block_.number, worker, island, ring->epoch_block()));
  }
  if (started_) {
    if (absl::Status begins = CheckNewLife(*ring); !begins.ok()) return begins;
  }
  // From the head on: what a logger before this one has written beyond it, EPOCH does not cover
  // (invariant 3).
  const uint64_t head = ring->head(), tail = ring->tail();
  const absl::StatusOr<uint64_t> lsn = HighestLsn(*ring, tail);
  if (!lsn.ok()) return lsn.status();
  if (!Planted(PlantedBug::kReuseLsn)) board_.RaiseEpoch(Lsn::FromValue(*lsn).epoch() + 1);
  streams_.push_back({.ring = std::move(ring), .added = head});
  // What is in the files already may still be above EPOCH.
  if (tail != 0) Cover(&streams_.back());
  return absl::OkStatus();
}

absl::Status Logger::CheckNewLife(const Ring& ring) const {
  const auto [life, island, worker] = ring.stream();
  if (board_.Hold(board_.Number(island, worker)) != Board::kNoHold) {
    return absl::FailedPreconditionError(
        fmt::format("life {} of island {} cannot begin: its worker {} holds an epoch already, or the life "
                    "before it was not said to be dead",
                    life, island, worker));
  }
  if (ring.tail() == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("worker {} of island {} has appended {} bytes in life {} before the logger knew its ring: "
                  "{} may have passed over them; stop the deployment and start it again",
                  worker, island, ring.tail(), life, kEpochFileName));
}

bool Logger::HasRing(uint32_t island, uint32_t worker) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    const StreamId& id = stream.ring->stream();
    return id.island == island && id.worker == worker;
  });
}

absl::Status Logger::Start() {
  ISLANDS_CHECK(!started_);
  for (uint32_t island = 0; island < board_.islands(); ++island) {
    const size_t first = board_.Number(island, 0), end = board_.Number(island + 1, 0);
    for (size_t worker = first; worker < end; ++worker) {
      if (board_.Hold(worker) == Board::kNoHold) continue;
      const auto number = static_cast<uint32_t>(worker - first);
      if (HasRing(island, number)) continue;
      return absl::FailedPreconditionError(
          fmt::format("worker {} of island {} holds epoch {}, and its log ring was not found; its records "
                      "are lost, and nothing may become durable any more: stop the deployment",
                      number, island, board_.Hold(worker).load()));
    }
  }
  started_ = true;
  return absl::OkStatus();
}

}  // namespace islands::log
