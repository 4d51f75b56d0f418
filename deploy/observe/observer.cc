#include "deploy/observe/observer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "deploy/processes/interrupts.h"
#include "deploy/processes/ports.h"
#include "deploy/processes/spawn.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "prometheus";
constexpr int64_t kPatienceMs =
    10'000;                          // a large database takes longer; then the cluster does not wait for it
constexpr int64_t kGraceMs = 8'000;  // from SIGTERM to SIGKILL; below `down`'s own patience
constexpr timeval kAnswerTimeout{.tv_sec = 0, .tv_usec = 200'000};
// Enough for weeks of a few islands, and nobody's disk is filled by being watched.
constexpr const char* kRetentionBytes = "4GB";

// In $PATH or else in `further`; empty if there is none.
std::string FindProgram(const std::string& name, const std::string& further) {
  const char* path = getenv("PATH");
  const std::string folders = fmt::format("{}:{}", path == nullptr ? "" : path, further);
  std::string_view rest = folders;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), name);
    std::error_code error;
    if (access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate, error)) return candidate;
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  }
  return "";
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

absl::Status CheckPort(uint16_t port) {
  const absl::Status free = CheckPortFree(port);
  if (free.ok()) return free;
  return absl::Status(free.code(),
                      fmt::format("{}; choose another with --prometheus-port", std::string(free.message())));
}

// GET /-/ready says 200.
bool Answers(uint16_t port) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0) return false;
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof(kAnswerTimeout));
  setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &kAnswerTimeout, sizeof(kAnswerTimeout));  // and of connect
  const sockaddr_in address = Loopback(port);
  constexpr std::string_view kRequest = "GET /-/ready HTTP/1.0\r\nHost: localhost\r\n\r\n";
  constexpr std::string_view kReady = " 200 ";  // after HTTP/1.x
  char answer[16] = {};
  const bool ready = connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                     send(file, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) > 0 &&
                     recv(file, answer, sizeof(answer) - 1, MSG_WAITALL) > 0 &&
                     std::string_view(answer).find(kReady) != std::string_view::npos;
  close(file);
  return ready;
}

std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Observer::Observer(ObserverOptions options) : options_(std::move(options)), policy_(options_.restarts) {
  described_.set_targets(options_.Targets());
}

std::string Observer::Url() const { return fmt::format("http://127.0.0.1:{}", options_.port); }

// The directory, and in it the rules of this version.
absl::Status Observer::Prepare() {
  if (options_.directory.find_first_of("*?[\\") != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format(
        "Prometheus would take {} for a pattern; choose a directory without * ? [ \\", options_.directory));
  }
  std::error_code error;
  fs::create_directories(options_.Targets(), error);
  if (error)
    return absl::InternalError(fmt::format("cannot make {}: {}", options_.Targets(), error.message()));
  absl::StatusOr<FileLock> lock = FileLock::Acquire(options_.directory + "/LOCK");
  if (!lock.ok()) return lock.status();
  lock_ = *std::move(lock);
  for (const char* name : {"prometheus.yml", "rules.yml"}) {
    const fs::path from = fs::path(options_.dashboards) / name;
    fs::copy_file(from, fs::path(options_.directory) / name, fs::copy_options::overwrite_existing, error);
    if (error) {
      return absl::InternalError(
          fmt::format("cannot copy {} to {}: {}", from.string(), options_.directory, error.message()));
    }
  }
  return absl::OkStatus();
}

void Observer::Start() {
  absl::Status status = Prepare();
  program_ = FindProgram(kProgram, options_.tools);
  if (status.ok() && program_.empty()) {
    status =
        absl::NotFoundError(fmt::format("there is no program `{}` in PATH; install Debian's package of that "
                                        "name, or let your own Prometheus read {}",
                                        kProgram, options_.Targets()));
  }
  if (status.ok()) status = CheckPort(options_.port);
  if (status.ok()) status = Launch();
  if (!status.ok()) GiveUp("Prometheus was not started: " + std::string(status.message()));
  const std::string grafana = ProvisionGrafana(FindGrafanaProvisioning(), options_.dashboards, Url());
  const runtime::MutexLock lock(mutex_);
  grafana_note_ = grafana;
}

absl::Status Observer::Launch() {
  SpawnRequest request;
  request.arguments = {program_,
                       "--config.file=" + options_.directory + "/prometheus.yml",
                       "--storage.tsdb.path=" + options_.directory + "/prometheus",
                       std::string("--storage.tsdb.retention.size=") + kRetentionBytes,
                       fmt::format("--web.listen-address=127.0.0.1:{}", options_.port),
                       "--log.level=warn"};
  request.log_path = options_.Log();
  request.cpus = options_.cpus;
  std::error_code error;
  const uintmax_t log_bytes = fs::file_size(request.log_path, error);
  log_begin_ = error ? 0 : log_bytes;
  absl::StatusOr<pid_t> pid = Spawn(request);
  if (!pid.ok()) return pid.status();
  pid_ = *pid;
  started_ms_ = MonotonicMs();
  spdlog::info("Prometheus: process {}, 127.0.0.1:{}", pid_, options_.port);
  SetState(State::kStarting, "");
  return absl::OkStatus();
}

void Observer::Step() {
  int wait_status = 0;
  if (pid_ > 0 && waitpid(pid_, &wait_status, WNOHANG) == pid_) OnExit(wait_status);
  if (state_ == State::kStarting || state_ == State::kSlow) {
    if (Answers(options_.port)) {
      was_ready_ = true;
      SetState(State::kReady, "");
    } else if (state_ == State::kStarting && MonotonicMs() - started_ms_ >= kPatienceMs) {
      SetState(State::kSlow, fmt::format("Prometheus has not answered within {} s; see {}",
                                         kPatienceMs / 1000, options_.Log()));
    }
  } else if (state_ == State::kLost && MonotonicMs() >= restart_at_ms_) {
    const absl::Status launched = Launch();
    if (!launched.ok()) GiveUp("Prometheus was not restarted: " + std::string(launched.message()));
  }
}

void Observer::OnExit(int wait_status) {
  pid_ = 0;
  const std::string words = OneLine(LastLines(options_.Log(), 1, "", log_begin_));
  const std::string why = fmt::format("Prometheus ended, {}; {}", DescribeExit(wait_status),
                                      words.empty() ? "see " + options_.Log() : "last words: " + words);
  // One that never came up has a reason that stays, most likely somebody who was faster to take the port.
  if (!was_ready_) {
    const absl::Status port = CheckPort(options_.port);
    return GiveUp(port.ok() ? why : "Prometheus was not started: " + std::string(port.message()));
  }
  const std::optional<int64_t> delay_ms = policy_.OnLost(MonotonicMs());
  if (!delay_ms) {
    return GiveUp(fmt::format("{}; given up after {} restarts, `down` and `up` start it again", why,
                              options_.restarts.budget));
  }
  spdlog::warn("{}", why);
  restart_at_ms_ = MonotonicMs() + *delay_ms;
  SetState(State::kLost, why + "; it is restarted");
}

void Observer::GiveUp(const std::string& why) {
  spdlog::info("{}", why);  // who asked for it is told in other ways
  lock_.reset();
  SetState(State::kGone, why);
}

void Observer::Stop() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    const int64_t until_ms = MonotonicMs() + kGraceMs;
    bool killed = false;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (!killed && MonotonicMs() >= until_ms) {
        spdlog::warn("Prometheus: did not stop within {} ms, killing process {}", kGraceMs, pid_);
        kill(pid_, SIGKILL);
        killed = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = 0;
  }
  lock_.reset();
  SetState(State::kGone, "");
}

void Observer::SetState(State state, std::string prometheus_note) {
  state_ = state;
  const runtime::MutexLock lock(mutex_);
  prometheus_note_ = std::move(prometheus_note);
  described_.set_starting(state == State::kStarting);
  described_.set_prometheus_pid(pid_);
  described_.set_prometheus_url(pid_ > 0 ? Url() : "");
}

control::v1::Observation Observer::Describe() const {
  const runtime::MutexLock lock(mutex_);
  control::v1::Observation described = described_;
  for (const std::string* note : {&prometheus_note_, &grafana_note_}) {
    if (!note->empty()) described.add_notes(*note);
  }
  return described;
}

}  // namespace islands::deploy
