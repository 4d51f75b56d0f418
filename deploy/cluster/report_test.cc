#include "deploy/cluster/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "deploy/cluster/supervisor_island.h"

namespace islands::deploy {
namespace {

using testing::HasSubstr;

constexpr const char* kQuadFile = R"(
version: 1
name: quad
machine: 'pack:2 [numa(memory=4GB)] core:2 pu:1'
layout: 2ISL
storage: {buffer_pool: 64MiB}
)";

ResolvedDeployment MakeResolved() {
  auto deployment = ParseDeployment(kQuadFile, "quad.yaml");
  EXPECT_TRUE(deployment.ok()) << deployment.status();
  auto resolved = Resolve(*deployment);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return *std::move(resolved);
}

control::v1::ClusterStatus MakeStatus(const ResolvedDeployment& resolved) {
  control::v1::ClusterStatus status;
  status.set_deployment("quad");
  status.set_layout("2ISL");
  status.set_supervisor_pid(4711);
  for (const control::v1::IslandConfig& config : MakeIslandConfigs(resolved)) {
    *status.add_configs() = config;
    control::v1::IslandStatus& island = *status.add_islands();
    island.set_island(config.island());
    island.set_pid(100 + static_cast<int>(config.island()));
    island.set_state(control::v1::READY);
    island.mutable_placement()->add_worker_cpus("0-1");
    island.mutable_placement()->add_worker_cpus("3");
    island.mutable_placement()->set_memory_policy("prefer:0");
    (*island.mutable_placement()->mutable_pool_pages_per_node())[0] = 12;
  }
  return status;
}

TEST(StatusJson, FileDescribesWhatRuns_IslandsBeginAsInPlan) {
  const ResolvedDeployment resolved = MakeResolved();
  control::v1::ClusterStatus restarted = MakeStatus(resolved);
  restarted.mutable_configs(1)->set_restarts(1);
  const auto json = nlohmann::json::parse(StatusJson(restarted, &resolved));
  const auto& island = json["islands"][1];
  EXPECT_EQ(island["cpus"], "2-3");  // planned for the file's machine, though it runs unbound here
  EXPECT_EQ(island["numa_nodes"], "1");
  EXPECT_EQ(island["sites"], "12-23");
  EXPECT_EQ(island["pid"], 101);
  EXPECT_EQ(island["state"], "ready");
  EXPECT_EQ(island["restarts"], 0);
  EXPECT_EQ(island["cpus_actual"], "0-1,3");
  EXPECT_EQ(island["memory_policy"], "prefer:0");
  EXPECT_EQ(island["pool_pages_per_node"]["0"], 12);
  EXPECT_EQ(json["supervisor_pid"], 4711);
}

TEST(StatusJson, FileChangedMeanwhile_ShowsWhatRuns) {
  ResolvedDeployment resolved = MakeResolved();
  const control::v1::ClusterStatus status = MakeStatus(resolved);
  for (topology::PlannedIsland& island : resolved.plan.islands) island.memory_bytes = 1 << 20;
  const ResolvedDeployment* const files[] = {&resolved, nullptr};
  for (const ResolvedDeployment* file : files) {
    const auto json = nlohmann::json::parse(StatusJson(status, file));
    EXPECT_EQ(json["islands"][0]["memory_bytes"], 32 << 20);
    EXPECT_EQ(json["islands"][0]["sites"], "0-11");
  }
}

TEST(AllWork, NotWhileAnythingIsMissing) {
  const control::v1::ClusterStatus well = MakeStatus(MakeResolved());
  const auto works = [&](auto change) {
    control::v1::ClusterStatus status = well;
    change(status);
    return AllWork(status);
  };
  EXPECT_TRUE(AllWork(well));
  for (const auto state : {control::v1::STARTING, control::v1::LOST, control::v1::GIVEN_UP})
    EXPECT_FALSE(works([=](auto& status) { status.mutable_islands(1)->set_state(state); })) << state;
  EXPECT_FALSE(works([](auto& status) { status.mutable_islands(0)->set_hung_ms(2'000); }));
  EXPECT_FALSE(works([](auto& status) { status.set_stopping(true); }));
  EXPECT_TRUE(works([](auto& status) { status.mutable_log()->set_logger_pid(7); }));
  EXPECT_FALSE(works([](auto& status) { status.mutable_log(); })) << "a log without a logger";
  EXPECT_FALSE(works([](auto& status) {
    status.mutable_log()->set_logger_pid(7);
    status.mutable_log()->set_full("the disk is full");
  }));
  EXPECT_TRUE(works([](auto& status) { status.mutable_gateway()->set_state(control::v1::READY); }));
  EXPECT_FALSE(works([](auto& status) { status.mutable_gateway()->set_state(control::v1::LOST); }));
}

TEST(StatusText, TellsWhyAnIslandIsGone) {
  control::v1::ClusterStatus status = MakeStatus(MakeResolved());
  status.mutable_islands(1)->set_state(control::v1::GIVEN_UP);
  status.mutable_islands(1)->set_pid(0);
  status.mutable_islands(1)->set_detail("killed by signal 9");
  status.mutable_islands(0)->mutable_placement()->set_warning("may not bind memory");
  status.mutable_islands(0)->set_cores_shared(true);
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("given_up"));
  EXPECT_THAT(text, HasSubstr("island 1: killed by signal 9\n"));
  EXPECT_THAT(text, HasSubstr("warning: not everything could be bound on island 0: may not bind memory\n"));
  EXPECT_THAT(text, HasSubstr("share cores"));
}

TEST(StatusText, TellsInWhichModeIslandsAreAndWhy) {
  control::v1::ClusterStatus status = MakeStatus(MakeResolved());
  EXPECT_THAT(StatusText(status), testing::Not(HasSubstr("resident")));  // of islands that have not said
  for (control::v1::IslandStatus& island : *status.mutable_islands()) {
    island.mutable_placement()->set_mode_reason("its data files have at most 7/8 of the pool");
    island.mutable_placement()->set_data_pages(1024);
  }
  EXPECT_THAT(StatusText(status),
              HasSubstr("\nislands 0-1 resident: its data files have at most 7/8 of the pool; "
                        "data of 8MiB, 64MiB of pool\n"));
  status.mutable_islands(1)->mutable_placement()->set_paged(true);
  status.mutable_islands(1)->mutable_placement()->set_mode_reason("the deployment file says so");
  status.mutable_islands(1)->mutable_warm_up()->set_done(32);
  status.mutable_islands(1)->mutable_warm_up()->set_listed(800);
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("\nisland 0 resident: its data files"));
  EXPECT_THAT(text,
              HasSubstr("\nisland 1 paged: the deployment file says so; data of 4MiB, 32MiB of pool\n"));
  EXPECT_THAT(text, HasSubstr("\nisland 1 is warming up: 32 of 800 pages\n"));
  const auto json = nlohmann::json::parse(StatusJson(status, nullptr));
  EXPECT_EQ(json["islands"][1]["warm_up"]["listed"], 800);
  EXPECT_EQ(json["islands"][1]["data_bytes"], 4 << 20);
  EXPECT_EQ(json["islands"][0]["mode_reason"], "its data files have at most 7/8 of the pool");
}

TEST(StatusText, TellsOfAGatewayThatStandsStill) {
  control::v1::ClusterStatus status = MakeStatus(MakeResolved());
  status.mutable_gateway()->set_state(control::v1::READY);
  status.mutable_gateway()->set_pid(7);
  EXPECT_THAT(StatusText(status), HasSubstr("gateway: ready, process 7\n"));
  status.mutable_gateway()->set_hung_ms(2500);
  EXPECT_THAT(StatusText(status), HasSubstr("gateway: hung, process 7; hung for 2.5 s: it was stopped"));
  const auto json = nlohmann::json::parse(StatusJson(status, nullptr));
  EXPECT_EQ(json["gateway"]["state"], "hung");
  EXPECT_EQ(json["gateway"]["hung_ms"], 2500);
  status.mutable_gateway()->set_metrics_problem("cannot listen");
  EXPECT_THAT(StatusText(status), HasSubstr("\nwarning: the gateway serves no metrics: cannot listen\n"));
}

TEST(StatusText, TellsOfAFullLogAndOfWhatWasLost) {
  control::v1::ClusterStatus status = MakeStatus(MakeResolved());
  status.mutable_log()->set_logger_pid(7);
  EXPECT_THAT(StatusText(status), HasSubstr("logger 7\n"));
  EXPECT_THAT(StatusText(status), testing::Not(HasSubstr("NOTHING")));
  status.mutable_log()->set_restarts(1);
  EXPECT_THAT(StatusText(status), HasSubstr("logger 7, restarted 1 time\n"));
  status.mutable_log()->set_full("the disk with log is full");
  status.mutable_log()->set_lost("power was lost");
  EXPECT_THAT(StatusText(status), HasSubstr("NOTHING CAN BE CHANGED: the disk with log is full\n"));
  EXPECT_THAT(StatusText(status), HasSubstr("when it was started: power was lost\n"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson(status, nullptr))["log"]["full"], "the disk with log is full");
}

TEST(StatusText, WarnsOfWhatIsInDoubtForLong) {
  control::v1::ClusterStatus status = MakeStatus(MakeResolved());
  status.mutable_islands(0)->set_in_doubt(5);
  status.mutable_islands(0)->set_in_doubt_ms(200);
  EXPECT_THAT(StatusText(status), testing::Not(HasSubstr("in doubt")));
  status.mutable_islands(1)->set_in_doubt(1);
  status.mutable_islands(1)->set_in_doubt_ms(14'200);
  EXPECT_THAT(StatusText(status),
              HasSubstr("\nwarning: 1 branch on island 1 in doubt, for 14.2 s at most, with "
                        "their locks; `islands txn FILE list --in-doubt` names them\n"));
  status.mutable_islands(0)->set_in_doubt_ms(20'000);
  EXPECT_THAT(StatusText(status), HasSubstr("6 branches on islands 0-1 in doubt, for 20.0 s at most"));
  const auto json = nlohmann::json::parse(StatusJson(status, nullptr));
  EXPECT_EQ(json["islands"][1]["in_doubt"], 1);
  EXPECT_EQ(json["islands"][1]["in_doubt_oldest_ms"], 14'200);
}

TEST(StatusText, WarnsOfWhatAnIslandThatServesSaysOfItself) {
  control::v1::ClusterStatus status = MakeStatus(MakeResolved());
  status.mutable_islands(1)->set_detail("changed pages are not written");
  EXPECT_THAT(StatusText(status), HasSubstr("\nwarning: island 1: changed pages are not written\n"));
}

}  // namespace
}  // namespace islands::deploy
