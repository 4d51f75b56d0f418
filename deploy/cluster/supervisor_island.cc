#include "deploy/cluster/supervisor_island.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "deploy/cluster/sealed.h"
#include "deploy/processes/control_files.h"
#include "deploy/processes/spawn.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int64_t kAskTimeoutMs = 1'000;

}  // namespace

absl::StatusOr<StartedProcess> StartProcess(const ProcessToStart& process) {
  const absl::StatusOr<runtime::UniqueFd> sealed = Seal(process.config, process.name);
  if (!sealed.ok()) return sealed.status();
  SpawnRequest request;
  request.arguments = {process.program,
                       "--config-fd",
                       std::to_string(kInheritedFd),
                       "--pulse-fd",
                       std::to_string(kInheritedFd + 1),
                       "--name",
                       process.name};
  request.log_path = process.log_path;
  request.inherit_fds = {sealed->get(), process.pulse_fd};
  if (process.board_fd >= 0) {
    request.arguments.insert(request.arguments.end(), {"--board-fd", std::to_string(kInheritedFd + 2)});
    request.inherit_fds.push_back(process.board_fd);
  }
  std::error_code error;
  const uintmax_t log_bytes = std::filesystem::file_size(request.log_path, error);
  absl::StatusOr<pid_t> pid = Spawn(request);
  if (!pid.ok()) return pid.status();
  return StartedProcess{.pid = *pid, .log_begin = error ? 0 : log_bytes};
}

absl::StatusOr<StartedProcess> StartIsland(const std::string& program, const ControlFiles& files,
                                           const control::v1::IslandConfig& config, int pulse_fd,
                                           int board_fd) {
  absl::StatusOr<std::string> json = ToJson(config);
  if (!json.ok()) return json.status();
  absl::Status written = runtime::WritePrivateFile(files.IslandConfig(config.island()), *json);
  if (!written.ok()) return written;
  return StartProcess({.program = program,
                       .config = *std::move(json),
                       .name = files.IslandName(config.island()),
                       .log_path = files.IslandLog(config.island()),
                       .pulse_fd = pulse_fd,
                       .board_fd = board_fd});
}

void AskIslands(const ClusterClient& client, control::v1::ClusterStatus* status) {
  std::vector<uint32_t> alive;
  for (const control::v1::IslandStatus& island : status->islands()) {
    if (island.pid() > 0) alive.push_back(island.island());
  }
  control::v1::Request request;
  request.mutable_status();
  const std::vector<ClusterClient::Reply> answers = client.CallIslands(alive, request, kAskTimeoutMs);
  for (size_t i = 0; i < alive.size(); ++i) {
    control::v1::IslandStatus& entry = *status->mutable_islands(static_cast<int>(alive[i]));
    if (!answers[i].ok() || answers[i]->island_status().boot_epoch() != entry.boot_epoch()) {
      if (entry.state() == control::v1::READY) entry.set_detail("does not answer");
      continue;
    }
    const control::v1::IslandStatus& own = answers[i]->island_status();
    if (!own.detail().empty()) entry.set_detail(own.detail());
    if (own.has_load()) *entry.mutable_load() = own.load();
    *entry.mutable_placement() = own.placement();
    entry.set_peers_connected(own.peers_connected());
    entry.set_peers_total(own.peers_total());
    entry.set_running(own.running());
    entry.set_metrics_problem(own.metrics_problem());
    entry.set_in_doubt(own.in_doubt());
    entry.set_in_doubt_ms(own.in_doubt_ms());
    *entry.mutable_unresponsive_peers() = own.unresponsive_peers();
    *entry.mutable_procedures() = own.procedures();
  }
}

}  // namespace islands::deploy
