#include "deploy/top/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace islands::deploy {
namespace {

using control::v1::ClusterStatus;
using testing::ElementsAre;

ClusterStatus MakeStatus(int islands, control::v1::IslandState state = control::v1::READY) {
  ClusterStatus status;
  status.set_cluster_id("c");
  status.set_deployment("test");
  status.set_layout(std::to_string(islands) + "ISL");
  for (int i = 0; i < islands; ++i) status.add_islands()->set_state(state);
  return status;
}

ClusterClient::Reply MakeReply(uint64_t epoch, int64_t second, uint64_t committed) {
  control::v1::Reply reply;
  control::v1::Snapshot& snapshot = *reply.mutable_snapshot();
  snapshot.set_boot_epoch(epoch);
  snapshot.set_time_us(second * 1'000'000);
  control::v1::WorkerCounters& worker = *snapshot.add_workers();
  worker.add_scopes()->set_committed(committed);
  worker.set_busy_seconds(static_cast<double>(second) / 2);
  worker.set_idle_seconds(static_cast<double>(second) / 2);
  worker.set_waiting_seconds(static_cast<double>(second) / 4);
  worker.set_transactions_in_flight(3);
  worker.set_in_doubt(2);
  return reply;
}

ClusterClient::Reply Nobody() { return absl::UnavailableError("nobody there"); }

TopRow MakeRow(uint32_t island, uint64_t committed, double seconds = 1) {
  TopRow row{.island = island, .state = "ready", .answers = true, .seconds = seconds};
  row.sums.scopes[0].committed = committed;
  return row;
}

std::vector<uint32_t> Order(const std::vector<TopRow>& rows) {
  std::vector<uint32_t> order;
  for (const TopRow& row : rows) order.push_back(row.island);
  return order;
}

std::vector<bool> KnownPoints(const TopRow& row) {
  std::vector<bool> known;
  for (const TopPoint& point : row.history) known.push_back(point.known);
  return known;
}

TEST(Imbalance, IsSpreadOverAverage) {
  EXPECT_DOUBLE_EQ(Imbalance({1, 2, 3}), 1);
  EXPECT_DOUBLE_EQ(Imbalance({5, 5}), 0);
  EXPECT_DOUBLE_EQ(Imbalance({0, 8}), 2);
  EXPECT_DOUBLE_EQ(Imbalance({7}), 0);
  EXPECT_DOUBLE_EQ(Imbalance({0, 0}), 0);
  EXPECT_DOUBLE_EQ(Imbalance({}), 0);
}

TEST(TotalsOf, EachIslandCountsByItsOwnClock) {
  std::vector<TopRow> rows = {MakeRow(0, 100, 1), MakeRow(1, 100, 2)};
  rows[0].sums.scopes[2].committed = 50;
  rows[0].sums.scopes[0].aborted = 10;
  rows[1].sums.messages_sent = 40;
  rows[0].sums.busy_seconds = 1;
  rows[1].sums.busy_seconds = 1;
  rows[0].restarts = 2;
  rows[1].in_doubt = 5;
  const TopTotals totals = TotalsOf(rows);
  EXPECT_THAT(totals.committed_per_s, ElementsAre(150, 0, 50));
  EXPECT_DOUBLE_EQ(totals.distributed_share(), 0.25);
  EXPECT_DOUBLE_EQ(totals.aborted_share(), 10.0 / 210);
  EXPECT_DOUBLE_EQ(totals.messages_per_s, 20);
  EXPECT_DOUBLE_EQ(totals.imbalance, 1);                // 150 and 50
  EXPECT_DOUBLE_EQ(totals.busy_imbalance, 0.5 / 0.75);  // 1 and 0.5
  EXPECT_EQ(totals.restarts, 2u);
  EXPECT_EQ(totals.in_doubt, 5u);
}

TEST(TotalsOf, UnknownIslands_AreNoZeros) {
  EXPECT_DOUBLE_EQ(TotalsOf({MakeRow(0, 10), MakeRow(1, 10), MakeRow(2, 0, 0)}).imbalance, 0);
  EXPECT_DOUBLE_EQ(TotalsOf({}).distributed_share(), 0);
  EXPECT_DOUBLE_EQ(TotalsOf({}).aborted_share(), 0);
}

TEST(SortRows, LargestFirst_UnknownLast) {
  std::vector<TopRow> rows = {MakeRow(0, 5), MakeRow(1, 9, 0), MakeRow(2, 7), MakeRow(3, 5)};
  SortRows(&rows, TopSort::kTransactions, false);
  EXPECT_THAT(Order(rows), ElementsAre(2, 0, 3, 1));
  SortRows(&rows, TopSort::kTransactions, true);
  EXPECT_THAT(Order(rows), ElementsAre(0, 3, 2, 1));
  SortRows(&rows, TopSort::kIsland, false);
  EXPECT_THAT(Order(rows), ElementsAre(0, 1, 2, 3));
  SortRows(&rows, TopSort::kIsland, true);
  EXPECT_THAT(Order(rows), ElementsAre(3, 2, 1, 0));
}

TEST(SortRows, ByState_TroubleFirst) {
  std::vector<TopRow> rows = {MakeRow(0, 1), MakeRow(1, 1), MakeRow(2, 1)};
  rows[1].answers = false;
  rows[2].state = "lost";
  SortRows(&rows, TopSort::kState, false);
  EXPECT_THAT(Order(rows), ElementsAre(1, 2, 0));
}

TEST(SortRows, EveryColumn_ByItsOwnValue) {
  const auto first = [](TopSort sort, auto set) {
    std::vector<TopRow> rows = {MakeRow(0, 10), MakeRow(1, 10)};
    for (TopRow& row : rows) row.sums.idle_seconds = 1;
    set(&rows[1].sums);
    SortRows(&rows, sort, false);
    return rows.front().island;
  };
  EXPECT_EQ(first(TopSort::kTransactions, [](Sums* sums) { sums->scopes[2].committed = 1; }), 1u);
  EXPECT_EQ(first(TopSort::kAborts, [](Sums* sums) { sums->scopes[1].aborted = 1; }), 1u);
  EXPECT_EQ(first(TopSort::kBusy, [](Sums* sums) { sums->busy_seconds = 1; }), 1u);
  EXPECT_EQ(first(TopSort::kWait, [](Sums* sums) { sums->waiting_seconds = 1; }), 1u);
  EXPECT_EQ(first(TopSort::kMessages, [](Sums* sums) { sums->messages_sent = 1; }), 1u);
  EXPECT_EQ(first(TopSort::kLatency, [](Sums* sums) { sums->scopes[0].latency = {0, 0, 1}; }), 1u);
}

TEST(TopSortOf, NamesAndKeysAreDistinct) {
  for (const TopSortName& each : kTopSorts) {
    EXPECT_EQ(TopSortOf(each.name), each.sort);
    EXPECT_STREQ(NameOf(each.sort), each.name);
    EXPECT_EQ(
        std::count_if(kTopSorts.begin(), kTopSorts.end(), [&](auto& other) { return other.key == each.key; }),
        1);
  }
}

TEST(TopSampler, SecondLook_HasRates) {
  TopSampler sampler;
  const ClusterStatus status = MakeStatus(2);
  sampler.Add(&status, {MakeReply(1, 10, 100), MakeReply(1, 10, 100)});
  EXPECT_EQ(sampler.sample().rows[0].seconds, 0);
  EXPECT_TRUE(sampler.sample().rows[0].history.empty()) << "nothing is amiss, there is only no number yet";
  EXPECT_TRUE(sampler.sample().rows[0].well());
  sampler.Add(&status, {MakeReply(1, 12, 300), MakeReply(1, 14, 500)});
  const TopSample& sample = sampler.sample();
  EXPECT_EQ(sample.deployment, "test");
  EXPECT_EQ(sample.layout, "2ISL");
  EXPECT_DOUBLE_EQ(sample.rows[0].PerSecond(sample.rows[0].sums.committed()), 100);
  EXPECT_DOUBLE_EQ(sample.rows[1].PerSecond(sample.rows[1].sums.committed()), 100);
  EXPECT_DOUBLE_EQ(sample.rows[1].sums.waiting_fraction(), 0.25);
  EXPECT_EQ(sample.rows[1].in_flight, 3u);
  EXPECT_EQ(sample.rows[1].in_doubt, 2u);
  ASSERT_EQ(sample.rows[0].history.size(), 1u);
  EXPECT_DOUBLE_EQ(sample.rows[0].history[0].committed_per_s, 100);
  EXPECT_DOUBLE_EQ(sample.rows[0].history[0].busy_fraction, 0.5);
}

TEST(TopSampler, KilledIsland_KeepsItsHistoryWithAGap) {
  TopSampler sampler;
  ClusterStatus status = MakeStatus(1);
  sampler.Add(&status, {MakeReply(1, 10, 1'000)});
  sampler.Add(&status, {MakeReply(1, 11, 2'000)});
  status.mutable_islands(0)->set_state(control::v1::LOST);
  sampler.Add(&status, {Nobody()});
  EXPECT_EQ(sampler.sample().rows[0].state, "lost");
  EXPECT_FALSE(sampler.sample().rows[0].well());
  EXPECT_EQ(sampler.sample().rows[0].in_doubt, 0u);
  status.mutable_islands(0)->set_state(control::v1::READY);
  status.mutable_islands(0)->set_restarts(1);
  sampler.Add(&status, {MakeReply(2, 1, 50)});
  EXPECT_EQ(sampler.sample().rows[0].seconds, 0) << "counted since it began, nobody knows in what time";
  EXPECT_EQ(sampler.sample().rows[0].sums.committed(), 0u);
  EXPECT_TRUE(sampler.sample().rows[0].well());
  sampler.Add(&status, {MakeReply(2, 2, 80)});
  EXPECT_EQ(sampler.sample().rows[0].sums.committed(), 30u);
  EXPECT_EQ(sampler.sample().rows[0].restarts, 1u);
  EXPECT_THAT(KnownPoints(sampler.sample().rows[0]), ElementsAre(true, false, false, true));
  for (const TopPoint& point : sampler.sample().rows[0].history) EXPECT_GE(point.committed_per_s, 0);
}

TEST(TopSampler, IslandThatWasSilent_CountsFromItsLastAnswer) {
  TopSampler sampler;
  const ClusterStatus status = MakeStatus(1);
  sampler.Add(&status, {MakeReply(1, 10, 100)});
  sampler.Add(&status, {Nobody()});
  EXPECT_FALSE(sampler.sample().rows[0].well()) << "the supervisor calls it ready, but it does not answer";
  sampler.Add(&status, {MakeReply(1, 14, 500)});
  EXPECT_DOUBLE_EQ(sampler.sample().rows[0].seconds, 4);
  EXPECT_THAT(KnownPoints(sampler.sample().rows[0]), ElementsAre(false, true));
}

TEST(TopSampler, NoSupervisor_StillShowsIslandsThatAnswer) {
  TopSampler sampler;
  const ClusterStatus status = MakeStatus(2);
  sampler.Add(&status, {MakeReply(1, 10, 100), MakeReply(1, 10, 100)});
  sampler.Add(nullptr, {MakeReply(1, 11, 200), Nobody()});
  EXPECT_DOUBLE_EQ(sampler.sample().rows[0].seconds, 1);
  EXPECT_TRUE(sampler.sample().rows[0].well());
  EXPECT_FALSE(sampler.sample().rows[1].well());
}

TEST(TopSampler, GatewayComesAndGoes) {
  TopSampler sampler;
  ClusterStatus status = MakeStatus(1);
  sampler.AddGateway(&status, absl::UnavailableError(""), 1'000);
  EXPECT_FALSE(sampler.sample().gateway);
  status.mutable_gateway()->set_state(control::v1::READY);
  status.mutable_gateway()->set_metrics_port(9401);
  sampler.AddGateway(&status, GatewayCounts{.started_at_s = 1, .calls = 5}, 2'000);
  sampler.AddGateway(&status, GatewayCounts{.started_at_s = 1, .calls = 25}, 4'000);
  ASSERT_TRUE(sampler.sample().gateway);
  EXPECT_EQ(sampler.sample().gateway->calls_per_s, 10);
  EXPECT_EQ(nlohmann::json::parse(TopJson(sampler.sample()))["gateway"]["calls_per_s"], 10);
  sampler.AddGateway(nullptr, absl::UnavailableError(""), 5'000);
  EXPECT_FALSE(sampler.sample().gateway->answers) << "who knows";
  status.clear_gateway();
  sampler.AddGateway(&status, absl::UnavailableError(""), 6'000);
  EXPECT_FALSE(nlohmann::json::parse(TopJson(sampler.sample())).contains("gateway"));
}

TEST(TopSampler, AnotherLayout_BeginsAnew) {
  TopSampler sampler;
  ClusterStatus status = MakeStatus(2);
  sampler.Add(&status, {MakeReply(1, 10, 100), MakeReply(1, 10, 100)});
  sampler.Add(&status, {MakeReply(1, 11, 200), MakeReply(1, 11, 200)});
  status = MakeStatus(1);
  sampler.Add(&status, {MakeReply(7, 1, 10)});
  ASSERT_EQ(sampler.sample().rows.size(), 1u);
  EXPECT_TRUE(sampler.sample().rows[0].history.empty());
}

TEST(TopSampler, LongWatch_KeepsSoManyPoints) {
  TopSampler sampler;
  const ClusterStatus status = MakeStatus(1);
  for (int64_t second = 0; second < 700; ++second)
    sampler.Add(&status, {MakeReply(1, 10 + second, static_cast<uint64_t>(second * second))});
  const TopRow& row = sampler.sample().rows[0];
  ASSERT_EQ(row.history.size(), kTopHistory);
  EXPECT_DOUBLE_EQ(row.history.back().committed_per_s, 699 * 699 - 698 * 698) << "the newest stay";
}

TEST(TopJson, SaysWhatTheTableSays) {
  TopSample sample{.deployment = "test", .layout = "2ISL", .rows = {MakeRow(0, 100), MakeRow(1, 300)}};
  sample.rows[1].sums.scopes[2].committed = 100;
  const auto document = nlohmann::json::parse(TopJson(sample));
  EXPECT_EQ(document["layout"], "2ISL");
  EXPECT_EQ(document["all"]["committed_per_s"], 500);
  EXPECT_DOUBLE_EQ(document["all"]["imbalance"], 300.0 / 250);
  EXPECT_DOUBLE_EQ(document["all"]["distributed_share"], 0.2);
  EXPECT_EQ(document["islands"][1]["distributed_per_s"], 100);
  EXPECT_EQ(document["islands"][0]["state"], "ready");
}

}  // namespace
}  // namespace islands::deploy
