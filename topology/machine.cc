#include "topology/machine.h"

#include <hwloc.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "fmt/format.h"
#include "topology/machine_hwloc.h"

namespace islands::topology {
namespace {

constexpr int kMaxPus = 65536;

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

class Builder {
 public:
  Builder(hwloc_topology_t topology, Machine& machine) : topology_(topology), machine_(machine) {}

  absl::Status Build() {
    if (absl::Status status = ReadAllowed(); !status.ok()) return status;
    AddPackages();
    AddNodes();
    AddDistances();
    AddCores();
    if (machine_.cores.empty()) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: no CPU that this process may use: all are offline or outside its cgroup", machine_.source));
    }
    return absl::OkStatus();
  }

 private:
  hwloc_obj_t root() const { return hwloc_get_root_obj(topology_); }
  hwloc_obj_t object(hwloc_obj_type_t type, unsigned index) const {
    return hwloc_get_obj_by_type(topology_, type, index);
  }
  unsigned count(hwloc_obj_type_t type) const {
    return static_cast<unsigned>(std::max(0, hwloc_get_nbobjs_by_type(topology_, type)));
  }

  absl::Status ReadAllowed();
  void AddPackages();
  void AddNodes();
  void AddDistances();
  void AddCores();
  uint32_t PackageOf(hwloc_obj_t pu);
  uint32_t CacheGroupOf(hwloc_obj_t pu, uint32_t package);
  int32_t EfficiencyOf(hwloc_obj_t core) const;
  std::vector<uint32_t> NodesOf(hwloc_obj_t core, uint32_t package) const;
  uint32_t NearestWithMemory(uint32_t base, uint32_t package) const;
  uint64_t Distance(uint32_t from, uint32_t to) const {
    return machine_.node_distances.empty() ? 0 : machine_.node_distances[from][to];
  }

  hwloc_topology_t topology_;
  Machine& machine_;
  Bitmap allowed_;
  std::map<hwloc_obj_t, uint32_t> packages_;                           // nullptr: outside of any package
  std::map<std::pair<hwloc_obj_t, uint32_t>, uint32_t> cache_groups_;  // (L3 or nullptr, package)
};

absl::Status Builder::ReadAllowed() {
  if (count(HWLOC_OBJ_PU) > kMaxPus) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} PUs; at most {} are supported", machine_.source, count(HWLOC_OBJ_PU), kMaxPus));
  }
  allowed_.reset(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_)));
  hwloc_bitmap_and(allowed_.get(), allowed_.get(), hwloc_topology_get_topology_cpuset(topology_));
  if (machine_.is_this_machine) {
    // hwloc's allowed set knows cgroups; a taskset shows only in the process's own binding.
    Bitmap bound(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(topology_, bound.get(), HWLOC_CPUBIND_PROCESS) == 0) {
      hwloc_bitmap_and(allowed_.get(), allowed_.get(), bound.get());
    }
  }
  Bitmap other(hwloc_bitmap_dup(root()->complete_cpuset));
  hwloc_bitmap_andnot(other.get(), other.get(), allowed_.get());
  int weight = hwloc_bitmap_weight(other.get());
  if (weight < 0 || weight > kMaxPus) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the machine's complete_cpuset has no end", machine_.source));
  }
  for (int cpu = hwloc_bitmap_first(other.get()); cpu >= 0; cpu = hwloc_bitmap_next(other.get(), cpu)) {
    machine_.disallowed_cpus.push_back(static_cast<uint32_t>(cpu));
  }
  machine_.disallowed_pus = static_cast<uint32_t>(weight);
  return absl::OkStatus();
}

void Builder::AddPackages() {
  const char* machine_model = hwloc_obj_get_info_by_name(root(), "CPUModel");
  for (unsigned i = 0; i < count(HWLOC_OBJ_PACKAGE); ++i) {
    hwloc_obj_t package = object(HWLOC_OBJ_PACKAGE, i);
    const char* model = hwloc_obj_get_info_by_name(package, "CPUModel");
    if (model == nullptr) model = machine_model;
    packages_[package] = i;
    machine_.packages.push_back({.os_index = package->os_index, .cpu_model = model == nullptr ? "" : model});
  }
  if (machine_.packages.empty()) {
    packages_[nullptr] = 0;
    machine_.packages.push_back({.os_index = 0, .cpu_model = machine_model == nullptr ? "" : machine_model});
  }
}

void Builder::AddNodes() {
  hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(topology_);
  for (unsigned i = 0; i < count(HWLOC_OBJ_NUMANODE); ++i) {
    hwloc_obj_t object_i = object(HWLOC_OBJ_NUMANODE, i);
    NumaNode node{.os_index = object_i->os_index};
    // A node outside of the cgroup is kept, for its locality, but its memory is not ours.
    if (hwloc_bitmap_isset(allowed, object_i->os_index))
      node.memory_bytes = object_i->attr->numanode.local_memory;
    int packages = 0;
    for (auto [package, index] : packages_) {
      if (package != nullptr && !hwloc_bitmap_intersects(package->cpuset, object_i->cpuset)) continue;
      ++packages;
      node.package = static_cast<int32_t>(index);
    }
    if (packages != 1) node.package = -1;
    machine_.nodes.push_back(node);
    machine_.memory_bytes += node.memory_bytes;
  }
  if (machine_.nodes.empty()) {
    machine_.memory_bytes = root()->total_memory;
    machine_.nodes.push_back(
        {.package = machine_.packages.size() == 1 ? 0 : -1, .memory_bytes = root()->total_memory});
  }
}

void Builder::AddDistances() {
  hwloc_distances_s* found[1] = {nullptr};
  unsigned number = 1;
  int failed = hwloc_distances_get_by_name(topology_, "NUMALatency", &number, found, 0);
  if (failed != 0 || number == 0) {
    number = 1;
    failed = hwloc_distances_get_by_type(topology_, HWLOC_OBJ_NUMANODE, &number, found,
                                         HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
  }
  if (failed != 0 || number == 0) return;
  size_t size = machine_.nodes.size();
  std::vector<std::vector<uint64_t>> matrix(size, std::vector<uint64_t>(size, 0));
  std::vector<bool> seen(size, false);
  unsigned objects = found[0]->nbobjs;
  auto index = [&](unsigned i) {
    hwloc_obj_t node = found[0]->objs[i];
    return node != nullptr && node->type == HWLOC_OBJ_NUMANODE ? size_t{node->logical_index} : size;
  };
  for (unsigned from = 0; from < objects; ++from) {
    if (index(from) >= size) continue;
    seen[index(from)] = true;
    for (unsigned to = 0; to < objects; ++to) {
      if (index(to) < size) matrix[index(from)][index(to)] = found[0]->values[from * objects + to];
    }
  }
  hwloc_distances_release(topology_, found[0]);
  // Part of a matrix would make the missing nodes look nearest.
  if (std::find(seen.begin(), seen.end(), false) == seen.end()) machine_.node_distances = std::move(matrix);
}

void Builder::AddCores() {
  hwloc_obj_t previous = nullptr;
  for (unsigned i = 0; i < count(HWLOC_OBJ_PU); ++i) {
    hwloc_obj_t pu = object(HWLOC_OBJ_PU, i);
    if (!hwloc_bitmap_isset(allowed_.get(), pu->os_index)) continue;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_CORE, pu);
    if (core == nullptr) core = pu;  // some virtual machines and synthetic strings have no core level
    if (core != previous) {
      Core added;
      added.package = PackageOf(pu);
      added.cache_group = CacheGroupOf(pu, added.package);
      added.nodes = NodesOf(core, added.package);
      added.efficiency_class = EfficiencyOf(core);
      machine_.cores.push_back(std::move(added));
      previous = core;
    }
    machine_.cores.back().pus.push_back(pu->os_index);
  }
}

uint32_t Builder::PackageOf(hwloc_obj_t pu) {
  hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, pu);
  auto [it, added] = packages_.try_emplace(package, machine_.packages.size());
  if (added) machine_.packages.emplace_back();
  return it->second;
}

uint32_t Builder::CacheGroupOf(hwloc_obj_t pu, uint32_t package) {
  hwloc_obj_t l3 = hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_L3CACHE, pu);
  auto [it, added] = cache_groups_.try_emplace({l3, package}, machine_.cache_groups.size());
  if (added)
    machine_.cache_groups.push_back({.package = package, .bytes = l3 == nullptr ? 0 : l3->attr->cache.size});
  return it->second;
}

int32_t Builder::EfficiencyOf(hwloc_obj_t core) const {
  if (hwloc_cpukinds_get_nr(topology_, 0) < 2) return -1;
  int kind = hwloc_cpukinds_get_by_cpuset(topology_, core->cpuset, 0);
  int efficiency = -1;
  if (kind < 0) return -1;
  hwloc_cpukinds_get_info(topology_, static_cast<unsigned>(kind), nullptr, &efficiency, nullptr, nullptr, 0);
  return efficiency;
}

// Local nodes by how narrowly they belong to the core, then by distance; if none of them has memory, the
// nearest node that has some is added.
std::vector<uint32_t> Builder::NodesOf(hwloc_obj_t core, uint32_t package) const {
  std::vector<std::tuple<unsigned, uint32_t>> local;  // (CPUs that share it, index): fewest first
  bool any_memory = false;
  for (uint32_t i = 0; i < count(HWLOC_OBJ_NUMANODE); ++i) {
    hwloc_obj_t node = object(HWLOC_OBJ_NUMANODE, i);
    if (core->nodeset == nullptr || !hwloc_bitmap_isset(core->nodeset, node->os_index)) continue;
    int weight = hwloc_bitmap_weight(node->cpuset);  // 0: memory without CPUs (CXL): far from everyone
    local.emplace_back(weight > 0 ? static_cast<unsigned>(weight) : std::numeric_limits<unsigned>::max(), i);
    any_memory |= machine_.nodes[i].memory_bytes > 0;
  }
  std::sort(local.begin(), local.end());
  std::vector<uint32_t> nodes;
  for (auto [weight, index] : local) nodes.push_back(index);
  if (nodes.empty()) nodes.push_back(0);
  uint32_t base = nodes.front();
  if (!any_memory && machine_.memory_bytes > 0) {
    uint32_t nearest = NearestWithMemory(base, package);
    if (std::find(nodes.begin(), nodes.end(), nearest) == nodes.end()) nodes.push_back(nearest);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [&](uint32_t a, uint32_t b) {
    auto key = [&](uint32_t n) { return std::tuple(machine_.nodes[n].memory_bytes == 0, Distance(base, n)); };
    return key(a) < key(b);
  });
  return nodes;
}

uint32_t Builder::NearestWithMemory(uint32_t base, uint32_t package) const {
  std::tuple<uint64_t, bool, uint32_t> best{std::numeric_limits<uint64_t>::max(), true, base};
  for (uint32_t i = 0; i < machine_.nodes.size(); ++i) {
    const NumaNode& node = machine_.nodes[i];
    if (node.memory_bytes == 0) continue;
    best = std::min(best, std::tuple(Distance(base, i), node.package != static_cast<int32_t>(package), i));
  }
  return std::get<2>(best);
}

}  // namespace

absl::StatusOr<Machine> BuildMachine(hwloc_topology_t topology, std::string source) {
  Machine machine;
  machine.source = std::move(source);
  machine.is_this_machine = hwloc_topology_is_thissystem(topology) != 0;
  if (absl::Status status = Builder(topology, machine).Build(); !status.ok()) return status;
  return machine;
}

size_t Machine::pu_count() const {
  size_t count = 0;
  for (const Core& core : cores) count += core.pus.size();
  return count;
}

}  // namespace islands::topology
