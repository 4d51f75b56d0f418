// Whether a deployment's file still describes what runs: it may have been edited since `islands up`, and
// nothing of that holds before the next one.
//
// Compared is what islands are started with. What follows from the machine alone - CPUs, nodes, an automatic
// size of the buffer pool - may differ from one look to the next, and says nothing about the file.
//
// Thread safety: pure functions, but for reading the machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/file/deployment.h"
#include "deploy/plan/resolve.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// Takes out of `wanted` the tables that clients have made since, as they are.
void LeaveOutMade(const control::v1::IslandConfig& running, control::v1::IslandConfig* wanted);

// What of a file the supervisor goes by itself, by its place in the file: what it was started with is in
// RUN/supervisor.json, since no island knows of it.
using OwnSettings = std::map<std::string, std::string>;
OwnSettings OwnSettingsOf(const Deployment& deployment);
absl::Status WriteOwnSettings(const std::string& path, const OwnSettings& settings);
inline constexpr const char* kHungMsPath = "timeouts.hung_ms";

// Of what islands are started with in the words of IslandConfig, "island 0: pool_bytes: 67108864 ->
// 134217728"; then of the supervisor's own settings. None: the file describes what runs.
std::vector<std::string> Differences(const control::v1::ClusterStatus& status,
                                     const ResolvedDeployment& resolved);

// A line for people, without its end; empty: the file describes what runs. `resolved`: of the file as it is
// now.
std::string FileWarning(const control::v1::ClusterStatus& status, const Deployment& deployment,
                        const absl::StatusOr<ResolvedDeployment>& resolved);

}  // namespace islands::deploy
