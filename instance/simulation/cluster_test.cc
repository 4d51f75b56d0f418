// The cluster of the product under simulated time, network and process deaths. A failure prints its seed;
// running the same test again with --gtest_filter repeats it.
#include <gtest/gtest.h>

#include "instance/simulation/bank.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

using runtime::kNsPerMs;
using runtime::kNsPerSecond;

constexpr int64_t kOpeningSum = kAccounts * kOpeningBalance;

SimOptions Options(uint64_t seed, uint32_t islands, uint32_t workers) {
  SimOptions options;
  options.seed = seed;
  options.islands = islands;
  options.workers = workers;
  *options.config.add_tables() = BankTable();
  options.open = OpenBank;
  return options;
}

void ExpectNothingLeft(const SimCluster::Totals& totals) {
  EXPECT_EQ(totals.locks_held, 0u);
  EXPECT_EQ(totals.branches_open, 0u);
}

TEST(Cluster, Transfers_ConserveMoneyWithoutFaults) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SimCluster cluster(Options(seed, 1 + seed % 4, 1 + seed % 2));
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(1 + seed % 5).ok());
    // Longer than a lock timeout: deadlocks over several islands end by it.
    cluster.RunFor(400 * kNsPerMs);
    ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
    const SimCluster::Totals totals = cluster.Sum();
    ExpectNothingLeft(totals);
    EXPECT_GT(totals.committed, 200u);
    EXPECT_EQ(totals.unknown, 0u);
    EXPECT_EQ(totals.audit_sum, kOpeningSum + totals.audit_committed);
    if (seed % 4 != 0) {
      EXPECT_GT(totals.distributed, 50u);
    }
  }
}

TEST(Cluster, SameSeed_SameTrace) {
  const auto run = [] {
    SimCluster cluster(Options(42, 3, 2));
    EXPECT_TRUE(cluster.Start().ok());
    EXPECT_TRUE(cluster.StartRun(4).ok());
    cluster.RunFor(20 * kNsPerMs);
    cluster.Crash(1);
    cluster.RunFor(50 * kNsPerMs);
    return std::pair(cluster.trace(), cluster.Sum().committed);
  };
  EXPECT_EQ(run(), run());
}

// A killed island takes its transactions with it; the others answer theirs in time, hold nothing, and go on
// serving.
TEST(Cluster, Crash_SurvivorsAnswerAndReleaseAndServe) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SimCluster cluster(Options(seed, 3, 1 + seed % 2));
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(4).ok());
    cluster.RunFor(static_cast<int64_t>(5 + cluster.random().Below(30)) * kNsPerMs);
    const auto victim = static_cast<uint32_t>(cluster.random().Below(3));
    cluster.Crash(victim);
    const SimCluster::Totals before = cluster.Sum();
    cluster.RunFor(200 * kNsPerMs);
    EXPECT_GT(cluster.Sum().committed, before.committed) << "survivors stopped serving";
    // Branches whose coordinator is proven dead do not wait for anything (durability none).
    ASSERT_TRUE(cluster.Drain(5 * kNsPerSecond));
    ExpectNothingLeft(cluster.Sum());
  }
}

TEST(Cluster, Restart_IslandRejoinsAndDistributedTransactionsCommitAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SimCluster cluster(Options(seed, 3, 1));
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(4).ok());
    cluster.RunFor(20 * kNsPerMs);
    cluster.Crash(1);
    cluster.RunFor(static_cast<int64_t>(cluster.random().Below(300)) * kNsPerMs);
    ASSERT_TRUE(cluster.Restart(1).ok());
    cluster.RunFor(kNsPerSecond);
    ASSERT_TRUE(cluster.StartRun(4).ok());
    const SimCluster::Totals before = cluster.Sum();
    // Long enough for deadlocks over two islands, which end by the lock timeout.
    cluster.RunFor(kNsPerSecond);
    EXPECT_GT(cluster.Sum().distributed, before.distributed + 50);
    ASSERT_TRUE(cluster.Drain(15 * kNsPerSecond));
    ExpectNothingLeft(cluster.Sum());
  }
}

TEST(Cluster, Partition_HealsWithoutLosingMoney) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SimCluster cluster(Options(seed, 3, 1));
    ASSERT_TRUE(cluster.Start().ok());
    ASSERT_TRUE(cluster.StartRun(4).ok());
    for (int round = 0; round < 3; ++round) {
      cluster.RunFor(20 * kNsPerMs);
      cluster.hub().Partition(0, 1 + static_cast<uint32_t>(cluster.random().Below(2)));
      cluster.RunFor(static_cast<int64_t>(cluster.random().Below(300)) * kNsPerMs);
      cluster.hub().HealAll();
    }
    cluster.RunFor(600 * kNsPerMs);
    ASSERT_TRUE(cluster.Drain(15 * kNsPerSecond));
    const SimCluster::Totals totals = cluster.Sum();
    ExpectNothingLeft(totals);
    // Nobody died, so what was in doubt was resolved: only deposits whose outcome the client never learned
    // are uncertain.
    if (totals.unknown == 0) {
      EXPECT_EQ(totals.audit_sum, kOpeningSum + totals.audit_committed);
    }
  }
}

}  // namespace
}  // namespace islands::simulation
