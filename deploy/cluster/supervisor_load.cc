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

// As the manifest keeps them.
absl::StatusOr<std::string> ToText(const Loads& loads) {
  std::string text;
  if (loads.empty()) return text;
  control::v1::IslandConfig config;
  *config.mutable_loads() = loads;
  const auto printed = google::protobuf::util::MessageToJsonString(config, &text);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return text;
}

// The load, behind what is left of those before it: the shape of tables that it has nothing to say of. All
// tables go into a generation, and whoever reads it has to know their shape.
Loads LoadsWith(const Loads& before, const control::v1::LoadSpec& load) {
  storage::Catalog::TableSpecs shaped;
  for (const control::v1::LoadSpec& earlier : before) storage::ReplaceTables(earlier.tables(), &shaped);
  Loads loads;
  control::v1::LoadSpec rest;
  for (const control::v1::TableSpec& table : shaped) {
    const auto same = [&](const control::v1::TableSpec& own) { return own.name() == table.name(); };
    if (std::none_of(load.tables().begin(), load.tables().end(), same)) *rest.add_tables() = table;
  }
  if (!rest.tables().empty()) *loads.Add() = std::move(rest);
  if (!load.workload().empty()) *loads.Add() = load;
  return loads;
}

}  // namespace

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
  const Loads loads = LoadsWith(before.loads(), load);
  const absl::StatusOr<std::string> text = ToText(loads);
  status.Update(text.status());
  if (status.ok()) status = check();
  if (status.ok()) status = MayLoadEverywhere(load);
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

// Before anybody has begun: who refuses then costs nobody his rows.
absl::Status GenerationLoads::MayLoadEverywhere(const control::v1::LoadSpec& load) const {
  control::v1::Request request;
  *request.mutable_load()->mutable_load() = load;
  request.mutable_load()->set_check_only(true);
  return FirstError(client_.CallIslands(all_, request, kLoadTimeoutMs));
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
  const std::vector<ClusterClient::Reply> replies = client_.CallIslands(all_, request, kGoOnTimeoutMs);
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
  return DescribeLoad(manifest, config);
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
