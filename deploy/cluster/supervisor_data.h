// What a supervisor owns while it lives: the locks of the control and the data directory, and the manifest.
//
// Thread safety: Open on the main thread; the rest from any.
//
// Invariants:
//  1. While a ClusterData exists no other process has one for the same control or data directory, and no
//     island of an earlier supervisor is alive.
//  2. A boot epoch that NextBootEpochs returned is on disk and is never returned again, whatever becomes of
//     layout or tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/cluster/client.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/claim.h"
#include "deploy/processes/file_lock.h"
#include "instance/storage/manifest.h"
#include "runtime/file_system.h"
#include "runtime/mutex.h"

namespace islands::deploy {

class ClusterData {
 public:
  // Makes the directories, takes the locks, waits for islands of a crashed supervisor to be gone, and loads
  // or creates the manifest. ALREADY_EXISTS: the deployment is up, or somebody else uses its data; the
  // message says who. FAILED_PRECONDITION: the file does not match the data that is there.
  static absl::StatusOr<std::unique_ptr<ClusterData>> Open(const ResolvedDeployment& resolved,
                                                           const ControlFiles& files);

  storage::Manifest manifest() const {
    const runtime::MutexLock lock(mutex_);
    return manifest_;
  }
  // With a log: what islands have loaded is in data files of this generation, and counts once this is OK.
  absl::Status SwitchTo(uint64_t generation, const std::string& load);
  // The log is used with so many workers, by island.
  absl::Status NoteWorkers(const std::vector<uint32_t>& workers);
  // As it stands in the locks.
  const Claim& claim() const { return claim_; }
  // New boot epochs for these islands, in that order, saved before they are returned.
  absl::StatusOr<std::vector<uint64_t>> NextBootEpochs(const std::vector<uint32_t>& islands);

 private:
  ClusterData(Claim claim, FileLock control, FileLock data)
      : claim_(std::move(claim)), control_lock_(std::move(control)), data_lock_(std::move(data)) {}
  absl::Status LoadOrCreateManifest(const ResolvedDeployment& resolved);
  absl::Status Save(const storage::Manifest& manifest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Claim claim_;
  FileLock control_lock_;
  FileLock data_lock_;
  std::unique_ptr<runtime::FileSystem> disk_ = runtime::MakePosixFileSystem();
  std::string directory_;
  mutable runtime::Mutex mutex_;
  storage::Manifest manifest_;
};

// What the manifest should say for `want`, given what is there. With durability `none` no data survives its
// islands, so another layout or other tables simply begin a new generation; otherwise CheckSameData decides.
// Epochs go on from the highest ever used.
absl::StatusOr<storage::Manifest> AdaptManifest(const storage::Manifest& have, const storage::Manifest& want,
                                                Durability durability);

// What the manifest of new data would say; its cluster id is made up.
storage::Manifest WantedManifest(const ResolvedDeployment& resolved);

// What a relayout that was interrupted behind its switch has left to do, if anything; the caller has the
// locks of data and log. An error says that the new layout counts all the same.
absl::Status FinishRelayout(const ResolvedDeployment& resolved, runtime::FileSystem& disk,
                            storage::Manifest* have);
// Folders of islands that are no more, from this number on, once nothing is in them.
void RemoveEmptyIslandFolders(const ResolvedDeployment& resolved, uint32_t first);

// ALREADY_EXISTS when a supervisor holds this control directory; says its pid and what to do.
absl::Status CheckNotUp(const ControlFiles& files);
// FAILED_PRECONDITION when an island lives, with or without its supervisor.
absl::Status CheckNoIslands(const ControlFiles& files);
// FAILED_PRECONDITION when somebody has this data, though no supervisor is in the control directory: says its
// pid and what to do.
absl::Status CheckDataIsFree(const std::string& data_directory);
std::string DataLockOf(const std::string& data_directory);
// Until no island-N.lock is held any more; DEADLINE_EXCEEDED names a holder.
absl::Status WaitForOldIslands(const ControlFiles& files, int64_t timeout_ms);

}  // namespace islands::deploy
