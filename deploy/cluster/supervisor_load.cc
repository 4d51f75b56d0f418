#include "deploy/cluster/supervisor_load.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "instance/storage/table_specs.h"

namespace islands::deploy {
namespace {

constexpr int64_t kLoadTimeoutMs = 30 * 60'000;  // 120 million rows take a while
constexpr int64_t kGoOnTimeoutMs = 60'000;
// No life begins while tables are changed: an island that stands still must not hold up another for long.
constexpr int64_t kMayChangeTimeoutMs = 5'000;
constexpr int64_t kChangeTimeoutMs = 20'000;

using TableSpecs = storage::Catalog::TableSpecs;

TableSpecs TablesAfter(const TableSpecs& of_file, const Loads& loads) {
  TableSpecs tables = of_file;
  for (const control::v1::LoadSpec& load : loads) storage::ReplaceTables(load.tables(), &tables);
  return tables;
}

// A load of nothing that leaves these tables, in these places; none if the file names all of them so.
Loads ShapeOf(const TableSpecs& of_file, const TableSpecs& tables) {
  Loads loads;
  for (int place = 0; place < tables.size(); ++place) {
    const bool as_in_file =
        place < of_file.size() && tables[place].SerializeAsString() == of_file[place].SerializeAsString();
    if (as_in_file) continue;
    if (loads.empty()) loads.Add();
    *loads[0].add_tables() = tables[place];
  }
  return loads;
}

struct Places {
  size_t taken = 0;    // by tables and indexes
  size_t dropped = 0;  // of those, by dropped ones
};

Places PlacesOf(const TableSpecs& tables) {
  Places places;
  for (const control::v1::TableSpec& table : tables) {
    const size_t trees = 1 + static_cast<size_t>(table.indexes_size());
    places.taken += trees;
    places.dropped += table.dropped() != 0 ? trees : 0;
  }
  return places;
}

// Whatever clients make, there is a place for a table that the deployment may need (gateway/tokens.h).
absl::Status CheckPlaces(const TableSpecs& before, const TableSpecs& after,
                         const control::v1::TablesRequest& request) {
  const bool for_clients = std::ranges::all_of(
      request.add(), [](const control::v1::TableSpec& table) { return storage::IsTableName(table.name()); });
  const size_t most = storage::kMaxTrees - (for_clients ? 1 : 0);
  const Places had = PlacesOf(before), has = PlacesOf(after);
  if (has.taken <= std::max(most, had.taken)) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "table '{}' and its indexes need {} of a deployment's {} places for tables and indexes, and {} are "
      "taken, "
      "{} of them by dropped ones, which keep theirs for good; only a new data directory has them free again "
      "(`islands table FILE dump` and `load` take rows along)",
      request.add(0).name(), has.taken - had.taken, most, had.taken, had.dropped));
}

}  // namespace

Loads LoadsAfter(const TableSpecs& of_file, const Loads& before, const control::v1::LoadSpec& load) {
  TableSpecs tables = TablesAfter(of_file, before);
  storage::ReplaceTables(load.tables(), &tables);
  Loads loads = ShapeOf(of_file, tables);
  if (!load.workload().empty()) *loads.Add() = load;
  return loads;
}

absl::StatusOr<Loads> LoadsAfter(const TableSpecs& of_file, uint32_t sites, const Loads& before,
                                 const control::v1::TablesRequest& request) {
  const TableSpecs before_tables = TablesAfter(of_file, before);
  TableSpecs tables = before_tables;
  if (const std::string& name = request.drop(); !name.empty()) {
    if (storage::FindTable(tables, name) == nullptr)
      return absl::NotFoundError(fmt::format("there is no table '{}'", name));
    if (storage::FindTable(of_file, name) != nullptr) {
      return absl::FailedPreconditionError(
          fmt::format("table '{}' is in the deployment file, where it would come back from", name));
    }
    for (const control::v1::LoadSpec& load : before) {
      if (load.workload().empty() || storage::FindTable(load.tables(), name) == nullptr) continue;
      return absl::FailedPreconditionError(
          fmt::format("table '{}' is one of workload '{}', which was loaded", name, load.workload()));
    }
  }
  for (const control::v1::TableSpec& table : request.add()) {
    if (!table.replicated()) continue;
    return absl::InvalidArgumentError(fmt::format(
        "table '{}': the rows of a replicated table come with a workload; name it in the deployment file",
        table.name()));
  }
  if (absl::Status changed = storage::ChangeTables(request, &tables); !changed.ok()) return changed;
  if (absl::Status place = CheckPlaces(before_tables, tables, request); !place.ok()) return place;
  const absl::StatusOr<storage::Catalog> catalog = storage::Catalog::Create(tables, sites);
  if (!catalog.ok()) return catalog.status();
  Loads loads = ShapeOf(of_file, tables);
  for (const control::v1::LoadSpec& load : before) {
    if (!load.workload().empty()) *loads.Add() = load;
  }
  return loads;
}

const control::v1::TableSpec* MadeTable(const TableSpecs& of_file, const Loads& loads,
                                        std::string_view name) {
  if (storage::FindTable(of_file, name) != nullptr) return nullptr;
  const control::v1::TableSpec* made = nullptr;
  for (const control::v1::LoadSpec& load : loads) {
    if (const auto* found = storage::FindTable(load.tables(), name); found != nullptr) made = found;
  }
  return made;
}

absl::StatusOr<std::string> LoadsToText(const Loads& loads) {
  std::string text;
  if (loads.empty()) return text;
  control::v1::IslandConfig config;
  *config.mutable_loads() = loads;
  const auto printed = google::protobuf::util::MessageToJsonString(config, &text);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return text;
}

GenerationLoads::GenerationLoads(const ClusterClient& client, ClusterData& data, uint32_t islands)
    : client_(client), data_(data), all_(islands) {
  std::iota(all_.begin(), all_.end(), 0u);
}

absl::Status GenerationLoads::Load(
    const control::v1::LoadSpec& load, absl::FunctionRef<absl::Status()> check,
    absl::FunctionRef<void(uint64_t generation, const Loads& loads)> switched) {
  if (under_way_.exchange(true)) return absl::FailedPreconditionError("rows are being loaded already");
  const storage::Manifest manifest = data_.manifest();
  control::v1::IslandConfig before;
  absl::Status status = DescribeLoad(manifest, &before);
  const Loads loads = LoadsAfter(manifest.tables, before.loads(), load);
  const absl::StatusOr<std::string> text = LoadsToText(loads);
  status.Update(text.status());
  if (status.ok()) status = check();
  if (status.ok())
    status = client_.MayLoad(all_, load, kLoadTimeoutMs);  // nobody has begun: it costs nobody his rows
  if (status.ok()) {
    const uint64_t generation = manifest.data_generation + 1;
    status = LoadEverywhere(load, generation);
    if (!status.ok()) {
      status = absl::Status(status.code(),
                            fmt::format("{}. The rows of before count still; islands that cannot go on "
                                        "with them start again, see `islands status FILE`",
                                        std::string(status.message())));
    }
    if (status.ok()) status = data_.SwitchTo(generation, *text);
    if (status.ok()) switched(generation, loads);
    GoOnEverywhere();
  }
  under_way_ = false;
  return status;
}

absl::Status GenerationLoads::LoadEverywhere(const control::v1::LoadSpec& load, uint64_t generation) const {
  control::v1::Request request;
  *request.mutable_load()->mutable_load() = load;
  request.mutable_load()->set_generation(generation);
  return FirstError(client_.CallIslands(all_, request, kLoadTimeoutMs));
}

void GenerationLoads::GoOnEverywhere() {
  control::v1::Request request;
  request.mutable_switch_()->set_generation(data_.manifest().data_generation);
  NoteUseless(client_.CallIslands(all_, request, kGoOnTimeoutMs));
}

absl::Status GenerationLoads::ChangeTables(const control::v1::TablesRequest& wanted,
                                           absl::FunctionRef<absl::Status()> save) {
  if (under_way_.exchange(true))
    return absl::UnavailableError("rows are being loaded, or tables changed; try again");
  control::v1::Request request;
  *request.mutable_tables() = wanted;
  request.mutable_tables()->set_check_only(true);
  absl::Status status = FirstError(client_.CallIslands(all_, request, kMayChangeTimeoutMs));
  if (status.ok()) status = save();
  if (status.ok()) {
    request.mutable_tables()->set_check_only(false);
    NoteUseless(client_.CallIslands(all_, request, kChangeTimeoutMs));
  }
  under_way_ = false;
  return status;
}

void GenerationLoads::NoteUseless(const std::vector<ClusterClient::Reply>& replies) {
  const runtime::MutexLock lock(mutex_);
  for (const uint32_t island : all_) {
    if (replies[island].ok()) continue;
    spdlog::warn("{}", std::string(replies[island].status().message()));
    useless_.push_back(island);
  }
}

std::vector<uint32_t> GenerationLoads::TakeUseless() {
  const runtime::MutexLock lock(mutex_);
  return std::exchange(useless_, {});
}

absl::Status DescribeKept(const storage::Manifest& manifest, const BoxLog& log,
                          control::v1::IslandConfig* config) {
  config->set_data_generation(manifest.data_generation);
  config->set_ring_directory(log.ring_directory());
  for (const log::EpochCut& cut : log.cuts()) {
    control::v1::EpochCut* described = config->add_cuts();
    described->set_durable(cut.durable);
    described->set_next(cut.next);
  }
  absl::Status described = DescribeLoad(manifest, config);
  for (int i = config->tables_size() - 1; i >= 0; --i) {
    if (MadeTable(manifest.tables, config->loads(), config->tables(i).name()) != nullptr)
      config->mutable_tables()->DeleteSubrange(i, 1);
  }
  return described;
}

absl::Status DescribeLoad(const storage::Manifest& manifest, control::v1::IslandConfig* config) {
  if (manifest.load.empty()) return absl::OkStatus();
  control::v1::IslandConfig kept;
  const auto parsed = google::protobuf::util::JsonStringToMessage(manifest.load, &kept);
  *config->mutable_loads() = kept.loads();
  if (parsed.ok()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{} says of what was loaded: {}; restore the file from a copy",
                                         storage::kManifestName, parsed.ToString()));
}

}  // namespace islands::deploy
