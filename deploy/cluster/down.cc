#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "deploy/cluster/client.h"
#include "deploy/cluster/file_changes.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/report.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/interrupts.h"
#include "deploy/processes/spawn.h"

namespace islands::deploy {
namespace {

constexpr int64_t kCallTimeoutMs = 2'000;
constexpr int64_t kStatusTimeoutMs = 5'000;
constexpr int64_t kPatienceMs = 15'000;  // then the supervisor itself is killed; it needs far less
constexpr std::chrono::milliseconds kPollInterval{20};

// Processes of the deployment that are still there.
struct Remaining {
  pid_t supervisor = 0;
  std::vector<pid_t> islands;
  bool unknown = false;  // a lock is held by somebody whose pid is not written

  bool none() const { return supervisor == 0 && islands.empty() && !unknown; }
};

// `known` has held the supervisor's lock: it must be gone as well, not just its lock.
absl::StatusOr<Remaining> Look(const ControlFiles& files, pid_t known) {
  Remaining remaining;
  const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(files.SupervisorLock());
  if (!holder.ok()) return holder.status();
  if (*holder == 0) remaining.unknown = true;
  remaining.supervisor = holder->value_or(ProcessAlive(known) ? known : 0);
  for (const std::string& path : files.AllIslandLocks()) {
    const absl::StatusOr<std::optional<pid_t>> island = LockHolder(path);
    if (!island.ok()) return island.status();
    if (!*island) continue;
    if (**island > 0) {
      remaining.islands.push_back(**island);
    } else {
      remaining.unknown = true;
    }
  }
  return remaining;
}

bool IsIsland(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  return std::getline(file, name) && name == "islandd";
}

std::string Describe(const Remaining& remaining) {
  std::vector<std::string> parts;
  if (remaining.supervisor > 0) parts.push_back(fmt::format("supervisor {}", remaining.supervisor));
  for (pid_t pid : remaining.islands) parts.push_back(fmt::format("island process {}", pid));
  if (remaining.unknown) parts.push_back("a process that holds a lock in the control directory");
  return fmt::format("{}", fmt::join(parts, ", "));
}

void AskToStop(const ControlFiles& files, pid_t supervisor) {
  control::v1::Request request;
  request.mutable_shutdown();
  if (ClusterClient(files).CallSupervisor(request, kCallTimeoutMs).ok()) return;
  if (supervisor > 0) kill(supervisor, SIGTERM);
}

// What did not go when asked: a hung supervisor takes its islands with it; an island without one is killed
// itself.
void Insist(const ControlFiles& files, const Remaining& remaining) {
  // Only as the lock's holder is the pid surely still the supervisor's.
  const absl::StatusOr<std::optional<pid_t>> holder = LockHolder(files.SupervisorLock());
  if (!holder.ok()) return;
  if (*holder) {
    if (**holder > 0) kill(**holder, SIGKILL);
    return;
  }
  for (pid_t pid : remaining.islands) {
    if (IsIsland(pid)) kill(pid, SIGKILL);
  }
}

absl::Status WaitUntilGone(const ControlFiles& files, pid_t supervisor, double timeout_s) {
  const int64_t begin_ms = MonotonicMs();
  const int64_t timeout_ms = static_cast<int64_t>(timeout_s * 1000);
  int64_t insist_ms = begin_ms + std::min(kPatienceMs, timeout_ms / 2);
  for (;;) {
    const absl::StatusOr<Remaining> remaining = Look(files, supervisor);
    if (!remaining.ok()) return remaining.status();
    if (remaining->none()) return absl::OkStatus();
    const int64_t now_ms = MonotonicMs();
    if (now_ms - begin_ms >= timeout_ms) {
      return absl::DeadlineExceededError(
          fmt::format("still there after {:g} s: {}", timeout_s, Describe(*remaining)));
    }
    if (now_ms >= insist_ms) {
      fmt::print(stderr, "did not stop when asked, killing {}\n", Describe(*remaining));
      Insist(files, *remaining);
      insist_ms = now_ms + 1'000;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
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
  const std::string warning = FileWarning(*status, *deployment, resolved);
  if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
  fmt::print(
      "{}", context.json() ? StatusJson(*status, resolved.ok() ? &*resolved : nullptr) : StatusText(*status));
  return kExitOk;
}

int Down(const CommandContext& context, const DownOptions& options) {
  absl::Status complaints;
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file, &complaints);
  if (!deployment.ok()) return Fail(context, deployment.status());
  if (!complaints.ok()) {
    fmt::print(stderr, "{}\nnote: going by its name '{}' and control.directory '{}' all the same\n",
               std::string(complaints.message()), deployment->name, deployment->control_directory);
  }
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(*deployment);
  if (!files.ok()) return Fail(context, files.status());
  const absl::StatusOr<Remaining> before = Look(*files, 0);
  if (!before.ok()) return Fail(context, before.status());
  const bool up = !before->none();
  if (!up) {
    // Who has the data may have another control directory, or none any more.
    const absl::Status free = CheckDataIsFree(DataDirectoryOf(*deployment));
    if (!free.ok()) return Fail(context, free);
  }
  // Only what answers can say that it is another; what does not answer is ended as it ever was.
  const absl::Status ours = up ? ClusterClient(*files).Status(kCallTimeoutMs).status() : absl::OkStatus();
  if (absl::IsFailedPrecondition(ours)) return Fail(context, ours);
  if (context.dry_run || !up) {
    if (!up && !context.dry_run) RemoveTargets(files->directory);  // after a crash
    const std::string what = up ? fmt::format("would stop {}", Describe(*before)) : "nothing is running";
    fmt::print("{}\n", context.json() ? fmt::format("{{\"was_up\": {}, \"down\": {}}}", up, !up) : what);
    return kExitOk;
  }
  AskToStop(*files, before->supervisor);
  absl::Status gone = WaitUntilGone(*files, before->supervisor, options.timeout_s);
  if (!gone.ok()) return Fail(context, gone);
  RemoveTargets(files->directory);  // of a supervisor that had to be killed
  fmt::print("{}\n", context.json() ? "{\"was_up\": true, \"down\": true}"
                                    : fmt::format("{}: every process is gone", deployment->name));
  return kExitOk;
}

}  // namespace islands::deploy
