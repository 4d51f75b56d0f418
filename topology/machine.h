// What the machine looks like: packages, NUMA nodes, shared caches, cores, PUs, distances - read once through
// hwloc from this machine, an hwloc XML file or a synthetic string, and from then on plain values that the
// planner works on.
//
// Thread safety: Machine is immutable after construction.
//
// Invariants:
//  1. `cores` holds only cores with at least one allowed, online PU, in hwloc's logical (depth-first) order,
//     so that neighbours in the list are neighbours in the machine.
//  2. Every index in a Core (package, node, cache group) is valid in the vectors of the same Machine. A
//     machine without NUMA nodes gets one node with all its memory.
//  3. The clusters of cores are numbered from 0 on, all or none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace islands::topology {

struct Package {
  uint32_t os_index = 0;
  std::string cpu_model;
};

struct NumaNode {
  uint32_t os_index = 0;
  int32_t package = -1;       // -1: spans several packages
  uint64_t memory_bytes = 0;  // 0: memoryless, or not allowed to this process
};

struct CacheGroup {  // cores under one L3 (or under one package where there is no L3)
  uint32_t package = 0;
  uint64_t bytes = 0;
};

struct Core {
  uint32_t package = 0;      // index into Machine::packages
  uint32_t cache_group = 0;  // index into Machine::cache_groups
  // Indexes into Machine::nodes, nearest first; those with memory before those without. The local nodes; if
  // none of them has memory, also the nearest one that has. Memory is taken from the first.
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> pus;      // OS indexes of allowed PUs, first hardware thread first
  int32_t efficiency_class = -1;  // hybrid machines: hwloc's cpukind rank, higher = faster; -1 unknown
  int32_t cluster = -1;           // measured: the coarsest of clusters.h; -1: nothing is known
};

struct Machine {
  std::string source;  // "this machine", the XML path or the synthetic string
  bool is_this_machine = false;
  std::vector<Package> packages;
  std::vector<NumaNode> nodes;
  std::vector<CacheGroup> cache_groups;
  std::vector<Core> cores;
  uint32_t disallowed_pus = 0;                        // exist but are offline or outside the cgroup / taskset
  std::vector<uint32_t> disallowed_cpus;              // their OS indexes
  std::vector<std::vector<uint64_t>> node_distances;  // [from][to] as SLIT values, or empty
  uint64_t memory_bytes = 0;  // of all nodes; 0: unknown, as for synthetic strings that name no memory
  std::string memory_note;    // where it comes from, if not from the nodes themselves
  std::string measured_in;    // the file whose clusters `cores` have; empty: none, or it has no clusters

  size_t pu_count() const;
  // "4 packages, 4 NUMA nodes, 24 cores, 24 PUs, 64 GiB"
  std::string Summary() const;
};

// "auto" (or empty) = this machine; otherwise a path to an hwloc XML file if that file exists, else a
// synthetic string. hwloc itself does not survive every malformed description, so XML and synthetic strings
// are first read in a forked child: whatever such a file does there, the caller gets INVALID_ARGUMENT.
absl::StatusOr<Machine> LoadMachine(std::string_view spec);
// The spec is a file's name: there is such a file, or it looks like one.
bool NamesMachineFile(const std::string& spec);
absl::StatusOr<Machine> LoadThisMachine();
absl::StatusOr<Machine> LoadMachineXml(const std::string& path);
// `source` is what the machine is called.
absl::StatusOr<Machine> LoadMachineXmlText(const std::string& xml, const std::string& source);
absl::StatusOr<Machine> LoadMachineSynthetic(const std::string& description);

// A regular file of at most 64 MiB. Errors name it: NOT_FOUND, INVALID_ARGUMENT, PERMISSION_DENIED.
absl::StatusOr<std::string> ReadMachineFile(const std::string& path);

// This machine as hwloc XML, for run directories.
absl::StatusOr<std::string> ExportThisMachineXml();

// The tree as text, for `islands machine`.
std::string RenderTree(const Machine& machine);

// "0-2,7" <-> {0,1,2,7}. Errors name the offending part.
absl::StatusOr<std::vector<uint32_t>> ParseCpuList(std::string_view text);
std::string FormatCpuList(std::vector<uint32_t> cpus);

// "16 GiB", "4.2 GiB", "512 MiB", "250 B": for people, not for parsing.
std::string FormatBytes(uint64_t bytes);

}  // namespace islands::topology
