// What a person should know about a plan.
#include <algorithm>
#include <map>
#include <set>

#include "fmt/format.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

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

void NoteClusters(const Machine& machine, const std::vector<ChosenCores>& cut, Plan& plan) {
  const auto [least, most] = std::minmax_element(
      cut.begin(), cut.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  plan.notes.push_back(
      cut.size() == 1 ? fmt::format("layout auto: one island, since the cores measured in {} are one cluster",
                                    machine.measured_in)
                      : fmt::format("layout auto: {} islands by the measured clusters of {}", cut.size(),
                                    machine.measured_in));
  if (least->size() == most->size()) return;
  plan.notes.push_back(
      fmt::format("islands have {} to {} cores, and as many sites each: an `islands` list can cut otherwise",
                  least->size(), most->size()));
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

}  // namespace

std::string NameIslands(const std::vector<uint32_t>& ids) {
  return fmt::format("island{} {}", ids.size() == 1 ? "" : "s", FormatCpuList(ids));
}

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
  if (CutsByCluster(machine, request)) {
    NoteClusters(machine, cut, plan);
    return;
  }
  if (request.placement == Placement::kIslands && request.explicit_islands.empty() && !plan.cores_shared) {
    NoteStraddling(cut, plan);
  }
}

}  // namespace islands::topology
