#include "deploy/cluster/file_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace islands::deploy {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kFile = R"(version: 1
name: quad
machine: 'pack:2 [numa(memory=4GB)] core:2 pu:1'
layout: 2ISL
)";

ResolvedDeployment Resolved(const std::string& more) {
  auto deployment = ParseDeployment(kFile + more, "quad.yaml");
  EXPECT_TRUE(deployment.ok()) << deployment.status();
  auto resolved = Resolve(*deployment);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return *std::move(resolved);
}

// As the supervisor has it after a while.
control::v1::ClusterStatus Running(const ResolvedDeployment& resolved) {
  control::v1::ClusterStatus status;
  for (const control::v1::IslandConfig& config : MakeIslandConfigs(resolved)) {
    control::v1::IslandConfig& running = *status.add_configs();
    running = config;
    running.set_cluster_id("c");
    running.set_boot_epoch(4);
    running.set_restarts(1);
    running.set_data_generation(2);
    running.set_ring_directory("/dev/shm/rings");
    running.add_loads()->set_workload("micro");
  }
  return status;
}

TEST(Differences, NoneWhereTheFileIsAsItWas) {
  const ResolvedDeployment resolved = Resolved("");
  EXPECT_THAT(Differences(Running(resolved), resolved), IsEmpty());
}

// Taken from other cores, with another size of an automatic pool: the machine's business.
TEST(Differences, NoneWhereOnlyTheMachineHasChanged) {
  const ResolvedDeployment resolved = Resolved("");
  control::v1::ClusterStatus status = Running(resolved);
  for (control::v1::IslandConfig& config : *status.mutable_configs()) {
    config.mutable_workers(0)->set_cpu(77);
    config.set_pool_bytes(config.pool_bytes() - 4096);
    config.set_service_cpu(5);
    config.add_numa_nodes(3);
  }
  EXPECT_THAT(Differences(status, resolved), IsEmpty());
}

TEST(Differences, NamesWhatWasEdited) {
  const control::v1::ClusterStatus status = Running(Resolved("storage: {buffer_pool: 64MiB}\n"));
  const auto difference = [&](const std::string& more) {
    return fmt::format("{}", fmt::join(Differences(status, Resolved(more)), "\n"));
  };
  EXPECT_THAT(difference("storage: {buffer_pool: 64MiB}\n"), IsEmpty());
  EXPECT_THAT(difference("storage: {buffer_pool: 64MiB} # a remark\n"), IsEmpty());
  EXPECT_THAT(difference("storage: {buffer_pool: 32MiB}\n"), HasSubstr("pool_bytes"));
  EXPECT_THAT(difference("storage: {buffer_pool: 64MiB}\ntimeouts: {transaction_ms: 500}\n"),
              HasSubstr("transaction_timeout_ms: 2000 -> 500"));
  EXPECT_THAT(difference("storage: {buffer_pool: 64MiB}\ndata: {sites: 8}\n"), HasSubstr("site"));
  EXPECT_THAT(difference("storage: {buffer_pool: 64MiB, log: {durability: none}}\n") +
                  difference("storage: {buffer_pool: 64MiB, log: {durability: sync}}\n"),
              HasSubstr("durability"));
  control::v1::ClusterStatus other = status;
  other.mutable_configs()->RemoveLast();
  EXPECT_THAT(Differences(other, Resolved("")),
              testing::ElementsAre(testing::StartsWith("1 islands -> 2; what else of them")));
  EXPECT_THAT(Differences(status, Resolved("storage: {buffer_pool: 32MiB}\n"
                                           "timeouts: {transaction_ms: 500}\n")),
              testing::ElementsAre("island 0: pool_bytes: 33554432 -> 16777216",
                                   "island 0: transaction_timeout_ms: 2000 -> 500",
                                   "island 1: pool_bytes: 33554432 -> 16777216",
                                   "island 1: transaction_timeout_ms: 2000 -> 500"));
}

TEST(FileWarning, OneLineWithTheFilesName) {
  const ResolvedDeployment resolved = Resolved("timeouts: {transaction_ms: 500}\n");
  const control::v1::ClusterStatus status = Running(Resolved(""));
  const std::string text = FileWarning(status, resolved.deployment, resolved);
  EXPECT_THAT(text, HasSubstr("warning: quad.yaml does not describe what runs"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_THAT(FileWarning(Running(resolved), resolved.deployment, resolved), IsEmpty());
  EXPECT_THAT(FileWarning(status, resolved.deployment, absl::InvalidArgumentError("quad.yaml:3:1: no\nmore")),
              HasSubstr("(quad.yaml:3:1: no)"));
}

}  // namespace
}  // namespace islands::deploy
