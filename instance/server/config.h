// islandd's configuration: an IslandConfig as a JSON file, written by the supervisor.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace islands::server {

// Reads and checks: what Island::Create and the sockets rely on. Errors name the file and the field.
absl::StatusOr<control::v1::IslandConfig> LoadConfig(const std::string& path);
absl::StatusOr<control::v1::IslandConfig> ParseConfig(const std::string& json, const std::string& path);

// Takes RUN/island-N.lock for the life of the process, so that no island ever runs twice. ALREADY_EXISTS
// names the holder.
absl::Status LockIsland(const control::v1::IslandConfig& config);

}  // namespace islands::server
