#include "instance/server/metrics.h"

#include <fmt/format.h>

#include <limits>

namespace islands::server {

using instance::BucketUpperUs;
using instance::kAbortReasons;
using instance::kLatencyBuckets;
using instance::kScopeNames;
using instance::kScopes;
using instance::Worker;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

constexpr int64_t kPlacementMaxAgeNs = 15 * runtime::kNsPerSecond;
constexpr uint64_t kPageBytes = 4096;

using Labels = std::vector<ClientMetric::Label>;

// One family under construction; every metric of it carries the island's label.
class Family {
 public:
  Family(std::string name, std::string help, MetricType type, uint32_t island)
      : island_(std::to_string(island)) {
    family_.name = std::move(name);
    family_.help = std::move(help);
    family_.type = type;
  }
  void Add(Labels labels, double value) {
    ClientMetric& metric = New(std::move(labels));
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }
  ClientMetric& New(Labels labels) {
    ClientMetric metric;
    metric.label.push_back({"island", island_});
    for (ClientMetric::Label& label : labels) metric.label.push_back(std::move(label));
    family_.metric.push_back(std::move(metric));
    return family_.metric.back();
  }
  MetricFamily Take() { return std::move(family_); }

 private:
  const std::string island_;
  MetricFamily family_;
};

ClientMetric::Label WorkerLabel(const Worker& worker) {
  return {"worker", std::to_string(worker.options().index)};
}

MetricFamily Transactions(const instance::Island& island) {
  Family family("islands_transactions_total", "Transactions ended, by what they touched and how they ended",
                MetricType::Counter, island.config().island());
  for (const auto& worker : island.workers()) {
    for (uint32_t s = 0; s < kScopes; ++s) {
      const instance::ScopeCounters& scope = worker->counters().scopes[s];
      const auto add = [&](const char* outcome, uint64_t value) {
        family.Add({WorkerLabel(*worker), {"scope", kScopeNames[s]}, {"outcome", outcome}},
                   static_cast<double>(value));
      };
      add("committed", scope.committed.Get());
      add("aborted", scope.aborted.Get());
      add("unknown", scope.unknown.Get());
    }
  }
  return family.Take();
}

MetricFamily Aborts(const instance::Island& island) {
  Family family("islands_aborts_total", "Aborted attempts, by reason", MetricType::Counter,
                island.config().island());
  for (const auto& worker : island.workers()) {
    for (uint32_t reason = 1; reason < kAbortReasons; ++reason) {
      const auto name = instance::AbortReasonName(static_cast<instance::AbortReason>(reason));
      family.Add({WorkerLabel(*worker), {"reason", std::string(name)}},
                 static_cast<double>(worker->counters().aborts[reason].Get()));
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
  Family family("islands_transaction_latency_seconds",
                "Time from a transaction's first attempt to its committed answer", MetricType::Histogram,
                island.config().island());
  for (uint32_t s = 0; s < kScopes; ++s) FillHistogram(island, s, &family.New({{"scope", kScopeNames[s]}}));
  return family.Take();
}

struct Traffic {
  uint64_t messages_sent = 0, messages_received = 0, bytes_sent = 0, bytes_received = 0;
};

Traffic TrafficWith(const instance::Island& island, uint32_t peer) {
  Traffic sum;
  for (const auto& worker : island.workers()) {
    const messaging::PeerTraffic& traffic = worker->links().Traffic(peer);
    sum.messages_sent += traffic.messages_sent.load(std::memory_order_relaxed);
    sum.messages_received += traffic.messages_received.load(std::memory_order_relaxed);
    sum.bytes_sent += traffic.bytes_sent.load(std::memory_order_relaxed);
    sum.bytes_received += traffic.bytes_received.load(std::memory_order_relaxed);
  }
  return sum;
}

void AddTraffic(const instance::Island& island, std::vector<MetricFamily>* families) {
  const uint32_t self = island.config().island();
  Family messages("islands_messages_total", "Messages exchanged with another island", MetricType::Counter,
                  self);
  Family bytes("islands_message_bytes_total",
               "Bytes of messages exchanged with another island, frame headers included", MetricType::Counter,
               self);
  for (uint32_t peer = 0; peer < static_cast<uint32_t>(island.config().peers_size()); ++peer) {
    if (peer == self) continue;
    const Traffic traffic = TrafficWith(island, peer);
    const std::string name = std::to_string(peer);
    messages.Add({{"peer", name}, {"direction", "sent"}}, static_cast<double>(traffic.messages_sent));
    messages.Add({{"peer", name}, {"direction", "received"}}, static_cast<double>(traffic.messages_received));
    bytes.Add({{"peer", name}, {"direction", "sent"}}, static_cast<double>(traffic.bytes_sent));
    bytes.Add({{"peer", name}, {"direction", "received"}}, static_cast<double>(traffic.bytes_received));
  }
  // A single island has no peers: a family without metrics would only be noise.
  if (island.config().peers_size() < 2) return;
  families->push_back(messages.Take());
  families->push_back(bytes.Take());
}

template <typename Value>
MetricFamily PerWorker(const instance::Island& island, const char* name, const char* help, MetricType type,
                       Value value) {
  Family family(name, help, type, island.config().island());
  for (const auto& worker : island.workers()) family.Add({WorkerLabel(*worker)}, value(*worker));
  return family.Take();
}

void AddWorkers(const instance::Island& island, std::vector<MetricFamily>* families) {
  families->push_back(PerWorker(
      island, "islands_worker_busy_seconds_total", "Time a worker had something to do", MetricType::Counter,
      [](const Worker& worker) { return static_cast<double>(worker.counters().busy_ns.Get()) / 1e9; }));
  families->push_back(PerWorker(
      island, "islands_worker_idle_seconds_total", "Time a worker spun or slept without work",
      MetricType::Counter,
      [](const Worker& worker) { return static_cast<double>(worker.counters().idle_ns.Get()) / 1e9; }));
  families->push_back(PerWorker(
      island, "islands_transactions_in_flight", "Transactions a run keeps in flight here", MetricType::Gauge,
      [](const Worker& worker) { return static_cast<double>(worker.counters().in_flight.Get()); }));
  families->push_back(
      PerWorker(island, "islands_transaction_longest_wait_seconds",
                "Longest that a transaction begun here waited for its answer, or has been waiting by now",
                MetricType::Gauge, [](const Worker& worker) {
                  return static_cast<double>(worker.counters().longest_wait_ns.Get()) / 1e9;
                }));
  families->push_back(PerWorker(
      island, "islands_participant_branches", "Open branches of transactions begun elsewhere",
      MetricType::Gauge,
      [](const Worker& worker) { return static_cast<double>(worker.counters().branches_open.Get()); }));
  families->push_back(PerWorker(
      island, "islands_deadlock_probes_total",
      "Probes for deadlocks over several islands handed to another island or worker", MetricType::Counter,
      [](const Worker& worker) { return static_cast<double>(worker.counters().probes_sent.Get()); }));
}

MetricFamily OneGauge(const instance::Island& island, const char* name, const char* help, double value) {
  Family family(name, help, MetricType::Gauge, island.config().island());
  family.Add({}, value);
  return family.Take();
}

void AddPool(const instance::Island& island, std::vector<MetricFamily>* families) {
  const storage::PoolUsage pool = island.PoolUsage();
  families->push_back(OneGauge(island, "islands_buffer_pool_resident_bytes",
                               "Buffer pool memory that holds pages",
                               static_cast<double>(pool.resident_pages * kPageBytes)));
  families->push_back(OneGauge(island, "islands_buffer_pool_capacity_bytes",
                               "Buffer pool memory that may hold pages",
                               static_cast<double>(pool.capacity_pages * kPageBytes)));
  families->push_back(OneGauge(island, "islands_locks_held", "Locks held by open transactions",
                               static_cast<double>(island.locks().LocksHeld())));
}

void AddPlacement(const instance::Island& island, const control::v1::IslandStatus& status,
                  std::vector<MetricFamily>* families) {
  const uint32_t self = island.config().island();
  Family info("islands_island_info", "What this island is: constant 1, described by its labels",
              MetricType::Gauge, self);
  info.Add({{"layout", island.config().layout()},
            {"placement", island.config().placement()},
            {"transport", island.config().transport()},
            {"deployment", island.config().deployment()},
            {"memory_policy", status.placement().memory_policy()}},
           1);
  families->push_back(info.Take());
  Family cpus("islands_worker_placement_info", "CPUs the kernel lets a worker run on: constant 1",
              MetricType::Gauge, self);
  for (int w = 0; w < status.placement().worker_cpus_size(); ++w) {
    cpus.Add({{"worker", std::to_string(w)}, {"cpus", status.placement().worker_cpus(w)}}, 1);
  }
  families->push_back(cpus.Take());
  if (!status.placement().pool_pages_per_node().empty()) {
    Family memory("islands_memory_node_bytes", "Buffer pool memory by NUMA node, as the kernel placed it",
                  MetricType::Gauge, self);
    for (const auto& [node, pages] : status.placement().pool_pages_per_node()) {
      memory.Add({{"node", std::to_string(node)}}, static_cast<double>(pages * kPageBytes));
    }
    families->push_back(memory.Take());
  }
  families->push_back(OneGauge(island, "islands_peer_links_connected", "Links to other islands that are up",
                               status.peers_connected()));
  families->push_back(OneGauge(island, "islands_peer_links_expected",
                               "Links to other islands there should be", status.peers_total()));
}

}  // namespace

control::v1::IslandStatus MetricsCollector::Placement() const {
  const std::scoped_lock lock(mutex_);
  const int64_t now_ns = runtime::MonotonicClock().NowNs();
  if (placement_read_ns_ == 0 || now_ns - placement_read_ns_ > kPlacementMaxAgeNs) {
    placement_ = island_.Status();
    placement_read_ns_ = now_ns;
  }
  uint32_t peers_up = 0;
  for (const auto& worker : island_.workers()) peers_up += worker->peers_up();
  placement_.set_peers_connected(peers_up);
  return placement_;
}

std::vector<MetricFamily> MetricsCollector::Collect() const {
  std::vector<MetricFamily> families;
  families.push_back(Transactions(island_));
  families.push_back(Aborts(island_));
  families.push_back(Latency(island_));
  AddTraffic(island_, &families);
  AddWorkers(island_, &families);
  AddPool(island_, &families);
  AddPlacement(island_, Placement(), &families);
  return families;
}

}  // namespace islands::server
