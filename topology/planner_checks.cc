#include <algorithm>
#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

std::vector<uint32_t> CpusOf(const Machine& machine) {
  std::vector<uint32_t> cpus;
  for (const Core& core : machine.cores) cpus.insert(cpus.end(), core.pus.begin(), core.pus.end());
  return cpus;
}

std::vector<uint32_t> CpusOf(const ChosenCores& cores) {
  std::vector<uint32_t> cpus;
  for (const ChosenCore& core : cores) cpus.insert(cpus.end(), core.pus.begin(), core.pus.end());
  return cpus;
}

// Why a CPU that somebody named is not among the machine's.
absl::Status CheckCpuExists(const Machine& machine, uint32_t cpu, std::string_view where) {
  std::vector<uint32_t> cpus = CpusOf(machine);
  if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) return absl::OkStatus();
  const auto& disallowed = machine.disallowed_cpus;
  if (std::find(disallowed.begin(), disallowed.end(), cpu) != disallowed.end()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: CPU {} is offline or not allowed to this process (cgroup, taskset); usable are {}",
                    where, cpu, FormatCpuList(cpus)));
  }
  return absl::InvalidArgumentError(fmt::format("{}: CPU {} does not exist on the machine; usable are {}",
                                                where, cpu, FormatCpuList(cpus)));
}

std::string NameIslands(std::vector<uint32_t> islands) {
  return fmt::format("island{} {}", islands.size() == 1 ? "" : "s", FormatCpuList(islands));
}

uint64_t WholePages(uint64_t bytes) { return bytes / kPageBytes * kPageBytes; }

std::string NameNodes(const Machine& machine) {
  std::vector<uint32_t> with_memory;
  for (const NumaNode& node : machine.nodes) {
    if (node.memory_bytes > 0 || machine.memory_bytes == 0) with_memory.push_back(node.os_index);
  }
  return FormatCpuList(with_memory);
}

}  // namespace

absl::StatusOr<ChosenCores> ChooseCores(const Machine& machine, const PlanRequest& request) {
  if (machine.cores.empty()) return absl::InvalidArgumentError("the machine has no core that may be used");
  std::set<uint32_t> wanted;
  if (request.cpus) {
    for (uint32_t cpu : *request.cpus) {
      if (absl::Status status = CheckCpuExists(machine, cpu, "cores"); !status.ok()) return status;
      wanted.insert(cpu);
    }
    if (wanted.empty()) return absl::InvalidArgumentError("cores: the list of CPUs is empty");
  }
  ChosenCores chosen;
  for (const Core& core : machine.cores) {
    ChosenCore with_pus{&core, {}};
    for (uint32_t pu : core.pus) {
      if (!request.cpus || wanted.contains(pu)) with_pus.pus.push_back(pu);
    }
    if (!with_pus.pus.empty()) chosen.push_back(std::move(with_pus));
  }
  if (!request.core_count) return chosen;
  if (*request.core_count == 0 || *request.core_count > chosen.size()) {
    return absl::InvalidArgumentError(
        fmt::format("cores: {} asked for; expected 1 to {}, the number of usable cores", *request.core_count,
                    chosen.size()));
  }
  chosen.resize(*request.core_count);
  return chosen;
}

absl::StatusOr<std::vector<ChosenCores>> CheckExplicitIslands(const ChosenCores& usable,
                                                              const Machine& machine,
                                                              const PlanRequest& request) {
  absl::flat_hash_map<uint32_t, size_t> core_of;
  for (size_t i = 0; i < usable.size(); ++i) {
    for (uint32_t pu : usable[i].pus) core_of[pu] = i;
  }
  absl::flat_hash_map<uint32_t, uint32_t> owner;
  std::vector<ChosenCores> islands;
  for (uint32_t id = 0; id < request.explicit_islands.size(); ++id) {
    std::string where = fmt::format("island {}", id);
    std::map<size_t, ChosenCore> cores;  // in the machine's order
    for (uint32_t cpu : request.explicit_islands[id].cpus) {
      if (absl::Status status = CheckCpuExists(machine, cpu, where); !status.ok()) return status;
      auto core = core_of.find(cpu);
      if (core == core_of.end()) {
        return absl::InvalidArgumentError(
            fmt::format("{}: CPU {} is not among the deployment's cores, which are {}", where, cpu,
                        FormatCpuList(CpusOf(usable))));
      }
      auto [first, added] = owner.try_emplace(cpu, id);
      if (!added) {
        return absl::InvalidArgumentError(
            first->second == id
                ? fmt::format("{}: CPU {} is named twice", where, cpu)
                : fmt::format("{}: CPU {} belongs to island {} already; islands must not overlap", where, cpu,
                              first->second));
      }
      cores[core->second].core = usable[core->second].core;
      cores[core->second].pus.push_back(cpu);
    }
    if (cores.empty()) return absl::InvalidArgumentError(fmt::format("{}: it has no CPUs", where));
    ChosenCores& island = islands.emplace_back();
    for (auto& [index, core] : cores) island.push_back(std::move(core));
  }
  return islands;
}

absl::Status CheckExplicitNodes(const Machine& machine, uint32_t island,
                                const std::vector<uint32_t>& numa_nodes) {
  if (numa_nodes.empty()) {
    return absl::InvalidArgumentError(fmt::format("island {}: the list of NUMA nodes is empty", island));
  }
  std::set<uint32_t> seen;
  for (uint32_t os_index : numa_nodes) {
    auto node = std::find_if(machine.nodes.begin(), machine.nodes.end(),
                             [&](const NumaNode& n) { return n.os_index == os_index; });
    if (node == machine.nodes.end()) {
      return absl::InvalidArgumentError(
          fmt::format("island {}: NUMA node {} does not exist on the machine; it has {}", island, os_index,
                      NameNodes(machine)));
    }
    if (node->memory_bytes == 0 && machine.memory_bytes > 0) {
      return absl::InvalidArgumentError(fmt::format(
          "island {}: NUMA node {} has no memory, or none that this process may use; expected one of {}",
          island, os_index, NameNodes(machine)));
    }
    if (!seen.insert(os_index).second) {
      return absl::InvalidArgumentError(
          fmt::format("island {}: NUMA node {} is named twice", island, os_index));
    }
  }
  return absl::OkStatus();
}

absl::Status DivideMemory(const PlanRequest& request, std::vector<PlannedIsland>& islands) {
  if (!request.weights.empty() && request.weights.size() != islands.size()) {
    return absl::InternalError(
        fmt::format("{} weights for {} islands", request.weights.size(), islands.size()));
  }
  const auto weight = [&](const PlannedIsland& island) {
    return request.weights.empty() ? 1 : request.weights[island.id];
  };
  std::vector<PlannedIsland*> sharing;
  uint64_t left = request.memory_bytes;
  uint64_t weights = 0;
  for (PlannedIsland& island : islands) {
    std::optional<uint64_t> named;
    if (!request.explicit_islands.empty()) named = request.explicit_islands[island.id].memory_bytes;
    if (named) {
      island.memory_bytes = WholePages(*named);
      left -= std::min(left, *named);
    } else {
      sharing.push_back(&island);
      weights += weight(island);
    }
  }
  if (sharing.empty() || request.memory_bytes == 0) return absl::OkStatus();
  if (left < sharing.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "memory: the islands that name their memory take all of the {} in total and leave none for island {}",
        FormatBytes(request.memory_bytes), sharing.front()->id));
  }
  for (PlannedIsland* island : sharing) {
    const auto part = static_cast<unsigned __int128>(left) * weight(*island) / weights;
    island->memory_bytes = WholePages(static_cast<uint64_t>(part));
  }
  return absl::OkStatus();
}

absl::Status CheckMemoryFits(const Machine& machine, const std::vector<PlannedIsland>& islands) {
  if (machine.memory_bytes == 0) return absl::OkStatus();
  struct Need {
    uint64_t bytes = 0;
    std::vector<uint32_t> islands;
  };
  // Sums saturate: a person can write any number.
  auto add = [](uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; };
  std::map<uint32_t, Need> needs;
  uint64_t total = 0;
  for (const PlannedIsland& island : islands) {
    total = add(total, island.memory_bytes);
    for (uint32_t node : island.numa_nodes) {
      size_t parts = island.numa_nodes.size();
      Need& need = needs[node];
      need.bytes = add(need.bytes, island.memory_bytes / parts + (island.memory_bytes % parts != 0));
      need.islands.push_back(island.id);
    }
  }
  for (const NumaNode& node : machine.nodes) {
    const Need& need = needs[node.os_index];
    if (need.bytes <= node.memory_bytes) continue;
    return absl::InvalidArgumentError(fmt::format(
        "memory: NUMA node {} has {}, but {} need{} {} of it; make the buffer pool smaller or use more nodes",
        node.os_index, FormatBytes(node.memory_bytes), NameIslands(need.islands),
        need.islands.size() == 1 ? "s" : "", FormatBytes(need.bytes)));
  }
  if (total > machine.memory_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("memory: the machine has {}, but the islands need {}; make the "
                    "buffer pool smaller",
                    FormatBytes(machine.memory_bytes), FormatBytes(total)));
  }
  return absl::OkStatus();
}

}  // namespace islands::topology
