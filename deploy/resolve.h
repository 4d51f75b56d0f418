// Deployment file + machine -> what exactly would run: the part of `plan` and `up` that they share.
//
// Thread safety: plain values and functions.
//
// Invariants:
//  1. A ResolvedDeployment can be started as it is: cores exist and are allowed, memory fits, sites >=
//     islands, socket paths fit into a sockaddr_un, ports are valid.
//  2. Vectors indexed by island have exactly plan.islands.size() entries.
//  3. Errors are INVALID_ARGUMENT with one complaint per line in the deployment's `file:line:column:` form,
//     except those of reading this machine, which are not the file's fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/deployment.h"
#include "partitioner/site_map.h"
#include "proto/control.pb.h"
#include "topology/machine.h"
#include "topology/planner.h"

namespace islands::deploy {

inline constexpr size_t kMaxSocketPathBytes = 107;  // sockaddr_un without its terminating zero
inline constexpr const char* kSupervisorSocketName = "supervisor.sock";

struct ResolvedDeployment {
  Deployment deployment;
  topology::Machine machine;
  topology::Plan plan;  // memory divided by sites
  partitioner::SiteMap site_map;
  bool bound = false;               // workers and memory are bound; false: placement `os` or another machine
  std::string unbound_reason = {};  // why not, for people; empty if bound
  bool cores_shared = false;        // more workers than cores where this would run
  std::vector<uint32_t> metrics_ports = {};  // by island; 0 = none
  std::vector<int32_t> service_cpus = {};    // by island; a PU that no worker uses, or -1
  std::string data_directory = {};           // absolute, as are the next two
  std::string log_directory = {};
  std::string control_directory = {};
  std::vector<std::string> notes = {};  // what a person should know before `up`

  std::string SupervisorSocket() const { return control_directory + "/" + kSupervisorSocketName; }
};

// Loads the machine that the file names, then ResolveOn.
absl::StatusOr<ResolvedDeployment> Resolve(const Deployment& deployment);
// For a given machine: a pure function but for the number of this machine's CPUs, which decides
// `cores_shared` of unbound deployments, and for the user, whose runtime directory a complaint recommends.
absl::StatusOr<ResolvedDeployment> ResolveOn(const Deployment& deployment, topology::Machine machine);

// LoadDeployment and Resolve.
absl::StatusOr<ResolvedDeployment> ResolveFile(const std::string& path);

// `buffer_pool: auto`: a quarter of the machine's memory for the cores used, whole MiB, and enough for every
// island.
uint64_t AutoPoolBytes(const topology::Machine& machine, size_t cores_used, size_t islands);

// Where sockets of a user's deployment may lie by short paths. `runtime_directory` is $XDG_RUNTIME_DIR; null
// where there is none.
std::string ShortControlDirectory(const std::string& deployment, uint32_t user,
                                  const char* runtime_directory);

// What each islandd is started with. cluster_id, boot_epoch, layout_generation and loads are left for the
// supervisor.
std::vector<control::v1::IslandConfig> MakeIslandConfigs(const ResolvedDeployment& resolved);

}  // namespace islands::deploy
