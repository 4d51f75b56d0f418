#include "instance/log/box_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "instance/log/lsn.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/planted_bug.h"

namespace islands::log {
namespace {

using runtime::Planted;
using runtime::PlantedBug;

constexpr char kMagic[] = "ISLBOXM1";
constexpr uint32_t kMostCuts = 1 << 20;
constexpr uint32_t kMostPathBytes = 4096;

struct Layout {
  char magic[8];
  uint64_t cluster;
  BoxId ring_directory;
  BoxId boot;
  uint32_t islands;
  uint32_t cuts;
  uint32_t checksum;
  uint32_t path_bytes;
};
static_assert(sizeof(Layout) == 64 && sizeof(EpochCut) == 16);

// Of a layout with its checksum zero, and what is behind it.
uint32_t Checksum(const Layout& layout, std::span<const std::byte> rest) {
  return runtime::Crc32c(rest, runtime::Crc32c(std::as_bytes(std::span(&layout, 1))));
}

template <typename T>
void Put(const std::vector<T>& from, std::byte** to) {
  if (from.empty()) return;
  std::memcpy(*to, from.data(), from.size() * sizeof(T));
  *to += from.size() * sizeof(T);
}

template <typename T>
void Take(std::span<const std::byte>* from, std::vector<T>* to) {
  const size_t bytes = to->size() * sizeof(T);
  if (bytes != 0) std::memcpy(to->data(), from->data(), bytes);
  *from = from->subspan(bytes);
}

// Invariant 1.
bool Ascend(const std::vector<EpochCut>& cuts) {
  uint64_t least = 0;
  for (const EpochCut& cut : cuts) {
    if (cut.durable < least || cut.next > Lsn::kMostEpoch + 1 || cut.next < 2 || cut.durable >= cut.next - 1)
      return false;
    least = cut.next - 1;
  }
  return true;
}

std::string PathOf(const std::string& log_directory) { return log_directory + "/" + kManifestName; }

}  // namespace

std::vector<std::byte> EncodeBoxManifest(const BoxManifest& manifest) {
  ISLANDS_CHECK(manifest.lives.size() <= kMostIslands && manifest.cuts.size() <= kMostCuts &&
                manifest.ring_path.size() <= kMostPathBytes && Ascend(manifest.cuts));
  Layout layout{{},
                manifest.cluster,
                manifest.ring_directory,
                manifest.boot,
                static_cast<uint32_t>(manifest.lives.size()),
                static_cast<uint32_t>(manifest.cuts.size()),
                0,
                static_cast<uint32_t>(manifest.ring_path.size())};
  std::memcpy(layout.magic, kMagic, sizeof(layout.magic));
  std::vector<std::byte> bytes(sizeof(layout) + manifest.lives.size() * sizeof(uint64_t) +
                               manifest.cuts.size() * sizeof(EpochCut) + manifest.ring_path.size());
  std::byte* at = bytes.data() + sizeof(layout);
  Put(manifest.lives, &at);
  Put(manifest.cuts, &at);
  std::memcpy(at, manifest.ring_path.data(), manifest.ring_path.size());
  layout.checksum = Checksum(layout, std::span(bytes).subspan(sizeof(layout)));
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  return bytes;
}

absl::StatusOr<BoxManifest> DecodeBoxManifest(std::span<const std::byte> bytes) {
  Layout layout;
  if (bytes.size() < sizeof(layout)) return absl::DataLossError("it is too short");
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (std::memcmp(layout.magic, kMagic, sizeof(layout.magic)) != 0)
    return absl::DataLossError("it is no manifest of a log, or of another version");
  std::span<const std::byte> rest = bytes.subspan(sizeof(layout));
  if (layout.islands > kMostIslands || layout.cuts > kMostCuts || layout.path_bytes > kMostPathBytes ||
      rest.size() != layout.islands * sizeof(uint64_t) + layout.cuts * sizeof(EpochCut) + layout.path_bytes) {
    return absl::DataLossError(fmt::format("it has {} bytes", bytes.size()));
  }
  const uint32_t checksum = std::exchange(layout.checksum, 0);
  if (checksum != Checksum(layout, rest)) return absl::DataLossError("its checksum is wrong");
  BoxManifest manifest{layout.cluster,
                       layout.ring_directory,
                       layout.boot,
                       std::vector<uint64_t>(layout.islands),
                       std::vector<EpochCut>(layout.cuts),
                       ""};
  Take(&rest, &manifest.lives);
  Take(&rest, &manifest.cuts);
  manifest.ring_path.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  if (!Ascend(manifest.cuts)) return absl::DataLossError("what it says cannot be");
  return manifest;
}

absl::StatusOr<BoxManifest> ReadBoxManifest(runtime::FileSystem& files, const std::string& log_directory,
                                            uint64_t cluster, size_t islands) {
  const std::string path = PathOf(log_directory);
  if (!files.Exists(path)) {
    if (!files.Exists(log_directory + "/" + kEpochFileName))
      return absl::NotFoundError(fmt::format("there is no {}", path));
    return absl::DataLossError(
        fmt::format("{} is gone, and the log beside it was begun; without it nobody knows which transactions "
                    "count: restore data and log from a copy",
                    path));
  }
  // Invariant 2: whoever wrote it may have died before its name was durable; its bytes were before.
  if (!Planted(PlantedBug::kTrustUnsyncedManifest)) {
    if (absl::Status synced = files.SyncDirectory(log_directory); !synced.ok()) return synced;
  }
  const absl::StatusOr<std::string> content = files.ReadFile(path);
  if (!content.ok()) return content.status();
  absl::StatusOr<BoxManifest> manifest = DecodeBoxManifest(std::as_bytes(std::span(*content)));
  if (!manifest.ok()) {
    return absl::DataLossError(
        fmt::format("{} is damaged: {}; without it nobody knows which transactions count: restore data and "
                    "log from a copy",
                    path, std::string(manifest.status().message())));
  }
  if (manifest->cluster == cluster && manifest->lives.size() == islands) return manifest;
  return absl::FailedPreconditionError(
      fmt::format("{} belongs to other data, with {} islands; choose another storage.log.directory", path,
                  manifest->lives.size()));
}

absl::Status WriteBoxManifest(runtime::FileSystem& files, const std::string& log_directory,
                              const BoxManifest& manifest) {
  if (absl::Status made = files.MakeDirectories(log_directory); !made.ok()) return made;
  const std::vector<std::byte> bytes = EncodeBoxManifest(manifest);
  return files.ReplaceFile(PathOf(log_directory),
                           {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool SameBoot(const BoxManifest& manifest, const BoxId& boot, const BoxId& ring_directory,
              std::span<const StreamId> whole, std::span<const uint32_t> workers_per_island) {
  ISLANDS_CHECK(manifest.lives.size() == workers_per_island.size());
  if (manifest.ring_directory == BoxId{}) return true;  // closed
  if (manifest.boot != boot || manifest.ring_directory != ring_directory) return false;
  for (uint32_t island = 0; island < manifest.lives.size(); ++island) {
    const uint64_t life = manifest.lives[island];
    if (life == 0) continue;
    for (uint32_t worker = 0; worker < workers_per_island[island]; ++worker) {
      const StreamId stream{life, island, worker};
      if (std::find(whole.begin(), whole.end(), stream) == whole.end()) return false;
    }
  }
  return true;
}

void Cut(BoxManifest* manifest, const EpochBlock& epoch) {
  EpochCut cut{epoch.epoch, std::max({epoch.epoch, epoch.reaches, FirstEpoch(*manifest) - 1}) + 1};
  // EPOCH has not come out of an earlier cut: power was lost again before it was written, and what was begun
  // meanwhile is gone as well.
  std::vector<EpochCut>& cuts = manifest->cuts;
  while (!cuts.empty() && cut.durable < cuts.back().next - 1) {
    cut.durable = std::min(cut.durable, cuts.back().durable);
    cuts.pop_back();
  }
  if (cut.durable < cut.next - 1) cuts.push_back(cut);
}

uint64_t FirstEpoch(const BoxManifest& manifest) {
  return manifest.cuts.empty() ? 1 : manifest.cuts.back().next;
}

}  // namespace islands::log
