#include "deploy/cluster/down_target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "deploy/cluster/supervisor_data.h"
#include "deploy/file/deployment.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/claim.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/registry.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

// A supervisor's lock, by what it says.
struct Witness {
  std::string path;
  pid_t pid = 0;
  Claim claim;
};

// Nothing: nobody holds it, or no supervisor that says who it is.
absl::StatusOr<std::optional<Witness>> WitnessAt(const std::string& path) {
  const absl::StatusOr<std::optional<LockState>> lock = ReadLock(path);
  if (!lock.ok()) return lock.status();
  if (!*lock || !(*lock)->held) return std::nullopt;
  absl::StatusOr<Claim> claim = ClaimIn((*lock)->note);
  if (!claim.ok()) return std::nullopt;
  return Witness{path, (*lock)->pid, *std::move(claim)};
}

// By one of its supervisor's locks the others are found.
DownTarget TargetOf(const Witness& witness) {
  const Claim& claim = witness.claim;
  DownTarget target{.files = {claim.control_directory, claim.name, claim.file}, .locks = {witness.path}};
  const auto add = [&](const std::string& path) {
    const auto other = WitnessAt(path);
    const bool same = other.ok() && *other && (*other)->pid == witness.pid;
    if (same && path != witness.path) target.locks.push_back(path);
    return same;
  };
  target.has_directory =
      runtime::CheckPrivateDirectory(claim.control_directory).ok() && add(target.files.SupervisorLock());
  add(DataLockOf(claim.data_directory));
  return target;
}

absl::Status Ambiguous(const std::string& argument, const std::vector<Registered>& entries) {
  std::string text = fmt::format(
      "'{}' are {} deployments that are up; say which by its file, or its control "
      "directory:",
      argument, entries.size());
  for (const Registered& entry : entries) {
    text += fmt::format("\n  '{}' of {} in {} (process {})", entry.claim.name, entry.claim.file,
                        entry.claim.control_directory, entry.pid);
  }
  return absl::FailedPreconditionError(text);
}

// The one of these that is up and this user's; nothing: there is none.
absl::StatusOr<std::optional<Witness>> OnlyOne(const std::string& argument, std::vector<Registered> entries) {
  std::erase_if(entries, [](const Registered& entry) { return !entry.alive; });
  std::vector<Registered> own = entries;
  std::erase_if(own, [](const Registered& entry) { return entry.owner != geteuid(); });
  if (own.empty() && !entries.empty()) {
    const std::string user = runtime::UserName(entries[0].owner);
    return absl::PermissionDeniedError(
        fmt::format("not permitted: owned by {}; `su {} -c 'islands ...'`", user, user));
  }
  if (own.empty()) return std::nullopt;
  if (own.size() > 1) return Ambiguous(argument, own);
  return Witness{own[0].path, own[0].pid, own[0].claim};
}

std::vector<Registered> Named(const std::vector<Registered>& entries, const std::string& argument) {
  const std::string path = CanonicalPath(argument);
  std::vector<Registered> named;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(named), [&](const Registered& entry) {
    return entry.claim.name == argument || entry.claim.file == path ||
           CanonicalPath(entry.claim.control_directory) == path;
  });
  return named;
}

// Started from these files; whatever control directory they name now, they are in it if one is.
std::vector<Registered> StartedFrom(const std::vector<Registered>& entries, const ControlFiles& files) {
  std::vector<Registered> found, here;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(found), [&](const Registered& entry) {
    return entry.owner == geteuid() && entry.alive && IsOf(entry.claim, files);
  });
  std::copy_if(found.begin(), found.end(), std::back_inserter(here), [&](const Registered& entry) {
    return CanonicalPath(entry.claim.control_directory) == CanonicalPath(files.directory);
  });
  return here.empty() ? found : here;
}

// By a file that can be read.
absl::StatusOr<DownTarget> TargetOf(const Deployment& deployment, const std::vector<Registered>& entries,
                                    std::string* note) {
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(deployment);
  if (!files.ok()) return files.status();
  const DownTarget in_directory{.files = *files, .locks = {files->SupervisorLock()}};
  const auto here = LockHolder(files->SupervisorLock());
  if (!here.ok()) return here.status();
  const absl::Status whose = CheckWhose(*files);
  if (*here && whose.ok()) {
    const auto witness = WitnessAt(files->SupervisorLock());
    return witness.ok() && *witness ? TargetOf(**witness) : in_directory;
  }
  auto found = OnlyOne(deployment.filename, StartedFrom(entries, *files));
  if (found.ok() && !*found) {
    // The second witness, where the registry knows nothing.
    found = WitnessAt(DataLockOf(DataDirectoryOf(deployment)));
    if (found.ok() && *found && !IsOf((*found)->claim, *files)) found = std::nullopt;
  }
  if (!found.ok()) return found.status();
  if (*found) {
    const std::string& directory = (*found)->claim.control_directory;
    if (CanonicalPath(directory) != CanonicalPath(files->directory))
      *note += fmt::format("note: what was started from it has the control directory {}\n", directory);
    return TargetOf(**found);
  }
  if (!whose.ok()) return whose;
  if (absl::Status free = CheckDataIsFree(DataDirectoryOf(deployment)); !free.ok()) return free;
  return in_directory;
}

}  // namespace

absl::StatusOr<DownTarget> FindDownTarget(const std::string& argument, std::string* note) {
  absl::Status complaints;
  const absl::StatusOr<Deployment> deployment = LoadDeployment(argument, &complaints);
  const Registry registry = ReadRegistry();
  for (const absl::Status& problem : registry.problems)
    *note += fmt::format("note: cannot look who is up: {}\n", std::string(problem.message()));
  if (deployment.ok() && complaints.ok()) return TargetOf(*deployment, registry.entries, note);
  // It was right at `up`.
  const auto named = OnlyOne(argument, Named(registry.entries, argument));
  if (!named.ok()) return named.status();
  if (*named) {
    const Claim& claim = (*named)->claim;
    if (deployment.ok()) {
      *note += fmt::format("{}\nnote: going by its name '{}' and control.directory '{}' at `up`\n",
                           std::string(complaints.message()), claim.name, claim.control_directory);
    }
    return TargetOf(**named);
  }
  if (!deployment.ok()) {
    return absl::Status(deployment.status().code(),
                        fmt::format("{}\nnor is a deployment of that name, file or control directory up: see "
                                    "`islands ps`",
                                    std::string(deployment.status().message())));
  }
  *note += fmt::format("{}\nnote: going by its name '{}' and control.directory '{}' all the same\n",
                       std::string(complaints.message()), deployment->name, deployment->control_directory);
  return TargetOf(*deployment, registry.entries, note);
}

}  // namespace islands::deploy
