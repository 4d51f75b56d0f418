#include "instance/gateway/metrics.h"

#include <sys/resource.h>

#include <limits>
#include <string>
#include <utility>

#include "instance/server/metric_family.h"

namespace islands::gateway {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using server::Family;
using server::Metric;

namespace {

// Those that ask islands.
constexpr std::array kTimed = {Method::kExecute, Method::kExecuteMany, Method::kTransact, Method::kAskOutcome,
                               Method::kCall};

ClientMetric::Label MethodLabel(Method method) {
  return {"method", kMethodNames[static_cast<size_t>(method)]};
}

MetricFamily Calls(const Counters& counters) {
  Family family(Metric::kGatewayCalls);
  for (size_t m = 0; m < kMethods; ++m) {
    const auto method = static_cast<Method>(m);
    for (size_t code = 0; code < kCodes; ++code) {
      const uint64_t calls = counters.of(method).calls[code].Get();
      if (calls != 0 || code == grpc::StatusCode::OK)
        family.Add({MethodLabel(method), {"code", kCodeNames[code]}}, calls);
    }
  }
  return family.Take();
}

MetricFamily Transactions(const Counters& counters) {
  Family family(Metric::kGatewayTransactions);
  for (size_t outcome = 0; outcome < kOutcomes; ++outcome)
    family.Add({{"outcome", kOutcomeNames[outcome]}}, counters.ended(static_cast<Outcome>(outcome)));
  return family.Take();
}

MetricFamily Failures(const Counters& counters) {
  Family family(Metric::kGatewayFailures);
  for (size_t reason = 0; reason < kReasons; ++reason)
    family.Add({{"reason", std::string(ReasonName(reason))}}, counters.failed(reason));
  return family.Take();
}

MetricFamily Times(const Counters& counters, Metric metric, TimeHistogram MethodCounters::*times) {
  Family family(metric);
  for (const Method method : kTimed) {
    const TimeHistogram& histogram = counters.of(method).*times;
    prometheus::ClientMetric::Histogram& made = family.New({MethodLabel(method)}).histogram;
    uint64_t below = 0;
    for (uint32_t b = 0; b < TimeHistogram::kBuckets; ++b) {
      below += histogram.bucket(b);
      const bool last = b == TimeHistogram::kBuckets - 1;
      made.bucket.push_back({below, last ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(TimeHistogram::BoundUs(b)) / 1e6});
    }
    made.sample_count = below;
    made.sample_sum = server::Seconds(histogram.sum_ns());
  }
  return family.Take();
}

void AddIslands(const Channels& channels, std::vector<MetricFamily>* families) {
  Family messages(Metric::kGatewayMessages);
  Family bytes(Metric::kGatewayMessageBytes);
  Family reachable(Metric::kGatewayReachable);
  for (uint32_t island = 0; island < channels.islands(); ++island) {
    const IslandTraffic& traffic = channels.Traffic(island);
    const ClientMetric::Label label = {"island", std::to_string(island)};
    messages.Add({label, {"direction", "sent"}}, traffic.messages_sent.Get());
    messages.Add({label, {"direction", "received"}}, traffic.messages_received.Get());
    bytes.Add({label, {"direction", "sent"}}, traffic.bytes_sent.Get());
    bytes.Add({label, {"direction", "received"}}, traffic.bytes_received.Get());
    reachable.Add({label}, uint64_t{channels.IsUp(island)});
  }
  families->push_back(messages.Take());
  families->push_back(bytes.Take());
  families->push_back(reachable.Take());
}

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

std::vector<MetricFamily> MetricsCollector::Collect() const {
  const Counters& counters = service_.counters();
  std::vector<MetricFamily> families = {Calls(counters), Transactions(counters), Failures(counters)};
  const auto add = [&](Metric metric, auto value) {
    Family family(metric);
    family.Add({}, value);
    families.push_back(family.Take());
  };
  add(Metric::kGatewayFull, counters.full());
  families.push_back(Times(counters, Metric::kGatewayLatency, &MethodCounters::latency));
  families.push_back(Times(counters, Metric::kGatewayIslandWait, &MethodCounters::island_wait));
  add(Metric::kGatewayOpen, uint64_t{service_.open()});
  add(Metric::kGatewayLimit, uint64_t{service_.limits().most_transactions});
  AddIslands(channels_, &families);
  Family connections(Metric::kGatewayConnections);
  connections.Add({{"result", "admitted"}}, server_.admitted());
  connections.Add({{"result", "refused"}}, server_.refused());
  families.push_back(connections.Take());
  add(Metric::kGatewayCpu, CpuSeconds());
  add(Metric::kGatewayStartTime, started_at_s_);
  return families;
}

}  // namespace islands::gateway
