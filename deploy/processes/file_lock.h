// A lock file: flock on a file that also says who holds it.
//
// The kernel drops the lock with the last descriptor, so a crashed holder leaves a file but no lock, and
// nothing has to be cleaned up. Descriptors are close-on-exec: a child never keeps its parent's lock.
//
// Thread safety: a FileLock belongs to one thread; the static functions may be called from any.
//
// Invariants:
//  1. At most one process holds the lock of a path: of the file that has the path when it is locked. A file
//     that its last holder has removed is not taken for it.
//  2. While it is held, the file's first line is the holder's pid (or empty for the instant before it is
//     written).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace islands::deploy {

class FileLock {
 public:
  // ALREADY_EXISTS when another process holds it; the message gives path and pid. `note` is kept as the
  // second line.
  static absl::StatusOr<FileLock> Acquire(const std::string& path, std::string_view note = "");

  // Whether the locked file is still the one at `path`: nobody has removed it.
  bool IsAt(const std::string& path) const;
  // Replaces the note.
  absl::Status WriteNote(std::string_view note);

 private:
  FileLock(runtime::UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  runtime::UniqueFd file_;
  std::string path_;  // where it was, for messages
};

struct LockState {
  bool held = false;
  pid_t pid = 0;  // of who holds it, or held it last; 0: not written in the file
  std::string note;
};
// Nothing: there is no such file. An error where it cannot be known: the file is not that user's alone
// (runtime/private_files.h).
absl::StatusOr<std::optional<LockState>> ReadLock(const std::string& path, uid_t owner = geteuid());

// Who holds a path's lock: its pid, 0 if that is not written in the file, nothing if nobody holds it.
// Errors as above.
absl::StatusOr<std::optional<pid_t>> LockHolder(const std::string& path);
// The second line of a lock file, held or not; empty when there is none.
std::string LockNote(const std::string& path);

}  // namespace islands::deploy
