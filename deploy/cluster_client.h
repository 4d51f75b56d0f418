// What commands need to talk to a running cluster: where its sockets and locks lie, calls to the supervisor
// and to many islands at once, and interruptible sleep.
//
// Thread safety: ClusterClient is immutable and may be shared; Interrupts belongs to the main thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/deployment.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// The files of a deployment's control directory that the supervisor and commands use (islandd adds its own).
struct ControlFiles {
  std::string directory;   // absolute
  std::string deployment;  // whose they are, by its file; empty: anybody's

  std::string SupervisorSocket() const { return directory + "/supervisor.sock"; }
  std::string SupervisorLock() const { return directory + "/supervisor.lock"; }
  std::string SupervisorLog() const { return directory + "/supervisor.log"; }
  std::string RunLock() const { return directory + "/run.lock"; }
  std::string IslandSocket(uint32_t island) const { return Island(island, "ctl"); }
  std::string IslandLock(uint32_t island) const { return Island(island, "lock"); }
  std::string IslandLog(uint32_t island) const { return Island(island, "log"); }
  std::string IslandConfig(uint32_t island) const { return Island(island, "json"); }
  std::string IslandName(uint32_t island) const;  // of no file: shows in `ps` which island a process is
  // Existing island-N.lock files, of whatever layout.
  std::vector<std::string> AllIslandLocks() const;

 private:
  std::string Island(uint32_t island, const char* suffix) const { return IslandName(island) + "." + suffix; }
};

// Absolute, as resolve.h makes it, but without looking at the machine. The directory need not be there; if it
// is, it must be this user's alone, else PERMISSION_DENIED: a lock that somebody else wrote must not tell us
// whom to signal, nor a socket of his answer for a supervisor.
absl::StatusOr<ControlFiles> ControlFilesOf(const Deployment& deployment);

int64_t MonotonicMs();

class ClusterClient {
 public:
  using Reply = absl::StatusOr<control::v1::Reply>;

  explicit ClusterClient(ControlFiles files) : files_(std::move(files)) {}

  const ControlFiles& files() const { return files_; }
  // UNAVAILABLE with a user's words when it is not up, FAILED_PRECONDITION when another deployment is.
  absl::StatusOr<control::v1::ClusterStatus> Status(int64_t timeout_ms) const;
  Reply CallSupervisor(const control::v1::Request& request, int64_t timeout_ms) const;
  Reply CallIsland(uint32_t island, const control::v1::Request& request, int64_t timeout_ms) const;
  // The same request to every island of `islands`, in parallel; replies in that order.
  std::vector<Reply> CallIslands(const std::vector<uint32_t>& islands, const control::v1::Request& request,
                                 int64_t timeout_ms) const;

 private:
  ControlFiles files_;
};

// While it lives, SIGINT and SIGTERM do not end the process but are noticed here. Threads started meanwhile
// inherit that.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  enum class Wake { kTimeout, kInterrupted, kReadable };
  // Sleeps until interrupted (also if that was earlier), or until `file` (if >= 0) is readable or closed by
  // its writers.
  Wake Sleep(int64_t ms, int file = -1);
  bool interrupted() { return Sleep(0) == Wake::kInterrupted; }

 private:
  int signal_file_ = -1;
  bool interrupted_ = false;
};

}  // namespace islands::deploy
