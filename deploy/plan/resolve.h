// Deployment file + machine -> what exactly would run: the part of `plan` and `up` that they share.
//
// Thread safety: plain values and functions.
//
// Invariants:
//  1. A ResolvedDeployment can be started as it is: what topology/planner.h promises of its plan, and socket
//     paths fit into a sockaddr_un.
//  2. service_cpus has exactly plan.islands.size() entries.
//  3. Errors are INVALID_ARGUMENT with one complaint per line in the deployment's `file:line:column:` form,
//     except those of reading this machine, which are not the file's fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/file/deployment.h"
#include "proto/control.pb.h"
#include "topology/machine.h"
#include "topology/planner.h"

namespace islands::deploy {

inline constexpr const char* kSupervisorSocketName = "supervisor.sock";

struct ResolvedDeployment {
  Deployment deployment;
  topology::Machine machine;
  topology::Plan plan;
  bool bound = false;               // workers and memory are bound; false: placement `os` or another machine
  std::string unbound_reason = {};  // why not, for people; empty if bound
  bool cores_shared = false;        // more workers than cores where this would run
  std::vector<int32_t> service_cpus = {};  // by island; a PU that no worker uses, or -1
  std::string data_directory = {};         // absolute, as are the next two
  std::string log_directory = {};
  std::string ring_directory = {};  // empty: in /dev/shm
  std::string control_directory = {};
  std::vector<std::string> notes = {};  // what a person should know before `up`

  std::string SupervisorSocket() const { return control_directory + "/" + kSupervisorSocketName; }
};

// As a ResolvedDeployment has them, without the machine.
std::string DataDirectoryOf(const Deployment& deployment);
std::string LogDirectoryOf(const Deployment& deployment);
std::string RingDirectoryOf(const Deployment& deployment);

// Loads the machine that the file names, then ResolveOn.
absl::StatusOr<ResolvedDeployment> Resolve(const Deployment& deployment);
// For a given machine: a pure function but for the number of this machine's CPUs, which decides
// `cores_shared` of unbound deployments, and for the user, whose runtime directory a complaint recommends.
absl::StatusOr<ResolvedDeployment> ResolveOn(const Deployment& deployment, topology::Machine machine);

// What the gateway will read is there, and is PEM. Not a part of Resolve: nobody else needs it.
absl::Status CheckPemFiles(const Deployment& deployment);

// `up` can make the directories and write to them. Looks, and makes nothing. INVALID_ARGUMENT: complaints.
absl::Status CheckDirectories(const ResolvedDeployment& resolved);

// PUs of cores that no worker has, for what runs beside islands; none: anywhere.
std::vector<uint32_t> SpareCpus(const ResolvedDeployment& resolved);

// The port after the last island's; 0: no gateway, or no metrics.
uint32_t GatewayMetricsPort(const ResolvedDeployment& resolved);
// As gRPC clients write them; none: no gateway.
std::vector<std::string> GatewayAddresses(const ResolvedDeployment& resolved);

// LoadDeployment and Resolve.
absl::StatusOr<ResolvedDeployment> ResolveFile(const std::string& path);

// Where sockets of a user's deployment may lie by short paths. `runtime_directory` is $XDG_RUNTIME_DIR; null
// where there is none.
std::string ShortControlDirectory(const std::string& deployment, uint32_t user,
                                  const char* runtime_directory);

// What each islandd is started with. cluster_id, boot_epoch, layout_generation and loads are left for the
// supervisor.
std::vector<control::v1::IslandConfig> MakeIslandConfigs(const ResolvedDeployment& resolved);

}  // namespace islands::deploy
