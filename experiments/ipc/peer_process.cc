#include "experiments/ipc/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "experiments/program.h"

namespace islands::experiments {
namespace {

constexpr int kDeathMs = 1000;  // between an error of the channel and the death that caused it

sigset_t Termination() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

absl::Status Failed(const char* call, int error) { return absl::ErrnoToStatus(error, call); }

}  // namespace

void BlockTermination() {
  const sigset_t signals = Termination();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

absl::StatusOr<std::unique_ptr<PeerProcess>> PeerProcess::Start(std::string program,
                                                                const std::function<int()>& body) {
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Failed("fork", errno);
  if (pid == 0) {
    // The parent may have died before it was asked to take the peer with it.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(kExitFailed);
    const int exit_code = body();
    std::fflush(nullptr);
    _exit(exit_code);
  }
  auto started = std::make_unique<PeerProcess>(std::move(program), pid);
  const sigset_t signals = Termination();
  started->pid_fd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!started->pid_fd_.ok()) return Failed("pidfd_open", errno);
  started->signal_fd_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC));
  if (!started->signal_fd_.ok()) return Failed("signalfd", errno);
  started->stop_fd_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!started->stop_fd_.ok()) return Failed("eventfd", errno);
  return started;
}

PeerProcess::~PeerProcess() {
  if (watch_.joinable()) {
    eventfd_write(stop_fd_.get(), 1);
    watch_.join();
  }
  KillAndReap();
}

void PeerProcess::Watch(double deadline_s) {
  watch_ = std::thread([this, ms = static_cast<int>(deadline_s * 1000)] { RunWatch(ms); });
}

void PeerProcess::EndIfPeerIsGone() {
  pollfd death{pid_fd_.get(), POLLIN, 0};
  if (poll(&death, 1, kDeathMs) <= 0) return;
  // The watch sees the same and ends the process, unless the peer thought that all was well.
  poll(nullptr, 0, kDeathMs);
}

void PeerProcess::RunWatch(int timeout_ms) {
  pollfd fds[] = {{stop_fd_.get(), POLLIN, 0}, {signal_fd_.get(), POLLIN, 0}, {pid_fd_.get(), POLLIN, 0}};
  for (;;) {
    const int ready = poll(fds, std::size(fds), timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      End(kExitFailed,
          fmt::format("no end after {} s: the peer process does not answer", timeout_ms / 1000.0));
    }
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) End(kExitInterrupted, "");
    if (fds[2].revents != 0) {
      ReapPeer();
      fds[2].fd = -1;
    }
  }
}

void PeerProcess::ReapPeer() {
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  if (WIFSIGNALED(status)) {
    End(kExitFailed, fmt::format("the peer process was killed by signal {} ({})", WTERMSIG(status),
                                 strsignal(WTERMSIG(status))));
  }
  if (WEXITSTATUS(status) == kExitFailed) End(kExitFailed, "");
  if (WEXITSTATUS(status) != 0) {
    End(kExitFailed, fmt::format("the peer process exited with code {}", WEXITSTATUS(status)));
  }
}

void PeerProcess::KillAndReap() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  reaped_ = true;
}

void PeerProcess::End(int exit_code, const std::string& why) {
  KillAndReap();
  if (!why.empty()) fmt::print(stderr, "{}: {}\n", program_, why);
  std::fflush(stderr);
  _exit(exit_code);
}

}  // namespace islands::experiments
