// The locks of a deployment that is down, for who looks at what it keeps or changes it: while there are such
// locks nobody starts it.
//
// Thread safety: main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "deploy/cluster/client.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/file_lock.h"
#include "runtime/file_system.h"

namespace islands::deploy {

inline constexpr int64_t kStoppedPatienceMs = 10'000;  // with who is still ending; as long as `up` has

struct StoppedLocks {
  FileLock data;
  std::optional<FileLock> log;  // none: there is no log
};

// Those that `up` takes, and as patiently; makes nothing where there is no data. `command`: who asks, as
// others are told. FAILED_PRECONDITION: it is up, or somebody has its data, or it keeps none. NOT_FOUND:
// there is no data.
absl::StatusOr<StoppedLocks> LockStopped(const ResolvedDeployment& resolved, const ControlFiles& files,
                                         runtime::FileSystem& disk, std::string_view command);

// Whether pools of it may have less room than there are data: whoever walks its rows pages then, too.
inline bool MayPage(const ResolvedDeployment& resolved) {
  return resolved.deployment.storage_mode != StorageMode::kResident;
}

}  // namespace islands::deploy
