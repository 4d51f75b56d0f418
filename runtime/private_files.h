// Files and directories of this user alone: what a running deployment keeps in its control directory.
//
// Somebody else who could write there could plant a link for us to write through, a lock for us to wait for,
// or a socket to answer in an island's place. So the directory is checked before anything in it is touched,
// and every file in it is opened here. The files are checked as well, for what was planted while the
// directory was open to others. What the directory's parents allow is not looked at.
//
// Thread safety: any thread.
//
// Invariants:
//  1. A file that is handed out is a regular one, of this process's effective user, under one name, and was
//     not reached through a symbolic link in its last component.
//  2. Nothing is changed that is refused: an open file is truncated or written only after the check.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace islands::runtime {

// A directory, no link to one; ours; nobody else may list, enter or change it. NOT_FOUND if there is none;
// else PERMISSION_DENIED says what is wrong and what to do.
absl::Status CheckPrivateDirectory(const std::string& path);
// Makes it, mode 0700, and its parents if it is not there; then checks it.
absl::Status MakePrivateDirectory(const std::string& path);

// `flags` of open(2), without O_TRUNC; a new file has mode 0600. NOT_FOUND if there is none and O_CREAT was
// not given, PERMISSION_DENIED if it is not what invariant 1 says.
absl::StatusOr<UniqueFd> OpenPrivateFile(const std::string& path, int flags);
// The same of another user's, for who may look: root. Nothing that is in them is to be believed.
absl::Status CheckDirectoryOf(uid_t owner, const std::string& path);
absl::StatusOr<UniqueFd> OpenFileOf(uid_t owner, const std::string& path, int flags);
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);
// Makes or overwrites it. A crash in between leaves part of it.
absl::Status WritePrivateFile(const std::string& path, std::string_view content);

// "root"; "user 4711" of one without a name.
std::string UserName(uid_t user);

}  // namespace islands::runtime
