#include "deploy/cluster_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "instance/messaging/control_channel.h"
#include "instance/runtime/private_files.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

sigset_t InterruptSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

bool IsIslandLock(const std::string& name) {
  constexpr std::string_view kPrefix = "island-";
  constexpr std::string_view kSuffix = ".lock";
  if (name.size() <= kPrefix.size() + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix)) {
    return false;
  }
  return std::all_of(name.begin() + kPrefix.size(), name.end() - kSuffix.size(),
                     [](unsigned char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string ControlFiles::IslandName(uint32_t island) const {
  return fmt::format("{}/island-{}", directory, island);
}

std::vector<std::string> ControlFiles::AllIslandLocks() const {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (IsIslandLock(it->path().filename().string())) paths.push_back(it->path().string());
  }
  return paths;
}

absl::StatusOr<ControlFiles> ControlFilesOf(const Deployment& deployment) {
  fs::path path = fs::path(deployment.folder) / deployment.control_directory;
  std::string text = path.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  const absl::Status checked = runtime::CheckPrivateDirectory(text);
  if (!checked.ok() && !absl::IsNotFound(checked)) return checked;
  return ControlFiles{text, deployment.name};
}

int64_t MonotonicMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

absl::StatusOr<control::v1::ClusterStatus> ClusterClient::Status(int64_t timeout_ms) const {
  control::v1::Request request;
  request.mutable_status();
  Reply reply = CallSupervisor(request, timeout_ms);
  if (!reply.ok()) return reply.status();
  if (!reply->has_cluster_status()) {
    return absl::InternalError(
        fmt::format("{} answered without a status; is it another version?", files_.SupervisorSocket()));
  }
  const std::string& found = reply->cluster_status().deployment();
  if (!files_.deployment.empty() && !found.empty() && found != files_.deployment) {
    return absl::FailedPreconditionError(
        fmt::format("{} is where the deployment '{}' runs, not '{}'; give one of them another "
                    "control.directory, or end that one with its own file",
                    files_.directory, found, files_.deployment));
  }
  return std::move(*reply->mutable_cluster_status());
}

ClusterClient::Reply ClusterClient::CallSupervisor(const control::v1::Request& request,
                                                   int64_t timeout_ms) const {
  Reply reply = messaging::ControlCall(files_.SupervisorSocket(), request, timeout_ms);
  if (absl::IsUnavailable(reply.status())) {
    return absl::UnavailableError(fmt::format(
        "not up: no supervisor answers in {}; start it with `islands up FILE`", files_.directory));
  }
  return reply;
}

ClusterClient::Reply ClusterClient::CallIsland(uint32_t island, const control::v1::Request& request,
                                               int64_t timeout_ms) const {
  Reply reply = messaging::ControlCall(files_.IslandSocket(island), request, timeout_ms);
  if (reply.ok()) return reply;
  return absl::Status(reply.status().code(),
                      fmt::format("island {}: {}", island, std::string(reply.status().message())));
}

std::vector<ClusterClient::Reply> ClusterClient::CallIslands(const std::vector<uint32_t>& islands,
                                                             const control::v1::Request& request,
                                                             int64_t timeout_ms) const {
  std::vector<Reply> replies(islands.size(), absl::UnknownError("not called"));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < islands.size(); ++i) {
    threads.emplace_back([&, i] { replies[i] = CallIsland(islands[i], request, timeout_ms); });
  }
  if (!islands.empty()) replies[0] = CallIsland(islands[0], request, timeout_ms);
  for (std::thread& thread : threads) thread.join();
  return replies;
}

Interrupts::Interrupts() {
  const sigset_t signals = InterruptSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_file_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

Interrupts::~Interrupts() {
  // Nothing is left pending that would end the process the moment the signals are let through.
  signalfd_siginfo info;
  while (signal_file_ >= 0 && read(signal_file_, &info, sizeof(info)) == sizeof(info)) {
  }
  if (signal_file_ >= 0) close(signal_file_);
  const sigset_t signals = InterruptSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

Interrupts::Wake Interrupts::Sleep(int64_t ms, int file) {
  const int64_t until_ms = MonotonicMs() + std::max<int64_t>(ms, 0);
  while (!interrupted_) {
    pollfd waits[2] = {{signal_file_, POLLIN, 0}, {file, POLLIN, 0}};
    const int64_t left_ms = std::max<int64_t>(until_ms - MonotonicMs(), 0);
    const int ready = poll(waits, 2, static_cast<int>(std::min<int64_t>(left_ms, 1'000'000)));
    if (ready > 0 && (waits[0].revents & POLLIN) != 0) {
      interrupted_ = true;
    } else if (ready > 0 && waits[1].revents != 0) {
      return Wake::kReadable;
    } else if (left_ms == 0) {
      return Wake::kTimeout;
    }
  }
  return Wake::kInterrupted;
}

}  // namespace islands::deploy
