// Configurations of processes that the supervisor starts: JSON in a memory file that nobody can change any
// more.
//
// Thread safety: plain functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "runtime/descriptor.h"

namespace islands::deploy {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& config);

// It stands at its begin. `what` names it in errors, "island configuration".
absl::StatusOr<runtime::UniqueFd> Seal(const std::string& text, const std::string& what);

}  // namespace islands::deploy
