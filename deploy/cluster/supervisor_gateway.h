// The gateway as a child of the supervisor: started, restarted when lost, described, stopped.
//
// Islands run on whatever happens to it, once the deployment is up; before, a gateway that does not start
// is a start that failed. One that stands still is said to be hung, and may go on.
//
// Thread safety: Describe may be called from any thread; the rest belongs to the main thread (Spawn's rule).
//
// Invariants:
//  1. A gateway is signalled by its pid only, and only while it has not been reaped.
//  2. Once `gone` says so after BeginStop, none that was started here is alive; it dies with this process,
//     too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "deploy/cluster/supervisor_hang.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/control_files.h"
#include "deploy/processes/restart.h"
#include "proto/control.pb.h"
#include "runtime/mutex.h"

namespace islands::deploy {

// What it is started with. The deployment has one.
control::v1::GatewayConfig MakeGatewayConfig(const ResolvedDeployment& resolved);

class GatewayKeeper {
 public:
  GatewayKeeper(std::string program, ControlFiles files, control::v1::GatewayConfig config,
                RestartLimits restarts);

  absl::Status Start();
  // To be called again and again: notices that it is ready or gone, and restarts it. An error: it has
  // ended before it was ever ready.
  absl::Status Step();
  bool ready() const { return state_ == control::v1::READY; }
  // Until something is expected to happen; at most `otherwise`.
  int64_t WaitMs(int64_t otherwise) const;
  void BeginStop();
  void Kill();
  // There is no process. To be asked again and again.
  bool Gone();
  control::v1::GatewayStatus Describe() const;

 private:
  absl::Status Launch();
  void LookWhetherItMoves();
  absl::Status OnExit(int wait_status);
  void SetState(control::v1::IslandState state, std::string detail);

  const std::string program_;
  const ControlFiles files_;
  const control::v1::GatewayConfig config_;
  const RestartLimits limits_;
  RestartPolicy policy_;
  pid_t pid_ = 0;  // 0: no process
  control::v1::IslandState state_ = control::v1::STOPPED;
  bool was_ready_ = false;
  uint64_t log_begin_ = 0;  // where its lines begin
  int64_t restart_at_ms_ = 0;
  uint32_t restarts_ = 0;
  std::string metrics_problem_;  // as it was started; it serves clients all the same
  std::optional<WatchedPulses> pulses_;
  int64_t hung_ms_ = 0;

  mutable runtime::Mutex mutex_;
  control::v1::GatewayStatus described_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace islands::deploy
