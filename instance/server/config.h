// islandd's configuration: an IslandConfig as JSON, on a descriptor that it has from the supervisor. So what
// it names, shared objects among it, is the supervisor's word, and no file that somebody could change.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace islands::server {

// Reads to the end, closes, and checks what Island::Create and the sockets rely on. Errors name the field.
absl::StatusOr<control::v1::IslandConfig> ReadConfig(int fd);
absl::StatusOr<control::v1::IslandConfig> ParseConfig(const std::string& json);

}  // namespace islands::server
