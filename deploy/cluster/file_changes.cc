#include "deploy/cluster/file_changes.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/cluster/supervisor_load.h"

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

}  // namespace

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
  if (wanted.size() != static_cast<size_t>(status.configs_size()))
    return {fmt::format("{} islands -> {}", status.configs_size(), wanted.size())};
  std::vector<std::string> found;
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
