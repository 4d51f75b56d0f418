#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "instance/server/config.h"
#include "instance/server/control_service.h"
#include "instance/server/exposer.h"
#include "instance/server/metrics.h"
#include "instance/testing/in_process_cluster.h"
#include "runtime/descriptor.h"

namespace islands::server {
namespace {

control::v1::IslandConfig GoodConfig() {
  control::v1::IslandConfig config;
  config.set_cluster_id("c");
  config.set_deployment("d");
  config.set_boot_epoch(3);
  config.set_layout("1ISL");
  config.add_workers()->set_cpu(-1);
  control::v1::Peer* peer = config.add_peers();
  peer->set_workers(1);
  peer->mutable_sites()->set_count(4);
  config.set_site_count(4);
  config.set_pool_bytes(1 << 20);
  config.set_transport("uds");
  config.set_durability("none");
  config.set_control_directory("/nowhere");
  control::v1::TableSpec* table = config.add_tables();
  table->set_name("t");
  table->add_key("uint64");
  table->set_range_end(100);
  return config;
}

std::string Json(const control::v1::IslandConfig& config) {
  std::string json;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(config, &json).ok());
  return json;
}

TEST(Config, Parse_RoundTrip) {
  absl::StatusOr<control::v1::IslandConfig> parsed = ParseConfig(Json(GoodConfig()));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->SerializeAsString(), GoodConfig().SerializeAsString());
}

TEST(Config, Parse_NamesTheField) {
  const auto message = [](auto change) {
    control::v1::IslandConfig config = GoodConfig();
    change(config);
    return std::string(ParseConfig(Json(config)).status().message());
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& c) { c.clear_workers(); }),
            "island configuration: workers: expected at least one");
  EXPECT_NE(message([](auto& c) { c.set_island(1); }).find("peers"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.set_transport("tcp"); }).find("shm, uds or zmq"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.set_durability("fsync"); }).find("lazy"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.set_boot_epoch(0); }).find("bootEpoch"), std::string::npos);
  EXPECT_FALSE(ParseConfig("{").ok());
}

TEST(Config, Read_ToTheEndOfADescriptorAndClosesIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([fd = ends[1]] {
    EXPECT_TRUE(runtime::WriteAll(fd, Json(GoodConfig()) + std::string(100'000, ' '), "a pipe").ok());
    close(fd);
  });
  const absl::StatusOr<control::v1::IslandConfig> read = ReadConfig(ends[0]);
  writer.join();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), GoodConfig().SerializeAsString());
  EXPECT_NE(std::string(ReadConfig(ends[0]).status().message()).find("descriptor"), std::string::npos);
}

// Who dials a worker finds it by that number.
TEST(Island, Create_RefusesWorkersThatItsPeersDoNotExpect) {
  control::v1::IslandConfig config = GoodConfig();
  config.mutable_peers(0)->set_workers(config.peers(0).workers() + 1);
  const auto island = instance::Island::Create(config, {});
  EXPECT_EQ(island.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(island.status().message()).find("its peers expect"), std::string::npos);
}

class OneIsland : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(cluster_.Start().ok()); }
  static instance::ClusterOptions WithoutWorkload() {
    instance::ClusterOptions options;
    options.config = GoodConfig();
    return options;
  }
  instance::Island& island() { return cluster_.island(0); }

  instance::InProcessCluster cluster_{WithoutWorkload()};
};

TEST_F(OneIsland, ControlService_AnswersAndRefuses) {
  bool shut_down = false;
  ControlService service(GoodConfig(), [&] { shut_down = true; });
  control::v1::Request request;
  request.mutable_status();
  service.Say("reading");
  const control::v1::Reply early = service.Handle(request);
  EXPECT_EQ(early.island_status().state(), control::v1::STARTING);
  EXPECT_EQ(early.island_status().detail(), "reading");
  EXPECT_EQ(early.island_status().boot_epoch(), GoodConfig().boot_epoch());
  request.mutable_snapshot();
  EXPECT_EQ(service.Handle(request).code(), static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  service.Serve(island(), "port taken");
  request.clear_snapshot();
  EXPECT_EQ(service.Handle(request).code(), static_cast<uint32_t>(absl::StatusCode::kUnimplemented));
  request.mutable_status();
  EXPECT_EQ(service.Handle(request).island_status().state(), control::v1::READY);
  EXPECT_EQ(service.Handle(request).island_status().metrics_problem(), "port taken");
  request.mutable_snapshot();
  EXPECT_EQ(service.Handle(request).snapshot().workers_size(), 1);
  request.mutable_transactions();
  EXPECT_TRUE(service.Handle(request).has_transactions());
  EXPECT_EQ(service.Handle(request).transactions().total(), 0u);
  EXPECT_EQ(service.Handle(request).transactions().silent_workers_size(), 0);
  request.mutable_start_run()->set_mpl(1);
  EXPECT_EQ(service.Handle(request).code(), static_cast<uint32_t>(absl::StatusCode::kNotFound));
  request.mutable_start_run()->set_mpl(0);
  EXPECT_EQ(service.Handle(request).code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  request.mutable_stop_run();
  EXPECT_EQ(service.Handle(request).code(), 0u);
  EXPECT_FALSE(shut_down);
  request.mutable_shutdown();
  EXPECT_EQ(service.Handle(request).code(), 0u);
  EXPECT_TRUE(shut_down);
}

// One that does not come to its mailbox is named, and may come later.
TEST_F(OneIsland, Transactions_OfAWorkerThatStandsStillAreMissing) {
  control::v1::TransactionsRequest request;
  island().Stop();
  const auto gathering = island().AskTransactions(request);
  const control::v1::Transactions without = gathering->Take(runtime::kNsPerMs);
  ASSERT_EQ(without.silent_workers_size(), 1);
  EXPECT_EQ(without.silent_workers(0), 0u);
  control::v1::Transactions part;
  part.set_total(3);
  for (const int64_t age_us : {5, 7, 6}) part.add_work()->set_age_us(age_us);
  gathering->Add(0, part);
  const control::v1::Transactions all = gathering->Take(runtime::kNsPerSecond);
  EXPECT_EQ(all.silent_workers_size(), 0);
  EXPECT_EQ(all.total(), 3u);
  ASSERT_EQ(all.work_size(), 1);  // who asks for none gets one
  EXPECT_EQ(all.work(0).age_us(), 7);
}

// What cannot be loaded leaves the island as it was: a second try is refused the same way, and it goes on
// serving.
TEST_F(OneIsland, Load_FailureChangesNothing) {
  control::v1::LoadSpec load;
  load.set_workload("w");
  control::v1::TableSpec* table = load.add_tables();
  table->set_name("t");
  table->add_key("no such type");
  table->set_range_end(10);
  const std::string before = island().config().SerializeAsString();
  for (int tries = 0; tries < 2; ++tries) {
    EXPECT_EQ(island().Load(load).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(island().config().SerializeAsString(), before);
  }
  table->set_key(0, "uint32");  // a good table, but there is no such workload
  EXPECT_EQ(island().Load(load).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(island().config().SerializeAsString(), before);
  EXPECT_EQ(island().Status().state(), control::v1::READY);
  EXPECT_GT(island().PoolUsage().capacity_pages, 0u);
}

// As text, and without peers: nothing is said about them.
TEST_F(OneIsland, Metrics_AsText) {
  const MetricsCollector collector(island(), {"1", "c", "g"}, 0);
  const std::string text = prometheus::TextSerializer().Serialize(collector.Collect());
  EXPECT_NE(
      text.find(
          "islands_transactions_total{island=\"0\",worker=\"0\",scope=\"local\",outcome=\"committed\"} 0"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("peer=\""), std::string::npos) << text;
}

// At the first port that is free.
std::unique_ptr<prometheus::Exposer, EndExposer> ServeSomewhere() {
  std::string problem;
  for (uint32_t port = 20'000; port < 20'100; ++port) {
    if (auto exposer = ServeMetrics(port, nullptr, &problem)) return exposer;
  }
  return nullptr;
}

// The library by itself needs two seconds.
TEST(Exposer, End_IsNotWaitedFor) {
  auto exposer = ServeSomewhere();
  ASSERT_NE(exposer, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  exposer.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace islands::server
