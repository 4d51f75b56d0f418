#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "deploy/cli/terminal_line.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/report.h"
#include "deploy/cluster/shared_cores.h"
#include "deploy/cluster/supervisor.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/observe/command.h"
#include "deploy/plan/pools.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/interrupts.h"
#include "deploy/processes/spawn.h"
#include "runtime/file_system.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int64_t kStatusTimeoutMs = 5'000;
constexpr int64_t kStopTimeoutMs = 15'000;  // above the supervisor's own grace
constexpr int64_t kObserverPollMs = 50;
constexpr int64_t kProgressPollMs = 500;
constexpr int kLastWords = 15;

// A supervisor that is being started: our child until we exit.
struct Starting {
  pid_t pid = 0;
  int report = -1;                          // reading end
  uint64_t log_begin = 0;                   // where its lines begin in supervisor.log
  std::vector<uint64_t> island_log_begins;  // likewise, by island, of those that there were before
};

absl::StatusOr<Starting> StartSupervisor(const CommandContext& context, const UpOptions& options,
                                         const ControlFiles& files) {
  if (absl::Status made = runtime::MakePrivateDirectory(files.directory); !made.ok()) return made;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  Starting starting;
  starting.report = ends[0];
  std::error_code error;
  const uintmax_t log_bytes = std::filesystem::file_size(files.SupervisorLog(), error);
  starting.log_begin = error ? 0 : log_bytes;
  for (uint32_t island = 0;; ++island) {
    const uintmax_t bytes = std::filesystem::file_size(files.IslandLog(island), error);
    if (error) break;
    starting.island_log_begins.push_back(bytes);
  }
  SpawnRequest request;
  request.arguments = {context.binary_directory + "/islands",
                       "supervise",
                       std::filesystem::absolute(options.file).string(),
                       "--report-fd",
                       std::to_string(kInheritedFd),
                       "--restarts",
                       std::to_string(options.restarts),
                       "--prometheus-port",
                       std::to_string(options.prometheus_port)};
  if (options.observe) request.arguments.push_back("--observe");
  if (!options.targets.empty()) {
    request.arguments.insert(request.arguments.end(),
                             {"--targets", std::filesystem::absolute(options.targets).string()});
  }
  request.log_path = files.SupervisorLog();
  request.die_with_parent = false;
  request.own_session = true;
  request.inherit_fds = {ends[1]};
  absl::StatusOr<pid_t> pid = Spawn(request);
  close(ends[1]);
  if (!pid.ok()) {
    close(ends[0]);
    return pid.status();
  }
  starting.pid = *pid;
  return starting;
}

// Waits for our child; kills it when it takes too long. Its islands die with it.
void EndSupervisor(const Starting& starting, int64_t timeout_ms) {
  const int64_t until_ms = MonotonicMs() + timeout_ms;
  while (waitpid(starting.pid, nullptr, WNOHANG) == 0) {
    if (MonotonicMs() >= until_ms) {
      kill(starting.pid, SIGKILL);
      waitpid(starting.pid, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The supervisor has something to say, or has died: everything it wrote.
std::string ReadReport(int report) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(report, buffer, sizeof(buffer))) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// Who is to blame for a start that takes too long.
std::string NotReady(const Starting& starting, const ClusterClient& client) {
  absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kStatusTimeoutMs);
  if (!status.ok()) return "";
  std::string text;
  for (const control::v1::IslandStatus& island : status->islands()) {
    if (island.state() == control::v1::READY) continue;
    text += fmt::format("\nisland {} (process {}) is {}", island.island(), island.pid(),
                        StateName(island.state()));
    const auto& begins = starting.island_log_begins;
    const std::string lines = LastLines(client.files().IslandLog(island.island()), 5, "  ",
                                        island.island() < begins.size() ? begins[island.island()] : 0);
    if (!lines.empty())
      text += fmt::format("; {} ends with:\n{}", client.files().IslandLog(island.island()), lines);
  }
  return text;
}

absl::Status Interpret(const std::string& report, const Starting& starting, const ControlFiles& files) {
  if (report == kReadyReport) return absl::OkStatus();
  EndSupervisor(starting, kStopTimeoutMs);
  if (!report.empty()) return absl::InternalError(report);
  return absl::InternalError(
      fmt::format("the supervisor ended during start-up; {} ends with:\n{}", files.SupervisorLog(),
                  LastLines(files.SupervisorLog(), kLastWords, "  ", starting.log_begin)));
}

// What islands that recover say of how far they are. On a terminal it is shown.
class Progress {
 public:
  explicit Progress(const ClusterClient& client) : client_(client) {}
  // Somebody has got further since this was asked last.
  bool Moved() {
    const absl::StatusOr<control::v1::ClusterStatus> status = client_.Status(kProgressPollMs);
    if (!status.ok()) return false;
    std::string now;
    for (const control::v1::IslandStatus& island : status->islands()) {
      if (island.state() != control::v1::STARTING || island.detail().empty()) continue;
      now += fmt::format("{}island {}: {}", now.empty() ? "" : "; ", island.island(), island.detail());
    }
    if (now.empty() || now == seen_) return false;
    seen_ = now;
    line_.Show(now);
    return true;
  }

 private:
  const ClusterClient& client_;
  TerminalLine line_{TerminalLine::End::kGoes};
  std::string seen_;
};

// Until the supervisor says something, or it has taken `timeout_s` since the start, or since islands have got
// further.
Interrupts::Wake WaitForReport(const Starting& starting, const ClusterClient& client, double timeout_s,
                               Interrupts& interrupts) {
  const int64_t timeout_ms = static_cast<int64_t>(timeout_s * 1000);
  Progress progress(client);
  for (int64_t until_ms = MonotonicMs() + timeout_ms;;) {
    const int64_t left_ms = std::max<int64_t>(until_ms - MonotonicMs(), 0);
    const Interrupts::Wake wake = interrupts.Sleep(std::min(left_ms, kProgressPollMs), starting.report);
    if (wake != Interrupts::Wake::kTimeout) return wake;
    if (progress.Moved()) until_ms = MonotonicMs() + timeout_ms;
    if (MonotonicMs() >= until_ms) return wake;
  }
}

// OK when every island is ready; otherwise nothing is left running.
absl::Status WaitUntilReady(const Starting& starting, const ClusterClient& client, double timeout_s,
                            Interrupts& interrupts) {
  const Interrupts::Wake wake = WaitForReport(starting, client, timeout_s, interrupts);
  if (wake == Interrupts::Wake::kReadable)
    return Interpret(ReadReport(starting.report), starting, client.files());
  const std::string blame = wake == Interrupts::Wake::kTimeout ? NotReady(starting, client) : "";
  kill(starting.pid, SIGTERM);
  EndSupervisor(starting, kStopTimeoutMs);
  if (wake == Interrupts::Wake::kInterrupted) {
    return absl::CancelledError("interrupted; everything that had been started is stopped again");
  }
  return absl::DeadlineExceededError(
      fmt::format("not ready within {:g} s; stopped again{}", timeout_s, blame));
}

// The cluster is up; its Prometheus, if it has one, may still be starting. Nobody waits for that for long.
absl::StatusOr<control::v1::ClusterStatus> StatusWhenObserved(const ClusterClient& client,
                                                              Interrupts& interrupts) {
  for (;;) {
    absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kStatusTimeoutMs);
    if (!status.ok() || !status->observation().starting()) return status;
    if (interrupts.Sleep(kObserverPollMs) == Interrupts::Wake::kInterrupted) return status;
  }
}

absl::Status CheckProgram(const std::string& program) {
  if (access(program.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, fmt::format("cannot run {}; build it first", program));
}

// Nothing can be observed that serves no metrics.
absl::Status CheckObservable(const ResolvedDeployment& resolved, const UpOptions& options) {
  if (!options.observe && options.targets.empty()) return absl::OkStatus();
  const auto serves = [&](const auto& island) { return island.metrics_port == options.prometheus_port; };
  const std::vector<topology::PlannedIsland>& islands = resolved.plan.islands;
  const bool of_island = std::any_of(islands.begin(), islands.end(), serves);
  if (options.observe && (of_island || GatewayMetricsPort(resolved) == options.prometheus_port)) {
    return absl::InvalidArgumentError(fmt::format("--prometheus-port {} is {} metrics port; choose another",
                                                  options.prometheus_port,
                                                  of_island ? "an island's" : "the gateway's"));
  }
  if (resolved.deployment.metrics_base_port != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(resolved.deployment.Complain(
      "metrics.base_port", fmt::format("found 0, which means no metrics; expected a port from {} "
                                       "to {}, for Prometheus to read",
                                       topology::kMinPort, topology::kMaxPort)));
}

}  // namespace

int Up(const CommandContext& context, const UpOptions& options) {
  absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  if (const absl::Status pem = CheckPemFiles(resolved->deployment); !pem.ok()) return Fail(context, pem);
  const absl::StatusOr<ControlFiles> files = ControlFilesOf(resolved->deployment);
  if (!files.ok()) return Fail(context, files.status());
  absl::Status may_start = CheckObservable(*resolved, options);
  if (may_start.ok()) may_start = CheckNotUp(*files);
  if (!may_start.ok()) {
    const absl::Status ours = ClusterClient(*files).Status(kStatusTimeoutMs).status();
    if (absl::IsFailedPrecondition(ours)) may_start = ours;
  }
  if (may_start.ok()) may_start = CheckProgram(context.binary_directory + "/islandd");
  if (may_start.ok() && resolved->deployment.gateway)
    may_start = CheckProgram(context.binary_directory + "/islands-gateway");
  if (!may_start.ok()) return Fail(context, may_start);
  for (std::string& note : NotesOnSharedCores(*resolved)) resolved->notes.push_back(std::move(note));
  const PredictedPools pools = PredictPools(*resolved, *runtime::MakePosixFileSystem());
  for (std::string& note : NotesOnPools(*resolved, pools)) resolved->notes.push_back(std::move(note));
  for (const std::string& note : resolved->notes) fmt::print(stderr, "note: {}\n", note);
  if (context.dry_run) {
    const std::string what = fmt::format(
        "would start {} islands; see `islands plan`{}", resolved->plan.islands.size(),
        options.observe ? fmt::format("\nwould start Prometheus on 127.0.0.1:{} and tell the Grafana of this "
                                      "machine, if there is one",
                                      options.prometheus_port)
                        : "");
    fmt::print("{}\n",
               context.json() ? fmt::format("{{\"would_start\": {}}}", resolved->plan.islands.size()) : what);
    return kExitOk;
  }
  const ClusterClient client(*files);
  Interrupts interrupts;
  absl::StatusOr<Starting> starting = StartSupervisor(context, options, *files);
  if (!starting.ok()) return Fail(context, starting.status());
  const absl::Status ready = WaitUntilReady(*starting, client, options.timeout_s, interrupts);
  close(starting->report);
  if (!ready.ok()) return Fail(context, ready);
  absl::StatusOr<control::v1::ClusterStatus> status = StatusWhenObserved(client, interrupts);
  if (!status.ok()) return Fail(context, status.status());
  fmt::print("{}", context.json() ? StatusJson(*status, &*resolved) : StatusText(*status));
  return kExitOk;
}

int SuperviseFile(const CommandContext& context, const SuperviseOptions& options) {
  absl::StatusOr<ResolvedDeployment> resolved = ResolveFile(options.file);
  if (!resolved.ok()) return Fail(context, resolved.status());
  SupervisorOptions supervisor;
  supervisor.island_program = context.binary_directory + "/islandd";
  supervisor.logger_program = context.binary_directory + "/islands-logger";
  supervisor.gateway_program = context.binary_directory + "/islands-gateway";
  supervisor.report_fd = options.report_fd;
  supervisor.restarts.budget = options.restarts;
  supervisor.targets_folder = options.targets;
  if (options.observe) {
    supervisor.observer.emplace();
    supervisor.observer->directory = resolved->data_directory + "/" + kObserveFolder;
    supervisor.observer->dashboards = DashboardsFolder(context);
    supervisor.observer->tools = ToolsFolder(context);
    supervisor.observer->port = options.prometheus_port;
    supervisor.observer->cpus = SpareCpus(*resolved);
    supervisor.targets_folder = supervisor.observer->Targets();
  }
  return Supervise(*resolved, supervisor);
}

}  // namespace islands::deploy
