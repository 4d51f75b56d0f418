// Which cores make which island, so that as few islands as possible straddle a border: the combinatorial part
// of the planner, free of machines and file formats.
//
// The borders form a tree (packages hold NUMA nodes hold L3 groups, or L3 groups hold nodes). An island costs
// what the smallest tree node around it does not stay inside of; PackIslands finds the cheapest assignment by
// dynamic programming over the tree. A state of a tree node is how many large and small islands lie inside
// it; the cores they leave over are given upwards, to islands that straddle. If a tree node has more than one
// small island's worth of cores left over, some straddling island can be moved into it by swapping cores, at
// no cost; so only states that leave less are kept, which bounds the tables: thousands of cores take
// milliseconds.
//
// Thread safety: pure functions.
//
// Invariants of the result:
//  1. Every core is in exactly one island; sizes differ by at most one.
//  2. No assignment of these sizes has fewer islands that straddle packages; among those none has fewer that
//     straddle nodes; among those none has fewer that straddle L3 groups.
//  3. Each island's cores are in ascending order; islands are ordered by their first core; where borders
//     leave the choice, larger islands come first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace islands::topology {

// Opaque labels: cores with the same label lie in the same package, node or cache group.
struct CoreDomains {
  uint32_t package = 0;
  uint32_t node = 0;
  uint32_t cache = 0;
};

struct StraddleCount {
  uint32_t package = 0;
  uint32_t node = 0;
  uint32_t cache = 0;
  auto operator<=>(const StraddleCount&) const = default;  // in this order: a package border weighs most
};

// Indexes into `cores` per island. 1 <= islands <= cores.size().
std::vector<std::vector<uint32_t>> PackIslands(std::span<const CoreDomains> cores, uint32_t islands);

// Neighbouring cores to different islands: core i of the package order to island i mod islands. Every package
// gives its cores to as many islands as it can, so no assignment lets the islands span more packages in all.
std::vector<std::vector<uint32_t>> DealIslands(std::span<const CoreDomains> cores, uint32_t islands);

StraddleCount CountStraddling(std::span<const CoreDomains> cores,
                              std::span<const std::vector<uint32_t>> islands);

}  // namespace islands::topology
