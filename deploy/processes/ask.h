// Short answers of programs of ours: one is started, and what it prints is read when it has ended.
//
// Thread safety: from the main thread only, as Spawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace islands::deploy {

struct Answer {
  int wait_status = 0;
  std::string out;
  std::string err;
};

// `arguments`: [0] is the program's path; `inherit_fds`: as Spawn hands them on. DEADLINE_EXCEEDED when it
// did not end in time; it is killed.
absl::StatusOr<Answer> Ask(const std::vector<std::string>& arguments, int64_t timeout_ms,
                           const std::vector<int>& inherit_fds = {});

}  // namespace islands::deploy
