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

// The paper's rule of thumb: one island per socket; a single socket is cut by its shared caches.
uint32_t AutoIslands(const ChosenCores& cores) {
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
    for (uint32_t member : members) {
      island.push_back(cores[member]);
      if (!request.use_all_pus) island.back().pus.resize(1);
    }
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
  std::vector<uint32_t> nodes;
  for (const ChosenCore& chosen : cores) {
    if (chosen.core->nodes.empty()) continue;
    const NumaNode& node = machine.nodes[chosen.core->nodes.front()];
    if (node.memory_bytes == 0 && machine.memory_bytes > 0) continue;
    if (std::find(nodes.begin(), nodes.end(), node.os_index) == nodes.end()) nodes.push_back(node.os_index);
  }
  return nodes;
}

PlannedIsland Describe(const Machine& machine, const PlanRequest& request, uint32_t id,
                       const ChosenCores& cores) {
  PlannedIsland island{.id = id};
  island.cpus = CpusInWorkerOrder(cores, request.worker_order);
  island.workers = static_cast<uint32_t>(island.cpus.size());
  island.numa_nodes = NodesOf(machine, cores);
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

std::string NameIslands(const std::vector<uint32_t>& ids) {
  return fmt::format("island{} {}", ids.size() == 1 ? "" : "s", FormatCpuList(ids));
}

// Straddling is worth a word where a person may not expect it: the island would fit inside one domain.
void NoteStraddling(const std::vector<ChosenCores>& cut, Plan& plan) {
  std::map<uint32_t, size_t> packages, groups;
  std::map<std::vector<uint32_t>, size_t> nodes;
  for (const ChosenCores& island : cut) {
    for (const ChosenCore& chosen : island) {
      ++packages[chosen.core->package];
      ++nodes[chosen.core->nodes];
      ++groups[chosen.core->cache_group];
    }
  }
  auto largest = [](const auto& sizes) {
    size_t size = 0;
    for (const auto& [label, count] : sizes) size = std::max(size, count);
    return size;
  };
  std::vector<uint32_t> over_packages, over_nodes, over_groups;
  for (size_t i = 0; i < cut.size(); ++i) {
    const PlannedIsland& island = plan.islands[i];
    if (island.straddles_package) {
      if (cut[i].size() <= largest(packages)) over_packages.push_back(island.id);
    } else if (island.straddles_node) {
      if (cut[i].size() <= largest(nodes)) over_nodes.push_back(island.id);
    } else if (island.straddles_cache && cut[i].size() <= largest(groups)) {
      over_groups.push_back(island.id);
    }
  }
  auto note = [&](const std::vector<uint32_t>& ids, std::string_view border) {
    if (ids.empty()) return;
    plan.notes.push_back(fmt::format("{} span{} {}: {} equal islands do not all fit inside one each",
                                     NameIslands(ids), ids.size() == 1 ? "s" : "", border,
                                     plan.islands.size()));
  };
  note(over_packages, "packages");
  note(over_nodes, "NUMA nodes");
  note(over_groups, "L3 groups");
}

void NoteMixedSpeeds(const std::vector<ChosenCores>& cut, Plan& plan) {
  std::vector<uint32_t> mixed;
  std::set<int32_t> classes;
  for (uint32_t i = 0; i < cut.size(); ++i) {
    bool mixes = false;
    for (const ChosenCore& chosen : cut[i]) {
      mixes |= chosen.core->efficiency_class != cut[i][0].core->efficiency_class;
      classes.insert(chosen.core->efficiency_class);
    }
    if (mixes) mixed.push_back(i);
  }
  if (!mixed.empty()) {
    plan.notes.push_back(
        fmt::format("{} mix{} faster and slower cores", NameIslands(mixed), mixed.size() == 1 ? "es" : ""));
  } else if (classes.size() > 1) {
    plan.notes.push_back("some islands have faster cores than others");
  }
}

// Counts the cores in use and says what a person should know about them.
void NoteCores(const Machine& machine, const PlanRequest& request, const std::vector<ChosenCores>& cut,
               Plan& plan) {
  std::map<const Core*, size_t> islands_on;
  for (const ChosenCores& island : cut) {
    for (const ChosenCore& chosen : island) ++islands_on[chosen.core];
  }
  size_t most = 0;
  for (const auto& [core, islands] : islands_on) most = std::max(most, islands);
  plan.cores_used = static_cast<uint32_t>(islands_on.size());
  plan.cores_shared = most > 1;
  if (plan.cores_shared) {
    plan.notes.push_back(fmt::format("{} islands share {} core{}, up to {} on one: they take turns",
                                     cut.size(), plan.cores_used, plan.cores_used == 1 ? "" : "s", most));
  }
  if (plan.cores_used < machine.cores.size()) {
    plan.notes.push_back(fmt::format("{} of {} usable cores stay unused",
                                     machine.cores.size() - plan.cores_used, machine.cores.size()));
  }
  if (request.placement == Placement::kOs) return;
  NoteMixedSpeeds(cut, plan);
  if (request.placement == Placement::kIslands && request.explicit_islands.empty() && !plan.cores_shared) {
    NoteStraddling(cut, plan);
  }
}

absl::StatusOr<std::vector<ChosenCores>> Cut(const Machine& machine, const PlanRequest& request,
                                             const ChosenCores& usable) {
  if (!request.explicit_islands.empty()) return CheckExplicitIslands(usable, machine, request);
  uint32_t islands = request.islands.value_or(AutoIslands(usable));
  if (islands == 0) return absl::InvalidArgumentError("layout: 0 islands; expected at least 1ISL");
  return CutCores(usable, islands, request);
}

}  // namespace

absl::StatusOr<uint32_t> CountIslands(const Machine& machine, const PlanRequest& request) {
  if (!request.explicit_islands.empty()) return static_cast<uint32_t>(request.explicit_islands.size());
  if (request.islands) return *request.islands;
  absl::StatusOr<ChosenCores> usable = ChooseCores(machine, request);
  if (!usable.ok()) return usable.status();
  return AutoIslands(*usable);
}

absl::StatusOr<Plan> MakePlan(const Machine& machine, const PlanRequest& request) {
  absl::StatusOr<ChosenCores> usable = ChooseCores(machine, request);
  if (!usable.ok()) return usable.status();
  absl::StatusOr<std::vector<ChosenCores>> cut = Cut(machine, request, *usable);
  if (!cut.ok()) return cut.status();
  Plan plan;
  plan.layout = fmt::format("{}ISL", cut->size());
  for (uint32_t id = 0; id < cut->size(); ++id) {
    PlannedIsland island = Describe(machine, request, id, (*cut)[id]);
    if (!request.explicit_islands.empty() && request.explicit_islands[id].numa_nodes) {
      island.numa_nodes = *request.explicit_islands[id].numa_nodes;
      if (absl::Status status = CheckExplicitNodes(machine, id, island.numa_nodes); !status.ok())
        return status;
    }
    plan.islands.push_back(std::move(island));
  }
  NoteCores(machine, request, *cut, plan);
  if (request.placement == Placement::kOs) Unbind(*usable, request, plan.islands);
  if (absl::Status status = DivideMemory(request, plan.islands); !status.ok()) return status;
  if (absl::Status status = CheckMemoryFits(machine, plan.islands); !status.ok()) return status;
  return plan;
}

}  // namespace islands::topology
