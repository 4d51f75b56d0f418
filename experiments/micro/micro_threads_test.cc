// The microbenchmark on an island with several workers, on threads of their own: whether what commits adds
// up. With the engine that has planted bugs it has to find that locks are granted to everybody
// (instance/simulation/planted).
#include <gtest/gtest.h>

#include <string>

#include "experiments/micro/micro.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr int64_t kRows = 16;        // few, so that workers meet
constexpr int64_t kEnough = 10'000;  // changes of a row

instance::ClusterOptions OneIsland(const std::string& op) {
  instance::ClusterOptions options;
  options.workers = kWorkers;
  options.sites = 1;
  control::v1::TableSpec& table = *options.config.add_tables();
  table.set_name(kMicroTable);
  table.add_key("uint64");
  table.set_range_end(kRows);
  table.set_row_bytes(kMicroRowBytes);
  options.open = [op](const storage::Catalog& catalog) {
    return MicroWorkload::Create(catalog, {{"op", op}, {"rows", "3"}});
  };
  return options;
}

class MicroThreads : public testing::TestWithParam<const char*> {};

TEST_P(MicroThreads, Run_CountersAddUpToWhatCommitted) {
  instance::InProcessCluster cluster(OneIsland(GetParam()));
  const absl::Status started = cluster.Start();
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_TRUE(cluster.StartRun(4).ok());
  cluster.RunFor(200 * runtime::kNsPerMs);
  // On a busy machine four workers that share a core do little in a given time.
  (void)cluster.RunUntil([&] { return cluster.island(0).TakeSnapshot().audit_committed() >= kEnough; },
                         30 * runtime::kNsPerSecond);
  ASSERT_TRUE(cluster.island(0).StopRun(0, 30 * runtime::kNsPerSecond).ok());
  const instance::InProcessCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum, totals.audit_committed) << "updates were lost";
  EXPECT_GE(totals.audit_sum, kEnough);
}

INSTANTIATE_TEST_SUITE_P(Ops, MicroThreads, testing::Values("update", "add"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace islands::experiments
