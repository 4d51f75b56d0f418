#include "instance/server/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "instance/runtime/private_files.h"

namespace islands::server {
namespace {

constexpr const char* kName = "island configuration";

absl::Status Bad(std::string_view field, std::string_view expected) {
  return absl::InvalidArgumentError(fmt::format("{}: {}: expected {}", kName, field, expected));
}

absl::Status CheckConfig(const control::v1::IslandConfig& config) {
  if (config.cluster_id().empty()) return Bad("clusterId", "the cluster's id");
  if (config.boot_epoch() == 0) return Bad("bootEpoch", "a number above 0");
  if (config.workers_size() == 0) return Bad("workers", "at least one");
  if (config.peers_size() == 0 || config.island() >= static_cast<uint32_t>(config.peers_size())) {
    return Bad("peers", "every island of the deployment, this one included");
  }
  if (config.site_count() < static_cast<uint32_t>(config.peers_size())) {
    return Bad("siteCount", "at least one site per island");
  }
  if (config.control_directory().empty()) return Bad("controlDirectory", "an absolute path");
  if (config.transport() != "uds" && config.transport() != "zmq") return Bad("transport", "uds or zmq");
  if (config.durability() != "none") return Bad("durability", "none (the only one in this version)");
  if (config.metrics_port() > 65535) return Bad("metricsPort", "0 to 65535");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<control::v1::IslandConfig> ParseConfig(const std::string& json) {
  control::v1::IslandConfig config;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &config);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: cannot be read: {}", kName, parsed.ToString()));
  }
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  return config;
}

absl::StatusOr<control::v1::IslandConfig> ReadConfig(int fd) {
  const runtime::UniqueFd file(fd);
  const absl::StatusOr<std::string> json =
      runtime::ReadAll(file.get(), fmt::format("the {} on descriptor {}", kName, fd));
  if (!json.ok()) return json.status();
  return ParseConfig(*json);
}

absl::Status LockIsland(const control::v1::IslandConfig& config) {
  absl::Status ours = runtime::CheckPrivateDirectory(config.control_directory());
  if (!ours.ok()) return ours;
  const std::string path = fmt::format("{}/island-{}.lock", config.control_directory(), config.island());
  absl::StatusOr<runtime::UniqueFd> file = runtime::OpenPrivateFile(path, O_RDWR | O_CREAT);
  if (!file.ok()) return file.status();
  const int fd = file->get();
  // Commands that only ask whether the island lives take a shared lock for an instant: try for a second.
  int tries = 100;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0 && --tries != 0) poll(nullptr, 0, 10);
  if (tries == 0) {
    char holder[32] = {};
    const ssize_t bytes = pread(fd, holder, sizeof(holder) - 1, 0);
    return absl::AlreadyExistsError(fmt::format("island {} is already running as process {} (it holds '{}')",
                                                config.island(), bytes > 0 ? holder : "unknown", path));
  }
  const std::string pid = fmt::format("{}", getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return absl::UnavailableError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }
  file->Release();  // the descriptor stays open, and with it the lock, until the process ends
  return absl::OkStatus();
}

}  // namespace islands::server
