// How much memory NUMA nodes have where they say less than the kernel has: some virtual machines tell a
// node's size of the time when they were started, or count only what the hypervisor has handed over by
// then.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace islands::topology {

struct NodeBytes {
  uint32_t os_index = 0;
  uint64_t bytes = 0;
  friend bool operator==(const NodeBytes&, const NodeBytes&) = default;
};

// The texts are of /proc/meminfo and /proc/zoneinfo, with pages of 4 KiB. Empty if what all `nodes` say is
// at least 99 % of the kernel's MemTotal, if a text says nothing of it, or if nothing tells on which nodes
// the rest lies: then they stay as they are. Otherwise the nodes with the rest added, by the pages that
// the kernel knows to be present on each beyond what it says; all of it to the only node, if there is only
// one.
std::vector<NodeBytes> NodesWithKernelMemory(std::span<const NodeBytes> nodes, std::string_view meminfo,
                                             std::string_view zoneinfo);

}  // namespace islands::topology
