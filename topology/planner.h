// The one verdict on a plan: cuts a machine into islands and gives each its cores, NUMA nodes, sites, memory
// and port, as it will be started with, or says all that is wrong with what was asked (OLTP on Hardware
// Islands, sections 4 and 5.2). What is wrong is said once, here; who read the request from a file knows
// where each field of it stands.
//
// Thread safety: pure functions and plain values.
//
// Invariants of a Plan (CheckInvariants asserts all but 3 and the order in 2):
//  1. It has 1 to kMaxIslands islands in order of their ids, each with at least one worker, one worker per
//     CPU. CPUs are of the machine, and of one island only, unless islands share cores round-robin because
//     there are more of them than cores (`cores_shared`).
//  2. Islands that the planner cuts use every chosen core, and their sizes differ by at most one core; larger
//     islands come first where borders leave the choice. Of a machine whose clusters were measured, an `auto`
//     layout with placement `islands` is one island per cluster instead, of whatever size.
//  3. With placement `islands`, an island straddles a package, NUMA node or L3 group only when no assignment
//     of these sizes avoids it. `spread` deals neighbouring cores to different islands so that each island
//     spans as many packages as it can. `os` binds nothing: islands get a number of workers, no cores.
//  4. Islands hold all sites, in runs in their order; runs differ by at most one site, and none is empty.
//  5. Memory is in whole pages. An island has what its entry names, else its sites' part of the total, and at
//     least kMinPoolBytes (unless no memory is planned at all); all fits the nodes it is taken from.
//  6. Island i has metrics port base + i, at most kMaxPort, or no island has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "partitioner/site_map.h"
#include "topology/machine.h"

namespace islands::topology {

inline constexpr uint32_t kMaxIslands = 999;  // socket names have three digits
inline constexpr uint32_t kMinPort = 1024, kMaxPort = 65535;
inline constexpr uint64_t kPageBytes = 4096;
// A tree per site and table, and room to work in: below this an island cannot even load.
inline constexpr uint64_t kMinPoolBytes = 4u << 20;

enum class Placement { kIslands, kSpread, kOs };
enum class WorkerOrder {
  kGrouped,
  kSpread,
  kMix,
  kOs
};  // Figure 3: which of an island's cores its workers take

// Their words in a deployment file, in the order of the values.
inline constexpr std::string_view kPlacementWords[] = {"islands", "spread", "os"};
inline constexpr std::string_view kWorkerOrderWords[] = {"grouped", "spread", "mix", "os"};
constexpr std::string_view PlacementName(Placement p) { return kPlacementWords[static_cast<size_t>(p)]; }
constexpr std::string_view WorkerOrderName(WorkerOrder o) {
  return kWorkerOrderWords[static_cast<size_t>(o)];
}

inline constexpr std::string_view kLayoutWords = "1ISL, 2ISL, ... (a number of islands) or auto";
// "4ISL" -> 4; "auto" -> nullopt. The error is what would be right: kLayoutWords, or "at most 999 islands".
absl::StatusOr<std::optional<uint32_t>> ParseLayout(std::string_view text);

// "12GiB", "64MiB", "4096": a whole number, then KiB, MiB, GiB, TiB, B or nothing. Error says what is
// expected.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);
// What who wrote `text` may have meant, as ParseSize reads it: "1GiB" for 1G, 1GB, "1 GiB", 1gib, 1.0GiB.
std::optional<std::string> NearestSize(std::string_view text);
// "12GiB", "1.5GiB", "64MiB", "100B": the largest unit that needs at most one decimal digit.
std::string FormatSize(uint64_t bytes);

// An island written out by hand in the deployment file.
struct ExplicitIsland {
  std::vector<uint32_t> cpus;                       // PU OS indexes, at least one
  std::optional<std::vector<uint32_t>> numa_nodes;  // node OS indexes, at least one
  std::optional<uint64_t> memory_bytes;             // of every island or of none
};

// What is right by itself, whatever the machine: lists are not empty and name nothing twice, also not in two
// islands, and limits that need no machine are kept. Anything else is a bug of ours (CheckRequest).
struct PlanRequest {
  std::optional<uint32_t> islands;  // nullopt = auto: by measured clusters, else by packages or L3 groups
  std::vector<ExplicitIsland> explicit_islands;  // instead of `islands`, `cpus` and `core_count`
  std::optional<std::vector<uint32_t>> cpus;     // restrict to these PU OS indexes; nullopt = all
  std::optional<uint32_t> core_count;            // or to the first so many cores
  Placement placement = Placement::kIslands;
  WorkerOrder worker_order = WorkerOrder::kGrouped;
  bool use_all_pus = false;                      // one worker per PU instead of per core
  std::optional<uint32_t> sites = std::nullopt;  // nullopt = auto
  // Buffer pools in total, unless explicit islands name theirs; nullopt = auto, 0 = no memory is planned.
  std::optional<uint64_t> memory_bytes = 0;
  uint32_t metrics_base_port = 0;           // 0 = none
  std::vector<uint32_t> gateway_cpus = {};  // where the gateway may run; empty: anywhere
};

struct PlannedIsland {
  uint32_t id = 0;
  // PU OS indexes in worker order; worker w runs on cpus[w] (under WorkerOrder::kOs: on any of them). Empty
  // under placement `os`.
  std::vector<uint32_t> cpus;
  uint32_t workers = 0;
  std::vector<uint32_t> numa_nodes;  // OS indexes with memory, nearest to its cores; empty under `os`
  partitioner::SiteRun sites;
  uint64_t memory_bytes = 0;  // its buffer pool
  uint32_t metrics_port = 0;  // 0 = none
  bool straddles_package = false;
  bool straddles_node = false;
  bool straddles_cache = false;
};

struct Plan {
  std::vector<PlannedIsland> islands;
  uint32_t sites = 0;
  uint32_t cores_used = 0;
  bool cores_shared = false;  // more islands than cores, or explicit islands on hardware threads of one core
  std::string layout;         // "4ISL"
  std::vector<std::string> notes;  // what a person should know: shared cores, straddling, left-over cores
};

// What a complaint is about; those of kIsland... are about one explicit island.
enum class PlanField {
  kCores,
  kLayout,
  kSites,
  kMemory,
  kPort,
  kGatewayCpus,
  kIslandCpus,
  kIslandNodes,
  kIslandMemory
};

struct PlanComplaint {
  PlanField field;
  uint32_t island = 0;
  std::string text;  // "found X, expected Y"
};

// A plan, or what is wrong: exactly one of them.
struct Verdict {
  std::optional<Plan> plan;
  std::vector<PlanComplaint> complaints;
};

Verdict MakePlan(const Machine& machine, const PlanRequest& request);

// `memory_bytes: auto`: a quarter of the machine's memory for the cores used, whole MiB, and enough for every
// island.
uint64_t AutoPoolBytes(const Machine& machine, size_t cores_used, size_t islands);

}  // namespace islands::topology
