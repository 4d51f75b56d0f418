#include "experiments/peers/scratch_directory.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace islands::experiments {
namespace {

constexpr int kExitInterrupted = 130;
constexpr int kRemoveTries = 100;

std::atomic<bool> g_interrupted = false;

// An engine may be adding files meanwhile.
void Remove(const std::string& path) {
  std::error_code error;
  for (int i = 0; i < kRemoveTries && std::filesystem::exists(path, error); ++i) {
    std::filesystem::remove_all(path, error);
  }
}

sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchDirectory>> ScratchDirectory::Create(const std::string& parent,
                                                                           void (*before_removal)()) {
  const sigset_t signals = BlockSignals();
  std::string path = parent + "/islands-peers-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno,
                               fmt::format("cannot create a directory in '{}'; use --directory", parent));
  }
  // A server that refuses to be root's has its files inside.
  if (geteuid() == 0) chmod(path.c_str(), 0711);
  // Not joined: it waits as long as the process lives.
  std::thread([signals, path, before_removal] {
    int signal = 0;
    sigwait(&signals, &signal);
    g_interrupted = true;
    if (before_removal != nullptr) before_removal();
    Remove(path);
    _exit(kExitInterrupted);
  }).detach();
  return std::unique_ptr<ScratchDirectory>(new ScratchDirectory(std::move(path)));
}

ScratchDirectory::ScratchDirectory(std::string path) : path_(std::move(path)) {}

ScratchDirectory::~ScratchDirectory() {
  // Who is interrupted ends as such, also when its main thread comes to its end meanwhile.
  while (g_interrupted) pause();
  Remove(path_);
}

std::string DefaultScratchParent() {
  std::error_code error;
  if (access("/dev/shm", W_OK) == 0) return "/dev/shm";
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  return error ? "." : temporary.string();
}

}  // namespace islands::experiments
