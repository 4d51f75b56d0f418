#include "topology/planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "fmt/format.h"
#include "topology/packing.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

// One island per measured cluster, in the order of their first cores.
std::vector<ChosenCores> ByCluster(const ChosenCores& cores) {
  std::map<int32_t, size_t> island_of;
  std::vector<ChosenCores> result;
  for (const ChosenCore& chosen : cores) {
    const auto [island, added] = island_of.try_emplace(chosen.core->cluster, result.size());
    if (added) result.emplace_back();
    result[island->second].push_back(chosen);
  }
  return result;
}

// Cores with the same list of nodes lie in the same place as far as memory goes.
std::vector<CoreDomains> DomainsOf(const ChosenCores& cores) {
  std::map<std::vector<uint32_t>, uint32_t> node_labels;
  std::vector<CoreDomains> domains;
  for (const ChosenCore& chosen : cores) {
    uint32_t node = node_labels.try_emplace(chosen.core->nodes, node_labels.size()).first->second;
    domains.push_back({.package = chosen.core->package, .node = node, .cache = chosen.core->cache_group});
  }
  return domains;
}

// The paper's rule of thumb: one island per socket; a single socket is cut by its shared caches. Who has
// measured knows better.
uint32_t AutoIslands(const Machine& machine, const ChosenCores& cores) {
  if (!machine.measured_in.empty()) return static_cast<uint32_t>(ByCluster(cores).size());
  std::set<uint32_t> packages, groups;
  for (const ChosenCore& chosen : cores) {
    packages.insert(chosen.core->package);
    groups.insert(chosen.core->cache_group);
  }
  return static_cast<uint32_t>(packages.size() > 1 ? packages.size() : groups.size());
}

// Island i takes core i mod cores. With all PUs in use, islands on the same core divide its PUs while there
// are enough.
std::vector<ChosenCores> ShareCores(const ChosenCores& cores, uint32_t islands, bool use_all_pus) {
  std::vector<ChosenCores> result;
  for (uint32_t i = 0; i < islands; ++i) {
    const ChosenCore& core = cores[i % cores.size()];
    size_t rank = i / cores.size();
    size_t sharing = (islands - 1 - i % cores.size()) / cores.size() + 1;
    ChosenCore mine{core.core, {}};
    for (size_t p = rank % core.pus.size(); p < core.pus.size() && use_all_pus; p += sharing) {
      mine.pus.push_back(core.pus[p]);
    }
    if (!use_all_pus) mine.pus.push_back(core.pus.front());
    result.push_back({std::move(mine)});
  }
  return result;
}

std::vector<ChosenCores> CutCores(const ChosenCores& cores, uint32_t islands, const PlanRequest& request) {
  if (islands > cores.size()) return ShareCores(cores, islands, request.use_all_pus);
  std::vector<CoreDomains> domains = DomainsOf(cores);
  auto cut =
      request.placement == Placement::kSpread ? DealIslands(domains, islands) : PackIslands(domains, islands);
  std::vector<ChosenCores> result;
  for (const std::vector<uint32_t>& members : cut) {
    ChosenCores& island = result.emplace_back();
    for (uint32_t member : members) island.push_back(cores[member]);
  }
  return result;
}

// Figure 3: `at_a_time` cores of one package, then of the next, and around again. An island inside one
// package goes around its L3 groups instead.
ChosenCores DealOut(const ChosenCores& cores, size_t at_a_time) {
  bool one_package = std::all_of(cores.begin(), cores.end(), [&](const ChosenCore& c) {
    return c.core->package == cores[0].core->package;
  });
  std::map<uint32_t, uint32_t> met;  // cores seen of each domain
  std::vector<std::tuple<uint32_t, uint32_t, size_t>> order;
  for (size_t i = 0; i < cores.size(); ++i) {
    uint32_t domain = one_package ? cores[i].core->cache_group : cores[i].core->package;
    uint32_t round = met[domain]++ / static_cast<uint32_t>(at_a_time);
    order.emplace_back(round, domain, i);
  }
  std::sort(order.begin(), order.end());
  ChosenCores dealt;
  for (auto [round, domain, i] : order) dealt.push_back(cores[i]);
  return dealt;
}

// First hardware threads of all cores before second ones: who starts fewer workers gets whole cores.
std::vector<uint32_t> CpusInWorkerOrder(const ChosenCores& cores, WorkerOrder order) {
  ChosenCores ordered = order == WorkerOrder::kSpread ? DealOut(cores, 1)
                        : order == WorkerOrder::kMix  ? DealOut(cores, 2)
                                                      : cores;
  size_t threads = 0;
  for (const ChosenCore& core : ordered) threads = std::max(threads, core.pus.size());
  std::vector<uint32_t> cpus;
  for (size_t t = 0; t < threads; ++t) {
    for (const ChosenCore& core : ordered) {
      if (t < core.pus.size()) cpus.push_back(core.pus[t]);
    }
  }
  return cpus;
}

std::vector<uint32_t> NodesOf(const Machine& machine, const ChosenCores& cores) {
  const std::vector<uint32_t> usable = NodesWithMemory(machine);
  std::vector<uint32_t> nodes;
  for (const ChosenCore& chosen : cores) {
    if (chosen.core->nodes.empty()) continue;
    const uint32_t node = machine.nodes[chosen.core->nodes.front()].os_index;
    const auto is_node = [&](const std::vector<uint32_t>& in) {
      return std::find(in.begin(), in.end(), node) != in.end();
    };
    if (is_node(usable) && !is_node(nodes)) nodes.push_back(node);
  }
  return nodes;
}

PlannedIsland Describe(const Machine& machine, const PlanRequest& request, uint32_t id,
                       const ChosenCores& cores) {
  PlannedIsland island{.id = id};
  island.cpus = CpusInWorkerOrder(cores, request.worker_order);
  island.workers = static_cast<uint32_t>(island.cpus.size());
  island.numa_nodes = NodesOf(machine, cores);
  if (!request.explicit_islands.empty() && request.explicit_islands[id].numa_nodes) {
    island.numa_nodes = *request.explicit_islands[id].numa_nodes;
  }
  for (const ChosenCore& chosen : cores) {
    island.straddles_package |= chosen.core->package != cores[0].core->package;
    island.straddles_node |= chosen.core->nodes != cores[0].core->nodes;
    island.straddles_cache |= chosen.core->cache_group != cores[0].core->cache_group;
  }
  return island;
}

// Under `os` an island is a number of workers; which cores they run on is the kernel's affair. With an island
// list the lists' lengths count.
void Unbind(const ChosenCores& usable, const PlanRequest& request, std::vector<PlannedIsland>& islands) {
  size_t workers = 0;
  for (const ChosenCore& core : usable) workers += request.use_all_pus ? core.pus.size() : 1;
  size_t count = islands.size();
  for (PlannedIsland& island : islands) {
    size_t share = workers / count + (island.id < workers % count ? 1 : 0);
    uint32_t number =
        request.explicit_islands.empty() ? static_cast<uint32_t>(std::max<size_t>(share, 1)) : island.workers;
    island = {.id = island.id, .workers = number};
  }
}

// The machine's cores with those of their PUs that are among `cpus`; all without a list.
ChosenCores CoresWith(const Machine& machine, const std::optional<std::vector<uint32_t>>& cpus) {
  const std::set<uint32_t> wanted =
      cpus ? std::set<uint32_t>(cpus->begin(), cpus->end()) : std::set<uint32_t>();
  ChosenCores chosen;
  for (const Core& core : machine.cores) {
    ChosenCore with_pus{&core, {}};
    for (uint32_t pu : core.pus) {
      if (!cpus || wanted.contains(pu)) with_pus.pus.push_back(pu);
    }
    if (!with_pus.pus.empty()) chosen.push_back(std::move(with_pus));
  }
  return chosen;
}

std::vector<ChosenCores> Cut(const Machine& machine, const PlanRequest& request, const ChosenCores& usable,
                             uint32_t islands) {
  std::vector<ChosenCores> cut;
  if (request.explicit_islands.empty()) {
    cut = CutsByCluster(machine, request) ? ByCluster(usable) : CutCores(usable, islands, request);
    for (ChosenCores& island : cut) {
      for (ChosenCore& core : island) {
        if (!request.use_all_pus) core.pus.resize(1);
      }
    }
    return cut;
  }
  for (const ExplicitIsland& island : request.explicit_islands) {
    cut.push_back(CoresWith(machine, island.cpus));
  }
  return cut;
}

}  // namespace

bool CutsByCluster(const Machine& machine, const PlanRequest& request) {
  return !machine.measured_in.empty() && !request.islands && request.explicit_islands.empty() &&
         request.placement == Placement::kIslands;
}

Verdict MakePlan(const Machine& machine, const PlanRequest& request) {
  CheckRequest(machine, request);
  PlanComplaints complaints;
  CheckCores(machine, request, complaints);
  ChosenCores usable = CoresWith(machine, request.cpus);
  if (request.core_count && *request.core_count < usable.size()) usable.resize(*request.core_count);
  // Where the cores are wrong, the rest of an `auto` layout is judged as one island.
  const uint32_t islands =
      !request.explicit_islands.empty()
          ? static_cast<uint32_t>(request.explicit_islands.size())
          : request.islands.value_or(complaints.empty() ? AutoIslands(machine, usable) : 1);
  const uint32_t sites =
      request.sites.value_or(partitioner::AutoSites(static_cast<uint32_t>(machine.cores.size())));
  CheckCount(request, islands, sites, complaints);
  if (!complaints.empty()) return {.complaints = std::move(complaints)};

  const std::vector<ChosenCores> cut = Cut(machine, request, usable, islands);
  Plan plan{.sites = sites, .layout = fmt::format("{}ISL", islands)};
  for (uint32_t id = 0; id < islands; ++id) plan.islands.push_back(Describe(machine, request, id, cut[id]));
  NoteCores(machine, request, cut, plan);
  if (request.placement == Placement::kOs) Unbind(usable, request, plan.islands);
  const partitioner::SiteMap site_map = *partitioner::SiteMap::Create(sites, islands);
  for (PlannedIsland& island : plan.islands) {
    island.sites = site_map.SitesOf(island.id);
    if (request.metrics_base_port != 0) island.metrics_port = request.metrics_base_port + island.id;
  }
  DivideMemory(machine, request, plan, complaints);
  if (!complaints.empty()) return {.complaints = std::move(complaints)};
  CheckInvariants(machine, request, plan);
  return {.plan = std::move(plan)};
}

}  // namespace islands::topology
