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

// What pools do not hold of islands [first, end) of a generation, at most, where they may page: who walks
// their rows has an island in memory as a whole. 0 where pools are resident.
uint64_t BytesBeyondPools(const ResolvedDeployment& resolved, runtime::FileSystem& disk, uint64_t generation,
                          uint32_t first, uint32_t end);

}  // namespace islands::deploy
