// Options that `peers` and `workload_peers` have in common.
//
// Thread safety: a process's main thread calls these, before others are there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "experiments/peers/peer.h"

namespace islands::experiments {

// By their names.
const std::map<std::string, PeerDurability>& Durabilities();
const std::string& NameOf(PeerDurability durability);
// Named twice is measured once.
void DropRepeated(std::vector<std::string>* names);
// Threads that are started later inherit it. Negative: anywhere. INVALID_ARGUMENT: says where one can.
absl::Status RunOnCpu(int cpu);

}  // namespace islands::experiments
