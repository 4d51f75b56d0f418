#include "deploy/cluster/file_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/cluster/supervisor_load.h"
#include "deploy/processes/control_files.h"
#include "runtime/file_system.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

using control::v1::IslandConfig;

// Gives `wanted` what the supervisor adds, and what follows from the machine.
void TakeOver(const IslandConfig& running, bool automatic_pool, IslandConfig* wanted) {
  wanted->set_cluster_id(running.cluster_id());
  wanted->set_boot_epoch(running.boot_epoch());
  wanted->set_layout_generation(running.layout_generation());
  wanted->set_data_generation(running.data_generation());
  wanted->set_ring_directory(running.ring_directory());
  wanted->set_restarts(running.restarts());
  *wanted->mutable_cuts() = running.cuts();
  *wanted->mutable_loads() = running.loads();
  LeaveOutMade(running, wanted);
  for (int i = 0; i < std::min(running.workers_size(), wanted->workers_size()); ++i)
    *wanted->mutable_workers(i) = running.workers(i);
  *wanted->mutable_cpus() = running.cpus();
  *wanted->mutable_numa_nodes() = running.numa_nodes();
  wanted->set_memory_policy(running.memory_policy());
  wanted->set_service_cpu(running.service_cpu());
  wanted->set_cores_shared(running.cores_shared());
  if (automatic_pool) wanted->set_pool_bytes(running.pool_bytes());
}

// Those that it was started with; none: it is of a version that does not write them, or they are unreadable.
OwnSettings ReadOwnSettings(const std::string& path) {
  OwnSettings settings;
  const absl::StatusOr<std::string> text = runtime::MakePosixFileSystem()->ReadFile(path);
  if (!text.ok()) return settings;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return settings;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) settings.emplace(name, value.get<std::string>());
  }
  return settings;
}

void CompareOwnSettings(const ResolvedDeployment& resolved, std::vector<std::string>* found) {
  const ControlFiles files{.directory = resolved.control_directory, .deployment = ""};
  const OwnSettings running = ReadOwnSettings(files.OwnSettings());
  if (running.empty()) return;
  for (const auto& [name, wanted] : OwnSettingsOf(resolved.deployment)) {
    const auto has = running.find(name);
    if (has != running.end() && has->second != wanted)
      found->push_back(fmt::format("{}: {} -> {}", name, has->second, wanted));
  }
}

}  // namespace

OwnSettings OwnSettingsOf(const Deployment& deployment) {
  OwnSettings settings = {
      {"storage.log.ring_bytes", std::to_string(deployment.ring_bytes)},
      {"storage.log.ring_directory", deployment.ring_directory.empty() ? "auto" : deployment.ring_directory},
      {kHungMsPath, deployment.hung_ms ? std::to_string(*deployment.hung_ms) : "auto"},
      {"gateway.enabled", deployment.gateway ? "true" : "false"}};
  const GatewaySettings gateway = deployment.gateway.value_or(GatewaySettings());
  settings["gateway.listen"] = gateway.listen.empty() ? "unix" : gateway.listen;
  settings["gateway: certificate, key, clients"] =
      fmt::format("{}, {}, {}", gateway.certificate, gateway.key, gateway.clients);
  settings["gateway: cpus"] = gateway.cpus ? fmt::format("{}", fmt::join(*gateway.cpus, ",")) : "auto";
  settings["gateway: idle_ms, call_ms, transactions"] =
      fmt::format("{}, {}, {}", gateway.idle_ms, gateway.call_ms, gateway.most_transactions);
  return settings;
}

absl::Status WriteOwnSettings(const std::string& path, const OwnSettings& settings) {
  return runtime::WritePrivateFile(path, nlohmann::json(settings).dump(1) + "\n");
}

void LeaveOutMade(const IslandConfig& running, IslandConfig* wanted) {
  for (int i = wanted->tables_size() - 1; i >= 0; --i) {
    const auto* made = MadeTable(running.tables(), running.loads(), wanted->tables(i).name());
    if (made != nullptr && made->SerializeAsString() == wanted->tables(i).SerializeAsString())
      wanted->mutable_tables()->DeleteSubrange(i, 1);
  }
}

std::vector<std::string> Differences(const control::v1::ClusterStatus& status,
                                     const ResolvedDeployment& resolved) {
  std::vector<IslandConfig> wanted = MakeIslandConfigs(resolved);
  std::vector<std::string> found;
  if (wanted.size() != static_cast<size_t>(status.configs_size())) {
    found.push_back(fmt::format("{} islands -> {}; what else of them differs shows once there are as many",
                                status.configs_size(), wanted.size()));
    wanted.clear();
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const IslandConfig& running = status.configs(static_cast<int>(i));
    TakeOver(running, !resolved.deployment.buffer_pool_bytes.has_value(), &wanted[i]);
    std::string text;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&text);
    if (differencer.Compare(running, wanted[i])) continue;
    constexpr absl::string_view kModified = "modified: ";
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      absl::ConsumePrefix(&line, kModified);
      found.push_back(fmt::format("island {}: {}", i, std::string(line)));
    }
  }
  CompareOwnSettings(resolved, &found);
  return found;
}

std::string FileWarning(const control::v1::ClusterStatus& status, const Deployment& deployment,
                        const absl::StatusOr<ResolvedDeployment>& resolved) {
  std::string what(resolved.status().message());
  if (resolved.ok()) {
    const std::vector<std::string> differences = Differences(status, *resolved);
    if (differences.empty()) return "";
    what = differences.front();
  }
  return fmt::format(
      "warning: {} does not describe what runs: it was edited since `islands up`, or the machine is another "
      "now; nothing of it holds before `islands apply`, or `islands down` and `up` ({})",
      deployment.filename, what.substr(0, what.find('\n')));
}

}  // namespace islands::deploy
