#include "instance/messaging/waker.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "runtime/clock.h"

namespace islands::messaging {

absl::Status EpollWaker::Open() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  event_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTag;
  if (!epoll_ || !event_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "cannot set up epoll for a worker");
  }
  return absl::OkStatus();
}

void EpollWaker::Wake() {
  if (woken_.exchange(true)) return;
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

void EpollWaker::Sleep(int64_t timeout_ns) {
  if (timeout_ns > 0 && !woken_.load()) WaitForEvents(timeout_ns);
  // A Wake may fall between these two lines. Either its write is read here while woken_ stays set, and the
  // next Sleep returns at once because of woken_; or its write comes later and ends the next Sleep early. It
  // is never lost.
  woken_.exchange(false);
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(event_.get(), &count, sizeof(count));
}

void EpollWaker::WaitForEvents(int64_t timeout_ns) {
  epoll_event event;
  if (has_pwait2_) {
    const timespec timeout{timeout_ns / runtime::kNsPerSecond, timeout_ns % runtime::kNsPerSecond};
    if (epoll_pwait2(epoll_.get(), &event, 1, &timeout, nullptr) >= 0 || errno != ENOSYS) return;
    has_pwait2_ = false;
  }
  const int64_t timeout_ms =
      std::min<int64_t>(timeout_ns / runtime::kNsPerMs + (timeout_ns % runtime::kNsPerMs != 0),
                        std::numeric_limits<int>::max());
  epoll_wait(epoll_.get(), &event, 1, static_cast<int>(timeout_ms));
}

}  // namespace islands::messaging
