#include "instance/server/metrics.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "instance/server/log_metrics.h"
#include "instance/server/metric_family.h"
#include "instance/storage/pages/page.h"

namespace islands::server {

using instance::BucketUpperUs;
using instance::kAbortReasons;
using instance::kLatencyBuckets;
using instance::kScopeNames;
using instance::kScopes;
using instance::WorkerCounters;
using prometheus::ClientMetric;
using prometheus::MetricFamily;

namespace {

constexpr int64_t kPlacementMaxAgeNs = 10 * runtime::kNsPerSecond;

MetricFamily Transactions(const instance::Island& island) {
  Family family(Metric::kTransactions, island);
  for (const auto& worker : island.workers()) {
    for (uint32_t s = 0; s < kScopes; ++s) {
      const instance::ScopeCounters& scope = worker->counters().scopes[s];
      const auto add = [&](const char* outcome, uint64_t value) {
        family.Add({WorkerLabel(*worker), {"scope", kScopeNames[s]}, {"outcome", outcome}}, value);
      };
      add("committed", scope.committed.Get());
      add("aborted", scope.aborted.Get());
      add("unknown", scope.unknown.Get());
    }
  }
  return family.Take();
}

MetricFamily Aborts(const instance::Island& island) {
  Family family(Metric::kAborts, island);
  for (const auto& worker : island.workers()) {
    for (uint32_t reason = 1; reason < kAbortReasons; ++reason) {
      const auto name = instance::AbortReasonName(static_cast<instance::AbortReason>(reason));
      family.Add({WorkerLabel(*worker), {"reason", std::string(name)}},
                 worker->counters().aborts[reason].Get());
    }
  }
  return family.Take();
}

// Bounds at powers of two of a microsecond, where the fine buckets have borders too: exact, without
// interpolation.
void FillHistogram(const instance::Island& island, uint32_t scope, ClientMetric* metric) {
  std::vector<uint64_t> fine(kLatencyBuckets);
  uint64_t sum_ns = 0;
  for (const auto& worker : island.workers()) {
    const instance::LatencyHistogram& histogram = worker->counters().scopes[scope].latency;
    for (uint32_t b = 0; b < kLatencyBuckets; ++b) fine[b] += histogram.bucket(b);
    sum_ns += histogram.sum_ns();
  }
  uint64_t below = 0;
  uint32_t next = 0;
  for (uint64_t bound_us = 4; bound_us <= (1u << 23); bound_us *= 2) {
    for (; next < kLatencyBuckets && BucketUpperUs(next) <= bound_us; ++next) below += fine[next];
    metric->histogram.bucket.push_back({below, static_cast<double>(bound_us) / 1e6});
  }
  for (; next < kLatencyBuckets; ++next) below += fine[next];
  metric->histogram.bucket.push_back({below, std::numeric_limits<double>::infinity()});
  metric->histogram.sample_count = below;
  metric->histogram.sample_sum = static_cast<double>(sum_ns) / 1e9;
}

MetricFamily Latency(const instance::Island& island) {
  Family family(Metric::kTransactionLatency, island);
  for (uint32_t s = 0; s < kScopes; ++s) FillHistogram(island, s, &family.New({{"scope", kScopeNames[s]}}));
  return family.Take();
}

// A label's name: letters, digits and underscores, and none of the names that are taken.
std::string LabelName(const std::string& parameter) {
  std::string name = parameter;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  const bool taken = name == "island" || name == "run_id" || name == "workload" || name == "mpl" ||
                     name == "seed" || name == "job" || name == "instance" || name == "le";
  const bool begins_well =
      !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front())) && !name.starts_with("__");
  return taken || !begins_well ? "parameter_" + name : name;
}

void AddExperiment(const instance::Island& island, std::vector<MetricFamily>* families) {
  const std::optional<control::v1::StartRun> run = island.CurrentRun();
  if (!run) return;
  Labels labels = {{"run_id", std::to_string(run->run_id())},
                   {"workload", run->workload()},
                   {"mpl", std::to_string(run->mpl())},
                   {"seed", std::to_string(run->seed())}};
  // Sorted, and each name once: "a-b" and "a_b" would be the same.
  std::map<std::string, std::string> parameters;
  for (const auto& [name, value] : run->parameters()) parameters.emplace(LabelName(name), value);
  for (const auto& [name, value] : parameters) labels.push_back({name, value});
  Family family(Metric::kExperimentInfo, island);
  family.Add(std::move(labels), 1.0);
  families->push_back(family.Take());
}

struct Traffic {
  uint64_t messages_sent = 0, messages_received = 0, bytes_sent = 0, bytes_received = 0, bytes_queued = 0;
};

Traffic TrafficWith(const instance::Island& island, uint32_t peer) {
  Traffic sum;
  for (const auto& worker : island.workers()) {
    const messaging::PeerTraffic& traffic = worker->links().Traffic(peer);
    sum.messages_sent += traffic.messages_sent.load(std::memory_order_relaxed);
    sum.messages_received += traffic.messages_received.load(std::memory_order_relaxed);
    sum.bytes_sent += traffic.bytes_sent.load(std::memory_order_relaxed);
    sum.bytes_received += traffic.bytes_received.load(std::memory_order_relaxed);
    sum.bytes_queued += traffic.bytes_queued.load(std::memory_order_relaxed);
  }
  return sum;
}

void AddTraffic(const instance::Island& island, std::vector<MetricFamily>* families) {
  const auto peers = static_cast<uint32_t>(island.config().peers_size());
  // A single island has no peers: a family without metrics would only be noise.
  if (peers < 2) return;
  Family messages(Metric::kMessages, island);
  Family bytes(Metric::kMessageBytes, island);
  Family queued(Metric::kPeerQueueBytes, island);
  Family unresponsive(Metric::kPeerUnresponsive, island);
  for (uint32_t peer = 0; peer < peers; ++peer) {
    if (peer == island.config().island()) continue;
    const Traffic traffic = TrafficWith(island, peer);
    const ClientMetric::Label label = {"peer", std::to_string(peer)};
    messages.Add({label, {"direction", "sent"}}, traffic.messages_sent);
    messages.Add({label, {"direction", "received"}}, traffic.messages_received);
    bytes.Add({label, {"direction", "sent"}}, traffic.bytes_sent);
    bytes.Add({label, {"direction", "received"}}, traffic.bytes_received);
    queued.Add({label}, traffic.bytes_queued);
    unresponsive.Add({label}, uint64_t{island.PeerSilent(peer)});
  }
  families->push_back(messages.Take());
  families->push_back(bytes.Take());
  families->push_back(queued.Take());
  families->push_back(unresponsive.Take());
}

// One metric per worker and name, for an array of counters.
template <typename Value, size_t N>
MetricFamily PerWorkerAnd(const instance::Island& island, Metric metric, const char* label,
                          const std::array<const char*, N>& names, Value value) {
  Family family(metric, island);
  for (const auto& worker : island.workers()) {
    for (size_t i = 0; i < N; ++i) {
      family.Add({WorkerLabel(*worker), {label, names[i]}}, value(worker->counters(), i));
    }
  }
  return family.Take();
}

void AddWorkers(const instance::Island& island, std::vector<MetricFamily>* families) {
  const auto add = [&](Metric metric, auto value) { families->push_back(PerWorker(island, metric, value)); };
  families->push_back(
      PerWorkerAnd(island, Metric::kWorkerSeconds, "activity", instance::kActivityNames,
                   [](const WorkerCounters& c, size_t i) { return Seconds(c.activity_ns[i].Get()); }));
  families->push_back(
      PerWorkerAnd(island, Metric::kWorkSeconds, "work", runtime::kWorkNames,
                   [](const WorkerCounters& c, size_t i) { return Seconds(c.work_ns[i].Get()); }));
  families->push_back(PerWorkerAnd(island, Metric::kTwoPhase, "phase", instance::kTwoPhaseStepNames,
                                   [](const WorkerCounters& c, size_t i) { return c.two_phase[i].Get(); }));
  add(Metric::kInFlight, [](const WorkerCounters& c) { return c.in_flight.Get(); });
  add(Metric::kSessions, [](const WorkerCounters& c) { return c.sessions.Get(); });
  add(Metric::kLongestWait, [](const WorkerCounters& c) { return Seconds(c.longest_wait_ns.Get()); });
  add(Metric::kClientsWaiting, [](const WorkerCounters& c) { return c.clients_waiting.Get(); });
  add(Metric::kClientsMoved, [](const WorkerCounters& c) { return c.clients_moved.Get(); });
  add(Metric::kReadyQueueLength, [](const WorkerCounters& c) { return c.ready.Get(); });
  add(Metric::kInDoubt, [](const WorkerCounters& c) { return c.in_doubt.Get(); });
  add(Metric::kInDoubtOldest, [](const WorkerCounters& c) { return SecondsSince(c.in_doubt_since_ns); });
  add(Metric::kParticipantBranches, [](const WorkerCounters& c) { return c.branches_open.Get(); });
  add(Metric::kCoordinated, [](const WorkerCounters& c) { return c.coordinated.Get(); });
  add(Metric::kLostShares, [](const WorkerCounters& c) { return c.shares_lost.Get(); });
  add(Metric::kLockWaits, [](const WorkerCounters& c) { return c.lock_waits.Get(); });
  add(Metric::kLockWaitSeconds, [](const WorkerCounters& c) { return Seconds(c.lock_wait_ns.Get()); });
  add(Metric::kPageWaits, [](const WorkerCounters& c) { return c.pages.waits.Get(); });
  add(Metric::kPageWaitSeconds, [](const WorkerCounters& c) { return Seconds(c.pages.ns.Get()); });
  add(Metric::kDeadlockProbes, [](const WorkerCounters& c) { return c.probes_sent.Get(); });
  add(Metric::kDeadlockProbeVictims, [](const WorkerCounters& c) { return c.probe_victims.Get(); });
}

void AddStays(const instance::Island& island, std::vector<MetricFamily>* families) {
  Family seconds(Metric::kStaySeconds, island);
  Family watched(Metric::kWatched, island);
  for (size_t s = 0; s < instance::kScopes; ++s) {
    const ClientMetric::Label scope = {"scope", instance::kScopeNames[s]};
    uint64_t transactions = 0;
    std::array<uint64_t, instance::kStays> ns{};
    for (const auto& worker : island.workers()) {
      const instance::StayCounters& stays = worker->counters().stays[s];
      transactions += stays.transactions.Get();
      for (size_t i = 0; i < instance::kStays; ++i) ns[i] += stays.ns[i].Get();
    }
    watched.Add({scope}, transactions);
    for (size_t i = 0; i < instance::kStays; ++i)
      seconds.Add({scope, {"stay", instance::kStayNames[i]}}, Seconds(ns[i]));
  }
  families->push_back(seconds.Take());
  families->push_back(watched.Take());
}

void AddLatches(const instance::Island& island, std::vector<MetricFamily>* families) {
  // The rest is always there, and with it both metrics.
  std::map<std::pair<std::string, std::string>, std::pair<uint64_t, uint64_t>> sums = {
      {{"others", "unknown"}, {}}};
  for (const auto& worker : island.workers()) {
    worker->latch_waits().ForEach(
        [&](const char* site, const char* holder, uint64_t, uint64_t waits, uint64_t ns) {
          auto& sum = sums[{site == nullptr ? "others" : site, holder == nullptr ? "unknown" : holder}];
          sum.first += waits;
          sum.second += ns;
        });
  }
  Family waits(Metric::kLatchWaits, island);
  Family seconds(Metric::kLatchWaitSeconds, island);
  for (const auto& [names, sum] : sums) {
    waits.Add({{"site", names.first}, {"holder", names.second}}, sum.first);
    seconds.Add({{"site", names.first}, {"holder", names.second}}, Seconds(sum.second));
  }
  families->push_back(waits.Take());
  families->push_back(seconds.Take());
}

// By site: which part of the data it is that does not fit.
void AddPages(const instance::Island& island, std::vector<MetricFamily>* families) {
  const instance::Island::PagesMoved moved = island.MovedPages();
  const auto add = [&](Metric metric, auto value) {
    Family family(metric, island);
    for (const instance::Island::SitePages& site : moved.sites) {
      const bool replicated = site.site == storage::kReplicatedSite;
      family.Add({{"site", replicated ? "replicated" : std::to_string(site.site)}}, value(site));
    }
    families->push_back(family.Take());
  };
  using Site = instance::Island::SitePages;
  add(Metric::kDataBytes, [](const Site& site) { return site.pages * storage::kPageBytes; });
  add(Metric::kPagesRead, [](const Site& site) { return site.paged.read; });
  add(Metric::kPagesReadAlone, [](const Site& site) { return site.paged.waited; });
  add(Metric::kPagesEvicted, [](const Site& site) { return site.paged.evicted; });
  add(Metric::kPageMisses, [](const Site& site) { return site.paged.missed; });
  add(Metric::kPagesWritten, [](const Site& site) { return site.written; });
  families->push_back(One(island, Metric::kPageLooks, {}, moved.looks));
}

void AddStorage(const instance::Island& island, std::vector<MetricFamily>* families) {
  const auto add = [&](Metric metric, uint64_t value) {
    families->push_back(One(island, metric, {}, value));
  };
  const locks::LockTable& locks = island.locks();
  add(Metric::kLocksHeld, locks.LocksHeld());
  add(Metric::kLocksInherited, locks.LocksInherited());
  add(Metric::kLockWaiters, locks.OwnersWaiting());
  add(Metric::kLockEscalations, locks.Escalations());
  const storage::PoolUsage pool = island.PoolUsage();
  add(Metric::kPoolResidentBytes, pool.resident_pages * storage::kPageBytes);
  add(Metric::kPoolCapacityBytes, pool.capacity_pages * storage::kPageBytes);
  AddPages(island, families);
}

// An island that is bound to no nodes has no remote ones. Its own are there even when nothing lies on them:
// "all of it is remote" must not look like "nothing is known".
MetricFamily Memory(const instance::Island& island, const control::v1::PlacementReadback& placement) {
  const auto& own = island.config().numa_nodes();
  std::map<uint32_t, uint64_t> pages_of;
  for (const uint32_t node : own) pages_of[node] = 0;
  for (const auto& [node, pages] : placement.pool_pages_per_node()) pages_of[node] = pages;
  Family memory(Metric::kMemoryNodeBytes, island);
  for (const auto& [node, pages] : pages_of) {
    const bool local = own.empty() || std::find(own.begin(), own.end(), node) != own.end();
    memory.Add({{"node", std::to_string(node)}, {"locality", local ? "local" : "remote"}},
               pages * storage::kPageBytes);
  }
  return memory.Take();
}

void AddPlacement(const instance::Island& island, const control::v1::IslandStatus& status,
                  std::vector<MetricFamily>* families) {
  const control::v1::PlacementReadback& placement = status.placement();
  Family cpus(Metric::kWorkerPlacementInfo, island);
  for (int w = 0; w < placement.worker_cpus_size(); ++w) {
    cpus.Add({{"worker", std::to_string(w)}, {"cpus", placement.worker_cpus(w)}}, 1.0);
  }
  families->push_back(cpus.Take());
  if (!placement.pool_pages_per_node().empty()) families->push_back(Memory(island, placement));
  families->push_back(One(island, Metric::kPeerLinksConnected, {}, uint64_t{status.peers_connected()}));
  families->push_back(One(island, Metric::kPeerLinksExpected, {}, uint64_t{status.peers_total()}));
  uint64_t refused = 0;
  for (const auto& worker : island.workers()) refused += worker->links().HandshakesRefused();
  families->push_back(One(island, Metric::kHandshakesRefused, {}, refused));
}

void AddIdentity(const instance::Island& island, const BuildInfo& build, double started_at_s,
                 const std::string& memory_policy, std::vector<MetricFamily>* families) {
  const control::v1::IslandConfig& config = island.config();
  families->push_back(One(island, Metric::kIslandInfo,
                          {{"deployment", config.deployment()},
                           {"layout", config.layout()},
                           {"placement", config.placement()},
                           {"transport", config.transport()},
                           {"durability", config.durability()},
                           {"latching", config.always_latched() ? "always" : "auto"},
                           {"islands", std::to_string(config.peers_size())},
                           {"workers", std::to_string(config.workers_size())},
                           {"memory_policy", memory_policy}},
                          1.0));
  families->push_back(
      One(island, Metric::kBuildInfo,
          {{"version", build.version}, {"commit", build.commit}, {"compiler", build.compiler}}, 1.0));
  families->push_back(One(island, Metric::kBootEpoch, {}, config.boot_epoch()));
  families->push_back(One(island, Metric::kRestarts, {}, uint64_t{config.restarts()}));
  families->push_back(One(island, Metric::kStartTime, {}, started_at_s));
}

}  // namespace

control::v1::IslandStatus MetricsCollector::Placement() const {
  const runtime::MutexLock lock(mutex_);
  const int64_t now_ns = runtime::MonotonicClock().NowNs();
  if (placement_read_ns_ == 0 || now_ns - placement_read_ns_ > kPlacementMaxAgeNs) {
    placement_ = island_.Status();
    placement_read_ns_ = now_ns;
  }
  uint32_t peers_up = 0;
  for (const auto& worker : island_.workers()) peers_up += worker->peers().up();
  placement_.set_peers_connected(peers_up);
  return placement_;
}

std::vector<MetricFamily> MetricsCollector::Collect() const {
  const control::v1::IslandStatus status = Placement();
  std::vector<MetricFamily> families;
  families.push_back(Transactions(island_));
  families.push_back(Aborts(island_));
  families.push_back(Latency(island_));
  AddExperiment(island_, &families);
  AddTraffic(island_, &families);
  AddStays(island_, &families);
  AddWorkers(island_, &families);
  AddLatches(island_, &families);
  AddStorage(island_, &families);
  AddLog(island_, &families);
  AddPlacement(island_, status, &families);
  AddIdentity(island_, build_, started_at_s_, status.placement().memory_policy(), &families);
  return families;
}

}  // namespace islands::server
