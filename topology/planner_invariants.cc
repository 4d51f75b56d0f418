// What a request and a plan promise, asserted: see planner.h.
#include <algorithm>
#include <map>
#include <set>

#include "runtime/check.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

bool NamesNothingTwice(const std::vector<uint32_t>& list) {
  return !list.empty() && std::set(list.begin(), list.end()).size() == list.size();
}

// Invariants 1 and 2.
void CheckCpus(const Machine& machine, const PlanRequest& request, const Plan& plan) {
  std::map<uint32_t, const Core*> core_of;
  for (const Core& core : machine.cores) {
    for (uint32_t pu : core.pus) core_of[pu] = &core;
  }
  std::map<uint32_t, uint32_t> islands_of;  // by CPU
  std::set<const Core*> used;
  size_t least = SIZE_MAX, most = 0;
  for (const PlannedIsland& island : plan.islands) {
    ISLANDS_CHECK(island.workers >= 1);
    if (request.placement == Placement::kOs) {
      ISLANDS_CHECK(island.cpus.empty() && island.numa_nodes.empty());
      continue;
    }
    ISLANDS_CHECK(island.workers == island.cpus.size() && NamesNothingTwice(island.cpus));
    std::set<const Core*> cores;
    for (uint32_t cpu : island.cpus) {
      ISLANDS_CHECK(core_of.contains(cpu));
      ISLANDS_CHECK(++islands_of[cpu] == 1 || (plan.cores_shared && request.explicit_islands.empty()));
      cores.insert(core_of[cpu]);
    }
    used.insert(cores.begin(), cores.end());
    least = std::min(least, cores.size());
    most = std::max(most, cores.size());
  }
  if (request.placement == Placement::kOs) return;
  ISLANDS_CHECK(used.size() == plan.cores_used);
  if (!request.explicit_islands.empty()) return;
  ISLANDS_CHECK(most - least <= 1 || CutsByCluster(machine, request));
  ISLANDS_CHECK(request.cpus || used.size() == request.core_count.value_or(machine.cores.size()));
}

// Invariant 4.
void CheckSites(const Plan& plan) {
  uint32_t next = 0;
  for (const PlannedIsland& island : plan.islands) {
    const uint32_t fewest = plan.sites / static_cast<uint32_t>(plan.islands.size());
    ISLANDS_CHECK(island.sites.first == next);
    ISLANDS_CHECK(island.sites.count >= 1);
    ISLANDS_CHECK(island.sites.count == fewest || island.sites.count == fewest + 1);
    next += island.sites.count;
  }
  ISLANDS_CHECK(next == plan.sites);
}

// Invariant 5.
void CheckMemory(const Machine& machine, const PlanRequest& request, const Plan& plan) {
  std::map<uint32_t, uint64_t> left;
  for (const NumaNode& node : machine.nodes) left[node.os_index] = node.memory_bytes;
  const bool planned = plan.islands[0].memory_bytes > 0;
  uint64_t total = 0;
  for (const PlannedIsland& island : plan.islands) {
    ISLANDS_CHECK(island.memory_bytes % kPageBytes == 0);
    ISLANDS_CHECK(planned ? island.memory_bytes >= kMinPoolBytes : island.memory_bytes == 0);
    total += island.memory_bytes;
    for (uint32_t node : island.numa_nodes) {
      ISLANDS_CHECK(left.contains(node));
      const uint64_t part = island.memory_bytes / island.numa_nodes.size();
      ISLANDS_CHECK(machine.memory_bytes == 0 || part <= left[node]);
      left[node] -= part;
    }
  }
  ISLANDS_CHECK(machine.memory_bytes == 0 || total <= machine.memory_bytes);
  const bool named = !request.explicit_islands.empty() && request.explicit_islands[0].memory_bytes;
  ISLANDS_CHECK(named || total <= request.memory_bytes.value_or(UINT64_MAX));
}

}  // namespace

void CheckRequest(const Machine& machine, const PlanRequest& request) {
  ISLANDS_CHECK(!machine.cores.empty());
  ISLANDS_CHECK(!request.islands || (*request.islands >= 1 && *request.islands <= kMaxIslands));
  ISLANDS_CHECK(!request.cpus || NamesNothingTwice(*request.cpus));
  ISLANDS_CHECK(!request.cpus || !request.core_count);
  const std::vector<ExplicitIsland>& islands = request.explicit_islands;
  if (islands.empty()) return;
  ISLANDS_CHECK(islands.size() <= kMaxIslands && !request.islands && !request.cpus && !request.core_count);
  std::vector<uint32_t> cpus;
  for (const ExplicitIsland& island : islands) {
    ISLANDS_CHECK(!island.cpus.empty());
    ISLANDS_CHECK(!island.numa_nodes || NamesNothingTwice(*island.numa_nodes));
    ISLANDS_CHECK(island.memory_bytes.has_value() == islands[0].memory_bytes.has_value());
    cpus.insert(cpus.end(), island.cpus.begin(), island.cpus.end());
  }
  ISLANDS_CHECK(NamesNothingTwice(cpus));
}

void CheckInvariants(const Machine& machine, const PlanRequest& request, const Plan& plan) {
  ISLANDS_CHECK(!plan.islands.empty() && plan.islands.size() <= kMaxIslands);
  for (uint32_t id = 0; id < plan.islands.size(); ++id) {
    const PlannedIsland& island = plan.islands[id];
    ISLANDS_CHECK(island.id == id);
    ISLANDS_CHECK(island.metrics_port <= kMaxPort);  // invariant 6
    ISLANDS_CHECK(island.metrics_port ==
                  (request.metrics_base_port == 0 ? 0 : request.metrics_base_port + id));
  }
  CheckCpus(machine, request, plan);
  CheckSites(plan);
  CheckMemory(machine, request, plan);
}

}  // namespace islands::topology
