// A whole cluster in one thread, from a seed: the islands of the product on a clock that only moves when
// everybody waits, with messages that take as long as the seed says, and processes that die when told to.
//
// Nothing of the islands is replaced; they get other seams (design: "seams that must exist from the first
// day").
//
// Thread safety: none.
//
// Invariants:
//  1. The same options and the same calls give the same run: trace() at the end is equal.
//  2. Simulated time never stands still over a Step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"
#include "instance/simulation/interleaver.h"
#include "instance/workload/workload.h"
#include "proto/control.pb.h"
#include "runtime/clock.h"
#include "runtime/random.h"

namespace islands::simulation {

// Runs what it is given when Step says so.
class SteppedScheduler final : public runtime::Scheduler {
 public:
  void Start(std::vector<runtime::Runnable*> workers) override { workers_ = std::move(workers); }
  void Stop() override { workers_.clear(); }
  const std::vector<runtime::Runnable*>& workers() const { return workers_; }

 private:
  std::vector<runtime::Runnable*> workers_;
};

struct SimOptions {
  uint32_t islands = 3;
  uint32_t workers = 1;              // per island
  std::vector<uint32_t> workers_of;  // by island, instead
  uint32_t sites = 6;
  uint64_t seed = 1;
  int64_t max_delay_ns = 200 * runtime::kNsPerUs;  // of a message
  // What a packet takes, instead.
  std::function<int64_t(runtime::Random& random, messaging::Address from, messaging::Address to)> delay;
  messaging::MemoryHubOptions hub;
  uint64_t transaction_timeout_ms = 0;  // 0 = the product's default
  uint64_t pool_bytes = 4u << 20;       // of an island
  uint32_t escalate_after = 0;          // 0 = the product's default
  // Workers of an island are interleaved inside their rounds, giving way at so many percent of the points
  // where they can (interleaver.h); 0: whole rounds. Only in the build with planted bugs.
  uint32_t interleave_percent = 0;
  control::v1::TableSpec table;
  std::function<std::shared_ptr<const instance::Workload>(const storage::Catalog& catalog)> open;
  // After every step.
  std::function<void()> on_step;
  // Before an island loads its rows.
  std::function<void(uint32_t island, uint64_t boot_epoch)> on_boot;
};

// What an island of such a cluster is started with.
control::v1::IslandConfig ConfigOf(const SimOptions& options, uint32_t island, uint64_t boot_epoch);

class SimCluster {
 public:
  static constexpr int64_t kLongestTurnNs = 20 * runtime::kNsPerUs;  // of a worker, in a step

  explicit SimCluster(SimOptions options);
  ~SimCluster();

  // Starts every island, loads the workload everywhere, waits until all links are up.
  absl::Status Start();
  absl::Status StartRun(uint32_t mpl);
  // Runs come to their end by themselves.
  void RequestStop();
  // Runs until every living island's run has ended and no branch is open, or `limit_ns` of simulated time
  // have passed.
  bool Drain(int64_t limit_ns);
  void RunFor(int64_t ns);
  // One round of every worker that is not stalled.
  void Step();
  // Every transaction ended, every branch closed, every lock released.
  bool Quiet() const;

  // kill -9.
  void Crash(uint32_t island);
  // A new process with the next boot epoch and freshly loaded rows.
  absl::Status Restart(uint32_t island);
  // The worker is not stepped for a while, as if its core did something else.
  void Stall(uint32_t island, uint32_t worker, int64_t ns);

  uint32_t islands() const { return options_.islands; }
  uint32_t workers_of(uint32_t island) const;
  uint64_t boot_epoch(uint32_t island) const { return nodes_[island].boot_epoch; }
  int64_t StalledUntilNs(uint32_t island, uint32_t worker) const {
    return nodes_[island].stalled_until_ns[worker];
  }
  bool alive(uint32_t island) const { return nodes_[island].island != nullptr; }
  instance::Island& island(uint32_t i) { return *nodes_[i].island; }
  messaging::MemoryHub& hub() { return hub_; }
  const runtime::Clock& clock() const { return clock_; }
  runtime::PulseBoard& pulses() { return pulses_; }
  runtime::Random& random() { return random_; }
  int64_t NowNs() const { return clock_.NowNs(); }

  struct Totals {
    uint64_t committed = 0, aborted = 0, unknown = 0, distributed = 0, locks_held = 0, branches_open = 0;
    int64_t audit_sum = 0, audit_committed = 0;
  };
  // Over living islands.
  Totals Sum();
  // A hash of every step taken and all totals so far.
  uint64_t trace() const { return trace_; }

 private:
  struct Node {
    std::unique_ptr<SteppedScheduler> scheduler;
    std::unique_ptr<instance::Island> island;
    uint64_t boot_epoch = 0;
    std::vector<int64_t> stalled_until_ns;  // by worker
  };
  bool LinksUp();
  void StepWorkers();
  void CheckInvariants();
  // A round of every worker in turns_, in random order. Whether anybody had anything to do.
  bool RunWorkers();
  void Mix(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001b3ull; }

  const SimOptions options_;
  runtime::Random random_;
  runtime::ManualClock clock_;
  std::unique_ptr<runtime::FileSystem> files_;
  messaging::MemoryHub hub_;
  runtime::PulseBoard pulses_;
  std::vector<Node> nodes_;
  struct Turn {
    uint32_t island = 0;
    runtime::Runnable* worker = nullptr;  // null: has had it
  };
  std::vector<Turn> turns_;  // scratch
  uint64_t steps_ = 0;
  std::vector<runtime::Runnable*> together_;
  std::optional<Interleaver> interleaver_;
  uint64_t run_id_ = 0;
  uint64_t trace_ = 0xcbf29ce484222325ull;
};

}  // namespace islands::simulation
