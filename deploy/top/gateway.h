// What `islands top` knows of the gateway: its page for Prometheus, read like Prometheus reads it, and what
// has happened from one look to the next.
//
// Thread safety: plain values and functions; GatewayMeter belongs to one thread.
//
// Invariant: no rate is ever negative: a gateway that restarted begins anew (`seconds` 0).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace islands::deploy {

// What its counters say. Of all methods; times as its histograms have them.
struct GatewayCounts {
  double started_at_s = 0;  // since 1970: names its life
  double calls = 0, committed = 0, aborted = 0, unknown = 0, rolled_back = 0;
  double open = 0;
  double latency_s = 0, island_wait_s = 0;
  std::vector<std::pair<double, double>> latency;  // (bound in seconds, how many up to it), ascending
};

// INVALID_ARGUMENT: it is no gateway's, or not all of it.
absl::StatusOr<GatewayCounts> ParseGatewayPage(std::string_view page);
// http://127.0.0.1:PORT/metrics, with the answer's header.
absl::StatusOr<std::string> ReadMetricsPage(uint32_t port, int64_t timeout_ms);

struct TopGateway {
  std::string state;  // as `status` calls it
  uint32_t restarts = 0;
  bool has_metrics = false;
  bool answers = false;
  double open = 0;
  double seconds = 0;  // that the rest is about; 0: not known
  double calls_per_s = 0, committed_per_s = 0, aborted_per_s = 0, unknown_per_s = 0, rolled_back_per_s = 0;
  double p99_us = 0;         // as Prometheus' histogram_quantile reckons: within the bucket, a straight line
  double islands_share = 0;  // of the time that requests took

  bool well() const { return state == "ready" && (answers || !has_metrics); }
};

class GatewayMeter {
 public:
  // `counts`: what it says now, `now_ms` by a clock that only goes forward.
  TopGateway Observe(const control::v1::GatewayStatus& status, const absl::StatusOr<GatewayCounts>& counts,
                     int64_t now_ms);

 private:
  std::optional<GatewayCounts> last_;
  int64_t last_ms_ = 0;
};

}  // namespace islands::deploy
