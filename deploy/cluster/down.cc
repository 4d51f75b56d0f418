#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/down_target.h"
#include "deploy/cluster/file_changes.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/report.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/interrupts.h"
#include "deploy/processes/spawn.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int64_t kCallTimeoutMs = 2'000;
constexpr int64_t kStatusTimeoutMs = 5'000;
constexpr int64_t kPatienceMs = 15'000;  // then the supervisor itself is killed; it needs far less
constexpr std::chrono::milliseconds kPollInterval{20};

// Processes of the deployment that are still there.
struct Remaining {
  pid_t supervisor = 0;
  std::vector<pid_t> islands;   // by their locks
  std::vector<pid_t> children;  // of the supervisor, others or the same
  bool unknown = false;         // a lock is held by somebody whose pid is not written

  bool none() const { return supervisor == 0 && islands.empty() && children.empty() && !unknown; }
};

// `known` has been there before: those must be gone as well, not just their locks.
absl::StatusOr<Remaining> Look(const DownTarget& target, const Remaining& known) {
  Remaining remaining;
  for (const std::string& lock : target.locks) {
    const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(lock);
    if (!holder.ok()) return holder.status();
    if (*holder == 0) remaining.unknown = true;
    if (holder->value_or(0) > 0) remaining.supervisor = **holder;
  }
  if (remaining.supervisor == 0 && ProcessAlive(known.supervisor)) remaining.supervisor = known.supervisor;
  if (target.has_directory) {
    for (const std::string& path : target.files.AllIslandLocks()) {
      const absl::StatusOr<std::optional<pid_t>> island = LockHolder(path);
      if (!island.ok()) return island.status();
      if (!*island) continue;
      if (**island > 0) {
        remaining.islands.push_back(**island);
      } else {
        remaining.unknown = true;
      }
    }
  }
  std::copy_if(known.children.begin(), known.children.end(), std::back_inserter(remaining.children),
               ProcessAlive);
  return remaining;
}

bool IsIsland(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  return std::getline(file, name) && name == "islandd";
}

std::string Describe(const Remaining& remaining) {
  const std::vector<pid_t>& islands = remaining.islands;
  std::vector<std::string> parts;
  if (remaining.supervisor > 0) parts.push_back(fmt::format("supervisor {}", remaining.supervisor));
  for (const pid_t pid : islands) parts.push_back(fmt::format("island process {}", pid));
  for (const pid_t pid : remaining.children) {
    if (std::find(islands.begin(), islands.end(), pid) == islands.end())
      parts.push_back(fmt::format("its process {}", pid));
  }
  if (remaining.unknown) parts.push_back("a process that holds one of its locks");
  return fmt::format("{}", fmt::join(parts, ", "));
}

absl::Status Signal(pid_t pid, int signal) {
  if (kill(pid, signal) == 0 || errno != EPERM) return absl::OkStatus();
  struct stat info {};
  const bool known = stat(fmt::format("/proc/{}", pid).c_str(), &info) == 0;
  return absl::PermissionDeniedError(fmt::format("not permitted: owned by {}: process {}; act as that user",
                                                 known ? runtime::UserName(info.st_uid) : "another user",
                                                 pid));
}

absl::Status AskToStop(const DownTarget& target, pid_t supervisor) {
  control::v1::Request request;
  request.mutable_shutdown();
  if (target.has_directory && ClusterClient(target.files).CallSupervisor(request, kCallTimeoutMs).ok())
    return absl::OkStatus();
  return supervisor > 0 ? Signal(supervisor, SIGTERM) : absl::OkStatus();
}

// What did not go when asked: a hung supervisor takes its islands with it; an island without one is killed
// itself.
absl::Status Insist(const DownTarget& target, const Remaining& remaining) {
  bool held = false;
  for (const std::string& lock : target.locks) {
    // Only as the lock's holder is the pid surely still the supervisor's.
    const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(lock);
    if (!holder.ok()) return holder.status();
    held |= holder->has_value();
    if (holder->value_or(0) > 0) return Signal(**holder, SIGKILL);
  }
  if (held) return absl::OkStatus();
  for (pid_t pid : remaining.islands) {
    if (!IsIsland(pid)) continue;
    if (absl::Status sent = Signal(pid, SIGKILL); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status WaitUntilGone(const DownTarget& target, const Remaining& known, double timeout_s) {
  const int64_t begin_ms = MonotonicMs();
  const int64_t timeout_ms = static_cast<int64_t>(timeout_s * 1000);
  int64_t insist_ms = begin_ms + std::min(kPatienceMs, timeout_ms / 2);
  for (;;) {
    const absl::StatusOr<Remaining> remaining = Look(target, known);
    if (!remaining.ok()) return remaining.status();
    if (remaining->none()) return absl::OkStatus();
    const int64_t now_ms = MonotonicMs();
    if (now_ms - begin_ms >= timeout_ms) {
      return absl::DeadlineExceededError(
          fmt::format("still there after {:g} s: {}", timeout_s, Describe(*remaining)));
    }
    if (now_ms >= insist_ms) {
      fmt::print(stderr, "did not stop when asked, killing {}\n", Describe(*remaining));
      if (absl::Status sent = Insist(target, *remaining); !sent.ok()) return sent;
      insist_ms = now_ms + 1'000;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

int PrintDifferences(const CommandContext& context, const std::vector<std::string>& differences) {
  if (context.json()) {
    PrintJson({{"differences", differences}});
  } else {
    for (const std::string& difference : differences) fmt::print("{}\n", difference);
    if (differences.empty()) fmt::print("the file describes what runs\n");
  }
  return differences.empty() ? kExitOk : kExitFindings;
}

}  // namespace

int Status(const CommandContext& context, const StatusOptions& options) {
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  absl::StatusOr<control::v1::ClusterStatus> status = ClusterClient(*files).Status(kStatusTimeoutMs);
  if (!status.ok()) return Fail(context, status.status());
  const absl::StatusOr<ResolvedDeployment> resolved = Resolve(*deployment);
  if (options.diff) {
    if (!resolved.ok()) return Fail(context, resolved.status());
    return PrintDifferences(context, Differences(*status, *resolved));
  }
  const std::string warning = FileWarning(*status, *deployment, resolved);
  if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
  fmt::print(
      "{}", context.json() ? StatusJson(*status, resolved.ok() ? &*resolved : nullptr) : StatusText(*status));
  return AllWork(*status) ? kExitOk : kExitFindings;
}

int Down(const CommandContext& context, const DownOptions& options) {
  std::string note;
  const absl::StatusOr<DownTarget> target = FindDownTarget(options.deployment, &note);
  if (!note.empty()) fmt::print(stderr, "{}\n", note);
  if (!target.ok()) return Fail(context, target.status());
  absl::StatusOr<Remaining> before = Look(*target, {});
  if (!before.ok()) return Fail(context, before.status());
  const bool up = !before->none();
  if (context.dry_run || !up) {
    if (!up && !context.dry_run) RemoveTargets(target->files.directory);  // after a crash
    const std::string what = up ? fmt::format("would stop {}", Describe(*before)) : "nothing is running";
    fmt::print("{}\n", context.json() ? fmt::format("{{\"was_up\": {}, \"down\": {}}}", up, !up) : what);
    return kExitOk;
  }
  before->children = ChildrenOf(before->supervisor);
  absl::Status gone = AskToStop(*target, before->supervisor);
  if (gone.ok()) gone = WaitUntilGone(*target, *before, options.timeout_s);
  if (!gone.ok()) return Fail(context, gone);
  if (target->has_directory) RemoveTargets(target->files.directory);  // of a supervisor that had to be killed
  fmt::print("{}\n", context.json() ? "{\"was_up\": true, \"down\": true}"
                                    : fmt::format("{}: every process is gone", target->files.deployment));
  return kExitOk;
}

}  // namespace islands::deploy
