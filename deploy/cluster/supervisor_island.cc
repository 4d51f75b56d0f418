#include "deploy/cluster/supervisor_island.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "deploy/processes/control_files.h"
#include "deploy/processes/spawn.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int64_t kAskTimeoutMs = 1'000;

absl::StatusOr<std::string> ToJson(const control::v1::IslandConfig& config) {
  google::protobuf::util::JsonPrintOptions print;
  print.add_whitespace = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(config, &json, print);
  if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
  return json;
}

// A file without a name that nobody can change any more, ourselves included; it stands at its begin.
absl::StatusOr<runtime::UniqueFd> Seal(const std::string& text) {
  constexpr const char* kName = "island configuration";
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  runtime::UniqueFd file(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return absl::ErrnoToStatus(errno, fmt::format("cannot make a memory file for an {}", kName));
  absl::Status written = runtime::WriteAll(file.get(), text, kName);
  if (!written.ok()) return written;
  if (lseek(file.get(), 0, SEEK_SET) != 0 || fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot seal an {}", kName));
  }
  return file;
}

}  // namespace

absl::StatusOr<StartedIsland> StartIsland(const std::string& program, const ControlFiles& files,
                                          const control::v1::IslandConfig& config, int pulse_fd,
                                          int board_fd) {
  const absl::StatusOr<std::string> json = ToJson(config);
  if (!json.ok()) return json.status();
  absl::Status written = runtime::WritePrivateFile(files.IslandConfig(config.island()), *json);
  if (!written.ok()) return written;
  const absl::StatusOr<runtime::UniqueFd> sealed = Seal(*json);
  if (!sealed.ok()) return sealed.status();
  SpawnRequest request;
  request.arguments = {program,
                       "--config-fd",
                       std::to_string(kInheritedFd),
                       "--pulse-fd",
                       std::to_string(kInheritedFd + 1),
                       "--name",
                       files.IslandName(config.island())};
  request.log_path = files.IslandLog(config.island());
  request.inherit_fds = {sealed->get(), pulse_fd};
  if (board_fd >= 0) {
    request.arguments.insert(request.arguments.end(), {"--board-fd", std::to_string(kInheritedFd + 2)});
    request.inherit_fds.push_back(board_fd);
  }
  std::error_code error;
  const uintmax_t log_bytes = std::filesystem::file_size(request.log_path, error);
  absl::StatusOr<pid_t> pid = Spawn(request);
  if (!pid.ok()) return pid.status();
  return StartedIsland{.pid = *pid, .log_begin = error ? 0 : log_bytes};
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
    *entry.mutable_placement() = own.placement();
    entry.set_peers_connected(own.peers_connected());
    entry.set_peers_total(own.peers_total());
    entry.set_running(own.running());
    entry.set_metrics_problem(own.metrics_problem());
    entry.set_in_doubt(own.in_doubt());
    entry.set_in_doubt_ms(own.in_doubt_ms());
    *entry.mutable_unresponsive_peers() = own.unresponsive_peers();
  }
}

}  // namespace islands::deploy
