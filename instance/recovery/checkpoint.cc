#include "instance/recovery/checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "instance/log/lsn.h"
#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/pages/limits.h"
#include "runtime/crc32c.h"
#include "runtime/planted_bug.h"

namespace islands::recovery {
namespace {

constexpr char kMagic[] = "ISLCHKP1", kMagicWithFlags[] = "ISLCHKP2";
constexpr size_t kSectorBytes = 4096;
constexpr uint32_t kMostSites = storage::kMaxSites + 1;  // and the replicated one

struct Layout {
  char magic[8];
  uint64_t number, cluster, generation, schema, bound, taken;
  log::LogPosition position;
  uint32_t island, sites, checksum, flags;
};
static_assert(sizeof(Layout) == 88 && sizeof(Checkpoint::Site) == 16);

constexpr uint32_t kSecondSet = 1, kSnapshot = 2;

uint32_t Checksum(Layout layout, std::span<const std::byte> sites) {
  layout.checksum = 0;
  return runtime::Crc32c(sites, runtime::Crc32c(std::as_bytes(std::span(&layout, 1))));
}

std::optional<Checkpoint> Decode(std::span<const std::byte> bytes) {
  Layout layout;
  if (bytes.size() < sizeof(layout)) return {};
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  const char* const magic = layout.flags == 0 ? kMagic : kMagicWithFlags;
  if (std::memcmp(layout.magic, magic, sizeof(layout.magic)) != 0 || layout.sites > kMostSites) return {};
  const size_t sites_bytes = layout.sites * sizeof(Checkpoint::Site);
  if (bytes.size() < sizeof(layout) + sites_bytes) return {};
  const std::span<const std::byte> sites = bytes.subspan(sizeof(layout), sites_bytes);
  if (layout.checksum != Checksum(layout, sites) || (layout.flags & ~(kSecondSet | kSnapshot)) != 0)
    return {};
  Checkpoint checkpoint{layout.number,
                        layout.cluster,
                        layout.generation,
                        layout.schema,
                        layout.bound,
                        layout.taken,
                        layout.position,
                        layout.island,
                        std::vector<Checkpoint::Site>(layout.sites),
                        layout.flags & kSecondSet,
                        (layout.flags & kSnapshot) != 0};
  if (sites_bytes != 0) std::memcpy(checkpoint.sites.data(), sites.data(), sites_bytes);
  return checkpoint;
}

// FNV-1a (Fowler, Noll, Vo), 64 bits.
class Fingerprint {
 public:
  void Add(std::string_view text) {
    Add(text.size());
    for (const char byte : text) AddByte(static_cast<uint8_t>(byte));
  }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(number >> shift));
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace

size_t CheckpointBlockBytes(size_t sites) {
  const size_t bytes = sizeof(Layout) + sites * sizeof(Checkpoint::Site);
  return (bytes + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
}

std::vector<std::byte> EncodeCheckpoint(const Checkpoint& checkpoint) {
  Layout layout{{},
                checkpoint.number,
                checkpoint.cluster,
                checkpoint.generation,
                checkpoint.schema,
                checkpoint.bound,
                checkpoint.taken,
                checkpoint.position,
                checkpoint.island,
                static_cast<uint32_t>(checkpoint.sites.size()),
                0,
                checkpoint.set | (checkpoint.snapshot ? kSnapshot : 0)};
  std::memcpy(layout.magic, layout.flags == 0 ? kMagic : kMagicWithFlags, sizeof(layout.magic));
  const std::span<const std::byte> sites = std::as_bytes(std::span(checkpoint.sites));
  layout.checksum = Checksum(layout, sites);
  std::vector<std::byte> bytes(CheckpointBlockBytes(checkpoint.sites.size()));
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  if (!sites.empty()) std::memcpy(bytes.data() + sizeof(layout), sites.data(), sites.size());
  return bytes;
}

absl::StatusOr<Checkpoint> DecodeCheckpointFile(std::span<const std::byte> file) {
  // How long a block is depends on how many sites it names: the second lies in the middle of the file.
  std::optional<Checkpoint> newest = Decode(file);
  std::optional<Checkpoint> second = Decode(file.subspan(file.size() / 2));
  if (second && (!newest || second->number > newest->number)) newest = std::move(second);
  if (!newest) return absl::DataLossError("neither of its two blocks is whole");
  if (std::max(newest->bound, newest->taken) > log::Lsn::kMostEpoch)
    return absl::DataLossError("it names an epoch that cannot be");
  if (file.size() == 2 * CheckpointBlockBytes(newest->sites.size())) return std::move(*newest);
  return absl::DataLossError(fmt::format("it has {} bytes", file.size()));
}

absl::StatusOr<uint64_t> PagesAtHome(runtime::FileSystem& files, const std::string& directory,
                                     uint64_t generation) {
  const absl::StatusOr<std::string> file = files.ReadFile(storage::CheckpointPath(directory, generation));
  if (!file.ok()) return file.status();
  const absl::StatusOr<Checkpoint> checkpoint = DecodeCheckpointFile(std::as_bytes(std::span(*file)));
  if (!checkpoint.ok()) return checkpoint.status();
  uint64_t pages = 0;
  for (const Checkpoint::Site& site : checkpoint->sites) pages += site.pages;
  return pages;
}

uint64_t SchemaFingerprint(const storage::Catalog& catalog, size_t tables) {
  Fingerprint fingerprint;
  fingerprint.Add(catalog.sites());
  for (storage::TableId id = 0; id < std::min(tables, catalog.size()); ++id) {
    const storage::TableDefinition& table = catalog.table(id);
    fingerprint.Add(table.name);
    for (const partitioner::KeyType type : table.key) fingerprint.Add(partitioner::KeyTypeName(type));
    fingerprint.Add(table.replicated() ? 0 : table.partition->begin());
    fingerprint.Add(table.replicated() ? 0 : table.partition->end());
    fingerprint.Add(table.row_bytes);
    for (const storage::IndexDefinition& index : table.indexes) {
      fingerprint.Add(index.name);
      for (const storage::IndexComponent& each : index.components) {
        fingerprint.Add(partitioner::KeyTypeName(each.type));
        for (const uint32_t part : {uint32_t{each.from_key}, each.component, each.offset, each.string_bytes})
          fingerprint.Add(part);
      }
    }
  }
  return fingerprint.value();
}

uint64_t TablesFingerprint(const storage::Catalog& catalog) {
  Fingerprint fingerprint;
  fingerprint.Add(SchemaFingerprint(catalog));
  for (storage::TableId id = 0; id < catalog.size(); ++id)
    fingerprint.Add(uint64_t{catalog.table(id).dropped});
  return fingerprint.value();
}

bool IsSchemaOf(uint64_t schema, const storage::Catalog& catalog) {
  for (size_t tables = 0; tables <= catalog.size(); ++tables) {
    if (schema == SchemaFingerprint(catalog, tables)) return true;
  }
  return false;
}

absl::Status CheckSameData(const Checkpoint& found, const Checkpoint& expected, const std::string& path) {
  std::string what;
  if (found.cluster != expected.cluster) what = "another cluster's data";
  if (what.empty() && found.island != expected.island) what = fmt::format("data of island {}", found.island);
  if (what.empty() && found.generation != expected.generation)
    what = fmt::format("data of generation {}", found.generation);
  if (what.empty() && found.schema != expected.schema) what = "data of other tables, keys, indexes or ranges";
  for (size_t slot = 0; what.empty() && slot < expected.sites.size(); ++slot) {
    const bool same =
        found.sites.size() == expected.sites.size() && found.sites[slot].site == expected.sites[slot].site;
    if (!same) what = "data of other sites";
  }
  if (what.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{} belongs to {}; put the right files in their place, change the deployment file back, or destroy the "
      "data to begin anew",
      path, what));
}

absl::StatusOr<Checkpoint> ReadCheckpoint(runtime::FileSystem& files, const storage::DataFiles& data) {
  const storage::DataFilesOptions& options = data.options();
  const std::string path = storage::CheckpointPath(options.directory, options.generation);
  const absl::StatusOr<std::string> content = files.ReadFile(path);
  if (!content.ok()) return content.status();
  absl::StatusOr<Checkpoint> checkpoint = DecodeCheckpointFile(std::as_bytes(std::span(*content)));
  if (!checkpoint.ok()) {
    return absl::DataLossError(fmt::format(
        "{} is damaged: {}; without it nobody knows which part of the log the data lacks: restore "
        "data and log from a copy",
        path, std::string(checkpoint.status().message())));
  }
  if (runtime::Planted(runtime::PlantedBug::kTrustUnsyncedMaster)) return checkpoint;
  std::vector<std::byte> block = EncodeCheckpoint(*checkpoint);
  storage::BlockingQueue queue(files);
  absl::Status secured = queue.Do({.kind = runtime::IoKind::kWrite,
                                   .file = data.checkpoint(),
                                   .offset = checkpoint->number % 2 * block.size(),
                                   .buffer = std::span(block)});
  if (secured.ok()) secured = queue.Do({.kind = runtime::IoKind::kSync, .file = data.checkpoint()});
  if (!secured.ok()) return secured;
  return checkpoint;
}

absl::Status WriteFirstCheckpoint(runtime::FileSystem& files, const storage::DataFiles& data,
                                  const Checkpoint& checkpoint) {
  std::vector<std::byte> blocks = EncodeCheckpoint(checkpoint);
  const size_t other = checkpoint.number % 2 == 0 ? blocks.size() : 0;  // the block that is zeros
  blocks.insert(blocks.begin() + static_cast<ptrdiff_t>(other), blocks.size(), std::byte{0});
  storage::BlockingQueue queue(files);
  absl::Status written =
      queue.Do({.kind = runtime::IoKind::kWrite, .file = data.checkpoint(), .buffer = std::span(blocks)});
  if (written.ok()) written = queue.Do({.kind = runtime::IoKind::kSync, .file = data.checkpoint()});
  return written;
}

bool IsGenerationWhole(runtime::FileSystem& files, const std::string& directory, uint64_t generation) {
  const auto content = files.ReadFile(storage::CheckpointPath(directory, generation));
  return content.ok() && DecodeCheckpointFile(std::as_bytes(std::span(*content))).ok();
}

}  // namespace islands::recovery
