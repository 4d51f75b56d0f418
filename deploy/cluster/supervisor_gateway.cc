#include "deploy/cluster/supervisor_gateway.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "deploy/cluster/sealed.h"
#include "deploy/cluster/supervisor_island.h"
#include "deploy/processes/interrupts.h"
#include "deploy/processes/ports.h"
#include "deploy/processes/spawn.h"
#include "instance/messaging/unix_socket.h"

namespace islands::deploy {
namespace {

constexpr int64_t kStartingWaitMs = 20;
constexpr int kLastWords = 15;  // lines shown of one that failed to start

std::string Absolute(const Deployment& deployment, const std::string& path) {
  return path.empty() ? path : (std::filesystem::path(deployment.folder) / path).lexically_normal().string();
}

}  // namespace

control::v1::GatewayConfig MakeGatewayConfig(const ResolvedDeployment& resolved) {
  const Deployment& deployment = resolved.deployment;
  const GatewaySettings& settings = *deployment.gateway;
  control::v1::GatewayConfig config;
  config.set_deployment(deployment.name);
  config.set_control_directory(resolved.control_directory);
  config.set_listen(settings.listen);
  config.set_certificate(Absolute(deployment, settings.certificate));
  config.set_key(Absolute(deployment, settings.key));
  config.set_client_authority(Absolute(deployment, settings.clients));
  const std::vector<uint32_t> cpus = settings.cpus ? *settings.cpus : SpareCpus(resolved);
  config.mutable_cpus()->Assign(cpus.begin(), cpus.end());
  config.set_metrics_port(GatewayMetricsPort(resolved));
  config.set_idle_ms(settings.idle_ms);
  config.set_call_ms(settings.call_ms);
  config.set_most_transactions(settings.most_transactions);
  return config;
}

GatewayKeeper::GatewayKeeper(std::string program, ControlFiles files, control::v1::GatewayConfig config,
                             RestartLimits restarts)
    : program_(std::move(program)),
      files_(std::move(files)),
      config_(std::move(config)),
      limits_(restarts),
      policy_(restarts) {}

absl::Status GatewayKeeper::Start() {
  auto made = WatchedPulses::Make(std::array{1u});
  if (!made.ok()) return made.status();
  pulses_.emplace(*std::move(made));
  return Launch();
}

absl::Status GatewayKeeper::Launch() {
  const absl::StatusOr<std::string> json = ToJson(config_);
  if (!json.ok()) return json.status();
  metrics_problem_.clear();
  if (const uint32_t port = config_.metrics_port(); port != 0) {
    if (const absl::Status free = CheckPortFree(static_cast<uint16_t>(port)); !free.ok())
      metrics_problem_ = fmt::format("{}; change metrics.base_port", std::string(free.message()));
  }
  const absl::StatusOr<StartedProcess> started = StartProcess({.program = program_,
                                                               .config = *json,
                                                               .name = files_.directory + "/gateway",
                                                               .log_path = files_.GatewayLog(),
                                                               .pulse_fd = pulses_->descriptor.get()});
  if (!started.ok()) return started.status();
  pid_ = started->pid;
  log_begin_ = started->log_begin;
  spdlog::info("gateway: process {}", pid_);
  SetState(control::v1::STARTING, "");
  return absl::OkStatus();
}

absl::Status GatewayKeeper::Step() {
  int wait_status = 0;
  if (pid_ > 0 && waitpid(pid_, &wait_status, WNOHANG) == pid_) {
    if (absl::Status lost = OnExit(wait_status); !lost.ok()) return lost;
  }
  if (state_ == control::v1::STARTING && messaging::ConnectTo(files_.GatewaySocket()).ok()) {
    was_ready_ = true;
    spdlog::info("gateway: ready");
    SetState(control::v1::READY, "");
  } else if (state_ == control::v1::LOST && MonotonicMs() >= restart_at_ms_) {
    ++restarts_;
    if (absl::Status launched = Launch(); !launched.ok())
      SetState(control::v1::GIVEN_UP, std::string(launched.message()));
  }
  LookWhetherItMoves();
  return absl::OkStatus();
}

void GatewayKeeper::LookWhetherItMoves() {
  pulses_->watch.Look(MonotonicMs());
  if (state_ != control::v1::READY) pulses_->watch.Forget(0);  // who is starting does not move
  const int64_t before_ms = std::exchange(hung_ms_, pulses_->watch.HungMs(0));
  if (before_ms == 0 && hung_ms_ != 0) spdlog::warn("gateway: process {} does not move", pid_);
  if (before_ms != 0 && hung_ms_ == 0 && state_ == control::v1::READY) spdlog::info("gateway: moves again");
  const runtime::MutexLock lock(mutex_);
  described_.set_hung_ms(hung_ms_);
}

absl::Status GatewayKeeper::OnExit(int wait_status) {
  const pid_t pid = std::exchange(pid_, 0);
  const std::string how = DescribeExit(wait_status);
  if (!was_ready_) {
    const std::string lines = LastLines(files_.GatewayLog(), kLastWords, "  ", log_begin_);
    return absl::InternalError(fmt::format("the gateway failed to start: {}\n{} ends with:\n{}", how,
                                           files_.GatewayLog(), lines.empty() ? "  (nothing)\n" : lines));
  }
  std::string why = LastLines(files_.GatewayLog(), 1, "", log_begin_);
  while (!why.empty() && why.back() == '\n') why.pop_back();
  why = why.empty() ? how : fmt::format("{}; last words: {}", how, why);
  spdlog::error("gateway: process {} lost, {}", pid, why);
  if (const std::optional<int64_t> delay_ms = policy_.OnLost(MonotonicMs())) {
    restart_at_ms_ = MonotonicMs() + *delay_ms;
    SetState(control::v1::LOST, why);
  } else {
    SetState(
        control::v1::GIVEN_UP,
        fmt::format("given up after {} restarts within {} s; once what ends it is mended, `islands down` and "
                    "`islands up` start it again; {}",
                    limits_.budget, limits_.window_ms / 1000, why));
  }
  return absl::OkStatus();
}

int64_t GatewayKeeper::WaitMs(int64_t otherwise) const {
  if (state_ == control::v1::STARTING) return std::min(otherwise, kStartingWaitMs);
  if (state_ == control::v1::LOST) return std::clamp<int64_t>(restart_at_ms_ - MonotonicMs(), 0, otherwise);
  return otherwise;
}

void GatewayKeeper::BeginStop() {
  if (pid_ > 0) kill(pid_, SIGTERM);
  SetState(pid_ > 0 ? control::v1::STOPPING : control::v1::STOPPED, "");
}

void GatewayKeeper::Kill() {
  if (pid_ <= 0) return;
  spdlog::warn("gateway: did not stop, killing process {}", pid_);
  kill(pid_, SIGKILL);
}

bool GatewayKeeper::Gone() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) {
    pid_ = 0;
    SetState(control::v1::STOPPED, "");
  }
  return pid_ == 0;
}

void GatewayKeeper::SetState(control::v1::IslandState state, std::string detail) {
  state_ = state;
  const runtime::MutexLock lock(mutex_);
  described_.set_state(state);
  described_.set_pid(pid_);
  described_.set_restarts(restarts_);
  described_.set_detail(std::move(detail));
  described_.set_metrics_port(config_.metrics_port());
  described_.set_metrics_problem(metrics_problem_);
  described_.clear_addresses();
  described_.add_addresses("unix:" + files_.GatewaySocket());
  if (!config_.listen().empty()) described_.add_addresses(config_.listen());
}

control::v1::GatewayStatus GatewayKeeper::Describe() const {
  const runtime::MutexLock lock(mutex_);
  return described_;
}

}  // namespace islands::deploy
