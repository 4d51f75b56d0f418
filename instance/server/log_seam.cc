#include "instance/server/log_seam.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "instance/log/box_id.h"
#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"

namespace islands::server {

absl::StatusOr<std::unique_ptr<ServerLog>> ServerLog::Open(const control::v1::IslandConfig& config, int board,
                                                           runtime::FileSystem& files) {
  std::unique_ptr<ServerLog> log(new ServerLog);
  std::vector<uint32_t> workers;
  for (const control::v1::Peer& peer : config.peers()) workers.push_back(peer.workers());
  auto mapped = log::Board::Map(board, workers);
  if (!mapped.ok()) return mapped.status();
  log->board_ = *std::move(mapped);
  auto rings = log::RingDirectory::Open(config.ring_directory());
  if (!rings.ok()) return rings.status();
  log->rings_ = *std::move(rings);
  const absl::StatusOr<uint64_t> cluster = log::ClusterFingerprint(config.cluster_id());
  if (!cluster.ok()) return cluster.status();
  instance::LogSeam& seam = log->seam_;
  seam.board = log->board_.get();
  seam.make_ring = [log = log.get()](const log::StreamId& stream) { return log->rings_->OpenRing(stream); };
  seam.read = [log = log.get(), &files](uint32_t island, const log::LogPosition& begin,
                                        instance::LogSeam::TakeRecord take) {
    return log->Read(files, island, begin, take);
  };
  for (const control::v1::EpochCut& cut : config.cuts()) seam.cuts.push_back({cut.durable(), cut.next()});
  seam.answers_wait = config.durability() == "sync";
  seam.commands = config.durability() == "command";
  seam.votes_wait = config.votes_wait();
  seam.cluster = *cluster;
  seam.log_directory = config.log_directory();
  seam.data_directory = fmt::format("{}/island-{}", config.data_directory(), config.island());
  return log;
}

absl::Status ServerLog::Read(runtime::FileSystem& files, uint32_t island, const log::LogPosition& begin,
                             instance::LogSeam::TakeRecord take) const {
  const absl::StatusOr<log::EpochBlock> block =
      log::ReadLiveEpochFile(files, fmt::format("{}/{}", seam_.log_directory, log::kEpochFileName),
                             seam_.cluster, board_->islands(), *board_);
  if (!block.ok()) return block.status();
  log::LogReader reader(files,
                        {.directory = log::IslandDirectory(seam_.log_directory, island),
                         .cluster = seam_.cluster,
                         .island = island,
                         .begin = begin},
                        block->ends[island]);
  return reader.Read(take);
}

}  // namespace islands::server
