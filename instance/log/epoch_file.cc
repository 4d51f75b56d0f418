#include "instance/log/epoch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "instance/log/lsn.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/planted_bug.h"

namespace islands::log {
namespace {

constexpr char kMagic[] = "ISLEPOCH";
constexpr size_t kSectorBytes = 4096;
// To miss once, a reader must stand still for two rounds of the logger.
constexpr int kMostLiveReads = 100;

using runtime::Planted;
using runtime::PlantedBug;

struct Layout {
  char magic[8];
  uint64_t number;
  uint64_t cluster;
  uint64_t epoch;
  uint64_t reaches;
  uint32_t islands;
  uint32_t checksum;
};
static_assert(sizeof(Layout) == 48 && sizeof(LogPosition) == 16);

std::optional<EpochBlock> Decode(std::span<const std::byte> bytes) {
  Layout layout;
  if (bytes.size() < sizeof(layout)) return std::nullopt;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (std::memcmp(layout.magic, kMagic, sizeof(layout.magic)) != 0 || layout.islands > kMostIslands)
    return {};
  const size_t ends_bytes = layout.islands * sizeof(LogPosition);
  if (bytes.size() < sizeof(layout) + ends_bytes) return std::nullopt;
  const uint32_t checksum = std::exchange(layout.checksum, 0);
  const std::span<const std::byte> ends = bytes.subspan(sizeof(layout), ends_bytes);
  if (checksum != runtime::Crc32c(ends, runtime::Crc32c(std::as_bytes(std::span(&layout, 1))))) return {};
  EpochBlock block{layout.number, layout.cluster, layout.epoch, layout.reaches,
                   std::vector<LogPosition>(layout.islands)};
  if (ends_bytes != 0) std::memcpy(block.ends.data(), ends.data(), ends_bytes);
  return block;
}

}  // namespace

size_t EpochBlockBytes(size_t islands) {
  const size_t bytes = sizeof(Layout) + islands * sizeof(LogPosition);
  return (bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
}

std::vector<std::byte> EncodeEpochBlock(const EpochBlock& block) {
  ISLANDS_CHECK(block.ends.size() <= kMostIslands);
  Layout layout{
      {}, block.number, block.cluster, block.epoch, block.reaches, static_cast<uint32_t>(block.ends.size()),
      0};
  std::memcpy(layout.magic, kMagic, sizeof(layout.magic));
  const std::span<const std::byte> ends = std::as_bytes(std::span(block.ends));
  layout.checksum = runtime::Crc32c(ends, runtime::Crc32c(std::as_bytes(std::span(&layout, 1))));
  std::vector<std::byte> bytes(EpochBlockBytes(block.ends.size()));
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  if (!ends.empty()) std::memcpy(bytes.data() + sizeof(layout), ends.data(), ends.size());
  return bytes;
}

absl::StatusOr<EpochBlock> DecodeEpochFile(std::span<const std::byte> file) {
  // How long a block is depends on how many islands it names: the second lies in the middle of the file.
  std::optional<EpochBlock> first = Decode(file);
  std::optional<EpochBlock> second = Decode(file.subspan(file.size() / 2));
  if (second && (!first || second->number > first->number)) first = std::move(second);
  if (!first) return absl::DataLossError("neither of its two blocks is whole");
  if (std::max(first->epoch, first->reaches) > Lsn::kMostEpoch)
    return absl::DataLossError("it names an epoch that cannot be");
  // Cut off, it may have lost the newer one.
  if (file.size() == 2 * EpochBlockBytes(first->ends.size())) return std::move(*first);
  return absl::DataLossError(fmt::format("it has {} bytes", file.size()));
}

absl::StatusOr<EpochBlock> ReadEpochFile(runtime::FileSystem& files, const std::string& path,
                                         uint64_t cluster, size_t islands) {
  const absl::StatusOr<std::string> content = files.ReadFile(path);
  if (!content.ok()) return content.status();
  absl::StatusOr<EpochBlock> block = DecodeEpochFile(std::as_bytes(std::span(*content)));
  if (!block.ok()) {
    return absl::DataLossError(
        fmt::format("{} is damaged: {}; without it nobody knows which transactions "
                    "count: restore data and log from a copy",
                    path, std::string(block.status().message())));
  }
  if (block->cluster == cluster && block->ends.size() == islands) return block;
  return absl::FailedPreconditionError(
      fmt::format("{} belongs to other data, with {} islands; choose another "
                  "storage.log.directory",
                  path, block->ends.size()));
}

absl::Status MakeEpochFile(runtime::FileSystem& files, const std::string& path, uint64_t cluster,
                           uint32_t islands, uint64_t epoch) {
  const EpochBlock block{.number = 1,
                         .cluster = cluster,
                         .epoch = epoch,
                         .reaches = epoch,
                         .ends = std::vector<LogPosition>(islands)};
  std::string content(EpochBlockBytes(islands), '\0');
  const std::vector<std::byte> bytes = EncodeEpochBlock(block);  // number 1: the second of the two
  content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return files.ReplaceFile(path, content);
}

absl::StatusOr<EpochBlock> ReadLiveEpochFile(runtime::FileSystem& files, const std::string& path,
                                             uint64_t cluster, size_t islands, const Board& board) {
  // Before the file: the board follows it.
  const uint64_t durable = board.durable();
  absl::StatusOr<EpochBlock> block;
  for (int attempt = 0; attempt < kMostLiveReads; ++attempt) {
    block = ReadEpochFile(files, path, cluster, islands);
    if (block.ok() && (block->epoch >= durable || Planted(PlantedBug::kReadEpochOnce))) return block;
    // Only what the logger may be in the middle of is looked at again.
    if (!block.ok() && !absl::IsDataLoss(block.status())) return block;
  }
  if (!block.ok()) return block;
  return absl::UnavailableError(
      fmt::format("{} says that epoch {} is durable, after {} had been; try again, and if that does not help "
                  "it is an old copy: restore data and log from a copy",
                  path, block->epoch, durable));
}

}  // namespace islands::log
