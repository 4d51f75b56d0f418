#include "deploy/cluster/stopped_data.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_log.h"
#include "instance/log/box_manifest.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/manifest.h"

namespace islands::deploy {
absl::StatusOr<StoppedLocks> LockStopped(const ResolvedDeployment& resolved, const ControlFiles& files,
                                         runtime::FileSystem& disk, std::string_view command) {
  if (resolved.deployment.durability == Durability::kNone) {
    return absl::FailedPreconditionError(resolved.deployment.Complain(
        "storage.log.durability",
        fmt::format("found 'none', with which nothing outlives its islands: there is nothing for `{}`",
                    command)));
  }
  absl::Status quiet = CheckNotUp(files);
  // Who has just been killed may still be ending.
  if (quiet.ok() && !WaitForOldIslands(files, kStoppedPatienceMs).ok()) quiet = CheckNoIslands(files);
  if (!quiet.ok()) return quiet;
  // Data without a manifest is damage; without anything it is somebody else's directory.
  const std::string manifest = resolved.data_directory + "/" + storage::kManifestName;
  const bool any = disk.Exists(manifest) || disk.Exists(resolved.data_directory + "/island-0") ||
                   disk.Exists(resolved.log_directory + "/" + log::kManifestName);
  if (!any) return absl::NotFoundError(fmt::format("there is no {}: nothing has been up here yet", manifest));
  const std::string path = DataLockOf(resolved.data_directory);
  absl::StatusOr<FileLock> data =
      FileLock::Acquire(path, fmt::format("{}, which `{}` looks at", files.directory, command));
  if (!data.ok()) return data.status();
  StoppedLocks locks{.data = *std::move(data), .log = std::nullopt};
  if (!disk.Exists(resolved.log_directory)) return locks;
  absl::StatusOr<FileLock> log = LockLog(resolved.log_directory);
  if (!log.ok()) return log.status();
  locks.log = *std::move(log);
  return locks;
}

// Twice what they have at home: the log may have more.
uint64_t BytesBeyondPools(const ResolvedDeployment& resolved, runtime::FileSystem& disk, uint64_t generation,
                          uint32_t first, uint32_t end) {
  if (resolved.deployment.storage_mode == StorageMode::kResident) return 0;
  uint64_t bytes = 0;
  for (uint32_t island = first; island < end; ++island) {
    const std::string directory = fmt::format("{}/island-{}", resolved.data_directory, island);
    bytes += 2 * storage::BytesOfSites(disk, directory, generation).value_or(0);  // or the walk will say why
  }
  return bytes;
}

}  // namespace islands::deploy
