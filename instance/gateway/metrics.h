// The gateway's metrics for Prometheus, gathered from its counters when scraped.
//
// Names, types, labels and meanings: instance/server/metric_descriptors.h.
//
// Thread safety: Collect may be called from any thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "instance/gateway/channels.h"
#include "instance/gateway/server.h"
#include "instance/gateway/service.h"

namespace islands::gateway {

class MetricsCollector final : public prometheus::Collectable {
 public:
  // `started_at_s`: since 1970. All others outlive it.
  MetricsCollector(const Service& service, const Channels& channels, const Server& server,
                   double started_at_s)
      : service_(service), channels_(channels), server_(server), started_at_s_(started_at_s) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Service& service_;
  const Channels& channels_;
  const Server& server_;
  const double started_at_s_;
};

}  // namespace islands::gateway
