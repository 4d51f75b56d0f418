// What a supervisor does with one island, apart from watching it: start its process, remember its loads, ask
// how it is.
//
// Thread safety: StartIsland on the main thread only (processes/spawn.h); the rest from any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/cluster/client.h"
#include "proto/control.pb.h"

namespace islands::deploy {

struct StartedIsland {
  pid_t pid = 0;
  uint64_t log_begin = 0;  // where its lines begin in island-N.log
};

// Starts `program` with the configuration on descriptor kInheritedFd, sealed: between us and it nobody can
// change what it names, shared objects among it. RUN/island-N.json is a copy for people. The config's boot
// epoch has been saved in the manifest. `board_fd`: of the log's epochs; -1: there is no log.
absl::StatusOr<StartedIsland> StartIsland(const std::string& program, const ControlFiles& files,
                                          const control::v1::IslandConfig& config, int pulse_fd,
                                          int board_fd);

// Completes every entry that has a process with what the island says of itself: placement, links, whether it
// runs.
void AskIslands(const ClusterClient& client, control::v1::ClusterStatus* status);

}  // namespace islands::deploy
