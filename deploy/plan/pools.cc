#include "deploy/plan/pools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "instance/recovery/checkpoint.h"
#include "instance/storage/catalog.h"
#include "instance/storage/data_size.h"
#include "instance/storage/manifest.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

// What `auto` will find. A load goes on until the pool is full, a start wants some room to grow.
bool WillPage(const ResolvedDeployment& resolved, const PredictedPool& pool, uint64_t pool_bytes) {
  const Deployment& deployment = resolved.deployment;
  if (deployment.storage_mode != StorageMode::kAuto) return deployment.storage_mode == StorageMode::kPaged;
  if (deployment.durability == Durability::kNone || deployment.durability == Durability::kCommand)
    return false;
  return pool.on_disk ? storage::ShouldPage(pool.data_bytes, pool_bytes) : pool.data_bytes > pool_bytes;
}

void ChooseModes(const ResolvedDeployment& resolved, PredictedPools* pools) {
  for (const topology::PlannedIsland& island : resolved.plan.islands) {
    PredictedPool& pool = pools->islands[island.id];
    pool.paged = WillPage(resolved, pool, island.memory_bytes);
  }
}

// Whether some workload has; tables that are there, and empty, say nothing of what is to come.
bool HasLoadedRows(const storage::Manifest& manifest) {
  control::v1::IslandConfig kept;
  if (!google::protobuf::util::JsonStringToMessage(manifest.load, &kept).ok()) return false;
  return std::ranges::any_of(kept.loads(), [](const auto& load) { return !load.workload().empty(); });
}

// Of data files, whose islands have the sites that they are planned to have.
bool HasData(const ResolvedDeployment& resolved, const absl::StatusOr<storage::Manifest>& manifest) {
  return manifest.ok() && manifest->data_generation != 0 && manifest->sites == resolved.plan.sites &&
         manifest->islands == resolved.plan.islands.size();
}

}  // namespace

PredictedPools PredictPools(const ResolvedDeployment& resolved) {
  PredictedPools pools;
  pools.islands.resize(resolved.plan.islands.size());
  storage::Catalog::TableSpecs specs;
  specs.Assign(resolved.deployment.tables.begin(), resolved.deployment.tables.end());
  const absl::StatusOr<storage::Catalog> catalog = storage::Catalog::Create(specs, resolved.plan.sites);
  for (storage::TableId id = 0; catalog.ok() && id < catalog->size(); ++id) {
    const storage::TableDefinition& table = catalog->table(id);
    for (const topology::PlannedIsland& island : resolved.plan.islands) {
      const auto pages = storage::PagesOfTable(table, island.sites.first, island.sites.count);
      pools.islands[island.id].data_bytes += pages.value_or(0) * storage::kPageBytes;
      if (!pages && island.id == 0) pools.unknown_tables.push_back(table.name);
    }
  }
  ChooseModes(resolved, &pools);
  return pools;
}

PredictedPools PredictPools(const ResolvedDeployment& resolved, runtime::FileSystem& files) {
  PredictedPools pools = PredictPools(resolved);
  if (resolved.deployment.durability == Durability::kNone) return pools;
  const auto manifest = storage::LoadManifest(resolved.data_directory, files);
  if (!HasData(resolved, manifest)) return pools;
  std::vector<uint64_t> bytes;
  for (size_t island = 0; island < pools.islands.size(); ++island) {
    const std::string directory = fmt::format("{}/island-{}", resolved.data_directory, island);
    const auto pages = recovery::PagesAtHome(files, directory, manifest->data_generation);
    if (!pages.ok()) return pools;  // `up` will say what is wrong with them
    bytes.push_back(*pages * storage::kPageBytes);
  }
  const bool loaded = HasLoadedRows(*manifest);
  for (size_t island = 0; island < bytes.size(); ++island) {
    if (loaded || bytes[island] > pools.islands[island].data_bytes)
      pools.islands[island] = {.data_bytes = bytes[island], .on_disk = true};
  }
  if (loaded) pools.unknown_tables.clear();
  ChooseModes(resolved, &pools);
  return pools;
}

std::vector<std::string> NotesOnPools(const ResolvedDeployment& resolved, const PredictedPools& pools) {
  std::vector<uint32_t> full, beyond;  // resident ones that will not do, and paged ones
  uint64_t planned = 0;                // of all islands
  double times = 1;                    // so much would do, with an eighth of it to grow
  for (const topology::PlannedIsland& island : resolved.plan.islands) {
    const PredictedPool& pool = pools.islands[island.id];
    planned += island.memory_bytes;
    if (pool.data_bytes <= island.memory_bytes) continue;
    (pool.paged ? beyond : full).push_back(island.id);
    times = std::max(times,
                     static_cast<double>(pool.data_bytes) / static_cast<double>(island.memory_bytes) * 8 / 7);
  }
  const auto note = [&](const std::vector<uint32_t>& islands, const std::string& what) {
    const PredictedPool& first = pools.islands[islands.front()];
    return fmt::format("island{} {}: {} {}, the buffer pool has {}: {}", islands.size() == 1 ? "" : "s",
                       topology::FormatCpuList(islands),
                       first.on_disk ? "data files have" : "tables will take about",
                       topology::FormatSize(first.data_bytes),
                       topology::FormatSize(resolved.plan.islands[islands.front()].memory_bytes), what);
  };
  std::vector<std::string> notes;
  if (!beyond.empty()) notes.push_back(note(beyond, "what is not in it is read from disk when it is wanted"));
  if (full.empty()) return notes;
  const bool by_hand = resolved.deployment.positions.contains("islands");
  const auto enough_mib = static_cast<uint64_t>(static_cast<double>(planned >> 20) * times) + 1;
  const std::string pool =
      by_hand ? "more memory for it" : fmt::format("storage.buffer_pool: {}MiB", enough_mib);
  const char* mode = resolved.deployment.durability == Durability::kNone
                         ? "storage.mode: paged, which swaps pages to disk"
                         : "storage.mode: auto, which reads from disk what is not in it";
  notes.push_back(note(
      full, fmt::format("it is resident, and {}; take {}, or {}",
                        pools.islands[full.front()].on_disk ? "will not start" : "a load of them will fail",
                        pool, mode)));
  return notes;
}

}  // namespace islands::deploy
