// Where a cluster's sockets, locks and logs lie.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/file/deployment.h"

namespace islands::deploy {

// The files of a deployment's control directory that the supervisor and commands use (islandd adds its own).
struct ControlFiles {
  std::string directory;   // absolute
  std::string deployment;  // whose they are; empty: anybody's
  std::string file = {};   // that says so, as in a claim (claim.h)

  std::string SupervisorSocket() const { return directory + "/supervisor.sock"; }
  std::string SupervisorLock() const { return directory + "/supervisor.lock"; }
  std::string SupervisorLog() const { return directory + "/supervisor.log"; }
  std::string OwnSettings() const { return directory + "/supervisor.json"; }  // file_changes.h
  // Why the deployment that was up here last has ended by itself; there is none if it was taken down.
  std::string Ended() const { return directory + "/ended"; }
  std::string LoggerLog() const { return directory + "/logger.log"; }
  std::string GatewayLog() const { return directory + "/gateway.log"; }
  std::string GatewaySocket() const { return directory + "/gateway.sock"; }
  std::string RunLock() const { return directory + "/run.lock"; }
  std::string IslandSocket(uint32_t island) const { return Island(island, "ctl"); }
  std::string IslandLock(uint32_t island) const { return Island(island, "lock"); }
  std::string IslandLog(uint32_t island) const { return Island(island, "log"); }
  std::string IslandConfig(uint32_t island) const { return Island(island, "json"); }
  std::string IslandName(uint32_t island) const;  // of no file: shows in `ps` which island a process is
  std::vector<uint32_t> IslandsWithLogs() const;  // of whatever layout, ascending
  // Existing island-N.lock files, of whatever layout.
  std::vector<std::string> AllIslandLocks() const;

 private:
  std::string Island(uint32_t island, const char* suffix) const { return IslandName(island) + "." + suffix; }
};

// Absolute, as resolve.h makes it, but without looking at the machine. The directory need not be there; if it
// is, it must be this user's alone, else PERMISSION_DENIED: a lock that somebody else wrote must not tell us
// whom to signal, nor a socket of his answer for a supervisor.
absl::StatusOr<ControlFiles> ControlFilesOf(const Deployment& deployment);

}  // namespace islands::deploy
