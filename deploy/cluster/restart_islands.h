// Islands that end in good order one after the other, and are started again by their supervisor.
//
// Thread safety: main thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "deploy/cluster/client.h"
#include "proto/control.pb.h"

namespace islands::deploy {

struct Restarted {
  uint32_t island = 0;
  int32_t pid_before = 0;
  int32_t pid = 0;
  double seconds = 0;
};

// FAILED_PRECONDITION: an island is not ready; or durability is none, so that rows would be lost, and nobody
// has said `yes` to that.
absl::Status CheckMayRestart(const control::v1::ClusterStatus& status, const std::vector<uint32_t>& islands,
                             bool yes);
// Each when the one before is ready again and connected; says on stderr how far it is. Stops at the first
// that is not. CANCELLED: interrupted.
absl::Status RestartEach(const ClusterClient& client, const std::vector<uint32_t>& islands, double timeout_s,
                         std::vector<Restarted>* restarted);

}  // namespace islands::deploy
