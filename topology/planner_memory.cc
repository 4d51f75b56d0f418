// How much memory islands get, and whether it is there.
#include <algorithm>
#include <map>

#include "fmt/format.h"
#include "topology/planner_parts.h"

namespace islands::topology {
namespace {

// Sums saturate: a person can write any number.
uint64_t Add(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

// What keeps the islands' memory from fitting the machine, or nothing. Where the machine does not say how
// much it has there is nothing to check.
std::string WhyMemoryDoesNotFit(const Machine& machine, const std::vector<PlannedIsland>& islands) {
  if (machine.memory_bytes == 0) return "";
  struct Need {
    uint64_t bytes = 0;
    std::vector<uint32_t> islands;
  };
  std::map<uint32_t, Need> needs;
  uint64_t total = 0;
  for (const PlannedIsland& island : islands) {
    total = Add(total, island.memory_bytes);
    for (uint32_t node : island.numa_nodes) {
      size_t parts = island.numa_nodes.size();
      Need& need = needs[node];
      need.bytes = Add(need.bytes, island.memory_bytes / parts + (island.memory_bytes % parts != 0));
      need.islands.push_back(island.id);
    }
  }
  for (const NumaNode& node : machine.nodes) {
    const Need& need = needs[node.os_index];
    if (need.bytes <= node.memory_bytes) continue;
    return fmt::format(
        "NUMA node {} has {}, but {} need{} {} of it; make the buffer pool smaller or use more nodes",
        node.os_index, FormatBytes(node.memory_bytes), NameIslands(need.islands),
        need.islands.size() == 1 ? "s" : "", FormatBytes(need.bytes));
  }
  if (total <= machine.memory_bytes) return "";
  return fmt::format("the machine has {}, but the islands need {}; make the buffer pool smaller",
                     FormatBytes(machine.memory_bytes), FormatBytes(total));
}

}  // namespace

std::vector<uint32_t> NodesWithMemory(const Machine& machine) {
  std::vector<uint32_t> nodes;
  for (const NumaNode& node : machine.nodes) {
    if (node.memory_bytes > 0 || machine.memory_bytes == 0) nodes.push_back(node.os_index);
  }
  return nodes;
}

uint64_t AutoPoolBytes(const Machine& machine, size_t cores_used, size_t islands) {
  constexpr uint64_t kUnknownMemoryBytes = 1u << 30;
  constexpr uint64_t kMiB = 1u << 20;
  const uint64_t memory = machine.memory_bytes > 0 ? machine.memory_bytes : kUnknownMemoryBytes;
  const auto share =
      static_cast<uint64_t>(static_cast<unsigned __int128>(memory) * cores_used / machine.cores.size() / 4);
  return std::max<uint64_t>(share / kMiB * kMiB, islands * 2 * kMinPoolBytes);
}

void DivideMemory(const Machine& machine, const PlanRequest& request, Plan& plan,
                  PlanComplaints& complaints) {
  const bool named = !request.explicit_islands.empty() && request.explicit_islands[0].memory_bytes;
  uint64_t total = 0;
  if (named) {
    for (const ExplicitIsland& island : request.explicit_islands) total = Add(total, *island.memory_bytes);
  } else {
    total = request.memory_bytes.value_or(AutoPoolBytes(machine, plan.cores_used, plan.islands.size()));
  }
  if (total == 0) return;
  bool enough = true;
  for (PlannedIsland& island : plan.islands) {
    const auto part = static_cast<unsigned __int128>(total) * island.sites.count / plan.sites;
    const uint64_t bytes =
        named ? *request.explicit_islands[island.id].memory_bytes : static_cast<uint64_t>(part);
    island.memory_bytes = bytes / kPageBytes * kPageBytes;
    // Where one total is too small for many islands, that is one complaint.
    if (bytes >= kMinPoolBytes || (!named && !enough)) continue;
    enough = false;
    complaints.push_back({named ? PlanField::kIslandMemory : PlanField::kMemory, island.id,
                          fmt::format("found {} of buffer pool for island {}, expected at least {} for every "
                                      "island",
                                      FormatSize(bytes), island.id, FormatSize(kMinPoolBytes))});
  }
  const std::string why = WhyMemoryDoesNotFit(machine, plan.islands);
  if (why.empty()) return;
  complaints.push_back(
      {PlanField::kMemory, 0,
       fmt::format("found {} of buffer pool, expected what fits the machine: {}", FormatSize(total), why)});
}

}  // namespace islands::topology
