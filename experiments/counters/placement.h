// Which thread of `counters` runs where, on which counter, and in which node's memory each counter lies (OLTP
// on Hardware Islands, sections 3.1 and 3.2): a pure function of the machine.
//
//   workers   threads of one counter          memory of the counter
//   grouped   on one socket                   that socket's NUMA node
//   spread    dealt from all sockets          the nodes of the sockets in turn, as for grouped
//   os        wherever the kernel puts them   wherever the kernel puts it
//
// Grouped and spread use the same cores wherever they can, and the same number of threads per counter, so
// that only the distances differ. More threads than cores share the cores in turn.
//
// Thread safety: pure functions and plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/machine.h"

namespace islands::experiments {

enum class CounterSetup { kSingle, kPerSocket, kPerCore };  // per core: one counter per thread
enum class CounterWorkers { kSpread, kGrouped, kOs };

struct CountersRequest {
  CounterSetup setup = CounterSetup::kPerSocket;
  CounterWorkers workers = CounterWorkers::kGrouped;
  uint32_t threads = 0;  // 0: one per core
  std::string cores = "all";
};

struct CountersPlan {
  struct Thread {
    uint32_t counter = 0;
    std::vector<uint32_t> cpus;  // OS indexes it may run on: one, or under `os` all chosen ones
    bool operator==(const Thread&) const = default;
  };
  std::vector<Thread> threads;
  std::vector<std::optional<uint32_t>> counter_nodes;  // OS index of the node; nullopt: the kernel's choice
  std::string text;                                    // what runs where, for people
};

absl::StatusOr<CountersPlan> PlanCounters(const topology::Machine& machine, const CountersRequest& request);

}  // namespace islands::experiments
