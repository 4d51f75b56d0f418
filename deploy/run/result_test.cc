#include "deploy/run/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "deploy/file/deployment.h"
#include "deploy/run/directory.h"
#include "instance/worker/latency_histogram.h"

namespace islands::deploy {
namespace {

using testing::HasSubstr;

RunResult MakeResult() {
  RunResult result;
  using Kind = instance::Parameter::Kind;
  result.plan.workload = {.name = "micro",
                          .description = {.parameters = {{.name = "op", .kind = Kind::kChoice},
                                                         {.name = "multisite", .kind = Kind::kPercent},
                                                         {.name = "update_percent", .kind = Kind::kPercent},
                                                         {.name = "zipf", .kind = Kind::kNumber},
                                                         {.name = "committed", .kind = Kind::kWhole}}}};
  result.plan.options.parameters = {
      {"op", "read"}, {"multisite", "20"}, {"update_percent", "5"}, {"zipf", "0.5"}, {"committed", "1"}};
  result.plan.options.duration_s = 2;
  result.plan.rows_total = 240'000;
  result.deployment = "test";
  result.layout = "2ISL";
  result.transport = "uds";
  result.durability = "sync";
  result.votes = "forced";
  result.measured_s = 2.001;
  result.run_directory = "results/x";
  for (uint32_t i = 0; i < 2; ++i) {
    IslandResult island{.island = i, .workers = 1, .seconds = 2.0};
    for (size_t s = 0; s < kScopes; ++s) {
      island.sums.scopes[s].committed = 1'000 * (s + 1);
      island.sums.scopes[s].latency.assign(instance::kLatencyBuckets, 0);
      island.sums.scopes[s].latency[instance::BucketOf(100 * (s + 1))] = 1'000 * (s + 1);
    }
    island.sums.scopes[2].aborted = 5;
    island.sums.aborts_by_reason["deadlock"] = 5;
    island.sums.messages_sent = 12'000;
    result.islands.push_back(std::move(island));
  }
  result.sum = {.before = 10, .after = 10, .rows = 240'000, .rows_total = 240'000};
  return result;
}

TEST(SumCheck, Verdict_ComparesAuditAndCounters) {
  SumCheck sum{.before = 100, .after = 150, .committed = 50, .rows = 7, .rows_total = 7};
  EXPECT_EQ(sum.Verdict(), "ok");
  sum.after = 149;
  EXPECT_EQ(sum.Verdict(), "failed");
  sum.unknown = 1;
  EXPECT_EQ(sum.Verdict(), "ok");
  sum.after = 152;
  EXPECT_EQ(sum.Verdict(), "failed");
  sum.after = 150;
  sum.rows = 6;
  EXPECT_EQ(sum.Verdict(), "failed");
  sum.rows = 7;
  EXPECT_EQ(sum.Verdict(), "ok");
  sum.broken = "tpcc: condition 3";
  EXPECT_EQ(sum.Verdict(), "failed");
  EXPECT_EQ(sum.Explain(), "tpcc: condition 3");
  sum.island_lost = true;
  EXPECT_EQ(sum.Verdict(), "skipped: island lost");
}

TEST(ResultJson, HasThePromisedKeysAndNumbers) {
  const nlohmann::ordered_json json = ResultJson(MakeResult());
  for (const char* key :
       {"layout", "islands", "workload", "mpl", "duration_s", "committed", "committed_per_s", "aborted",
        "latency_us", "latency_from", "messages_per_transaction", "sum_check", "run_directory", "per_island",
        "per_scope", "aborts_by_reason", "unknown", "transport", "seed"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["durability"], "sync");
  EXPECT_EQ(json["votes"], "forced");
  EXPECT_EQ(json["committed"], 12'000);
  EXPECT_EQ(json["committed_per_s"], 6'000);
  EXPECT_EQ(json["messages_per_transaction"], 2.0);
  EXPECT_EQ(json["per_scope"]["distributed"]["committed"], 6'000);
  EXPECT_EQ(json["per_island"][1]["committed_per_s"], 3'000);
  EXPECT_EQ(json["aborts_by_reason"]["deadlock"], 10);
  EXPECT_NEAR(json["latency_us"]["p50"].get<double>(), 200, 200.0 / 16);
  EXPECT_NEAR(json["latency_us"]["p999"].get<double>(), 300, 300.0 / 16);
  EXPECT_EQ(json["sum_check"], "ok");
}

TEST(ResultJson, CoresTime_IsAShareOfTheWorkers_AndUnknownIfItIsOfAny) {
  RunResult result = MakeResult();
  for (IslandResult& island : result.islands) {
    island.workers = 2;
    island.seconds = 2;
    island.core_time = CoreTime{.ran_ns = 3'000'000'000, .waited_ns = 1'000'000'000};
  }
  result.stolen_fraction = 0.125;
  nlohmann::ordered_json json = ResultJson(result);
  EXPECT_EQ(json["cpu_fraction"], 0.75);
  EXPECT_EQ(json["core_wait_fraction"], 0.25);
  EXPECT_EQ(json["stolen_fraction"], 0.125);
  EXPECT_EQ(json["per_island"][0]["cpu_fraction"], 0.75);
  EXPECT_THAT(ResultText(result),
              testing::HasSubstr("workers waited 25% of their time for a core that other programs had; "
                                 "another virtual machine had 12% of all cores' time"));
  result.measured_s = 2;
  result.logger_ran_ns = 1'600'000'000;  // a fifth of four workers' time
  EXPECT_NEAR(ResultJson(result)["others_fraction"].get<double>(), 0.05, 1e-9);
  result.logger_ran_ns *= 2;  // on cores of its own, too
  EXPECT_EQ(ResultJson(result)["others_fraction"], 0);
  result.islands[0].core_time.reset();
  json = ResultJson(result);
  EXPECT_TRUE(json["cpu_fraction"].is_null());
  EXPECT_TRUE(json["per_island"][0]["cpu_fraction"].is_null());
  EXPECT_EQ(json["per_island"][1]["cpu_fraction"], 0.75);
}

TEST(ResultJson, Parameters_AreNumbersAndAsTheyWereGiven) {
  const nlohmann::ordered_json json = ResultJson(MakeResult());
  EXPECT_EQ(json["workload"], "micro");
  EXPECT_EQ(json["op"], "read");
  EXPECT_EQ(json["multisite_percent"], 20);
  EXPECT_EQ(json["update_percent"], 5);
  EXPECT_EQ(json["zipf"], 0.5);
  EXPECT_EQ(json["rows_total"], 240'000);
  EXPECT_EQ(json["committed"], 12'000) << "what every run has goes before a parameter of the same name";
  EXPECT_EQ(json["parameters"]["multisite"], "20");
  EXPECT_EQ(json["parameters"]["committed"], "1");
}

TEST(ResultJson, NothingCommitted_IsZeroNotNan) {
  RunResult result = MakeResult();
  for (IslandResult& island : result.islands) island = {.island = island.island};
  const nlohmann::ordered_json json = ResultJson(result);
  EXPECT_EQ(json["committed_per_s"], 0);
  EXPECT_EQ(json["messages_per_transaction"], 0);
  EXPECT_EQ(json["latency_us"]["p50"], 0);
}

TEST(ResultText, FailedCheck_ShowsItsNumbers) {
  RunResult result = MakeResult();
  EXPECT_THAT(ResultText(result), HasSubstr("micro, op read, multisite 20, update_percent 5, zipf 0.5, "));
  EXPECT_THAT(ResultText(result), HasSubstr("committed    12,000 = 6,000/s"));
  EXPECT_THAT(ResultText(result), HasSubstr("\nlocal: on one site; multisite: on several of one island; "));
  EXPECT_THAT(ResultText(result), HasSubstr("has drawn the request, retries included; there is no client\n"));
  result.sum.after = 11;
  EXPECT_THAT(ResultText(result), HasSubstr("sum over all rows before 10, after 11"));
}

TEST(Grouped, Thousands) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567890), "1,234,567,890");
}

TEST(LatencyCsv, OnlyCountedBuckets) {
  EXPECT_EQ(LatencyCsv(MakeResult().Total()),
            "bucket_upper_us,local,multisite,distributed\n104,2000,0,0\n208,0,4000,0\n304,0,0,6000\n");
}

TEST(TimeseriesCsv, OneLinePerIntervalAndIsland) {
  RunResult result = MakeResult();
  result.series.push_back(
      {.elapsed_s = 1, .island = 0, .reached = true, .seconds = 0.5, .sums = result.islands[0].sums});
  result.series.push_back({.elapsed_s = 1, .island = 1});
  const std::string csv = TimeseriesCsv(result);
  EXPECT_THAT(csv, HasSubstr("\n1.000,0,1,12000.0,2000.0,4000.0,6000.0,10.0,0.0,24000.0,"));
  EXPECT_THAT(csv, HasSubstr("\n1.000,1,0,0.0,"));
}

control::v1::ClusterStatus MakeStatus(bool bound) {
  control::v1::ClusterStatus status;
  status.set_deployment("test");
  status.set_layout("2ISL");
  for (int i = 0; i < 2; ++i) {
    control::v1::IslandConfig& config = *status.add_configs();
    config.set_placement(bound ? "islands" : "os");
    config.set_worker_order("spread");
    config.add_workers()->set_cpu(bound ? i : -1);
    if (bound) config.add_numa_nodes(0);
    config.set_memory_policy(control::v1::MEMORY_PREFERRED);
    config.set_pool_bytes(64 << 20);
    config.set_site_count(24);
    config.set_transport("zmq");
    config.set_durability("sync");
    config.set_votes_wait(true);
    config.set_always_latched(bound);
    config.set_without("look_ahead");
    config.set_control_directory("/somewhere/it's run");
    config.set_data_directory("/somewhere/data");
    config.set_log_directory("/somewhere/data/log");
    config.set_metrics_port(9400 + i);
    config.set_transaction_timeout_ms(1500);
    control::v1::TableSpec& table = *config.add_tables();
    table.set_name("micro");
    table.add_key("uint64");
    table.set_range_end(240'000);
    table.set_row_bytes(250);
    control::v1::LoadSpec& load = *config.add_loads();
    *load.add_tables() = table;
    load.mutable_tables(0)->set_range_end(4'800);
  }
  return status;
}

TEST(ResolvedYaml, Bound_IsADeploymentFileWithIslandsByHand) {
  const auto parsed = ParseDeployment(ResolvedYaml(MakeStatus(true), "auto"), "resolved.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->islands_by_hand.size(), 2u);
  EXPECT_THAT(parsed->islands_by_hand[1].cpus, testing::ElementsAre(1));
  EXPECT_EQ(parsed->islands_by_hand[1].memory_bytes, 64u << 20);
  EXPECT_EQ(parsed->control_directory, "/somewhere/it's run");
  EXPECT_EQ(parsed->transport, TransportKind::kZmq);
  EXPECT_TRUE(parsed->always_latched);
  EXPECT_EQ(parsed->without, "look_ahead");
  EXPECT_EQ(parsed->durability, Durability::kSync);
  EXPECT_TRUE(parsed->forced_votes);
  EXPECT_EQ(parsed->tables[0].range_end(), 4'800);
  EXPECT_EQ(parsed->workers, topology::WorkerOrder::kSpread);
  EXPECT_EQ(parsed->transaction_timeout_ms, 1500u);
}

TEST(ResolvedYaml, Unbound_KeepsTheLayout) {
  const auto parsed = ParseDeployment(ResolvedYaml(MakeStatus(false), "pack:2 core:2 pu:1"), "resolved.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->layout, 2u);
  EXPECT_EQ(parsed->machine, "pack:2 core:2 pu:1");
  EXPECT_EQ(parsed->buffer_pool_bytes, 128u << 20);
  EXPECT_EQ(parsed->sites, 24u);
  EXPECT_FALSE(parsed->always_latched);
}

TEST(RunDirectory, Create_TwiceTheSameName_MakesTwo) {
  const std::string parent = testing::TempDir() + "/run_directory_test";
  std::filesystem::remove_all(parent);
  const auto first = RunDirectory::Create(parent, "a");
  const auto second = RunDirectory::Create(parent, "a");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->path(), second->path());
  EXPECT_TRUE(std::filesystem::path(first->path()).is_absolute());
  std::filesystem::remove_all(parent);
}

TEST(RunDirectory, Destructor_RemovesOnlyWhatStayedEmpty) {
  const std::string parent = testing::TempDir() + "/run_directory_test";
  std::filesystem::remove_all(parent);
  {
    const auto empty = RunDirectory::Create(parent, "empty");
    const auto used = RunDirectory::Create(parent, "used");
    ASSERT_TRUE(used->Write("meta.json", "{}").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(parent + "/empty"));
  EXPECT_TRUE(std::filesystem::exists(parent + "/used/meta.json"));
  std::filesystem::remove_all(parent);
}

TEST(WriteRunDirectory, WritesEveryFileOfTheDesign) {
  const std::string parent = testing::TempDir() + "/run_directory_test";
  std::filesystem::remove_all(parent);
  const auto directory = RunDirectory::Create(parent, "whole");
  ASSERT_TRUE(directory.ok());
  const absl::Status written =
      WriteRunDirectory(*directory, MakeResult(), MakeStatus(true), {"auto", "islands run x"});
  ASSERT_TRUE(written.ok()) << written;
  for (const char* name :
       {"summary.json", "timeseries.csv", "latency.csv", "deployment.yaml", "machine.xml", "meta.json"}) {
    EXPECT_GT(std::filesystem::file_size(directory->path() + "/" + name), 0u) << name;
  }
  const auto meta = nlohmann::json::parse(std::ifstream(directory->path() + "/meta.json"));
  EXPECT_EQ(meta["command_line"], "islands run x");
  for (const char* key : {"version", "commit", "cpu_model", "kernel", "seed"})
    EXPECT_TRUE(meta.contains(key)) << key;
  std::filesystem::remove_all(parent);
}

TEST(Utc, KnownInstant) {
  EXPECT_EQ(CompactUtc(1'769'860'800), "20260131T120000Z");
  EXPECT_EQ(LongUtc(1'769'860'800), "2026-01-31T12:00:00Z");
}

control::v1::ClusterStatus LoadOf(const std::vector<std::array<double, 3>>& islands) {
  control::v1::ClusterStatus status;
  for (uint32_t i = 0; i < islands.size(); ++i) {
    control::v1::IslandStatus& island = *status.add_islands();
    island.set_island(i);
    if (islands[i][0] < 0) continue;  // says nothing of a load
    island.mutable_load()->set_rows(static_cast<uint64_t>(islands[i][0]));
    island.mutable_load()->set_share(islands[i][1]);
    island.mutable_load()->set_written(islands[i][2]);
  }
  return status;
}

TEST(LoadView, SaysHowFarTheSlowestIsAndHowLong) {
  LoadView view;
  EXPECT_EQ(view.Text(LoadOf({{-1}, {-1}, {-1}}), 5), "");
  EXPECT_EQ(view.Text(LoadOf({{-1}, {1000, 0.001, 0}, {-1}}), 5), "loading: 1,000 rows");
  EXPECT_EQ(view.Text(LoadOf({{-1}, {1000, 0.5, 0}, {9000, 0.25, 0}}), 5),
            "loading: 10,000 rows, 25 %, about 15 s more");
  EXPECT_EQ(view.Text(LoadOf({{-1}, {1000, 1, 0.25}, {9000, 1, 0.5}}), 5),
            "loading: 10,000 rows, data files 38 %");
}

TEST(LoadView, WhoIsDoneStillCounts) {
  LoadView view;
  EXPECT_EQ(view.Text(LoadOf({{4000, 0.8, 0}, {2000, 0.4, 0}}), 4),
            "loading: 6,000 rows, 40 %, about 6 s more");
  EXPECT_EQ(view.Text(LoadOf({{-1}, {2500, 0.5, 0}}), 5), "loading: 6,500 rows, 50 %, about 5 s more");
  EXPECT_EQ(view.Text(LoadOf({{-1}, {5000, 1, 0.5}}), 9), "loading: 9,000 rows, data files 75 %");
}

}  // namespace
}  // namespace islands::deploy
