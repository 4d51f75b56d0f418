// A running cluster as people and programs see it: `status`, and what `up` prints when all is ready.
//
// What an island should have (cpus, nodes, memory, sites) is said with the same keys as in `plan`; what it
// really has was read back from the kernel.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "deploy/plan/resolve.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// "ready", "given up"...
std::string_view StateName(control::v1::IslandState state);
// The same, and "hung" for one that is ready but does not move.
std::string_view StateName(const control::v1::IslandStatus& island);
std::string_view StateName(const control::v1::GatewayStatus& gateway);

// One JSON document with a final newline. `resolved` is what the file says now (null: it cannot be resolved
// any more): where it still describes what runs, islands begin with exactly the object that `plan` shows.
std::string StatusJson(const control::v1::ClusterStatus& status, const ResolvedDeployment* resolved);
std::string StatusText(const control::v1::ClusterStatus& status);
// Whether all of it does its work: islands and gateway ready and not hung, a log with a logger and with room.
bool AllWork(const control::v1::ClusterStatus& status);

}  // namespace islands::deploy
