// Which deployments of this machine are up: a directory for each user, with a file for each supervisor.
//
// The file is a lock that its supervisor holds while it lives (file_lock.h), and the note is its claim. So an
// entry proves what it says, and what a crash leaves behind shows as that. The directory is the user's alone;
// it does not depend on the environment, since who asks may have another than who ran `up`, and root has to
// find everybody's: root's is /run/islands; another user's /run/user/UID/islands, if there is a
// /run/user/UID; and where that cannot be used, /tmp/islands-UID. Readers look at both.
//
// Thread safety: main thread only.
//
// Invariants:
//  1. Nothing fails because of a registry that cannot be used: locks in control and data directories are what
//     keeps deployments apart.
//  2. What stands in another user's registry is shown, to root, and nothing else is done with it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/processes/claim.h"
#include "deploy/processes/file_lock.h"

namespace islands::deploy {

// A supervisor's own entry.
class Registration {
 public:
  explicit Registration(Claim claim) : claim_(std::move(claim)) {}
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Makes it, also when somebody has removed it: to be called every now and then. Entries that crashes of
  // this deployment have left go. An error says why there is none.
  absl::Status Keep();

 private:
  const Claim claim_;
  std::string path_;
  std::optional<FileLock> lock_;
};

struct Registered {
  std::string path;
  uid_t owner = 0;
  bool alive = false;
  pid_t pid = 0;  // of its supervisor; 0: it is gone, or its process cannot be seen from here
  Claim claim;
};

struct Registry {
  std::vector<Registered> entries;     // by name, then file
  std::vector<absl::Status> problems;  // what could not be looked at
};

// Of this user; root: of all.
Registry ReadRegistry();
// Removes an entry of this user that is not alive.
void Sweep(const Registered& entry);

}  // namespace islands::deploy
