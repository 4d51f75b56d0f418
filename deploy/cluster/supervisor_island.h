// What a supervisor does with one island, apart from watching it: start its process (the gateway's is started
// alike), ask how it is.
//
// Thread safety: what starts processes on the main thread only (processes/spawn.h); the rest from any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/cluster/client.h"
#include "proto/control.pb.h"

namespace islands::deploy {

struct StartedProcess {
  pid_t pid = 0;
  uint64_t log_begin = 0;  // where its lines begin in its log
};

struct ProcessToStart {
  std::string program;
  std::string config;  // JSON
  std::string name;    // --name, for who looks at processes
  std::string log_path;
  int pulse_fd = -1;
  int board_fd = -1;  // of the log's epochs; -1: it has none
};

// Starts it with the configuration on descriptor kInheritedFd, sealed: between us and it nobody can change
// what it names, shared objects among it.
absl::StatusOr<StartedProcess> StartProcess(const ProcessToStart& process);

// RUN/island-N.json is a copy of its configuration for people. The config's boot epoch has been saved in the
// manifest. `board_fd`: of the log's epochs; -1: there is no log.
absl::StatusOr<StartedProcess> StartIsland(const std::string& program, const ControlFiles& files,
                                           const control::v1::IslandConfig& config, int pulse_fd,
                                           int board_fd);

// Completes every entry that has a process with what the island says of itself: placement, links, whether it
// runs.
void AskIslands(const ClusterClient& client, control::v1::ClusterStatus* status);

}  // namespace islands::deploy
