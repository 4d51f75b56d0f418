// A whole cluster in one process on real threads and real time: what the data-race detector looks at, and
// workloads whose transactions really meet.
//
// Thread safety: none; islands have their own threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"
#include "instance/simulation/sim_cluster.h"
#include "runtime/clock.h"

namespace islands::simulation {

class ThreadedCluster {
 public:
  struct Node {
    std::unique_ptr<runtime::Scheduler> scheduler;
    std::unique_ptr<instance::Island> island;
  };

  // `options`: islands, workers, sites, transaction_timeout_ms, table and open; the rest is of simulation.
  explicit ThreadedCluster(SimOptions options);
  ~ThreadedCluster();

  // Creates the islands, loads their rows, starts their threads.
  absl::Status Start();
  // The load of all islands for so long, while others ask them for their state all the time.
  absl::Status Run(uint32_t mpl, int milliseconds);
  // No lock is held, no branch is open; waits for it at most 10 s.
  bool BecomesQuiet();
  std::vector<Node>& nodes() { return nodes_; }

 private:
  bool Quiet();

  const SimOptions options_;
  const runtime::MonotonicClock clock_;
  const std::unique_ptr<runtime::FileSystem> files_;
  messaging::MemoryHub hub_;
  std::vector<Node> nodes_;
};

}  // namespace islands::simulation
