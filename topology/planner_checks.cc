#include <algorithm>
#include <set>
#include <string_view>

#include "fmt/format.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

void CheckCpus(const Machine& machine, const std::vector<uint32_t>& cpus, PlanField field, uint32_t island,
               PlanComplaints& complaints) {
  std::set<uint32_t> usable;
  for (const Core& core : machine.cores) usable.insert(core.pus.begin(), core.pus.end());
  std::vector<uint32_t> missing, disallowed;
  for (uint32_t cpu : cpus) {
    if (usable.contains(cpu)) continue;
    const auto& known = machine.disallowed_cpus;
    (std::find(known.begin(), known.end(), cpu) == known.end() ? missing : disallowed).push_back(cpu);
  }
  const auto complain = [&](const std::vector<uint32_t>& which, std::string_view why) {
    if (which.empty()) return;
    complaints.push_back({field, island,
                          fmt::format("found CPU {}, which {}, expected CPUs from {}", FormatCpuList(which),
                                      why, FormatCpuList({usable.begin(), usable.end()}))});
  };
  complain(missing, fmt::format("{} does not have", machine.source));
  complain(disallowed, "is offline or not allowed here (cgroup, taskset)");
}

void CheckNodes(const Machine& machine, const std::vector<uint32_t>& numa_nodes, uint32_t island,
                PlanComplaints& complaints) {
  const std::vector<uint32_t> usable = NodesWithMemory(machine);
  for (uint32_t node : numa_nodes) {
    if (std::find(usable.begin(), usable.end(), node) != usable.end()) continue;
    complaints.push_back(
        {PlanField::kIslandNodes, island,
         fmt::format(
             "found NUMA node {}, which does not exist or has no memory on {}, expected nodes from {}", node,
             machine.source, FormatCpuList(usable))});
    return;
  }
}

}  // namespace

void CheckCores(const Machine& machine, const PlanRequest& request, PlanComplaints& complaints) {
  if (request.core_count && (*request.core_count == 0 || *request.core_count > machine.cores.size())) {
    complaints.push_back({PlanField::kCores, 0,
                          *request.core_count == 0
                              ? std::string("found 0 cores, expected at least 1")
                              : fmt::format("found {} cores, expected at most the {} of {}",
                                            *request.core_count, machine.cores.size(), machine.source)});
  }
  if (request.cpus) CheckCpus(machine, *request.cpus, PlanField::kCores, 0, complaints);
  CheckCpus(machine, request.gateway_cpus, PlanField::kGatewayCpus, 0, complaints);
  for (uint32_t id = 0; id < request.explicit_islands.size(); ++id) {
    const ExplicitIsland& island = request.explicit_islands[id];
    CheckCpus(machine, island.cpus, PlanField::kIslandCpus, id, complaints);
    if (island.numa_nodes) CheckNodes(machine, *island.numa_nodes, id, complaints);
  }
}

void CheckCount(const PlanRequest& request, size_t islands, uint32_t sites, PlanComplaints& complaints) {
  if (islands > kMaxIslands) {  // only `auto` can come to so many
    complaints.push_back(
        {PlanField::kLayout, 0, fmt::format("found {} islands, expected at most {}", islands, kMaxIslands)});
  }
  if (islands > sites) {
    complaints.push_back(
        {PlanField::kSites, 0,
         fmt::format(
             "found {} sites{} for {} islands, expected at least one site per island: set data.sites to "
             "{} or more",
             sites, request.sites ? "" : " (auto)", islands, islands)});
  }
  const uint64_t last = request.metrics_base_port + islands - 1;
  if (request.metrics_base_port != 0 && last > kMaxPort) {
    complaints.push_back(
        {PlanField::kPort, 0,
         fmt::format("found port {}, which makes {} the last of {} islands' ports, expected at most {}",
                     request.metrics_base_port, last, islands, kMaxPort + 1 - islands)});
  }
}

}  // namespace islands::topology
