#include "deploy/top/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace islands::deploy {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

control::v1::GatewayStatus Ready() {
  control::v1::GatewayStatus status;
  status.set_state(control::v1::READY);
  status.set_restarts(1);
  status.set_metrics_port(9402);
  return status;
}

GatewayCounts Counts(double calls, double started_at_s = 5) {
  return {.started_at_s = started_at_s,
          .calls = calls,
          .committed = calls,
          .open = 3,
          .latency_s = calls,
          .island_wait_s = 0.75 * calls,
          .latency = {{0.001, 0}, {0.002, calls}, {kInfinite, calls}}};
}

TEST(ParseGatewayPage, SumsOverMethods) {
  const auto counts = ParseGatewayPage(
      "HTTP/1.1 200 OK\r\n\r\n"
      "# TYPE islands_gateway_calls_total counter\n"
      "islands_gateway_calls_total{method=\"Execute\",code=\"OK\"} 7\n"
      "islands_gateway_calls_total{method=\"Transact\",code=\"ABORTED\"} 2\n"
      "islands_gateway_transactions_total{outcome=\"committed\"} 1e+06\n"
      "islands_gateway_transactions_total{outcome=\"aborted\"} 2\n"
      "islands_gateway_transactions_total{outcome=\"unknown\"} 3\n"
      "islands_gateway_transactions_total{outcome=\"rolled_back\"} 4\n"
      "islands_gateway_latency_seconds_sum{method=\"Execute\"} 1.5\n"
      "islands_gateway_latency_seconds_sum{method=\"Transact\"} 2\n"
      "islands_gateway_latency_seconds_bucket{method=\"Execute\",le=\"4e-06\"} 1\n"
      "islands_gateway_latency_seconds_bucket{method=\"Execute\",le=\"+Inf\"} 5\n"
      "islands_gateway_latency_seconds_bucket{method=\"Transact\",le=\"4e-06\"} 10\n"
      "islands_gateway_latency_seconds_bucket{method=\"Transact\",le=\"+Inf\"} 10\n"
      "islands_gateway_island_wait_seconds_sum{method=\"Execute\"} 1\n"
      "islands_gateway_transactions_open 6\n"
      "islands_gateway_of_a_later_version{x=\"y\"} 9\n"
      "islands_gateway_broken\n"
      "islands_gateway_start_time_seconds 1700000000\n"
      "exposer_scrapes_total 3\n");
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->calls, 9);
  EXPECT_EQ(counts->committed, 1e6);
  EXPECT_EQ(counts->aborted, 2);
  EXPECT_EQ(counts->unknown, 3);
  EXPECT_EQ(counts->rolled_back, 4);
  EXPECT_EQ(counts->open, 6);
  EXPECT_EQ(counts->latency_s, 3.5);
  EXPECT_EQ(counts->island_wait_s, 1);
  EXPECT_EQ(counts->started_at_s, 1.7e9);
  EXPECT_THAT(counts->latency, ElementsAre(Pair(4e-6, 11), Pair(kInfinite, 15)));
}

TEST(ParseGatewayPage, WhatIsNoGatewaysIsSaidToBeNone) {
  EXPECT_FALSE(ParseGatewayPage("").ok());
  EXPECT_FALSE(ParseGatewayPage("islands_transactions_total{island=\"0\"} 3\n").ok());
  EXPECT_FALSE(ParseGatewayPage("islands_gateway_calls_total{method=\"Execute\",code=\"OK\"} 7\n").ok())
      << "half a page";
}

TEST(GatewayMeter, RatesAreBetweenLooks) {
  GatewayMeter meter;
  TopGateway seen = meter.Observe(Ready(), Counts(100), 1'000);
  EXPECT_EQ(seen.seconds, 0);
  EXPECT_EQ(seen.open, 3);
  EXPECT_EQ(seen.state, "ready");
  EXPECT_EQ(seen.restarts, 1u);
  seen = meter.Observe(Ready(), Counts(300), 1'500);
  EXPECT_EQ(seen.seconds, 0.5);
  EXPECT_EQ(seen.calls_per_s, 400);
  EXPECT_EQ(seen.committed_per_s, 400);
  EXPECT_EQ(seen.islands_share, 0.75);
  EXPECT_NEAR(seen.p99_us, 1'990, 0.01) << "as histogram_quantile";
}

TEST(GatewayMeter, ARestart_BeginsAnew) {
  GatewayMeter meter;
  meter.Observe(Ready(), Counts(100), 1'000);
  EXPECT_FALSE(meter.Observe(Ready(), absl::UnavailableError("gone"), 2'000).answers);
  EXPECT_EQ(meter.Observe(Ready(), Counts(7, /*started_at_s=*/6), 3'000).seconds, 0);
  EXPECT_EQ(meter.Observe(Ready(), Counts(9, 6), 4'000).calls_per_s, 2);
}

TEST(GatewayMeter, NothingHappens) {
  GatewayMeter meter;
  meter.Observe(Ready(), Counts(100), 1'000);
  const TopGateway seen = meter.Observe(Ready(), Counts(100), 2'000);
  EXPECT_EQ(seen.p99_us, 0);
  EXPECT_EQ(seen.islands_share, 0);
}

TEST(ReadMetricsPage, NobodyThere) { EXPECT_FALSE(ReadMetricsPage(1, 500).ok()); }

}  // namespace
}  // namespace islands::deploy
