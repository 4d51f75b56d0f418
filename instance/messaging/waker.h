// Wakes a worker that sleeps in epoll, from any thread.
//
// A Wake counts until the owner's next sleep, however many polls lie between: otherwise a message put into a
// mailbox after the owner looked there, but before it went to sleep, would lie until the timeout.
//
// Thread safety: Wake from any thread; the rest belongs to the owner.
#pragma once

#include <cstdint>

#include <atomic>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/messaging/unix_socket.h"

namespace islands::messaging {

class EpollWaker {
 public:
  // Owns an epoll set; the eventfd in it is reported with data.u64 == kTag, level-triggered.
  static constexpr uint64_t kTag = 1;
  absl::Status Open();
  int epoll_fd() const { return epoll_.get(); }

  void Wake();
  // Sleeps until a member of the set is ready, Wake, or the timeout. Does not sleep after a Wake that no
  // Sleep has seen.
  void Sleep(int64_t timeout_ns);

 private:
  void WaitForEvents(int64_t timeout_ns);

  UniqueFd epoll_;
  UniqueFd event_;
  bool has_pwait2_ = true;  // Linux 5.11
  // Set from Wake until the Sleep that sees it; spares the system call of further wakes. The exchanges on
  // both sides order what the waker did before Wake with what the owner does after Sleep.
  std::atomic<bool> woken_{false};
};

}  // namespace islands::messaging
