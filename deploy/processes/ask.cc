#include "deploy/processes/ask.h"

#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "deploy/processes/spawn.h"
#include "runtime/descriptor.h"

namespace islands::deploy {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(2);

// Whether it ended in time; if not it has been killed. Nothing is left either way.
absl::StatusOr<bool> WaitUntil(pid_t pid, std::chrono::steady_clock::time_point until, int* wait_status) {
  while (true) {
    const pid_t ended = waitpid(pid, wait_status, WNOHANG);
    if (ended < 0) return absl::ErrnoToStatus(errno, "cannot tell how a program ended");
    if (ended != 0) return true;
    if (std::chrono::steady_clock::now() >= until) {
      kill(pid, SIGKILL);
      waitpid(pid, wait_status, 0);
      return false;
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

absl::StatusOr<std::string> Written(int fd, const std::string& program) {
  if (lseek(fd, 0, SEEK_SET) < 0) return absl::ErrnoToStatus(errno, "cannot read what " + program + " said");
  return runtime::ReadAll(fd, "what " + program + " said");
}

}  // namespace

absl::StatusOr<Answer> Ask(const std::vector<std::string>& arguments, int64_t timeout_ms,
                           const std::vector<int>& inherit_fds) {
  // Files in memory, not pipes: whoever has much to say does not wait for a reader.
  const runtime::UniqueFd out(memfd_create("answer", MFD_CLOEXEC));
  const runtime::UniqueFd err(memfd_create("complaints", MFD_CLOEXEC));
  if (!out || !err) return absl::ErrnoToStatus(errno, fmt::format("cannot start {}", arguments[0]));
  const absl::StatusOr<pid_t> pid = Spawn(
      {.arguments = arguments, .stdout_fd = out.get(), .stderr_fd = err.get(), .inherit_fds = inherit_fds});
  if (!pid.ok()) return pid.status();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  Answer answer;
  const absl::StatusOr<bool> in_time = WaitUntil(*pid, until, &answer.wait_status);
  if (!in_time.ok()) return in_time.status();
  if (!*in_time) {
    return absl::DeadlineExceededError(
        fmt::format("`{}` did not end within {} s", fmt::join(arguments, " "), timeout_ms / 1000.0));
  }
  absl::StatusOr<std::string> said = Written(out.get(), arguments[0]);
  absl::StatusOr<std::string> complained = Written(err.get(), arguments[0]);
  if (!said.ok()) return said.status();
  if (!complained.ok()) return complained.status();
  answer.out = *std::move(said);
  answer.err = *std::move(complained);
  return answer;
}

}  // namespace islands::deploy
