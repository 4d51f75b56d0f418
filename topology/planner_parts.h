// The steps of MakePlan that check what a person asked for; private to topology/.
//
// Thread safety: pure functions. Pointers in the results point into the given Machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "topology/machine.h"
#include "topology/planner.h"

namespace islands::topology {

struct ChosenCore {
  const Core* core = nullptr;
  std::vector<uint32_t> pus;  // those of the core's PUs that may be used, or that an island does use
};
using ChosenCores = std::vector<ChosenCore>;

// The machine's cores within `cpus` and `core_count`, each with its usable PUs. Never empty.
absl::StatusOr<ChosenCores> ChooseCores(const Machine& machine, const PlanRequest& request);

// One element per explicit island: its cores, with exactly the PUs it names.
absl::StatusOr<std::vector<ChosenCores>> CheckExplicitIslands(const ChosenCores& usable,
                                                              const Machine& machine,
                                                              const PlanRequest& request);

// The island's explicit nodes, which must exist and have memory.
absl::Status CheckExplicitNodes(const Machine& machine, uint32_t island,
                                const std::vector<uint32_t>& numa_nodes);

// Fills memory_bytes: what explicit islands name, the rest of the total to the others by their weights. All
// in whole pages, rounded down.
absl::Status DivideMemory(const PlanRequest& request, std::vector<PlannedIsland>& islands);

// Every node holds what its islands take of it (an island takes equal parts of its nodes). Nothing to check
// where the machine does not say how much memory it has.
absl::Status CheckMemoryFits(const Machine& machine, const std::vector<PlannedIsland>& islands);

}  // namespace islands::topology
