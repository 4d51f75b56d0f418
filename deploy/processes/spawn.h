// Starting, watching and ending child processes by their id.
//
// A child dies with its parent: the kernel kills it (PR_SET_PDEATHSIG) when the thread that started it ends,
// whatever ends it. Spawn must therefore be called from the main thread, which lives as long as its process.
//
// Thread safety: Spawn only from the main thread, other threads may run meanwhile (between fork and exec the
// child calls async-signal-safe functions only); the rest from anywhere.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace islands::deploy {

struct SpawnRequest {
  std::vector<std::string> arguments;  // [0] is the program's path
  std::string log_path;                // a private file; stdout and stderr are appended; stdin is /dev/null
  int stdout_fd = -1;                  // without a log
  int stderr_fd = -1;
  bool die_with_parent = true;
  bool own_session = false;         // setsid: survives the terminal
  std::vector<int> inherit_fds;     // become the child's descriptors kInheritedFd, kInheritedFd + 1, ...
  std::vector<uint32_t> cpus = {};  // where it may run, if the kernel lets us choose; empty: anywhere
};

inline constexpr int kInheritedFd = 3;  // the first

// The child starts with no blocked signals and default handlers. A program that cannot be executed shows as
// exit code 127 with the reason in the log.
absl::StatusOr<pid_t> Spawn(const SpawnRequest& request);

// "exit code 1", "killed by signal 9 (Killed)".
std::string DescribeExit(int wait_status);

// The last `lines` lines of a text file from `offset` on, each indented by `indent`; empty when there are
// none. Always UTF-8, which messages have to be: other bytes become U+FFFD.
std::string LastLines(const std::string& path, int lines, const std::string& indent, uint64_t offset = 0);

// Whether a process of this id exists (a zombie does not count).
bool ProcessAlive(pid_t pid);
// Processes that this one's main thread has started; none where the kernel does not say.
std::vector<pid_t> ChildrenOf(pid_t pid);

}  // namespace islands::deploy
