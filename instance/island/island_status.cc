// What an island says of itself: counters, connections, and where the kernel really put it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "instance/island/island.h"
#include "runtime/latch_site.h"
#include "topology/binding.h"
#include "topology/machine.h"

namespace islands::instance {
namespace {

constexpr int64_t kLongestWaitForPeersNs = 10 * runtime::kNsPerSecond;

void FillHistogram(const LatencyHistogram& from, control::v1::Histogram* to) {
  uint64_t count = 0;
  for (uint32_t b = 0; b < kLatencyBuckets; ++b) {
    to->add_buckets(from.bucket(b));
    count += from.bucket(b);
  }
  to->set_count(count);
  to->set_sum_us(static_cast<double>(from.sum_ns()) / 1000.0);
}

// Where the worker's time goes, and its transactions'.
void FillProfile(const Worker& worker, const storage::Catalog& catalog, control::v1::WorkerCounters* to) {
  const WorkerCounters& from = worker.counters();
  for (size_t i = 0; i < runtime::kWorks; ++i)
    (*to->mutable_work_seconds())[runtime::kWorkNames[i]] = static_cast<double>(from.work_ns[i].Get()) / 1e9;
  for (const StayCounters& scope : from.stays) {
    control::v1::StayCounters* stays = to->add_stays();
    stays->set_transactions(scope.transactions.Get());
    for (size_t i = 0; i < kStays; ++i) {
      (*stays->mutable_seconds())[kStayNames[i]] = static_cast<double>(scope.ns[i].Get()) / 1e9;
      (*stays->mutable_seconds_squared())[kStayNames[i]] = scope.seconds_squared[i].Get();
    }
    (*stays->mutable_seconds_squared())[kStaysTogether] = scope.seconds_squared[kStays].Get();
  }
  const runtime::HardwareCounters::Counts counts = worker.hardware().Read(worker.tid());
  for (size_t i = 0; i < runtime::kHardwareEvents; ++i) {
    if (counts[i]) (*to->mutable_hardware())[runtime::kHardwareEventNames[i]] = *counts[i];
  }
  to->set_hardware_problem(worker.hardware().problem());
  worker.latch_waits().ForEach(
      [&](const char* site, const char* holder, uint64_t place, uint64_t waits, uint64_t waited_ns) {
        control::v1::LatchWaits* latch = to->add_latch_waits();
        if (site != nullptr) latch->set_site(site);
        if (holder != nullptr) latch->set_holder(holder);
        if (place != 0) latch->set_what(storage::PageLatchName(catalog, storage::PagePlace(place)));
        latch->set_waits(waits);
        latch->set_seconds(static_cast<double>(waited_ns) / 1e9);
      });
  for (const RowWaits::Row& row : worker.lock_waits().rows().List()) {
    control::v1::RowWaits* out = to->add_row_waits();
    out->set_table(row.table);
    out->set_key(row.shown_key);
    out->set_waits(row.waits);
    out->set_seconds(static_cast<double>(row.waited_ns - row.over_ns) / 1e9);
    for (size_t i = 0; i < kStays; ++i) {
      if (row.holder_ns[i] != 0)
        (*out->mutable_holder_seconds())[kStayNames[i]] = static_cast<double>(row.holder_ns[i]) / 1e9;
    }
  }
  const auto add_queue = [to](std::string queue, const WaitCounters& waits) {
    if (waits.waits.Get() == 0) return;
    control::v1::QueueWaits* out = to->add_queue_waits();
    out->set_queue(std::move(queue));
    out->set_waits(waits.waits.Get());
    out->set_seconds(static_cast<double>(waits.ns.Get()) / 1e9);
  };
  add_queue(fmt::format("log ring of island {}, worker {}", worker.options().island, worker.options().index),
            from.room);
  add_queue(
      fmt::format("data files of island {}, worker {}", worker.options().island, worker.options().index),
      from.pages);
  const std::vector<WaitCounters>& links = worker.peers().waits();
  for (size_t island = 0; island < links.size(); ++island)
    add_queue(fmt::format("link from island {} to {}", worker.options().island, island), links[island]);
}

void FillWorker(const Worker& worker, uint32_t islands, uint32_t own_island,
                control::v1::WorkerCounters* to) {
  const WorkerCounters& from = worker.counters();
  for (const ScopeCounters& scope : from.scopes) {
    control::v1::ScopeCounters* out = to->add_scopes();
    out->set_committed(scope.committed.Get());
    out->set_aborted(scope.aborted.Get());
    out->set_unknown(scope.unknown.Get());
    FillHistogram(scope.latency, out->mutable_latency());
  }
  for (uint32_t reason = 1; reason < kAbortReasons; ++reason) {
    (*to->mutable_aborts_by_reason())[std::string(AbortReasonName(static_cast<AbortReason>(reason)))] =
        from.aborts[reason].Get();
  }
  to->set_busy_seconds(static_cast<double>(from.BusyNs()) / 1e9);
  to->set_idle_seconds(static_cast<double>(from.QuietNs()) / 1e9);
  to->set_transactions_in_flight(from.in_flight.Get());
  to->set_waiting_seconds(static_cast<double>(from.ActivityNs(Activity::kWaiting)) / 1e9);
  to->set_in_doubt(from.in_doubt.Get());
  to->set_clients_moved(from.clients_moved.Get());
  to->set_client_messages(from.client_messages.Get());
  to->set_clients_waiting(from.clients_waiting.Get());
  to->set_arrivals_refused(from.arrivals_refused.Get());
  uint64_t sent = 0, received = 0, bytes_sent = 0, bytes_received = 0;
  for (uint32_t island = 0; island < islands; ++island) {
    if (island == own_island) continue;
    const messaging::PeerTraffic& traffic = worker.links().Traffic(island);
    sent += traffic.messages_sent.load(std::memory_order_relaxed);
    received += traffic.messages_received.load(std::memory_order_relaxed);
    bytes_sent += traffic.bytes_sent.load(std::memory_order_relaxed);
    bytes_received += traffic.bytes_received.load(std::memory_order_relaxed);
  }
  to->set_messages_sent(sent);
  to->set_messages_received(received);
  to->set_bytes_sent(bytes_sent);
  to->set_bytes_received(bytes_received);
}

void AddDoubt(const WorkerCounters& from, int64_t now_ns, control::v1::IslandStatus* to) {
  to->set_in_doubt(to->in_doubt() + from.in_doubt.Get());
  const auto since_ns = static_cast<int64_t>(from.in_doubt_since_ns.Get());
  if (since_ns == 0) return;
  const int64_t for_ms = std::max<int64_t>(1, (now_ns - since_ns) / runtime::kNsPerMs);
  to->set_in_doubt_ms(std::max(to->in_doubt_ms(), for_ms));
}

// A binding that was granted does not last for ever: the kernel lifts that of a CPU that goes offline, and
// anybody may move threads. What to say of a worker's thread that may run on `actual`; nothing if as planned.
std::string LostBinding(const control::v1::IslandConfig& config, int worker, const std::string& actual) {
  const int32_t cpu = config.workers(worker).cpu();
  std::vector<uint32_t> planned(config.cpus().begin(), config.cpus().end());
  if (cpu >= 0) planned = {static_cast<uint32_t>(cpu)};
  const std::string wanted = topology::FormatCpuList(planned);
  if (planned.empty() || wanted == actual) return "";
  return fmt::format("worker {} may run on CPUs {}, planned is {}: it was moved, or that CPU went offline",
                     worker, actual, wanted);
}

// With the policy `preferred` a full node sends its memory elsewhere.
std::string PagesElsewhere(const control::v1::IslandConfig& config, const topology::MemoryReadback& memory) {
  constexpr double kWorthAWord = 0.05;
  const std::vector<uint32_t> nodes(config.numa_nodes().begin(), config.numa_nodes().end());
  uint64_t all = 0, elsewhere = 0;
  for (const auto& [node, pages] : memory.pages_per_node) {
    all += pages;
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) elsewhere += pages;
  }
  const double share = all == 0 ? 0 : static_cast<double>(elsewhere) / static_cast<double>(all);
  if (PolicyOf(config) == topology::MemoryPolicy::kDefault || share <= kWorthAWord) return "";
  return fmt::format("{:.0f} % of the pool's memory is not on NUMA node {}, which may be full", 100 * share,
                     topology::FormatCpuList(nodes));
}

// For as long as it lives; another life tries again.
std::string NotCleaned(const std::string& why) {
  if (why.empty()) return "";
  return fmt::format(
      "changed pages are not written to its data files any more, so its log grows and its next start takes "
      "longer and longer: {}. See to the disk; then `kill {}`, and its supervisor starts it again",
      why, getpid());
}

}  // namespace

bool Island::PeerSilent(uint32_t peer) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [peer](const auto& worker) { return worker->peers().ShownSilent(peer); });
}

control::v1::Snapshot Island::TakeSnapshot() const {
  control::v1::Snapshot snapshot;
  snapshot.set_island(config_.island());
  snapshot.set_boot_epoch(config_.boot_epoch());
  snapshot.set_time_us(seams_.clock->NowNs() / runtime::kNsPerUs);
  uint64_t committed = 0, unknown = 0, open = 0, sessions = 0;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    FillWorker(*worker, sites_.islands(), config_.island(), snapshot.add_workers());
    if (keeper_ != nullptr)
      snapshot.mutable_workers()->rbegin()->set_log_bytes(keeper_->ring(worker->options().index).tail());
    {
      const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
      FillProfile(*worker, *catalog_, snapshot.mutable_workers(snapshot.workers_size() - 1));
    }
    committed += worker->counters().audit_committed.Get();
    unknown += worker->counters().audit_unknown.Get();
    open += worker->counters().branches_open.Get();
    sessions += worker->counters().sessions.Get();
  }
  snapshot.set_audit_committed(static_cast<int64_t>(committed));
  snapshot.set_audit_unknown(static_cast<int64_t>(unknown));
  snapshot.set_branches_open(open);
  snapshot.set_sessions_open(sessions);
  snapshot.set_running(Running());
  snapshot.set_locks_held(shared_locks_->LocksHeld());
  const storage::PoolUsage pool = PoolUsage();
  snapshot.set_pool_resident_pages(pool.resident_pages);
  snapshot.set_pool_capacity_pages(pool.capacity_pages);
  if (paged_) {
    const PagesMoved moved = MovedPages();
    uint64_t misses = 0;
    for (const SitePages& site : moved.sites) misses += site.paged.missed;
    snapshot.set_page_looks(moved.looks);
    snapshot.set_page_misses(misses);
  }
  return snapshot;
}

std::shared_ptr<TransactionGathering> Island::AskTransactions(
    control::v1::TransactionsRequest request) const {
  request.set_most(std::clamp<uint32_t>(request.most(), 1, kMostListed));
  auto gathering = std::make_shared<TransactionGathering>(request, workers_.size());
  for (const std::unique_ptr<Worker>& worker : workers_) {
    worker->Post([gathering, worker = worker.get()] {
      gathering->Add(worker->options().index, worker->ListTransactions(gathering->request()));
    });
  }
  return gathering;
}

control::v1::IslandStatus Island::Status() const {
  control::v1::IslandStatus status;
  status.set_island(config_.island());
  status.set_pid(getpid());
  status.set_boot_epoch(config_.boot_epoch());
  status.set_running(Running());
  status.set_cores_shared(config_.cores_shared());
  control::v1::PlacementReadback* placement = status.mutable_placement();
  uint32_t peers_up = 0;
  std::string warning;
  {
    const runtime::MutexLock lock(store_mutex_, ISLANDS_LATCH("island.store"));
    warning = binding_warning_;
    placement->set_mode_reason(mode_reason_);
    placement->set_data_pages(store_ == nullptr ? 0 : store_->DataPages());
    *status.mutable_procedures() = procedures_;
  }
  if (loaded_.under_way) {
    status.mutable_load()->set_rows(loaded_.rows);
    status.mutable_load()->set_share(loaded_.share);
    status.mutable_load()->set_written(loaded_.written);
  }
  if (const uint64_t listed = keeper_ == nullptr ? 0 : keeper_->warming_up().listed.load(); listed != 0) {
    status.mutable_warm_up()->set_listed(listed);
    status.mutable_warm_up()->set_done(keeper_->warming_up().done);
  }
  const auto warn = [&warning](std::string what) {
    if (warning.empty()) warning = std::move(what);
  };
  for (int i = 0; i < config_.workers_size(); ++i) {
    Worker* worker = workers_[static_cast<size_t>(i)].get();
    peers_up += worker->peers().up();
    AddDoubt(worker->counters(), seams_.clock->NowNs(), &status);
    const int32_t tid = worker->tid();
    absl::StatusOr<std::string> cpus = topology::ReadCpusAllowed(getpid(), tid);
    placement->add_worker_cpus(cpus.ok() ? *cpus : "unknown");
    placement->add_worker_tids(static_cast<uint32_t>(tid));
    warn(worker->binding_error());
    if (cpus.ok()) warn(LostBinding(config_, i, *cpus));
  }
  for (uint32_t peer = 0; peer < sites_.islands(); ++peer) {
    if (PeerSilent(peer)) status.add_unresponsive_peers(peer);
  }
  status.set_peers_connected(peers_up);
  status.set_peers_total(static_cast<uint32_t>(workers_.size()) * (sites_.islands() - 1));
  // An island whose peers do not come up serves what it holds all the same.
  const bool waited = seams_.clock->NowNs() - started_ns_ > kLongestWaitForPeersNs;
  status.set_state(peers_up == status.peers_total() || waited || halted_ ? control::v1::READY
                                                                         : control::v1::STARTING);
  const storage::PoolUsage pool = PoolUsage();
  placement->set_paged(paged_);
  absl::StatusOr<topology::MemoryReadback> memory =
      topology::ReadMemoryPlacement(getpid(), reinterpret_cast<uint64_t>(pool.region), pool.region_bytes);
  if (memory.ok()) {
    placement->set_memory_policy(memory->policy);
    for (const auto& [node, pages] : memory->pages_per_node)
      (*placement->mutable_pool_pages_per_node())[node] = pages;
    warn(PagesElsewhere(config_, *memory));
  } else {
    placement->set_memory_policy("unknown");
  }
  placement->set_warning(warning);
  status.set_detail(NotCleaned(workers_.front()->cleaner_failure()));
  return status;
}

}  // namespace islands::instance
