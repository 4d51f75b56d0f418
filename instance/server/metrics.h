// The island's metrics for Prometheus, gathered from the workers' counters when scraped: the hot path pays
// nothing for it.
//
// Names, labels and units: design.md section 8; prefix islands_, base units, _total on counters.
//
// Thread safety: Collect may be called from any thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <mutex>
#include <string>
#include <vector>

#include "instance/island.h"

namespace islands::server {

class MetricsCollector final : public prometheus::Collectable {
 public:
  explicit MetricsCollector(const instance::Island& island) : island_(island) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  // Reading numa_maps walks the whole pool's page table, so it is read at most every kPlacementMaxAgeNs.
  control::v1::IslandStatus Placement() const;

  const instance::Island& island_;
  mutable std::mutex mutex_;  // guards the two below
  mutable control::v1::IslandStatus placement_;
  mutable int64_t placement_read_ns_ = 0;
};

}  // namespace islands::server
