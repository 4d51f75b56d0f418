#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "deploy/cluster/client.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_log.h"
#include "deploy/observe/observer.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/file_lock.h"
#include "instance/log/box_id.h"
#include "instance/log/ring_directory.h"
#include "instance/storage/manifest.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

// What Islands itself writes; anything else in its directories belongs to somebody else.
constexpr const char* kControlNames =
    R"(((supervisor|logger|gateway)\.log|(supervisor|gateway)\.sock|supervisor\.(lock|json)|run\.lock|ended)"
    R"(|targets|island-[0-9]+\.(ctl|lock|log|json|w[0-9]+\.[a-z]+)))";
constexpr const char* kDataNames = R"((MANIFEST\.json(\.tmp)?|LOCK))";
constexpr const char* kPageNames =
    R"(generation-[0-9]+-(site-[0-9]+(-b)?|double-write|checkpoint|warm-pages(\.tmp)?))";
constexpr const char* kLogNames = R"((EPOCH|MANIFEST)(\.tmp)?|LOG\.LOCK)";
constexpr const char* kSegmentNames = R"(segment-[0-9]+(\.[a-z]+)?)";
constexpr const char* kRingNames = R"((id|owner|island-[0-9]+\.worker-[0-9]+\.life-[0-9]+\.ring)(\.new)?)";
constexpr const char* kIslandFolders = "island-[0-9]+(-swap)?";

struct Doomed {
  std::vector<std::string> files;
  std::string observe;  // with all that is in it: a Prometheus' database; empty: there is none
  std::vector<std::string> directories;  // removed if empty by then, innermost first
  std::vector<std::string> parents;      // the same, but nobody needs to know of those that are not

  std::vector<std::string> Names() const {
    std::vector<std::string> names = files;
    if (!observe.empty()) names.push_back(observe);
    return names;
  }
  bool empty() const { return Names().empty() && directories.empty(); }
};

struct Kept {
  std::string directory;
  std::string why;
};

void Collect(const std::string& directory, const char* names, Doomed* doomed) {
  const std::regex pattern(names);
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code type_error;
    const fs::file_status type = it->symlink_status(type_error);
    const bool ours = fs::is_regular_file(type) || fs::is_socket(type);
    if (ours && std::regex_match(it->path().filename().string(), pattern))
      doomed->files.push_back(it->path().string());
  }
  if (fs::is_directory(directory, error)) doomed->directories.push_back(directory);
}

// Islands' own, in a data or log directory.
std::vector<std::string> IslandFolders(const std::string& directory) {
  const std::regex pattern(kIslandFolders);
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code type_error;
    if (fs::is_directory(it->symlink_status(type_error)) &&
        std::regex_match(it->path().filename().string(), pattern))
      folders.push_back(it->path().string());
  }
  return folders;
}

// Wherever the log's rings may be (supervisor_log.h).
std::vector<std::string> RingFolders(const Deployment& deployment, const std::string& data,
                                     const std::string& log) {
  const std::string rings = RingDirectoryOf(deployment);
  const auto manifest = storage::LoadManifest(data, *runtime::MakePosixFileSystem());
  const absl::StatusOr<uint64_t> cluster =
      manifest.ok() ? log::ClusterFingerprint(manifest->cluster_id) : manifest.status();
  return cluster.ok()    ? RingPaths(rings, log, *cluster)
         : rings.empty() ? std::vector{BoxLog::RingsBeside(log)}
                         : std::vector{rings};
}

// The log's locks, so that nobody begins with what is being removed.
struct LogLocks {
  std::optional<FileLock> log;
  std::vector<std::unique_ptr<log::RingDirectory>> rings;
};

// FAILED_PRECONDITION: somebody has log or rings. Rings of another log are none of ours: this data is a copy
// of that one's.
absl::StatusOr<LogLocks> ClaimLog(const Deployment& deployment) {
  LogLocks claim;
  const std::string log = LogDirectoryOf(deployment);
  std::error_code error;
  if (fs::exists(log + "/" + kLogLockName, error)) {
    absl::StatusOr<FileLock> lock = LockLog(log);
    if (!lock.ok()) return lock.status();
    claim.log = *std::move(lock);
  }
  const std::string data = DataDirectoryOf(deployment);
  for (const std::string& folder : RingFolders(deployment, data, log)) {
    absl::StatusOr<std::unique_ptr<log::RingDirectory>> rings = log::RingDirectory::OpenWithoutId(folder);
    if (!rings.ok() || !(*rings)->CheckIsOf(log).ok()) continue;
    if (absl::Status locked = (*rings)->Lock(); !locked.ok()) return locked;
    claim.rings.push_back(*std::move(rings));
  }
  return claim;
}

// Below the deployment file's folder: `up` has made those that the file names and that were not there.
void CollectParents(const std::string& folder, const std::string& directory, Doomed* doomed) {
  const fs::path top = fs::path(folder).lexically_normal() / "";
  for (fs::path parent = fs::path(directory).parent_path(); parent.string().starts_with(top.string());
       parent = parent.parent_path())
    doomed->parents.push_back(parent.string());
}

Doomed FindFiles(const Deployment& deployment, const ControlFiles& files, const LogLocks& claim) {
  const std::string data = DataDirectoryOf(deployment);
  const std::string log = LogDirectoryOf(deployment);
  Doomed doomed;
  for (const std::string& folder : IslandFolders(log)) Collect(folder, kSegmentNames, &doomed);
  for (const auto& rings : claim.rings) Collect(rings->path(), kRingNames, &doomed);
  Collect(log, kLogNames, &doomed);
  for (const std::string& folder : IslandFolders(data)) Collect(folder, kPageNames, &doomed);
  Collect(data, kDataNames, &doomed);
  Collect(files.directory, kControlNames, &doomed);
  for (const std::string& directory : {log, data, files.directory})
    CollectParents(deployment.folder, directory, &doomed);
  const std::string observe = data + "/" + kObserveFolder;
  std::error_code error;
  if (fs::is_directory(observe, error)) doomed.observe = observe;
  std::sort(doomed.files.begin(), doomed.files.end());
  return doomed;
}

// Nothing runs there, and the data is this deployment's.
absl::Status CheckMayDestroy(const Deployment& deployment, const ControlFiles& files) {
  absl::Status down = CheckNotUp(files);
  if (down.ok()) down = CheckNoIslands(files);
  if (!down.ok()) return down;
  const std::string data = DataDirectoryOf(deployment);
  if (absl::Status free = CheckDataIsFree(data); !free.ok()) return free;
  const auto disk = runtime::MakePosixFileSystem();
  const absl::StatusOr<storage::Manifest> manifest = storage::LoadManifest(data, *disk);
  if (!manifest.ok() && manifest.status().code() != absl::StatusCode::kNotFound) {
    return absl::FailedPreconditionError(
        fmt::format("cannot tell whose data this is: {}; nothing removed; or name another data.directory",
                    std::string(manifest.status().message())));
  }
  if (manifest.ok() && manifest->deployment != deployment.name) {
    return absl::FailedPreconditionError(
        fmt::format("{} holds the data of '{}', not of '{}'; nothing removed", data, manifest->deployment,
                    deployment.name));
  }
  return absl::OkStatus();
}

bool Confirmed(const Doomed& doomed, const std::string& name) {
  fmt::print(stderr, "remove all data of '{}' ({} files below {})? Type yes: ", name, doomed.Names().size(),
             fmt::join(doomed.directories, ", "));
  std::string answer;
  return std::getline(std::cin, answer) && answer == "yes";
}

absl::Status Remove(const Doomed& doomed, std::vector<Kept>* kept) {
  for (const std::string& path : doomed.files) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, fmt::format("cannot remove {}", path));
    }
  }
  std::error_code error;
  if (!doomed.observe.empty()) fs::remove_all(doomed.observe, error);
  if (error) return absl::InternalError(fmt::format("cannot remove {}: {}", doomed.observe, error.message()));
  for (const std::string& path : doomed.directories) {
    if (rmdir(path.c_str()) == 0 || errno == ENOENT) continue;
    const bool full = errno == ENOTEMPTY || errno == EEXIST;
    kept->push_back({path, full ? "it is not empty" : std::generic_category().message(errno)});
  }
  for (const std::string& path : doomed.parents) (void)rmdir(path.c_str());
  return absl::OkStatus();
}

void Print(const CommandContext& context, const Doomed& doomed, const std::vector<Kept>& kept) {
  if (context.json()) {
    nlohmann::ordered_json document = {
        {"dry_run", context.dry_run}, {"files", doomed.Names()}, {"kept", nlohmann::ordered_json::array()}};
    for (const Kept& one : kept) document["kept"].push_back(one.directory);
    fmt::print("{}\n", document.dump(2));
    return;
  }
  // By folder: an island has a file for every site, and nobody reads hundreds of names.
  constexpr size_t kMostNamed = 8;
  const char* verb = context.dry_run ? "would remove" : "removed";
  std::map<std::string, std::vector<std::string>> folders;
  for (const std::string& path : doomed.Names())
    folders[fs::path(path).parent_path().string()].push_back(path);
  for (const auto& [folder, paths] : folders) {
    if (paths.size() > kMostNamed) {
      fmt::print("{} {} files in {}\n", verb, paths.size(), folder);
      continue;
    }
    for (const std::string& path : paths) fmt::print("{} {}\n", verb, path);
  }
  for (const Kept& one : kept) fmt::print("kept {}: {}\n", one.directory, one.why);
  if (doomed.empty()) {
    fmt::print("nothing to remove\n");
  } else if (folders.empty()) {
    fmt::print("{} no files, and its directories where they are empty\n", verb);
  }
}

}  // namespace

int Destroy(const CommandContext& context, const DestroyOptions& options) {
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  absl::Status allowed = CheckMayDestroy(*deployment, *files);
  if (!allowed.ok()) return Fail(context, allowed);
  const absl::StatusOr<LogLocks> claim = ClaimLog(*deployment);
  if (!claim.ok()) return Fail(context, claim.status());
  const Doomed doomed = FindFiles(*deployment, *files, *claim);
  std::vector<Kept> kept;
  if (!context.dry_run && !doomed.empty()) {
    if (!options.yes && (isatty(STDIN_FILENO) != 1 || !Confirmed(doomed, deployment->name))) {
      return Fail(context, absl::FailedPreconditionError("nothing removed; --yes removes without asking"));
    }
  }
  if (!context.dry_run) {
    RemoveTargets(files->directory);
    absl::Status removed = Remove(doomed, &kept);
    if (!removed.ok()) return Fail(context, removed);
  }
  Print(context, doomed, kept);
  return kExitOk;
}

}  // namespace islands::deploy
