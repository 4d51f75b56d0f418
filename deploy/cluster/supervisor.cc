#include "deploy/cluster/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/data_walk.h"
#include "deploy/cluster/file_changes.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_gateway.h"
#include "deploy/cluster/supervisor_hang.h"
#include "deploy/cluster/supervisor_island.h"
#include "deploy/cluster/supervisor_load.h"
#include "deploy/cluster/supervisor_log.h"
#include "deploy/processes/interrupts.h"
#include "deploy/processes/registry.h"
#include "deploy/processes/spawn.h"
#include "instance/messaging/control_channel.h"
#include "instance/messaging/frame.h"
#include "runtime/mutex.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

using control::v1::IslandConfig;
using control::v1::IslandState;
using control::v1::IslandStatus;
using control::v1::Reply;
using control::v1::Request;

constexpr int64_t kProbeTimeoutMs = 300;  // of one status call to an island that starts
constexpr int64_t kBusyWaitMs = 20;       // between looks while something starts or stops
constexpr int64_t kLogWaitMs = 2;         // for the logger's answers: they are part of every restart
constexpr int64_t kIdleWaitMs = 1'000;
constexpr int64_t kRegisterMs = 1'000;   // between looks whether it is still so
constexpr uint64_t kMostHungMs = 5'000;  // with a log
constexpr int64_t kRoomWaitMs = 1'000;   // until a full disk is asked again
constexpr int kLastWords = 15;           // log lines shown of an island that failed to start

// Where the file does not say; 0: as long as it takes.
uint64_t MostHungMs(Durability durability) { return durability == Durability::kNone ? 0 : kMostHungMs; }

sigset_t SupervisorSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

class Supervisor {
 public:
  Supervisor(const ResolvedDeployment& resolved, const SupervisorOptions& options);

  absl::Status Start();
  // Until every island is gone; OK, or why start-up failed.
  absl::Status Loop();
  void Report(std::string_view text);

 private:
  struct Island {
    Island(IslandConfig c, RestartLimits limits) : config(std::move(c)), policy(limits) {}
    IslandConfig config;
    RestartPolicy policy;
    pid_t pid = 0;  // 0: no process
    IslandState state = control::v1::STARTING;
    uint32_t restarts = 0;
    int64_t restart_at_ms = 0;  // state LOST
    uint64_t log_begin = 0;     // where this incarnation's lines begin
    std::string detail;
    int64_t hung_ms = 0;
    int64_t lost_at_ms = 0;  // of its last life, until the next one is ready; 0: it is there, or was never
    uint64_t next_life = 0;  // that has begun, and has no process yet; 0: none
    std::string killed_because;           // by us
    std::optional<IslandConfig> applied;  // what its next life has of it: pool and timeout
  };

  absl::Status MakePulses();
  absl::Status OpenLog();

  void StartObserving(const std::vector<IslandConfig>& configs);
  absl::Status SpawnIsland(Island& island, uint64_t boot_epoch);
  void Reap();
  void OnExit(Island& island, int wait_status);
  void ScheduleRestart(Island& island, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDue(const Island& island) const;
  void BeginDue();
  void WaitForRoom(const std::vector<uint32_t>& due, const std::string& why);
  void StartReady();
  void OnNotStarted(Island& island, const std::string& why);
  void StepLog();
  void StepGateway();
  void KillUseless();
  void ProbeStarting();
  void LookForHung();
  void KeepRegistered();
  void BeginStop();
  void KillIfOverdue();
  bool AllGone();
  int64_t WaitMs();
  void WaitForSignal(int64_t ms);

  Reply Handle(const Request& request);
  Reply Status();
  Reply Remember(const control::v1::LoadRequest& request);
  absl::Status LoadDurably(const control::v1::LoadSpec& load);
  absl::Status ChangeTables(const control::v1::TablesRequest& request);
  absl::Status Apply(const control::v1::ApplyRequest& request);
  absl::Status CheckAllReady();

  const ResolvedDeployment& resolved_;
  const SupervisorOptions options_;
  const ControlFiles files_;
  const ClusterClient client_;
  std::unique_ptr<ClusterData> data_;
  std::optional<Registration> registration_;  // main thread only
  std::unique_ptr<BoxLog> log_;               // null: durability `none`
  std::unique_ptr<GenerationLoads> loads_;
  std::optional<GatewayKeeper> gateway_;  // made before the control server, described by its threads
  std::optional<Observer> observer_;      // made before the control server, described by its threads
  absl::Status targets_status_;           // likewise

  // Main thread only.
  int report_fd_;
  bool started_ = false;  // every island has been ready
  std::optional<WatchedPulses> pulses_;
  int64_t kill_at_ms_ = 0;
  int64_t register_at_ms_ = 0;
  absl::Status registered_;
  std::string failure_;

  std::atomic<uint64_t> hung_ms_;
  OwnSettings own_settings_;  // as written; under mutex_ once there are clients
  std::atomic<bool> stopping_ = false;
  runtime::Mutex mutex_;
  // Changed by the main thread only, which looks without the mutex, and changes and lets others look with it.
  std::vector<Island> islands_;

  std::unique_ptr<messaging::ControlServer> server_;  // last: its threads use all of the above
};

Supervisor::Supervisor(const ResolvedDeployment& resolved, const SupervisorOptions& options)
    : resolved_(resolved),
      options_(options),
      files_{resolved.control_directory},
      client_(files_),
      report_fd_(options.report_fd),
      hung_ms_(resolved.deployment.hung_ms.value_or(MostHungMs(resolved.deployment.durability))) {}

absl::Status Supervisor::Start() {
  absl::StatusOr<std::unique_ptr<ClusterData>> data = ClusterData::Open(resolved_, files_);
  if (!data.ok()) return data.status();
  data_ = *std::move(data);
  registration_.emplace(data_->claim());
  KeepRegistered();
  const auto disk = runtime::MakePosixFileSystem();
  if (absl::Status sound = LookAtData(resolved_, *disk); !sound.ok()) return sound;
  loads_ = std::make_unique<GenerationLoads>(client_, *data_,
                                             static_cast<uint32_t>(resolved_.plan.islands.size()));
  if (absl::Status made = MakePulses(); !made.ok()) return made;
  if (absl::Status opened = OpenLog(); !opened.ok()) return opened;
  std::vector<IslandConfig> configs = MakeIslandConfigs(resolved_);
  StartObserving(configs);
  for (IslandConfig& config : configs) {
    config.set_cluster_id(data_->manifest().cluster_id);
    config.set_layout_generation(data_->manifest().layout_generation);
    if (log_ != nullptr) {
      if (absl::Status kept = DescribeKept(data_->manifest(), *log_, &config); !kept.ok()) return kept;
    }
    islands_.emplace_back(std::move(config), options_.restarts);
  }
  own_settings_ = OwnSettingsOf(resolved_.deployment);
  if (absl::Status written = WriteOwnSettings(files_.OwnSettings(), own_settings_); !written.ok())
    return written;
  if (resolved_.deployment.gateway)
    gateway_.emplace(options_.gateway_program, files_, MakeGatewayConfig(resolved_), options_.restarts);
  auto server = messaging::ControlServer::Start(files_.SupervisorSocket(),
                                                [this](const Request& r) { return Handle(r); });
  if (!server.ok()) {
    RemoveTargets(files_.directory);
    return server.status();
  }
  server_ = *std::move(server);
  unlink(files_.Ended().c_str());
  return gateway_ ? gateway_->Start() : absl::OkStatus();  // it asks us
}

absl::Status Supervisor::OpenLog() {
  const Deployment& deployment = resolved_.deployment;
  if (deployment.durability == Durability::kNone) return absl::OkStatus();
  BoxLog::Options options{.program = options_.logger_program,
                          .log_path = files_.LoggerLog(),
                          .cluster_id = data_->manifest().cluster_id,
                          .log_directory = resolved_.log_directory,
                          .keeps_rows = data_->manifest().data_generation != 0,
                          .lives = data_->manifest().boot_epochs,
                          .ring_directory = resolved_.ring_directory,
                          .ring_bytes = deployment.ring_bytes,
                          .interval_us = BoxLog::IntervalUs(deployment),
                          .restarts = options_.restarts};
  for (const topology::PlannedIsland& island : resolved_.plan.islands)
    options.workers.push_back(island.workers);
  const std::vector<uint32_t> workers = options.workers;
  absl::StatusOr<std::unique_ptr<BoxLog>> log = BoxLog::Open(std::move(options), data_->manifest().workers);
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  return data_->NoteWorkers(workers);
}

absl::Status Supervisor::MakePulses() {
  std::vector<uint32_t> workers;
  for (const topology::PlannedIsland& island : resolved_.plan.islands) workers.push_back(island.workers);
  auto made = WatchedPulses::Make(workers);
  if (made.ok()) pulses_.emplace(*std::move(made));
  return made.status();
}

// Before the islands, so that both start at the same time. The port of an island, or of the gateway, stays
// when it restarts, and its target with it: what is down shall be seen.
void Supervisor::StartObserving(const std::vector<IslandConfig>& configs) {
  RemoveTargets(files_.directory);  // of a life that ended in a crash
  if (options_.targets_folder.empty()) return;
  targets_status_ = WriteTargets(options_.targets_folder, resolved_.deployment.name, files_.directory,
                                 configs, GatewayMetricsPort(resolved_));
  if (!targets_status_.ok()) spdlog::error("{}", std::string(targets_status_.message()));
  if (!options_.observer) return;
  observer_.emplace(*options_.observer);
  observer_->Start();
}

absl::Status Supervisor::SpawnIsland(Island& island, uint64_t boot_epoch) {
  IslandConfig config;
  {
    const runtime::MutexLock lock(mutex_);
    island.config.set_boot_epoch(boot_epoch);
    config = island.config;
  }
  pulses_->watch.Forget(config.island());
  absl::StatusOr<StartedProcess> started =
      StartIsland(options_.island_program, files_, config, pulses_->descriptor.get(),
                  log_ != nullptr ? log_->board_fd() : -1);
  if (!started.ok()) return started.status();
  spdlog::info("island {}: process {}, boot epoch {}", config.island(), started->pid, boot_epoch);
  const runtime::MutexLock lock(mutex_);
  island.pid = started->pid;
  island.state = control::v1::STARTING;
  island.log_begin = started->log_begin;
  return absl::OkStatus();
}

void Supervisor::Reap() {
  for (Island& island : islands_) {
    int wait_status = 0;
    if (island.pid > 0 && waitpid(island.pid, &wait_status, WNOHANG) == island.pid)
      OnExit(island, wait_status);
  }
}

void Supervisor::OnExit(Island& island, int wait_status) {
  const uint32_t number = island.config.island();
  const std::string how = DescribeExit(wait_status);
  const std::string log_path = files_.IslandLog(number);
  const runtime::MutexLock lock(mutex_);
  const pid_t pid = std::exchange(island.pid, 0);
  if (island.lost_at_ms == 0) island.lost_at_ms = MonotonicMs();
  if (log_ != nullptr) log_->OnDead(number);
  if (stopping_) {
    island.state = control::v1::STOPPED;
    spdlog::info("island {}: process {} ended, {}", number, pid, how);
    return;
  }
  std::string words = LastLines(log_path, 1, "", island.log_begin);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  std::string why = std::exchange(island.killed_because, "");
  if (why.empty()) why = words.empty() ? how : fmt::format("{}; last words: {}", how, words);
  // It ends so when it is asked to: by `islands restart`, or whoever may signal it.
  if (started_ && island.state == control::v1::READY && WIFEXITED(wait_status) &&
      WEXITSTATUS(wait_status) == 0) {
    spdlog::info("island {}: process {} ended as it was asked to, and starts again", number, pid);
    island.state = control::v1::LOST;
    island.detail = "restarts as it was asked to";
    island.restart_at_ms = MonotonicMs();
    return;
  }
  spdlog::error("island {}: process {} lost, {}", number, pid, why);
  if (started_) {
    ScheduleRestart(island, why);
    return;
  }
  island.state = control::v1::LOST;
  island.detail = why;
  const std::string lines = LastLines(log_path, kLastWords, "  ", island.log_begin);
  failure_ = fmt::format("island {} failed to start: {}\n{} ends with:\n{}", number, how, log_path,
                         lines.empty() ? "  (nothing)\n" : lines);
}

void Supervisor::ScheduleRestart(Island& island, const std::string& why) {
  const int64_t now_ms = MonotonicMs();
  const std::optional<int64_t> delay_ms = island.policy.OnLost(now_ms);
  if (!delay_ms) {
    island.state = control::v1::GIVEN_UP;
    island.detail = fmt::format(
        "given up after {} restarts within {} s; once what ends it is mended, `islands down` and "
        "`islands up` start it again; {}",
        options_.restarts.budget, options_.restarts.window_ms / 1000, why);
    spdlog::error("island {}: {}", island.config.island(), island.detail);
    return;
  }
  island.state = control::v1::LOST;
  island.detail = why;
  island.restart_at_ms = now_ms + *delay_ms;
}

// In the beginning nobody has a process yet.
bool Supervisor::IsDue(const Island& island) const {
  if (island.pid != 0 || loads_->under_way()) return false;
  return island.state == control::v1::STARTING ||
         (island.state == control::v1::LOST && MonotonicMs() >= island.restart_at_ms);
}

// A new life for all that are due. With a log: what the lives before have appended is where these will read
// it, and their processes start when the log is ready for them.
void Supervisor::BeginDue() {
  std::vector<uint32_t> due;
  for (const Island& island : islands_) {
    const uint32_t number = island.config.island();
    const bool may_begin = log_ == nullptr || log_->MayBegin(number);
    if (IsDue(island) && island.next_life == 0 && may_begin) due.push_back(number);
  }
  if (due.empty()) return;
  const absl::StatusOr<std::vector<uint64_t>> epochs = data_->NextBootEpochs(due);
  if (started_ && absl::IsResourceExhausted(epochs.status()))
    return WaitForRoom(due, std::string(epochs.status().message()));
  for (size_t i = 0; i < due.size(); ++i) {
    absl::Status begun = epochs.status();
    if (begun.ok() && log_ != nullptr) begun = log_->Begin(due[i], (*epochs)[i]);
    if (begun.ok()) {
      islands_[due[i]].next_life = (*epochs)[i];
    } else if (started_ && absl::IsResourceExhausted(begun)) {
      WaitForRoom({due[i]}, std::string(begun.message()));
    } else {
      OnNotStarted(islands_[due[i]], std::string(begun.message()));
    }
  }
}

// That a disk is full is no reason to give an island up.
void Supervisor::WaitForRoom(const std::vector<uint32_t>& due, const std::string& why) {
  const runtime::MutexLock lock(mutex_);
  for (const uint32_t number : due) {
    Island& island = islands_[number];
    if (island.detail != why) spdlog::warn("island {}: waits for room: {}", number, why);
    island.detail = why;
    island.restart_at_ms = MonotonicMs() + kRoomWaitMs;
  }
}

void Supervisor::StartReady() {
  for (Island& island : islands_) {
    const uint32_t number = island.config.island();
    if (island.next_life == 0 || !IsDue(island) || (log_ != nullptr && !log_->IsReady(number))) continue;
    const bool again = island.state == control::v1::LOST;
    {
      const runtime::MutexLock lock(mutex_);
      if (again) island.config.set_restarts(island.restarts + 1);
      if (island.applied) island.config.MergeFrom(*island.applied);
      island.config.set_data_generation(data_->manifest().data_generation);
    }
    absl::Status spawned = SpawnIsland(island, std::exchange(island.next_life, 0));
    if (!spawned.ok()) {
      if (log_ != nullptr) log_->OnDead(number);
      OnNotStarted(island, std::string(spawned.message()));
    } else if (again) {
      const runtime::MutexLock lock(mutex_);
      ++island.restarts;
    }
  }
}

// In the beginning that is the end: Loop ends those that did start.
void Supervisor::OnNotStarted(Island& island, const std::string& why) {
  spdlog::error("island {}: {}", island.config.island(), why);
  if (!started_) {
    failure_ = why;
    return;
  }
  const runtime::MutexLock lock(mutex_);
  ScheduleRestart(island, why);
}

void Supervisor::StepLog() {
  if (log_ == nullptr) return;
  absl::Status going_on = log_->Step();
  if (!going_on.ok()) failure_ = std::string(going_on.message());
}

void Supervisor::StepGateway() {
  const absl::Status going_on = gateway_->Step();
  if (!going_on.ok()) failure_ = std::string(going_on.message());
}

void Supervisor::ProbeStarting() {
  Request request;
  request.mutable_status();
  size_t ready = 0;
  for (Island& island : islands_) {
    ready += island.state == control::v1::READY;
    if (island.state != control::v1::STARTING || island.pid == 0) continue;
    ClusterClient::Reply reply = client_.CallIsland(island.config.island(), request, kProbeTimeoutMs);
    if (!reply.ok() || reply->island_status().state() != control::v1::READY ||
        reply->island_status().boot_epoch() != island.config.boot_epoch()) {
      continue;
    }
    spdlog::info("island {}: ready", island.config.island());
    ++ready;
    const runtime::MutexLock lock(mutex_);
    island.state = control::v1::READY;
    island.lost_at_ms = 0;
    island.detail.clear();
  }
  if (started_ || ready != islands_.size()) return;
  if (log_ != nullptr && data_->manifest().data_generation == 0) {
    if (absl::Status created = LoadDurably({}); !created.ok()) {
      failure_ = fmt::format("the data files cannot be made: {}", std::string(created.message()));
      return;
    }
  }
  if (gateway_ && !gateway_->ready()) return;
  started_ = true;
  Report(kReadyReport);
}

// Who is stopped may go on, and with durability `none` takes all it has with it if it is killed: only if the
// file says so. With a log it loses nothing, and may hold an epoch, which holds up everybody (log.md).
void Supervisor::LookForHung() {
  pulses_->watch.Look(MonotonicMs());
  const uint64_t most_ms = hung_ms_;
  for (Island& island : islands_) {
    const uint32_t number = island.config.island();
    // Who is starting does not move, and that is right.
    if (island.state != control::v1::READY) pulses_->watch.Forget(number);
    const int64_t hung_ms = pulses_->watch.HungMs(number);
    const bool news = (hung_ms == 0) != (island.hung_ms == 0);
    if (news && hung_ms != 0) spdlog::warn("island {}: process {} does not move", number, island.pid);
    if (news && hung_ms == 0 && island.state == control::v1::READY)
      spdlog::info("island {}: moves again", number);
    {
      const runtime::MutexLock lock(mutex_);
      island.hung_ms = hung_ms;
    }
    if (most_ms == 0 || hung_ms < static_cast<int64_t>(most_ms)) continue;
    spdlog::error("island {}: hung for {} ms, killing process {} (timeouts.hung_ms: {})", number, hung_ms,
                  island.pid, most_ms);
    island.killed_because = fmt::format("it did not move for {} ms (timeouts.hung_ms: {})", hung_ms, most_ms);
    kill(island.pid, SIGKILL);
    pulses_->watch.Forget(number);
    const runtime::MutexLock lock(mutex_);
    island.hung_ms = 0;
  }
}

// What commands find us by; nothing here depends on it.
void Supervisor::KeepRegistered() {
  const int64_t now_ms = MonotonicMs();
  if (now_ms < register_at_ms_) return;
  register_at_ms_ = now_ms + kRegisterMs;
  const absl::Status kept = registration_->Keep();
  if (!kept.ok() && kept != registered_)
    spdlog::warn("`islands ps` will not show this deployment: {}", std::string(kept.message()));
  registered_ = kept;
}

void Supervisor::BeginStop() {
  if (stopping_.exchange(true)) return;
  kill_at_ms_ = MonotonicMs() + options_.grace_ms;
  RemoveTargets(files_.directory);
  if (gateway_) gateway_->BeginStop();
  const runtime::MutexLock lock(mutex_);
  for (Island& island : islands_) {
    if (island.pid > 0) {
      island.state = control::v1::STOPPING;
      kill(island.pid, SIGTERM);
    } else if (island.state != control::v1::GIVEN_UP) {
      island.state = control::v1::STOPPED;
    }
  }
}

void Supervisor::KillIfOverdue() {
  if (MonotonicMs() < kill_at_ms_) return;
  for (Island& island : islands_) {
    if (island.pid <= 0) continue;
    spdlog::warn("island {}: did not stop within {} ms, killing process {}", island.config.island(),
                 options_.grace_ms, island.pid);
    kill(island.pid, SIGKILL);
  }
  if (gateway_) gateway_->Kill();
  kill_at_ms_ = MonotonicMs() + options_.grace_ms;
}

bool Supervisor::AllGone() {
  if (gateway_ && !gateway_->Gone()) return false;
  return std::all_of(islands_.begin(), islands_.end(), [](const Island& island) { return island.pid <= 0; });
}

int64_t Supervisor::WaitMs() {
  if (stopping_) return log_ != nullptr ? kLogWaitMs : kBusyWaitMs;
  int64_t wait_ms = observer_ && !observer_->settled() ? kBusyWaitMs : kIdleWaitMs;
  const int64_t now_ms = MonotonicMs();
  if (log_ != nullptr && log_->waits()) wait_ms = kLogWaitMs;
  if (gateway_) wait_ms = gateway_->WaitMs(wait_ms);
  for (const Island& island : islands_) {
    if (island.state == control::v1::STARTING) wait_ms = std::min(wait_ms, kBusyWaitMs);
    if (island.state == control::v1::READY) wait_ms = std::min(wait_ms, HangWatch::kLookMs);
    if (island.state == control::v1::LOST) wait_ms = std::min(wait_ms, island.restart_at_ms - now_ms);
  }
  return std::max(wait_ms, log_ != nullptr ? kLogWaitMs : 0);
}

void Supervisor::WaitForSignal(int64_t ms) {
  const sigset_t signals = SupervisorSignals();
  const timespec timeout{ms / 1000, (ms % 1000) * 1'000'000};
  const int signal = sigtimedwait(&signals, nullptr, &timeout);
  if (signal == SIGTERM || signal == SIGINT) {
    spdlog::info("stopping");
    BeginStop();
  }
}

absl::Status Supervisor::Loop() {
  for (;;) {
    Reap();
    KeepRegistered();
    if (!failure_.empty()) BeginStop();
    if (stopping_) {
      if (AllGone() && (log_ == nullptr || log_->Stop())) break;
      KillIfOverdue();
    } else {
      StepLog();
      KillUseless();
      BeginDue();
      StartReady();
      if (observer_) observer_->Step();
      if (gateway_) StepGateway();
      ProbeStarting();
      LookForHung();
    }
    WaitForSignal(WaitMs());
  }
  if (observer_) observer_->Stop();
  if (!failure_.empty()) runtime::WritePrivateFile(files_.Ended(), failure_).IgnoreError();
  server_.reset();
  return failure_.empty() ? absl::OkStatus() : absl::InternalError(failure_);
}

void Supervisor::Report(std::string_view text) {
  if (report_fd_ < 0) return;
  // `up` may be gone already; then nobody needs to know.
  if (write(report_fd_, text.data(), text.size()) < 0) spdlog::warn("nobody reads the start-up report");
  close(std::exchange(report_fd_, -1));
}

Reply Supervisor::Handle(const Request& request) {
  switch (request.kind_case()) {
    case Request::kStatus:
      return Status();
    case Request::kLoad:
      return log_ != nullptr ? messaging::ErrorReply(LoadDurably(request.load().load()))
                             : Remember(request.load());
    case Request::kTables:
      return messaging::ErrorReply(ChangeTables(request.tables()));
    case Request::kApply:
      return messaging::ErrorReply(Apply(request.apply()));
    case Request::kShutdown:
      kill(getpid(), SIGTERM);  // blocked in every thread: the main loop picks it up
      return Reply();
    default:
      return messaging::ErrorReply(absl::InvalidArgumentError(
          "a supervisor answers status, load, tables, apply and shutdown requests only"));
  }
}

Reply Supervisor::Status() {
  Reply reply;
  control::v1::ClusterStatus& status = *reply.mutable_cluster_status();
  {
    const runtime::MutexLock lock(mutex_);
    for (const Island& island : islands_) {
      *status.add_configs() = island.config;
      IslandStatus& entry = *status.add_islands();
      entry.set_island(island.config.island());
      entry.set_pid(island.pid);
      entry.set_state(island.state);
      entry.set_restarts(island.restarts);
      entry.set_boot_epoch(island.config.boot_epoch());
      entry.set_cores_shared(island.config.cores_shared());
      entry.set_detail(island.detail);
      entry.set_hung_ms(island.hung_ms);
      if (island.lost_at_ms != 0) entry.set_down_ms(std::max<int64_t>(1, MonotonicMs() - island.lost_at_ms));
    }
  }
  if (log_ != nullptr) {
    status.mutable_log()->set_logger_pid(log_->logger_pid());
    status.mutable_log()->set_restarts(log_->logger_restarts());
    status.mutable_log()->set_full(log_->full());
    status.mutable_log()->set_lost(log_->lost());
    status.mutable_log()->set_data_generation(data_->manifest().data_generation);
  }
  status.set_cluster_id(data_->manifest().cluster_id);
  status.set_deployment(resolved_.deployment.name);
  status.set_layout(resolved_.plan.layout);
  status.set_supervisor_pid(getpid());
  status.set_stopping(stopping_);
  status.set_machine(resolved_.machine.Summary());
  if (gateway_) *status.mutable_gateway() = gateway_->Describe();
  if (observer_) *status.mutable_observation() = observer_->Describe();
  if (!targets_status_.ok()) {
    status.mutable_observation()->add_notes("no targets for Prometheus: " +
                                            std::string(targets_status_.message()));
  } else if (!options_.targets_folder.empty()) {
    status.mutable_observation()->set_targets(options_.targets_folder);
  }
  AskIslands(client_, &status);
  return reply;
}

absl::Status Supervisor::CheckAllReady() {
  if (stopping_) return absl::UnavailableError("the deployment is being taken down");
  const runtime::MutexLock lock(mutex_);
  for (const Island& island : islands_) {
    if (island.state == control::v1::READY) continue;
    return absl::FailedPreconditionError(
        fmt::format("island {} is not ready; see `islands status`", island.config.island()));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::ChangeTables(const control::v1::TablesRequest& request) {
  // Clients try again then.
  if (absl::Status ready = CheckAllReady(); !ready.ok()) return absl::UnavailableError(ready.message());
  if (log_ != nullptr && data_->manifest().data_generation == 0)
    return absl::UnavailableError("the data files are being made; try again");
  IslandConfig first;
  const auto after = [&] {
    {
      const runtime::MutexLock lock(mutex_);
      first = islands_.front().config;
    }
    return LoadsAfter(first.tables(), first.site_count(), first.loads(), request);
  };
  // What cannot be anyhow stops no island, which looks at all rows of a table that is to be dropped.
  if (const auto possible = after(); !possible.ok()) return possible.status();
  const auto save = [&]() -> absl::Status {
    const absl::StatusOr<Loads> loads = after();
    if (!loads.ok()) return loads.status();
    // Whoever asks how the deployment is hears of them once for each island, in one message.
    *first.mutable_loads() = *loads;
    const size_t bytes = first.ByteSizeLong() * islands_.size();
    if (constexpr size_t kMost = messaging::kMaxFrameBytes / 2; bytes > kMost) {
      return absl::ResourceExhaustedError(
          fmt::format("the descriptions of all tables would take {} bytes, expected at most {} ({} for each "
                      "island): fewer tables, or fields with shorter names",
                      bytes, kMost, kMost / islands_.size()));
    }
    if (log_ != nullptr) {
      const absl::StatusOr<std::string> text = LoadsToText(*loads);
      if (!text.ok()) return text.status();
      absl::Status saved = data_->SwitchTo(data_->manifest().data_generation, *text);
      if (!saved.ok()) return saved;
    }
    const runtime::MutexLock lock(mutex_);
    for (Island& island : islands_) *island.config.mutable_loads() = *loads;
    return absl::OkStatus();
  };
  return loads_->ChangeTables(request, save);
}

absl::Status Supervisor::Apply(const control::v1::ApplyRequest& request) {
  if (stopping_) return absl::UnavailableError("the deployment is being taken down");
  const runtime::MutexLock lock(mutex_);
  if (static_cast<size_t>(request.pool_bytes_size()) != islands_.size())
    return absl::InvalidArgumentError(fmt::format("expected the pools of {} islands", islands_.size()));
  for (const Island& island : islands_) {
    if (request.pool_bytes(static_cast<int>(island.config.island())) < island.config.pool_bytes())
      return absl::InvalidArgumentError("a buffer pool that is in use cannot become smaller");
  }
  if (request.transaction_timeout_ms() == 0)
    return absl::InvalidArgumentError("expected a transaction timeout of at least 1 ms");
  OwnSettings own = own_settings_;
  own[kHungMsPath] = request.has_hung_ms() ? std::to_string(request.hung_ms()) : "auto";
  if (absl::Status written = WriteOwnSettings(files_.OwnSettings(), own); !written.ok()) return written;
  own_settings_ = std::move(own);
  for (Island& island : islands_) {
    island.applied.emplace();
    island.applied->set_pool_bytes(request.pool_bytes(static_cast<int>(island.config.island())));
    island.applied->set_transaction_timeout_ms(request.transaction_timeout_ms());
  }
  hung_ms_ = request.has_hung_ms() ? request.hung_ms() : MostHungMs(resolved_.deployment.durability);
  spdlog::info("other settings have been applied: timeouts.hung_ms {}, the rest as islands restart",
               hung_ms_.load());
  return absl::OkStatus();
}

absl::Status Supervisor::LoadDurably(const control::v1::LoadSpec& load) {
  const auto check = [this] { return CheckAllReady(); };
  const auto switched = [&](uint64_t generation, const Loads& loads) {
    const runtime::MutexLock lock(mutex_);
    for (Island& island : islands_) {
      *island.config.mutable_loads() = loads;
      island.config.set_data_generation(generation);
    }
  };
  return loads_->Load(load, check, switched);
}

// They come back with the rows that count.
void Supervisor::KillUseless() {
  for (const uint32_t island : loads_->TakeUseless()) {
    if (islands_[island].pid <= 0) continue;
    spdlog::warn("island {}: cannot go on after a load or a change of tables, killing process {}", island,
                 islands_[island].pid);
    islands_[island].killed_because =
        "it could not go on after a load that has failed, or a change of tables, and starts again with what "
        "counts";
    kill(islands_[island].pid, SIGKILL);
  }
}

Reply Supervisor::Remember(const control::v1::LoadRequest& request) {
  const control::v1::LoadSpec& load = request.load();
  if (load.workload().empty()) {
    return messaging::ErrorReply(absl::InvalidArgumentError("a load needs the name of its workload"));
  }
  const runtime::MutexLock lock(mutex_);
  for (Island& island : islands_) {
    // Whatever was loaded before, its tables may be empty by now; but they have their shapes.
    *island.config.mutable_loads() = LoadsAfter(island.config.tables(), island.config.loads(),
                                                request.in_place() ? load : control::v1::LoadSpec());
  }
  return Reply();
}

}  // namespace

int Supervise(const ResolvedDeployment& resolved, const SupervisorOptions& options) {
  // Before any thread exists, so that all of them inherit it and only the main loop sees these signals.
  const sigset_t signals = SupervisorSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (options.report_fd >= 0) fcntl(options.report_fd, F_SETFD, FD_CLOEXEC);
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%eZ supervisor %l %v",
                      spdlog::pattern_time_type::utc);  // as islandd's
  spdlog::info("process {}, {} islands of '{}'", getpid(), resolved.plan.islands.size(),
               resolved.deployment.name);
  Supervisor supervisor(resolved, options);
  absl::Status start = supervisor.Start();
  if (start.ok()) start = supervisor.Loop();
  if (!start.ok()) {
    const std::string why(start.message());
    spdlog::error("{}", why);
    supervisor.Report(why);
    return kExitFailed;
  }
  spdlog::info("every island is gone");
  return kExitOk;
}

}  // namespace islands::deploy
