// Which two CPUs the processes of `ipc` run on: a pure function of the machine.
//
//   same-core      one CPU (hardware thread) for both
//   same-cache     two cores under one L3
//   same-socket    two cores of one socket, under different L3s if it has several
//   cross-socket   two cores of different sockets, those whose NUMA nodes are farthest apart
//
// Thread safety: pure functions and plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/machine.h"

namespace islands::experiments {

enum class Where { kSameCore, kSameCache, kSameSocket, kCrossSocket };

struct CorePair {
  uint32_t near = 0;  // OS indexes: where the measuring process runs, and where its peer does
  uint32_t far = 0;
  std::string text;  // for people
};

// The pair among `cpus`, at most one per core, in the machine's order. NOT_FOUND: they hold no such pair.
absl::StatusOr<CorePair> ChooseCorePair(const topology::Machine& machine, const std::vector<uint32_t>& cpus,
                                        Where where);

}  // namespace islands::experiments
