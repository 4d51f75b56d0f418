// A family of metrics under construction, for those who collect them (metrics.cc, log_metrics.cc; of a
// gateway, instance/gateway/metrics.cc).
//
// Thread safety: none.
//
// Invariant: name, type and help of a family are those of its descriptor, and every metric of an island's
// carries the island's label.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "instance/island/island.h"
#include "instance/server/metric_descriptors.h"
#include "runtime/clock.h"

namespace islands::server {

using Labels = std::vector<prometheus::ClientMetric::Label>;

inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// Of a gauge that says since when, by the clock of islands; it is 0 where there is nothing to tell.
inline double SecondsSince(const instance::Gauge& since_ns) {
  const auto then_ns = static_cast<int64_t>(since_ns.Get());
  if (then_ns == 0) return 0;
  return Seconds(static_cast<uint64_t>(std::max<int64_t>(0, runtime::MonotonicClock().NowNs() - then_ns)));
}

class Family {
 public:
  Family(Metric metric, const instance::Island& island) : Family(metric) {
    island_ = std::to_string(island.config().island());
  }
  explicit Family(Metric metric) {
    const MetricDescriptor& descriptor = DescriptorOf(metric);
    family_.name = std::string(descriptor.name);
    family_.help = std::string(descriptor.meaning);
    family_.type = TypeOf(descriptor);
  }
  void Add(Labels labels, double value) {
    prometheus::ClientMetric& metric = New(std::move(labels));
    if (family_.type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }
  void Add(Labels labels, uint64_t value) { Add(std::move(labels), static_cast<double>(value)); }
  prometheus::ClientMetric& New(Labels labels) {
    prometheus::ClientMetric metric;
    if (!island_.empty()) metric.label.push_back({"island", island_});
    for (prometheus::ClientMetric::Label& label : labels) metric.label.push_back(std::move(label));
    family_.metric.push_back(std::move(metric));
    return family_.metric.back();
  }
  prometheus::MetricFamily Take() { return std::move(family_); }

 private:
  static prometheus::MetricType TypeOf(const MetricDescriptor& descriptor) {
    if (descriptor.type == "counter") return prometheus::MetricType::Counter;
    return descriptor.type == "histogram" ? prometheus::MetricType::Histogram : prometheus::MetricType::Gauge;
  }

  std::string island_;  // empty: not of an island
  prometheus::MetricFamily family_;
};

inline prometheus::ClientMetric::Label WorkerLabel(const instance::Worker& worker) {
  return {"worker", std::to_string(worker.options().index)};
}

template <typename Value>
prometheus::MetricFamily One(const instance::Island& island, Metric metric, Labels labels, Value value) {
  Family family(metric, island);
  family.Add(std::move(labels), value);
  return family.Take();
}

// One metric per worker, of its counters.
template <typename Value>
prometheus::MetricFamily PerWorker(const instance::Island& island, Metric metric, Value value) {
  Family family(metric, island);
  for (const auto& worker : island.workers()) {
    family.Add({WorkerLabel(*worker)}, value(worker->counters()));
  }
  return family.Take();
}

}  // namespace islands::server
