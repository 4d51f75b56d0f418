#include "instance/recovery/relayout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "instance/log/box_manifest.h"
#include "instance/log/epoch_file.h"
#include "instance/log/logger.h"
#include "instance/log/lsn.h"
#include "instance/storage/files/data_files.h"
#include "partitioner/key_codec.h"
#include "runtime/check.h"

namespace islands::recovery {
namespace {

using storage::TableDefinition;
using storage::TableId;

constexpr uint64_t kRowsPerWord = 1 << 14;  // on progress
constexpr std::string_view kIsland = "island-";

// The smallest key with this first component.
std::string KeyAt(const TableDefinition& table, int64_t value) {
  std::string key;
  if (partitioner::IsSigned(table.key[0])) {
    partitioner::AppendSigned(table.key[0], value, &key);
  } else {
    partitioner::AppendUnsigned(table.key[0], static_cast<uint64_t>(value), &key);
  }
  return key;
}

partitioner::KeyView ViewOf(const std::string& key) { return std::as_bytes(std::span(key)); }

// The last epoch that the log of before may have had anything of.
absl::StatusOr<uint64_t> LastEpoch(runtime::FileSystem& files, const std::string& log_directory,
                                   uint64_t cluster, size_t islands) {
  const auto box = log::ReadBoxManifest(files, log_directory, cluster, islands);
  if (!box.ok()) return box.status();
  if (box->ring_directory != log::BoxId{}) {
    return absl::FailedPreconditionError(
        "the deployment was not taken down: `islands up` and `islands down` it with the file as it was "
        "before");
  }
  const std::string path = fmt::format("{}/{}", log_directory, log::kEpochFileName);
  const auto epoch = log::ReadEpochFile(files, path, cluster, islands);
  if (!epoch.ok()) return epoch.status();
  return std::max({epoch->epoch, epoch->reaches, log::FirstEpoch(*box)});
}

// Numbers of the folders island-N that are in a directory; one that is not there has none.
absl::StatusOr<std::vector<uint32_t>> IslandFolders(runtime::FileSystem& files,
                                                    const std::string& directory) {
  std::vector<uint32_t> found;
  if (!files.Exists(directory)) return found;
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    uint32_t number = 0;
    if (name.starts_with(kIsland) && absl::SimpleAtoi(name.substr(kIsland.size()), &number))
      found.push_back(number);
  }
  return found;
}

// All segments of it, before anything says that they do not count.
absl::Status RemoveSegments(runtime::FileSystem& files, const std::string& log_directory) {
  const absl::StatusOr<std::vector<uint32_t>> islands = IslandFolders(files, log_directory);
  if (!islands.ok()) return islands.status();
  for (const uint32_t island : *islands) {
    const std::string directory = log::IslandDirectory(log_directory, island);
    const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (!name.starts_with("segment-")) continue;
      if (absl::Status removed = files.Remove(directory + "/" + name); !removed.ok()) return removed;
    }
    if (absl::Status synced = files.SyncDirectory(directory); !synced.ok()) return synced;
  }
  return absl::OkStatus();
}

// A log that was closed and in which nothing ever was, that goes on above `epoch`.
absl::Status MakeLog(runtime::FileSystem& files, const std::string& log_directory, uint64_t cluster,
                     uint32_t islands, uint64_t epoch) {
  if (absl::Status made = files.MakeDirectories(log_directory); !made.ok()) return made;
  const std::string path = fmt::format("{}/{}", log_directory, log::kEpochFileName);
  absl::Status status = log::MakeEpochFile(files, path, cluster, islands, epoch);
  if (!status.ok()) return status;
  const log::BoxManifest manifest{.cluster = cluster, .lives = std::vector<uint64_t>(islands)};
  return log::WriteBoxManifest(files, log_directory, manifest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Relayout>> Relayout::Create(runtime::FileSystem& files,
                                                           RelayoutOptions options) {
  const storage::Manifest& have = options.have;
  const absl::StatusOr<uint64_t> cluster = log::ClusterFingerprint(have.cluster_id);
  if (!cluster.ok()) return absl::DataLossError(cluster.status().message());
  const absl::StatusOr<uint64_t> epoch = LastEpoch(files, options.log_directory, *cluster, have.islands);
  if (!epoch.ok()) return epoch.status();
  auto from = storage::Catalog::Create(options.tables, have.sites);
  auto to = storage::Catalog::Create(options.tables, options.sites);
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const auto from_map = partitioner::SiteMap::Create(have.sites, have.islands);
  const auto to_map =
      partitioner::SiteMap::Create(options.sites, static_cast<uint32_t>(options.workers.size()));
  if (!from_map.ok()) return from_map.status();
  if (!to_map.ok()) return to_map.status();
  const Cut before{*std::move(from), *from_map}, after{*std::move(to), *to_map};
  return std::unique_ptr<Relayout>(new Relayout(files, std::move(options), *epoch, before, after));
}

Relayout::Relayout(runtime::FileSystem& files, RelayoutOptions options, uint64_t epoch, Cut from, Cut to)
    : files_(files),
      options_(std::move(options)),
      to_(options_.have),
      from_(std::move(from)),
      cut_(std::move(to)),
      feeders_(cut_.map.islands()),
      stores_(cut_.map.islands()),
      begun_(cut_.map.islands()),
      rows_(cut_.map.islands()) {
  to_.sites = cut_.map.sites();
  to_.islands = cut_.map.islands();
  ++to_.layout_generation;
  ++to_.data_generation;
  to_.workers = options_.workers;
  to_.relaid = epoch;
  const std::vector<uint64_t>& epochs = options_.have.boot_epochs;
  to_.boot_epochs.assign(to_.islands, *std::max_element(epochs.begin(), epochs.end()));
  FindFeeders();
}

IslandDataOptions Relayout::DataOf(uint32_t island) const {
  return {.directory = fmt::format("{}/{}{}", options_.data_directory, kIsland, island),
          .cluster = *log::ClusterFingerprint(to_.cluster_id),  // Create has asked
          .island = island,
          .generation = to_.data_generation};
}

Relayout::Share Relayout::ShareOf(TableId table, uint32_t from, uint32_t to) const {
  const partitioner::RangePartition& before = *from_.catalog.table(table).partition;
  const partitioner::RangePartition& after = *cut_.catalog.table(table).partition;
  return {std::max(before.SiteBegin(from), after.SiteBegin(to)),
          std::min(before.SiteBegin(from + 1), after.SiteBegin(to + 1))};
}

// Without any table of ranges they still have what is replicated, from island 0.
void Relayout::FindFeeders() {
  for (uint32_t to = 0; to < cut_.map.sites(); ++to) {
    Feeders& feeders = feeders_[cut_.map.IslandOf(to)];
    for (uint32_t from = 0; from < from_.map.sites(); ++from) {
      for (TableId table = 0; table < from_.catalog.size(); ++table) {
        if (from_.catalog.table(table).replicated()) continue;
        const Share share = ShareOf(table, from, to);
        if (share.begin >= share.end) continue;
        const uint32_t island = from_.map.IslandOf(from);
        feeders.first = std::min(feeders.first, island);
        feeders.last = std::max(feeders.last, island);
      }
    }
  }
  for (Feeders& feeders : feeders_) {
    if (feeders.first == UINT32_MAX) feeders = {0, 0};
  }
}

absl::Status Relayout::Take(uint32_t island, const storage::Store& rows, Progress progress) {
  for (uint32_t to = 0; to < to_.islands; ++to) {
    if (island < feeders_[to].first || island > feeders_[to].last) continue;
    absl::Status status = island == feeders_[to].first ? Begin(to) : absl::OkStatus();
    if (status.ok()) status = CopyInto(to, island, rows, progress);
    if (status.ok() && island == feeders_[to].last) status = Write(to);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Relayout::Begin(uint32_t island) {
  auto store = storage::Store::Create(cut_.catalog,
                                      {.island = island,
                                       .sites = cut_.map.SitesOf(island),
                                       .pool_bytes = options_.pool_bytes[island],
                                       .alone = true,
                                       .paged = options_.paged},
                                      files_);
  if (!store.ok()) return store.status();
  stores_[island] = *std::move(store);
  if (!options_.paged) return absl::OkStatus();
  auto begun = BeginGeneration(files_, DataOf(island), *stores_[island]);
  if (!begun.ok()) return begun.status();
  begun_[island] = *std::move(begun);
  return absl::OkStatus();
}

absl::Status Relayout::CopyInto(uint32_t island, uint32_t from_island, const storage::Store& rows,
                                Progress progress) {
  const partitioner::SiteRun from_sites = from_.map.SitesOf(from_island);
  const partitioner::SiteRun to_sites = cut_.map.SitesOf(island);
  for (TableId table = 0; table < from_.catalog.size(); ++table) {
    const TableDefinition& definition = from_.catalog.table(table);
    if (definition.dropped) continue;
    if (definition.replicated()) {
      if (from_island != feeders_[island].first) continue;  // every island has all of it
      absl::Status copied = Copy(table, storage::kReplicatedSite, rows, island, storage::kReplicatedSite,
                                 {INT64_MIN, INT64_MAX}, progress);
      if (!copied.ok()) return copied;
      continue;
    }
    for (uint32_t from = from_sites.first; from < from_sites.first + from_sites.count; ++from) {
      for (uint32_t to = to_sites.first; to < to_sites.first + to_sites.count; ++to) {
        const Share share = ShareOf(table, from, to);
        if (share.begin >= share.end) continue;
        absl::Status copied = Copy(table, from, rows, island, to, share, progress);
        if (!copied.ok()) return copied;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Relayout::Copy(TableId table, uint32_t from, const storage::Store& rows, uint32_t island,
                            uint32_t to, Share share, Progress progress) {
  const TableDefinition& definition = from_.catalog.table(table);
  const storage::SiteTable* source = rows.At(table, from);
  storage::SiteTable* target = stores_[island]->At(table, to);
  if (source == nullptr || target == nullptr)
    return absl::InternalError(fmt::format("table '{}' is not on site {} or {}", definition.name, from, to));
  // A bound that is the site's own is none: there may be no key for it.
  std::string first, end;
  if (!definition.replicated()) {
    if (share.begin > definition.partition->SiteBegin(from)) first = KeyAt(definition, share.begin);
    if (share.end < definition.partition->SiteBegin(from + 1)) end = KeyAt(definition, share.end);
  }
  absl::Status status;
  source->Scan(
      ViewOf(first), ViewOf(end), /*reverse=*/false, [&](storage::KeyView key, storage::RowView row) {
        const absl::StatusCode done = target->Insert(key, row);
        if (done != absl::StatusCode::kOk) {
          status =
              absl::Status(done, fmt::format("island {} of the new layout: table '{}', key {}", island,
                                             definition.name, partitioner::KeyToString(definition.key, key)));
        } else if (++rows_[island] % kRowsPerWord == 0) {
          // Behind a disk that is full there would be no end to what is in memory.
          if (options_.paged) status = stores_[island]->pager()->spill_status();
          if (status.ok()) status = progress(island, rows_[island]);
        }
        return status.ok();
      });
  if (absl::IsResourceExhausted(status) && !options_.paged) {
    return absl::ResourceExhaustedError(fmt::format(
        "island {} of the new layout has no room for its rows in {} MiB; raise storage.buffer_pool", island,
        options_.pool_bytes[island] >> 20));
  }
  return status;
}

// Looked at when it is written: then a paged one need not write again what it reads.
absl::Status Relayout::Write(uint32_t island) {
  storage::Store& store = *stores_[island];
  const absl::StatusOr<IslandData> written =
      WriteGeneration(files_, cut_.catalog, DataOf(island), store, {.bound = to_.relaid + 1, .position = {}},
                      NoProgress, std::move(begun_[island]));
  if (!written.ok()) return written.status();
  if (absl::Status sound = store.Check(); !sound.ok()) return sound;
  stores_[island].reset();
  ++written_;
  return absl::OkStatus();
}

absl::Status Relayout::Switch() {
  ISLANDS_CHECK(written_ == to_.islands);
  return storage::SaveManifest(to_, options_.data_directory, files_);
}

absl::Status FinishRelayout(runtime::FileSystem& files, const std::string& data_directory,
                            const std::string& log_directory, storage::Manifest* manifest) {
  if (manifest->relaid == 0) return absl::OkStatus();
  const absl::StatusOr<uint64_t> cluster = log::ClusterFingerprint(manifest->cluster_id);
  if (!cluster.ok()) return absl::DataLossError(cluster.status().message());
  if (manifest->relaid > log::Lsn::kMostEpoch) {
    return absl::DataLossError(
        fmt::format("{}/{}: data.relaid is {}, and no epoch can be; restore it from a copy", data_directory,
                    storage::kManifestName, manifest->relaid));
  }
  // A log is made anew where the old one was, and nowhere else: that one would be taken for the newer later.
  const std::string box = fmt::format("{}/{}", log_directory, log::kManifestName);
  if (!files.Exists(box)) {
    return absl::FailedPreconditionError(
        fmt::format("there is no {}: `islands relayout` or `compact` was interrupted while the log was made "
                    "anew, which was "
                    "in another storage.log.directory; change it back",
                    box));
  }
  absl::Status status = RemoveSegments(files, log_directory);
  if (status.ok()) status = MakeLog(files, log_directory, *cluster, manifest->islands, manifest->relaid);
  if (status.ok()) status = RemoveUnfinished(files, data_directory, *manifest);
  if (!status.ok()) return status;
  storage::Manifest finished = *manifest;
  finished.relaid = 0;
  status = storage::SaveManifest(finished, data_directory, files);
  if (status.ok()) *manifest = std::move(finished);
  return status;
}

absl::Status RemoveUnfinished(runtime::FileSystem& files, const std::string& data_directory,
                              const storage::Manifest& manifest) {
  const absl::StatusOr<std::vector<uint32_t>> islands = IslandFolders(files, data_directory);
  if (!islands.ok()) return islands.status();
  for (const uint32_t island : *islands) {
    // No generation has number 0.
    const uint64_t keep = island < manifest.islands ? manifest.data_generation : 0;
    const std::string directory = fmt::format("{}/{}{}", data_directory, kIsland, island);
    absl::Status removed = storage::RemoveOtherGenerations(files, directory, keep);
    if (removed.ok()) removed = files.SyncDirectory(directory);
    if (!removed.ok()) return removed;
  }
  return absl::OkStatus();
}

}  // namespace islands::recovery
