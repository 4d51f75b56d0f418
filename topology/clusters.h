// Which cores are near each other by what was measured, and whether the firmware says the same.
//
// Cores are joined by their shortest round trips first (single linkage); where the next one that would
// join two groups is longer than all before by a clear ratio, the groups there are at that moment are a
// level: chiplets, then sockets. Single linkage, because what disturbs a measurement makes round trips
// longer and never shorter: of two groups that are one, a single pair that was not disturbed is proof.
//
// A core that is far from all others is hardly ever a chiplet of its own, and an island of one core would
// not help anybody: it is counted to the cluster nearest to it, and named. Where there would be many such
// cores, there is no level.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "topology/machine.h"
#include "topology/round_trips.h"

namespace islands::topology {

inline constexpr size_t kFewestCoresForClusters = 4;  // in fewer there is no border to see

struct ClusterLevel {
  // Indexes into the matrix: each core is in one cluster. Ascending, clusters by their first one.
  std::vector<std::vector<uint32_t>> clusters;
  std::vector<uint32_t> lone;  // those that were far from their cluster too, ascending
  uint32_t within_ns = 0;      // median of the pairs inside of clusters
  uint32_t across_ns = 0;      // and of the others
};

// Coarsest level first, each with at least two clusters, and the next one MayFollow it; none: all cores are
// alike, or too few.
std::vector<ClusterLevel> FindClusters(const RoundTripMatrix& ns);

// Sets within_ns and across_ns, by its clusters.
void SetMedians(const RoundTripMatrix& ns, ClusterLevel* level);
// Whether `finer` can be the level after `coarser`: other clusters, and neither of its medians is longer.
bool MayFollow(const ClusterLevel& coarser, const ClusterLevel& finer);

// Measured clusters beside groups that the firmware names; both as a label for each core.
enum class Likeness { kSame, kFiner, kCoarser, kAcross };
std::string_view LikenessName(Likeness likeness);  // "the same as", "finer than", "coarser than", "across"
Likeness Compare(std::span<const uint32_t> measured, std::span<const uint32_t> firmware);

// The groups that the firmware names, as a label for each of the CPUs that were asked about.
struct FirmwareLevel {
  std::string_view name;  // "package", "NUMA node", "L3 group"
  std::string_view key;   // "packages", "numa_nodes", "l3_groups": in JSON
  std::vector<uint32_t> labels;
  size_t groups = 0;
};
// `cpus` are the machine's.
std::vector<FirmwareLevel> FirmwareLevels(const Machine& machine, std::span<const uint32_t> cpus);

// A label for each of `cores` cores.
std::vector<uint32_t> LabelsOf(const ClusterLevel& level, size_t cores);

// The machine with what was measured of it in `file`: cores without a CPU among `cpus` are taken out, the
// others have their cluster of the coarsest level. nullopt: a CPU is not the machine's, or two are of one
// core.
std::optional<Machine> WithClusters(Machine machine, std::span<const uint32_t> cpus,
                                    std::span<const ClusterLevel> levels, std::string_view file);

}  // namespace islands::topology
