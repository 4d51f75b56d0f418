// A whole cluster inside this process, for tests and benchmarks: islands of the product, a network of memory
// between them, and a workload whose rows they have loaded. Nothing of them is replaced. Pace says who runs
// their workers, and on which time. instance/simulation/sim_cluster.h is this cluster plus faults.
//
// Thread safety: none; with Pace::kThreads the islands have their own threads.
//
// Invariants:
//  1. The lives of an island have boot epochs that follow each other, from the configuration's on.
//  2. With Pace::kSimulated the same options and the same calls give the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"
#include "partitioner/site_map.h"
#include "proto/control.pb.h"
#include "runtime/clock.h"

namespace islands::instance {

enum class Pace : uint8_t {
  kThreads,    // every worker has a thread of its own; real time
  kStepped,    // Step gives every worker a round; real time
  kSimulated,  // the same, on a clock that only Step moves
};

struct ClusterOptions {
  ClusterOptions();

  Pace pace = Pace::kThreads;
  uint32_t islands = 1;
  uint32_t workers = 1;              // per island
  std::vector<uint32_t> workers_of;  // by island, instead
  uint32_t sites = 4;
  uint64_t seed = 1;    // of runs
  int64_t spin_ns = 0;  // of threads; with more of them than cores, who spins keeps others from working
  // What all islands have in common: tables, pool, timeouts. The cluster adds which one it is, and its peers.
  control::v1::IslandConfig config;
  // For loading and for runs, whatever they are told to load or run; empty: there is no workload.
  std::function<absl::StatusOr<OpenedWorkload>(const storage::Catalog& catalog)> open;
  messaging::MemoryHubOptions hub;
  std::string sockets;  // a directory: as deployments talk, over sockets there with rings, not over the hub
};

class InProcessCluster {
 public:
  explicit InProcessCluster(ClusterOptions options);
  virtual ~InProcessCluster();
  InProcessCluster(const InProcessCluster&) = delete;
  InProcessCluster& operator=(const InProcessCluster&) = delete;

  // Starts every island, with its rows; unless they have threads, waits until all links are up.
  absl::Status Start();
  // A new process with the next boot epoch and freshly loaded rows; the first one as well.
  virtual absl::Status Restart(uint32_t island);
  // kill -9.
  virtual void Crash(uint32_t island);

  // On living islands that have no run.
  absl::Status StartRun(const control::v1::StartRun& request);
  absl::Status StartRun(uint32_t mpl);
  // Runs come to their end by themselves.
  void RequestStop();

  // A round of every worker, in order. With threads: lets them run for a moment and asks the islands for
  // their state, as control and metrics threads do.
  virtual void Step();
  void RunFor(int64_t ns);
  // Until `over()`; false if it does not come true within `limit_ns`.
  template <typename Predicate>
  bool RunUntil(const Predicate& over, int64_t limit_ns) {
    for (const int64_t until_ns = NowNs() + limit_ns; !over(); Step()) {
      if (NowNs() >= until_ns) return false;
    }
    return true;
  }
  // Ends the runs; whether the cluster is quiet within `limit_ns`.
  bool Drain(int64_t limit_ns);
  // Every transaction ended, every branch closed, every lock released.
  bool Quiet() const;

  uint32_t islands() const { return options_.islands; }
  uint32_t workers_of(uint32_t i) const { return workers_[i]; }
  std::span<const uint32_t> workers_per_island() const { return workers_; }
  bool alive(uint32_t i) const { return nodes_[i].island != nullptr; }
  uint64_t boot_epoch(uint32_t i) const { return nodes_[i].boot_epoch; }
  Island& island(uint32_t i) const { return *nodes_[i].island; }
  messaging::MemoryHub& hub() { return hub_; }
  const runtime::Clock& clock() const;
  int64_t NowNs() const { return clock().NowNs(); }

  struct Totals {
    uint64_t committed = 0, aborted = 0, unknown = 0;
    uint64_t multisite = 0, distributed = 0;  // of those that have committed
    uint64_t locks_held = 0, branches_open = 0;
    int64_t audit_sum = 0, audit_committed = 0;
  };
  // Over living islands.
  Totals Sum() const;
  uint64_t Committed() const;
  // The rows of living islands; nothing may change them meanwhile.
  void VisitRows(TableId table, absl::FunctionRef<void(KeyView, RowView)> visit) const;

 protected:
  virtual Seams SeamsOf(uint32_t island);
  // What Step of a derived class moves, with Pace::kSimulated.
  runtime::ManualClock& simulated_clock() { return simulated_clock_; }
  // For destructors of those whose seams use what they own.
  void EndIslands();

 private:
  struct Node {
    std::unique_ptr<runtime::Scheduler> scheduler;
    std::unique_ptr<Island> island;
    uint64_t boot_epoch = 0;
  };
  control::v1::IslandConfig ConfigOf(uint32_t island) const;
  bool LinksUp() const;
  void LetThreadsRun() const;

  const ClusterOptions options_;
  const std::vector<uint32_t> workers_;  // by island
  const partitioner::SiteMap sites_;
  const runtime::MonotonicClock real_clock_;
  runtime::ManualClock simulated_clock_;
  const std::unique_ptr<runtime::FileSystem> files_;
  messaging::MemoryHub hub_;
  uint64_t run_id_ = 0;
  std::vector<Node> nodes_;
};

}  // namespace islands::instance
