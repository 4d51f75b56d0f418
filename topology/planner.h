// Cuts a machine into islands: a pure function from (machine, cores, layout, placement, memory) to islands
// with core list, NUMA nodes and memory (OLTP on Hardware Islands, sections 4 and 5.2).
//
// Thread safety: pure functions and plain values.
//
// Invariants:
//  1. Island sizes differ by at most one core; larger islands come first where borders leave the choice.
//     Every chosen core is used by exactly one island, unless there are more islands than cores
//     (`cores_shared`), when islands share cores round-robin.
//  2. With placement `islands`, an island straddles a package, NUMA node or L3 group only when no assignment
//     of these sizes avoids it. `spread` deals neighbouring cores to different islands so that each island
//     spans as many packages as it can. `os` binds nothing: islands get a number of workers, no cores.
//  3. Memory is divided by the islands' weights, in whole pages, and what is returned fits the nodes it is
//     taken from, or it is an error that names node, need and capacity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/machine.h"

namespace islands::topology {

enum class Placement { kIslands, kSpread, kOs };
enum class WorkerOrder {
  kGrouped,
  kSpread,
  kMix,
  kOs
};  // Figure 3: which of an island's cores its workers take

absl::StatusOr<Placement> ParsePlacement(std::string_view text);
absl::StatusOr<WorkerOrder> ParseWorkerOrder(std::string_view text);
std::string_view PlacementName(Placement placement);
std::string_view WorkerOrderName(WorkerOrder order);

// "4ISL" -> 4; "auto" -> nullopt. Error says what is expected.
absl::StatusOr<std::optional<uint32_t>> ParseLayout(std::string_view text);

// An island written out by hand in the deployment file.
struct ExplicitIsland {
  std::vector<uint32_t> cpus;                       // PU OS indexes
  std::optional<std::vector<uint32_t>> numa_nodes;  // node OS indexes
  std::optional<uint64_t> memory_bytes;  // islands without: parts of what the others leave of the total
};

struct PlanRequest {
  std::optional<uint32_t> islands;               // nullopt = auto
  std::vector<ExplicitIsland> explicit_islands;  // not empty: overrides `islands`
  std::optional<std::vector<uint32_t>> cpus;     // restrict to these PU OS indexes; nullopt = all
  std::optional<uint32_t> core_count;            // restrict to the first so many cores
  Placement placement = Placement::kIslands;
  WorkerOrder worker_order = WorkerOrder::kGrouped;
  bool use_all_pus = false;   // one worker per PU instead of per core
  uint64_t memory_bytes = 0;  // buffer pools in total
  // By island: what its part of the memory is in proportion to, such as its sites. Empty: all the same.
  std::vector<uint64_t> weights = {};
};

struct PlannedIsland {
  uint32_t id = 0;
  // PU OS indexes in worker order; worker w runs on cpus[w] (under WorkerOrder::kOs: on any of them). Empty
  // under placement `os`.
  std::vector<uint32_t> cpus;
  uint32_t workers = 0;
  std::vector<uint32_t> numa_nodes;  // OS indexes with memory, nearest to its cores; empty under `os`
  uint64_t memory_bytes = 0;         // whole pages
  bool straddles_package = false;
  bool straddles_node = false;
  bool straddles_cache = false;
};

struct Plan {
  std::vector<PlannedIsland> islands;
  uint32_t cores_used = 0;
  bool cores_shared = false;  // more islands than cores, or explicit islands on hardware threads of one core
  std::string layout;         // "4ISL"
  std::vector<std::string> notes;  // what a person should know: shared cores, straddling, left-over cores
};

inline constexpr uint64_t kPageBytes = 4096;

// How many islands MakePlan will make of it: whoever wants to weigh them has to know before.
absl::StatusOr<uint32_t> CountIslands(const Machine& machine, const PlanRequest& request);

absl::StatusOr<Plan> MakePlan(const Machine& machine, const PlanRequest& request);

}  // namespace islands::topology
