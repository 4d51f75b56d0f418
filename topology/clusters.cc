#include "topology/clusters.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "runtime/check.h"

namespace islands::topology {
namespace {

// Cores of one chiplet differ by a tenth or so; the nearest border known, between two chiplets of one socket,
// makes a round trip half as long again and more.
constexpr double kGap = 1.3;
constexpr size_t kCoresPerLone = 8;  // a level may have one lone core for so many

struct Edge {
  uint32_t ns;
  uint32_t a, b;
};

// The edges that single linkage joins by, shortest first (Prim's minimum spanning tree).
std::vector<Edge> JoiningEdges(const RoundTripMatrix& ns) {
  std::vector<Edge> nearest;  // of each core: its shortest edge into the tree
  for (uint32_t core = 0; core < ns.size(); ++core) nearest.push_back({.ns = ns[0][core], .a = 0, .b = core});
  std::vector<bool> joined(ns.size(), false);
  joined[0] = true;
  std::vector<Edge> edges;
  while (edges.size() + 1 < ns.size()) {
    const Edge* best = nullptr;
    for (const Edge& edge : nearest) {
      if (!joined[edge.b] && (best == nullptr || edge.ns < best->ns)) best = &edge;
    }
    edges.push_back(*best);
    const uint32_t added = best->b;
    joined[added] = true;
    for (Edge& edge : nearest) {
      if (ns[added][edge.b] < edge.ns) edge = {.ns = ns[added][edge.b], .a = added, .b = edge.b};
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& x, const Edge& y) { return x.ns < y.ns; });
  return edges;
}

uint32_t Median(std::vector<uint32_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

uint32_t MedianTo(const RoundTripMatrix& ns, uint32_t core, const std::vector<uint32_t>& others) {
  std::vector<uint32_t> values;
  for (uint32_t other : others) values.push_back(ns[core][other]);
  return Median(std::move(values));
}

// Groups after the first `count` edges, by their first core.
std::vector<std::vector<uint32_t>> GroupsAfter(const std::vector<Edge>& edges, size_t count, size_t cores) {
  std::vector<uint32_t> label(cores);
  std::iota(label.begin(), label.end(), 0);
  for (size_t i = 0; i < count; ++i) {
    const auto [low, high] = std::minmax(label[edges[i].a], label[edges[i].b]);
    std::replace(label.begin(), label.end(), uint32_t{high}, uint32_t{low});
  }
  std::map<uint32_t, std::vector<uint32_t>> groups;  // a group's label is its first core
  for (uint32_t core = 0; core < cores; ++core) groups[label[core]].push_back(core);
  std::vector<std::vector<uint32_t>> result;
  for (auto& [first, members] : groups) result.push_back(std::move(members));
  return result;
}

std::optional<ClusterLevel> LevelOf(const RoundTripMatrix& ns,
                                    const std::vector<std::vector<uint32_t>>& groups) {
  ClusterLevel level;
  for (const std::vector<uint32_t>& group : groups) {
    if (group.size() == 1) {
      level.lone.push_back(group[0]);
    } else {
      level.clusters.push_back(group);
    }
  }
  const size_t most_lone = std::max<size_t>(1, ns.size() / kCoresPerLone);
  if (level.clusters.size() < 2 || level.lone.size() > most_lone) return std::nullopt;
  const std::vector<std::vector<uint32_t>> without_lone = level.clusters;
  for (uint32_t lone : level.lone) {
    std::pair<uint32_t, size_t> nearest{UINT32_MAX, 0};
    for (size_t i = 0; i < without_lone.size(); ++i) {
      nearest = std::min(nearest, std::pair(MedianTo(ns, lone, without_lone[i]), i));
    }
    level.clusters[nearest.second].push_back(lone);
  }
  for (std::vector<uint32_t>& cluster : level.clusters) std::sort(cluster.begin(), cluster.end());
  std::sort(level.clusters.begin(), level.clusters.end());
  SetMedians(ns, &level);
  if (level.across_ns < kGap * level.within_ns) return std::nullopt;
  return level;
}

// Every group of `fine` lies inside one of `coarse`.
bool Inside(std::span<const uint32_t> fine, std::span<const uint32_t> coarse) {
  std::map<uint32_t, uint32_t> around;
  for (size_t i = 0; i < fine.size(); ++i) {
    if (around.try_emplace(fine[i], coarse[i]).first->second != coarse[i]) return false;
  }
  return true;
}

// Indexes into its cores.
std::map<uint32_t, size_t> CoreOfPus(const Machine& machine) {
  std::map<uint32_t, size_t> core_of;
  for (size_t i = 0; i < machine.cores.size(); ++i) {
    for (uint32_t pu : machine.cores[i].pus) core_of[pu] = i;
  }
  return core_of;
}

}  // namespace

std::vector<ClusterLevel> FindClusters(const RoundTripMatrix& ns) {
  std::vector<ClusterLevel> levels;
  if (ns.size() < kFewestCoresForClusters) return levels;
  const std::vector<Edge> edges = JoiningEdges(ns);
  for (size_t count = edges.size() - 1; count > 0; --count) {
    if (edges[count].ns < kGap * edges[count - 1].ns) continue;
    std::optional<ClusterLevel> level = LevelOf(ns, GroupsAfter(edges, count, ns.size()));
    if (!level) continue;
    // Between two gaps there may be nothing but a lone core: one level, and that core is known now.
    if (!levels.empty() && levels.back().clusters == level->clusters) levels.pop_back();
    // Inside of a cluster nothing is farther than across its border, but where it was disturbed.
    if (!levels.empty() && !MayFollow(levels.back(), *level)) continue;
    levels.push_back(*std::move(level));
  }
  return levels;
}

void SetMedians(const RoundTripMatrix& ns, ClusterLevel* level) {
  const std::vector<uint32_t> labels = LabelsOf(*level, ns.size());
  std::vector<uint32_t> within, across;
  for (size_t i = 0; i < ns.size(); ++i) {
    for (size_t j = i + 1; j < ns.size(); ++j) (labels[i] == labels[j] ? within : across).push_back(ns[i][j]);
  }
  level->within_ns = Median(std::move(within));
  level->across_ns = Median(std::move(across));
}

bool MayFollow(const ClusterLevel& coarser, const ClusterLevel& finer) {
  return finer.clusters != coarser.clusters && finer.within_ns <= coarser.within_ns &&
         finer.across_ns <= coarser.across_ns;
}

std::string_view LikenessName(Likeness likeness) {
  switch (likeness) {
    case Likeness::kSame:
      return "the same as";
    case Likeness::kFiner:
      return "finer than";
    case Likeness::kCoarser:
      return "coarser than";
    case Likeness::kAcross:
      return "across";
  }
  return "";
}

Likeness Compare(std::span<const uint32_t> measured, std::span<const uint32_t> firmware) {
  ISLANDS_CHECK(measured.size() == firmware.size());
  const bool finer = Inside(measured, firmware), coarser = Inside(firmware, measured);
  return finer && coarser ? Likeness::kSame
         : finer          ? Likeness::kFiner
         : coarser        ? Likeness::kCoarser
                          : Likeness::kAcross;
}

std::vector<FirmwareLevel> FirmwareLevels(const Machine& machine, std::span<const uint32_t> cpus) {
  std::vector<FirmwareLevel> levels = {{.name = "package", .key = "packages"},
                                       {.name = "NUMA node", .key = "numa_nodes"},
                                       {.name = "L3 group", .key = "l3_groups"}};
  const std::map<uint32_t, size_t> core_of = CoreOfPus(machine);
  std::map<std::vector<uint32_t>, uint32_t> nodes;
  for (uint32_t cpu : cpus) {
    const Core& core = machine.cores[core_of.at(cpu)];
    levels[0].labels.push_back(core.package);
    levels[1].labels.push_back(nodes.try_emplace(core.nodes, nodes.size()).first->second);
    levels[2].labels.push_back(core.cache_group);
  }
  for (FirmwareLevel& level : levels)
    level.groups = std::set(level.labels.begin(), level.labels.end()).size();
  return levels;
}

std::vector<uint32_t> LabelsOf(const ClusterLevel& level, size_t cores) {
  std::vector<uint32_t> labels(cores, 0);
  for (uint32_t cluster = 0; cluster < level.clusters.size(); ++cluster) {
    for (uint32_t core : level.clusters[cluster]) labels.at(core) = cluster;
  }
  return labels;
}

std::optional<Machine> WithClusters(Machine machine, std::span<const uint32_t> cpus,
                                    std::span<const ClusterLevel> levels, std::string_view file) {
  const std::map<uint32_t, size_t> core_of = CoreOfPus(machine);
  std::vector<uint32_t> labels(cpus.size(), 0);
  if (!levels.empty()) labels = LabelsOf(levels.front(), cpus.size());
  const bool known = !levels.empty() || cpus.size() >= kFewestCoresForClusters;
  std::map<size_t, uint32_t> cluster_of;  // by core
  for (size_t i = 0; i < cpus.size(); ++i) {
    const auto core = core_of.find(cpus[i]);
    if (core == core_of.end() || !cluster_of.emplace(core->second, labels[i]).second) return std::nullopt;
  }
  std::vector<Core> measured;
  for (size_t i = 0; i < machine.cores.size(); ++i) {
    Core& core = machine.cores[i];
    const auto cluster = cluster_of.find(i);
    if (cluster != cluster_of.end()) {
      if (known) core.cluster = static_cast<int32_t>(cluster->second);
      measured.push_back(std::move(core));
    } else {
      machine.disallowed_cpus.insert(machine.disallowed_cpus.end(), core.pus.begin(), core.pus.end());
    }
  }
  machine.cores = std::move(measured);
  std::sort(machine.disallowed_cpus.begin(), machine.disallowed_cpus.end());
  machine.disallowed_pus = static_cast<uint32_t>(machine.disallowed_cpus.size());
  if (known) machine.measured_in = file;
  return machine;
}

}  // namespace islands::topology
