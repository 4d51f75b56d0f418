// The supervisor: one process per running deployment that starts its islands, restarts lost ones, answers
// status and stops everything.
//
// It runs as `islands supervise FILE`, a hidden command that `islands up` starts in a session of its own.
// Islands are its children and die with it (processes/spawn.h), so that a dead supervisor leaves no orphans;
// its locks (supervisor_data.h) keep a second one away until its islands are gone, so that a new one starts
// no doubles.
//
// Thread safety: Run is called once, on the main thread, which alone starts, signals and reaps islands.
// Control requests arrive on the control server's threads; they read island states and write remembered loads
// under one mutex.
//
// Invariants:
//  1. An island's process is started only with a boot epoch that was saved in the manifest before, and, where
//     there is a log, as supervisor_log.h says.
//  2. Only processes started here are signalled, by pid, and only while they have not been reaped.
//  3. After Run returns, no island started here is alive, nor its logger, gateway or Prometheus.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "deploy/observe/observer.h"
#include "deploy/plan/resolve.h"
#include "deploy/processes/restart.h"

namespace islands::deploy {

struct SupervisorOptions {
  std::string island_program;   // absolute path of islandd
  std::string logger_program;   // likewise of islands-logger
  std::string gateway_program;  // and of islands-gateway
  int report_fd = -1;           // `up` reads kReadyReport or the reason of a failure there
  RestartLimits restarts;
  std::string targets_folder = {};               // where Prometheus finds the islands; empty: nobody asks
  std::optional<ObserverOptions> observer = {};  // a Prometheus of this cluster's own
  int64_t grace_ms = 5'000;                      // from the polite request to stop to SIGKILL
};

inline constexpr const char* kReadyReport = "ready";

// Blocks until told to stop (control request, SIGTERM, SIGINT) or start-up failed. Returns the exit code.
int Supervise(const ResolvedDeployment& resolved, const SupervisorOptions& options);

}  // namespace islands::deploy
