#include "deploy/cluster/stopped_data.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_log.h"
#include "instance/log/box_manifest.h"
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

}  // namespace islands::deploy
