// The island's metrics for Prometheus, gathered from the workers' counters when scraped: the hot path pays
// nothing for it.
//
// Names, types, labels and meanings: metric_descriptors.h.
//
// Thread safety: Collect may be called from any thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "instance/island/island.h"
#include "runtime/mutex.h"

namespace islands::server {

// Of the binary that serves the metrics.
struct BuildInfo {
  std::string version;
  std::string commit;  // empty: not built from a git checkout
  std::string compiler;
};

class MetricsCollector final : public prometheus::Collectable {
 public:
  // `started_at_s`: since 1970.
  MetricsCollector(const instance::Island& island, BuildInfo build, double started_at_s)
      : island_(island), build_(std::move(build)), started_at_s_(started_at_s) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  // Reading numa_maps walks the whole pool's page table, so it is read at most every kPlacementMaxAgeNs.
  control::v1::IslandStatus Placement() const;

  const instance::Island& island_;
  const BuildInfo build_;
  const double started_at_s_;
  mutable runtime::Mutex mutex_;
  mutable control::v1::IslandStatus placement_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t placement_read_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace islands::server
