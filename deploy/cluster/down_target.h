// What `down` is to end, and `logs` to show: found by a deployment's file, or, if that says nothing any more,
// by the registry.
//
// Thread safety: main thread only.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/processes/control_files.h"

namespace islands::deploy {

struct DownTarget {
  ControlFiles files;              // whose it is, too
  bool has_directory = true;       // false: it was removed, or another deployment has it by now
  std::vector<std::string> locks;  // that its supervisor holds, if there is one
};

// `argument`: a readable deployment file; or the path that one had at `up`, a name, a control directory. It
// need not be up. FAILED_PRECONDITION: another deployment is, or several are meant; the message says what to
// type. PERMISSION_DENIED: it is another user's. INVALID_ARGUMENT: no such file, nor anything of that name.
// `*note` is for stderr, also beside an error; mostly empty.
absl::StatusOr<DownTarget> FindDownTarget(const std::string& argument, std::string* note);

}  // namespace islands::deploy
