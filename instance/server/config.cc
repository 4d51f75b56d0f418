#include "instance/server/config.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include "runtime/descriptor.h"
#include "topology/planner.h"

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
  const std::string& transport = config.transport();
  if (transport != "shm" && transport != "uds" && transport != "zmq")
    return Bad("transport", "shm, uds or zmq");
  const std::string& durability = config.durability();
  if (durability != "none" && durability != "lazy" && durability != "sync" && durability != "command")
    return Bad("durability", "none, lazy, sync or command");
  if (config.metrics_port() > topology::kMaxPort) {
    return Bad("metricsPort", fmt::format("0 to {}", topology::kMaxPort));
  }
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

}  // namespace islands::server
