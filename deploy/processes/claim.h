// What a supervisor says of itself in the locks that it holds: in the control directory, the data directory
// and the registry. A claim is believed as far as the lock is held, and the lock file its user's alone.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/control_files.h"

namespace islands::deploy {

struct Claim {
  std::string name;               // of the deployment
  std::string file;               // a CanonicalPath; by now it may be another, or gone
  std::string control_directory;  // absolute, as is
  std::string data_directory;
  uint32_t islands = 0;
  int64_t since_s = 0;  // Unix time, for people; a clock proves nothing
};

Claim ClaimOf(const ResolvedDeployment& resolved);

// The note of a lock (file_lock.h): one line of JSON. INVALID_ARGUMENT: it is no claim.
std::string NoteOf(const Claim& claim);
absl::StatusOr<Claim> ClaimIn(std::string_view note);

// Without links as far as it exists, so that one file has one name.
std::string CanonicalPath(const std::string& path);

// Whether these files are of the deployment that claims to be up: of its name, and its file, which may have
// been moved.
bool IsOf(const Claim& claim, const ControlFiles& files);
// What to type to end it.
std::string DownCommand(const Claim& claim);
// FAILED_PRECONDITION, with both names and DownCommand.
absl::Status AnotherDeployment(const Claim& claim, const ControlFiles& files);
// The same, if another deployment than that of the files runs in their directory.
absl::Status CheckWhose(const ControlFiles& files);

}  // namespace islands::deploy
