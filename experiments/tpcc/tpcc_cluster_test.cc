// TPC-C on whole islands: the conditions hold afterwards, however the machine is cut.
#include <gtest/gtest.h>

#include "experiments/tpcc/tpcc_testing.h"

namespace islands::experiments {
namespace {

using instance::InProcessCluster;

struct Case {
  const char* name;
  TestLayout layout;
  uint32_t mpl;
  bool remote;
};

class TpccLayouts : public testing::TestWithParam<Case> {};

// Of all islands; each says by itself what is wrong with its rows.
uint64_t AuditOf(const InProcessCluster& cluster) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < cluster.islands(); ++i) {
    const auto audit = cluster.island(i).Audit({});
    EXPECT_TRUE(audit.ok()) << audit.status();
    if (audit.ok()) sum += static_cast<uint64_t>(audit->value());
  }
  return sum;
}

enum : storage::TableId { kHistory = 3, kOrders, kNewOrder };  // as TpccSpecs has them

uint64_t CountRows(const InProcessCluster& cluster, storage::TableId table) {
  uint64_t rows = 0;
  cluster.VisitRows(table, [&](instance::KeyView, instance::RowView) { ++rows; });
  return rows;
}

TEST_P(TpccLayouts, Run_ConditionsHold) {
  const Case& c = GetParam();
  InProcessCluster cluster(TpccCluster(c.layout));
  ASSERT_TRUE(cluster.Start().ok());
  EXPECT_EQ(AuditOf(cluster), 0u);
  const uint64_t orders = CountRows(cluster, kOrders), payments = CountRows(cluster, kHistory),
                 waiting = CountRows(cluster, kNewOrder);
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 1500, c.mpl));
  EXPECT_EQ(AuditOf(cluster), 0u);
  for (uint32_t i = 0; i < cluster.islands(); ++i) {
    const absl::Status check = cluster.island(i).store().Check();
    EXPECT_TRUE(check.ok()) << check;
  }
  const InProcessCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.multisite + totals.distributed > 0, c.remote);
  if (!c.layout.parameters.contains("mix")) {
    EXPECT_NEAR(static_cast<double>(CountRows(cluster, kOrders) - orders),
                0.45 * static_cast<double>(totals.committed), 0.1 * static_cast<double>(totals.committed));
    EXPECT_NEAR(static_cast<double>(CountRows(cluster, kHistory) - payments),
                0.43 * static_cast<double>(totals.committed), 0.1 * static_cast<double>(totals.committed));
  }
  if (c.layout.parameters.contains("rollback")) {
    EXPECT_EQ(CountRows(cluster, kOrders) - orders, totals.committed);
    EXPECT_EQ(CountRows(cluster, kNewOrder) - waiting, totals.committed) << "nothing of those undone is left";
    EXPECT_GT(totals.aborted, totals.committed / 2);
  }
}

TestLayout Layout(uint32_t islands, uint32_t workers, uint32_t warehouses, instance::Parameters more = {}) {
  return {islands, workers, /*sites=*/4, warehouses, SmallTpcc(std::move(more))};
}

INSTANTIATE_TEST_SUITE_P(
    Tpcc, TpccLayouts,
    testing::Values(Case{"OneWorkerOneWarehouse", Layout(1, 1, 1), 4, false},
                    Case{"TwoWorkersOneWarehouse", Layout(1, 2, 1), 4, false},
                    Case{"TwoWorkersFourWarehouses", Layout(1, 2, 4), 2, true},
                    Case{"TwoIslands", Layout(2, 1, 4), 4, true},
                    Case{"TwoIslandsOfTwoMuchRemote",
                         Layout(2, 2, 4, {{"remote_lines", "20"}, {"remote_payments", "50"}}), 2, true},
                    Case{"FourIslandsRollBackHalfOfTheOrders",
                         Layout(4, 1, 4, {{"mix", "new_order"}, {"remote_lines", "10"}, {"rollback", "50"}}),
                         2, true}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(TpccCluster, Run_OwnWarehousesStayWithTheirWorker) {
  InProcessCluster cluster(TpccCluster(Layout(
      2, 2, 4, {{"warehouses", "own"}, {"remote_lines", "0"}, {"remote_payments", "0"}, {"rollback", "0"}})));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 1000, 1));
  EXPECT_EQ(AuditOf(cluster), 0u);
  const InProcessCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.multisite + totals.distributed, 0u);
  EXPECT_EQ(totals.aborted + totals.unknown, 0u) << "nobody meets anybody";
}

}  // namespace
}  // namespace islands::experiments
