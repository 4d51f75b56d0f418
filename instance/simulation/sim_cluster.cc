#include "instance/simulation/sim_cluster.h"
#include "runtime/check.h"
#include "runtime/planted_bug.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace islands::simulation {

using runtime::kNsPerMs;
using runtime::kNsPerUs;

namespace {
// Nothing is due later than that without being announced; a limit all the same.
constexpr int64_t kLongestJumpNs = 20 * kNsPerMs;
// Lock tables are looked at as a whole only now and then: that takes as long as many steps.
constexpr uint64_t kStepsPerLockCheck = 256;

uint32_t WorkersOf(const SimOptions& options, uint32_t island) {
  return options.workers_of.empty() ? options.workers : options.workers_of[island];
}

std::vector<uint32_t> AllWorkers(const SimOptions& options) {
  std::vector<uint32_t> workers;
  for (uint32_t island = 0; island < options.islands; ++island) workers.push_back(WorkersOf(options, island));
  return workers;
}

}  // namespace

SimCluster::SimCluster(SimOptions options)
    : options_(std::move(options)),
      random_(options_.seed),
      files_(runtime::MakeMemoryFileSystem()),
      hub_(&clock_, options_.hub),
      pulses_(AllWorkers(options_)),
      nodes_(options_.islands) {
#ifdef ISLANDS_PLANTED_BUGS
  if (options_.interleave_percent != 0) interleaver_.emplace(options_.seed, options_.interleave_percent);
#endif
  hub_.SetDelay([this](messaging::Address from, messaging::Address to) {
    if (options_.delay) return options_.delay(random_, from, to);
    return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.max_delay_ns) + 1));
  });
}

SimCluster::~SimCluster() {
  for (Node& node : nodes_) node.island.reset();
}

uint32_t SimCluster::workers_of(uint32_t island) const { return WorkersOf(options_, island); }

control::v1::IslandConfig ConfigOf(const SimOptions& options, uint32_t island, uint64_t boot_epoch) {
  control::v1::IslandConfig config;
  config.set_cluster_id("simulated");
  config.set_deployment("simulated");
  config.set_island(island);
  config.set_boot_epoch(boot_epoch);
  config.set_layout_generation(1);
  config.set_pool_bytes(options.pool_bytes);
  config.set_transaction_timeout_ms(options.transaction_timeout_ms);
  config.set_site_count(options.sites);
  const auto sites = partitioner::SiteMap::Create(options.sites, options.islands);
  for (uint32_t i = 0; i < options.islands; ++i) {
    control::v1::Peer* peer = config.add_peers();
    peer->set_island(i);
    peer->set_workers(WorkersOf(options, i));
    peer->mutable_sites()->set_first(sites->SitesOf(i).first);
    peer->mutable_sites()->set_count(sites->SitesOf(i).count);
  }
  for (uint32_t w = 0; w < WorkersOf(options, island); ++w) config.add_workers()->set_cpu(-1);
  *config.add_tables() = options.table;
  config.add_loads()->set_workload("simulated");
  return config;
}

absl::Status SimCluster::Restart(uint32_t i) {
  Node& node = nodes_[i];
  ++node.boot_epoch;
  node.stalled_until_ns.assign(workers_of(i), 0);
  if (options_.on_boot) options_.on_boot(i, node.boot_epoch);
  node.scheduler = std::make_unique<SteppedScheduler>();
  instance::Seams seams;
  seams.clock = &clock_;
  seams.files = files_.get();
  seams.scheduler = node.scheduler.get();
  seams.make_transport =
      [this](messaging::Address self) -> absl::StatusOr<std::unique_ptr<messaging::Transport>> {
    return hub_.MakeTransport(self);
  };
  seams.open_workload = [this](const std::string&, const storage::Catalog& catalog,
                               const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
    return options_.open(catalog);
  };
  seams.seed = options_.seed + i;
  seams.begun_in_a_row = 1;
  if (options_.escalate_after != 0) seams.escalate_after = options_.escalate_after;
  seams.pulses = &pulses_;
  seams.proven_dead = [this](uint32_t island, uint64_t boot_epoch) {
    const Node& node = nodes_[island];
    return node.boot_epoch > boot_epoch || (node.boot_epoch == boot_epoch && node.island == nullptr);
  };
  absl::StatusOr<std::unique_ptr<instance::Island>> island =
      instance::Island::Create(ConfigOf(options_, i, node.boot_epoch), seams);
  if (!island.ok()) return island.status();
  node.island = *std::move(island);
  return node.island->Start();
}

void SimCluster::Crash(uint32_t i) {
  hub_.Drop(i);
  nodes_[i].island.reset();
  Mix(0xdead + i);
}

absl::Status SimCluster::Start() {
  for (uint32_t i = 0; i < options_.islands; ++i) {
    if (absl::Status status = Restart(i); !status.ok()) return status;
  }
  for (int round = 0; round < 100'000; ++round) {
    if (LinksUp()) return absl::OkStatus();
    Step();
  }
  return absl::DeadlineExceededError("links did not come up");
}

bool SimCluster::LinksUp() {
  return std::all_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    return std::all_of(
        node.island->workers().begin(), node.island->workers().end(),
        [this](const auto& worker) { return worker->links().PeersUp() == options_.islands - 1; });
  });
}

absl::Status SimCluster::StartRun(uint32_t mpl) {
  ++run_id_;
  for (Node& node : nodes_) {
    if (node.island == nullptr || node.island->Running()) continue;
    control::v1::StartRun request;
    request.set_run_id(run_id_);
    request.set_mpl(mpl);
    request.set_seed(options_.seed);
    if (absl::Status status = node.island->StartRun(request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void SimCluster::Stall(uint32_t island, uint32_t worker, int64_t ns) {
  int64_t& until_ns = nodes_[island].stalled_until_ns[worker];
  until_ns = std::max(until_ns, clock_.NowNs() + ns);
  Mix(0x57a11 + island);
}

bool SimCluster::RunWorkers() {
  for (size_t n = turns_.size(); n > 1; --n) std::swap(turns_[n - 1], turns_[random_.Below(n)]);
  bool worked = false;
  const auto note = [&](bool busy) {
    worked |= busy;
    clock_.AdvanceNs(static_cast<int64_t>(1 + random_.Below(busy ? kLongestTurnNs : 100)));
    Mix(busy ? 2 : 1);
  };
  for (size_t n = 0; n < turns_.size(); ++n) {
    if (turns_[n].worker == nullptr) continue;
    together_ = {turns_[n].worker};
    for (size_t m = n + 1; interleaver_ && m < turns_.size(); ++m) {
      if (turns_[m].island != turns_[n].island) continue;
      together_.push_back(std::exchange(turns_[m].worker, nullptr));
    }
    if (together_.size() == 1) {
      note(together_.front()->RunOnce());
    } else {
      for (const bool busy : interleaver_->Run(together_)) note(busy);
    }
  }
  return worked;
}

// Everybody gets a turn, in random order; if nobody had anything to do, time jumps to the next thing that
// happens.
void SimCluster::StepWorkers() {
  const int64_t now_ns = clock_.NowNs();
  int64_t next_ns = now_ns + kLongestJumpNs;
  turns_.clear();
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.island == nullptr) continue;
    for (size_t w = 0; w < node.scheduler->workers().size(); ++w) {
      if (node.stalled_until_ns[w] > now_ns) {
        next_ns = std::min(next_ns, node.stalled_until_ns[w]);
      } else {
        turns_.push_back({i, node.scheduler->workers()[w]});
      }
    }
  }
  if (RunWorkers()) return;
  // What was due before this round and is still there is for a stalled worker.
  next_ns = std::min(next_ns, hub_.NextDeliveryNs(now_ns));
  for (Node& node : nodes_) {
    if (node.island == nullptr) continue;
    for (size_t w = 0; w < node.scheduler->workers().size(); ++w) {
      if (node.stalled_until_ns[w] <= now_ns)
        next_ns = std::min(next_ns, node.scheduler->workers()[w]->NextDeadlineNs());
    }
  }
  clock_.AdvanceNs(std::max<int64_t>(kNsPerUs, next_ns - clock_.NowNs()));
  Mix(static_cast<uint64_t>(clock_.NowNs()));
}

// With a planted bug it is for the tests' own judges to find it.
void SimCluster::CheckInvariants() {
  if (runtime::AnyPlanted()) return;
  const bool locks_too = ++steps_ % kStepsPerLockCheck == 0;
  for (Node& node : nodes_) {
    if (node.island == nullptr) continue;
    if constexpr (!runtime::kCheckEveryRound) {  // else they do it themselves
      for (const auto& worker : node.island->workers()) worker->CheckInvariants();
    }
    if (locks_too) node.island->locks().CheckInvariants();
  }
}

void SimCluster::Step() {
  StepWorkers();
  CheckInvariants();
  if (options_.on_step) options_.on_step();
}

void SimCluster::RunFor(int64_t ns) {
  const int64_t until_ns = clock_.NowNs() + ns;
  while (clock_.NowNs() < until_ns) Step();
}

void SimCluster::RequestStop() {
  for (Node& node : nodes_) {
    if (node.island != nullptr) node.island->RequestStop();
  }
}

bool SimCluster::Drain(int64_t limit_ns) {
  RequestStop();
  const int64_t until_ns = clock_.NowNs() + limit_ns;
  while (clock_.NowNs() < until_ns) {
    if (Quiet()) return true;
    for (int i = 0; i < 20; ++i) Step();
  }
  return false;
}

bool SimCluster::Quiet() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
    if (node.island == nullptr) return true;
    const auto& workers = node.island->workers();
    const bool open = std::any_of(workers.begin(), workers.end(),
                                  [](const auto& worker) { return worker->HasOpenBranches(); });
    return !open && !node.island->Running() && node.island->locks().LocksHeld() == 0;
  });
}

SimCluster::Totals SimCluster::Sum() {
  Totals totals;
  for (Node& node : nodes_) {
    if (node.island == nullptr) continue;
    const control::v1::Snapshot snapshot = node.island->TakeSnapshot();
    for (const control::v1::WorkerCounters& worker : snapshot.workers()) {
      for (const control::v1::ScopeCounters& scope : worker.scopes()) {
        totals.committed += scope.committed();
        totals.aborted += scope.aborted();
        totals.unknown += scope.unknown();
      }
      totals.distributed += worker.scopes(2).committed();
    }
    totals.locks_held += snapshot.locks_held();
    totals.branches_open += snapshot.branches_open();
    totals.audit_committed += snapshot.audit_committed();
    absl::StatusOr<control::v1::AuditReply> audit = node.island->Audit({});
    if (audit.ok()) totals.audit_sum += audit->value();
  }
  return totals;
}

}  // namespace islands::simulation
