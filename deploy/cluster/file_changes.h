// Whether a deployment's file still describes what runs: it may have been edited since `islands up`, and
// nothing of that holds before the next one.
//
// Compared is what islands are started with. What follows from the machine alone - CPUs, nodes, an automatic
// size of the buffer pool - may differ from one look to the next, and says nothing about the file.
//
// Thread safety: pure functions, but for reading the machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/file/deployment.h"
#include "deploy/plan/resolve.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// Takes out of `wanted` the tables that clients have made since, as they are.
void LeaveOutMade(const control::v1::IslandConfig& running, control::v1::IslandConfig* wanted);

// In the words of IslandConfig, "island 0: pool_bytes: 67108864 -> 134217728"; none: the file describes what
// runs.
std::vector<std::string> Differences(const control::v1::ClusterStatus& status,
                                     const ResolvedDeployment& resolved);

// A line for people, without its end; empty: the file describes what runs. `resolved`: of the file as it is
// now.
std::string FileWarning(const control::v1::ClusterStatus& status, const Deployment& deployment,
                        const absl::StatusOr<ResolvedDeployment>& resolved);

}  // namespace islands::deploy
