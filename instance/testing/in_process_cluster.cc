#include "instance/testing/in_process_cluster.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "instance/messaging/transport_factory.h"
#include "runtime/check.h"

namespace islands::instance {

namespace {

constexpr int64_t kLinksUpNs = 20 * runtime::kNsPerSecond;
constexpr int64_t kRoundNs = runtime::kNsPerUs;                   // of a worker, on simulated time
constexpr auto kMomentOfThreads = std::chrono::milliseconds(10);  // in a step
constexpr int kStepsPerLook = 20;                                 // at what is still open

// Its workers run when somebody calls them.
class Stepped final : public runtime::Scheduler {
 public:
  void Start(std::vector<runtime::Runnable*> workers) override {
    for (runtime::Runnable* worker : workers) worker->OnThreadStart();
  }
  void Stop() override {}
};

}  // namespace

ClusterOptions::ClusterOptions() {
  config.set_cluster_id("test");
  config.set_deployment("test");
  config.set_boot_epoch(1);  // of every island's first life
  config.set_layout_generation(1);
  config.set_pool_bytes(4u << 20);
  config.add_loads()->set_workload("test");
}

InProcessCluster::InProcessCluster(ClusterOptions options)
    : options_(std::move(options)),
      workers_(options_.workers_of.empty() ? std::vector<uint32_t>(options_.islands, options_.workers)
                                           : options_.workers_of),
      sites_(*partitioner::SiteMap::Create(options_.sites, options_.islands)),
      files_(runtime::MakeMemoryFileSystem()),
      hub_(options_.pace == Pace::kSimulated ? &simulated_clock_ : nullptr, options_.hub),
      nodes_(options_.islands) {
  for (Node& node : nodes_) node.boot_epoch = options_.config.boot_epoch() - 1;
}

const runtime::Clock& InProcessCluster::clock() const {
  if (options_.pace == Pace::kSimulated) return simulated_clock_;
  return real_clock_;
}

InProcessCluster::~InProcessCluster() { EndIslands(); }

// All stop before the first is gone, so that nobody loses a peer.
void InProcessCluster::EndIslands() {
  for (const Node& node : nodes_) {
    if (node.island != nullptr) node.island->Stop();
  }
  for (Node& node : nodes_) node.island.reset();
}

control::v1::IslandConfig InProcessCluster::ConfigOf(uint32_t island) const {
  control::v1::IslandConfig config = options_.config;
  config.set_island(island);
  config.set_boot_epoch(nodes_[island].boot_epoch);
  config.set_site_count(options_.sites);
  config.clear_peers();
  for (uint32_t i = 0; i < options_.islands; ++i) {
    control::v1::Peer* peer = config.add_peers();
    peer->set_island(i);
    peer->set_workers(workers_of(i));
    peer->mutable_sites()->set_first(sites_.SitesOf(i).first);
    peer->mutable_sites()->set_count(sites_.SitesOf(i).count);
  }
  config.clear_workers();
  for (uint32_t w = 0; w < workers_of(island); ++w) config.add_workers()->set_cpu(-1);
  return config;
}

Seams InProcessCluster::SeamsOf(uint32_t island) {
  Seams seams;
  seams.clock = &clock();
  seams.files = files_.get();
  seams.scheduler = nodes_[island].scheduler.get();
  seams.make_transport =
      [this](messaging::Address self) -> absl::StatusOr<std::unique_ptr<messaging::Transport>> {
    if (!options_.sockets.empty()) return messaging::MakeTransport("shm", options_.sockets, self);
    return hub_.MakeTransport(self);
  };
  seams.open_workload = [this](const std::string&, const storage::Catalog& catalog,
                               const Parameters&) -> absl::StatusOr<OpenedWorkload> {
    if (!options_.open) return absl::NotFoundError("no such workload");
    return options_.open(catalog);
  };
  seams.seed = options_.seed + island;
  return seams;
}

absl::Status InProcessCluster::Restart(uint32_t i) {
  Node& node = nodes_[i];
  ISLANDS_CHECK(node.island == nullptr);
  ++node.boot_epoch;
  node.scheduler = options_.pace == Pace::kThreads
                       ? runtime::MakeThreadScheduler(clock(), {.spin_ns = options_.spin_ns})
                       : std::make_unique<Stepped>();
  absl::StatusOr<std::unique_ptr<Island>> island = Island::Create(ConfigOf(i), SeamsOf(i));
  if (!island.ok()) return island.status();
  node.island = *std::move(island);
  return node.island->Start();
}

void InProcessCluster::Crash(uint32_t i) {
  hub_.Drop(i);
  nodes_[i].island.reset();
}

absl::Status InProcessCluster::Start() {
  for (uint32_t i = 0; i < options_.islands; ++i) {
    if (absl::Status status = Restart(i); !status.ok()) return status;
  }
  if (options_.pace == Pace::kThreads || RunUntil([this] { return LinksUp(); }, kLinksUpNs))
    return absl::OkStatus();
  return absl::DeadlineExceededError("links did not come up");
}

bool InProcessCluster::LinksUp() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    return std::all_of(
        node.island->workers().begin(), node.island->workers().end(),
        [this](const auto& worker) { return worker->links().PeersUp() == options_.islands - 1; });
  });
}

absl::Status InProcessCluster::StartRun(const control::v1::StartRun& request) {
  for (const Node& node : nodes_) {
    if (node.island == nullptr || node.island->Running()) continue;
    if (absl::Status status = node.island->StartRun(request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status InProcessCluster::StartRun(uint32_t mpl) {
  control::v1::StartRun request;
  request.set_run_id(++run_id_);
  request.set_workload("test");
  request.set_mpl(mpl);
  request.set_seed(options_.seed);
  return StartRun(request);
}

void InProcessCluster::RequestStop() {
  for (const Node& node : nodes_) {
    if (node.island != nullptr) node.island->RequestStop();
  }
}

void InProcessCluster::LetThreadsRun() const {
  std::this_thread::sleep_for(kMomentOfThreads);
  for (const Node& node : nodes_) {
    if (node.island == nullptr) continue;
    (void)node.island->TakeSnapshot();
    (void)node.island->Status();
  }
}

void InProcessCluster::Step() {
  if (options_.pace == Pace::kThreads) return LetThreadsRun();
  for (const Node& node : nodes_) {
    if (node.island == nullptr) continue;
    for (const auto& worker : node.island->workers()) {
      worker->RunOnce();
      simulated_clock_.AdvanceNs(kRoundNs);
    }
  }
}

void InProcessCluster::RunFor(int64_t ns) {
  (void)RunUntil([] { return false; }, ns);
}

bool InProcessCluster::Drain(int64_t limit_ns) {
  const bool threads = options_.pace == Pace::kThreads;
  RequestStop();
  for (const Node& node : nodes_) {
    // What ends a run happens before StopRun returns; only then may another one take its workload's place.
    if (threads && node.island != nullptr && !node.island->StopRun(0, limit_ns).ok()) return false;
  }
  const int steps = threads ? 1 : kStepsPerLook;
  for (const int64_t until_ns = NowNs() + limit_ns; NowNs() < until_ns;) {
    if (Quiet()) return true;
    for (int i = 0; i < steps; ++i) Step();
  }
  return false;
}

bool InProcessCluster::Quiet() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
    if (node.island == nullptr) return true;
    const auto& workers = node.island->workers();
    return !node.island->Running() && node.island->locks().LocksHeld() == 0 &&
           std::all_of(workers.begin(), workers.end(),
                       [](const auto& worker) { return worker->counters().branches_open.Get() == 0; });
  });
}

InProcessCluster::Totals InProcessCluster::Sum() const {
  Totals totals;
  for (const Node& node : nodes_) {
    if (node.island == nullptr) continue;
    for (const auto& worker : node.island->workers()) {
      const WorkerCounters& counters = worker->counters();
      for (const ScopeCounters& scope : counters.scopes) {
        totals.committed += scope.committed.Get();
        totals.aborted += scope.aborted.Get();
        totals.unknown += scope.unknown.Get();
      }
      totals.multisite += counters.scopes[1].committed.Get();
      totals.distributed += counters.scopes[2].committed.Get();
      totals.branches_open += counters.branches_open.Get();
      totals.audit_committed += static_cast<int64_t>(counters.audit_committed.Get());
    }
    totals.locks_held += node.island->locks().LocksHeld();
    const absl::StatusOr<control::v1::AuditReply> audit = node.island->Audit({});
    if (audit.ok()) totals.audit_sum += audit->value();
  }
  return totals;
}

uint64_t InProcessCluster::Committed() const {
  uint64_t committed = 0;
  for (const Node& node : nodes_) {
    if (node.island == nullptr) continue;
    for (const auto& worker : node.island->workers()) {
      for (const ScopeCounters& scope : worker->counters().scopes) committed += scope.committed.Get();
    }
  }
  return committed;
}

void InProcessCluster::VisitRows(TableId table, absl::FunctionRef<void(KeyView, RowView)> visit) const {
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!alive(i)) continue;
    const partitioner::SiteRun own = sites_.SitesOf(i);
    for (uint32_t site = own.first; site < own.first + own.count; ++site) {
      island(i).store().At(table, site)->Scan({}, {}, false, [&](KeyView key, RowView row) {
        visit(key, row);
        return true;
      });
    }
  }
}

}  // namespace islands::instance
