#include "deploy/processes/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace islands::deploy {
namespace {

sigset_t InterruptSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

int64_t MonotonicMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
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
