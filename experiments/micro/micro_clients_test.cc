// Clients of a whole deployment (instance/worker/arrivals.h), on simulated islands: as many as there were,
// whatever happens but the death of islands, and most of them where the hot rows are.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "experiments/micro/micro.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::experiments {
namespace {

constexpr uint32_t kIslands = 3;
constexpr uint32_t kMpl = 4;

class MicroClients : public testing::Test {
 protected:
  static instance::ClusterOptions Options(const std::string& zipf, const std::string& drift) {
    instance::ClusterOptions options;
    options.pace = instance::Pace::kSimulated;
    options.islands = kIslands;
    options.workers_of = {1, 2, 1};
    options.sites = 6;
    control::v1::TableSpec& table = *options.config.add_tables();
    table.set_name(kMicroTable);
    table.add_key("uint64");
    table.set_range_end(6'000);
    table.set_row_bytes(64);
    options.open = [zipf, drift](const storage::Catalog& catalog) {
      return MicroWorkload::Create(catalog, {{"op", "update"},
                                             {"rows", "2"},
                                             {"multisite", "20"},
                                             {"zipf", zipf},
                                             {"skew", "table"},
                                             {"drift", drift}});
    };
    return options;
  }
  void Begin(const std::string& zipf, double rate_per_s = 0, const std::string& drift = "0") {
    cluster_ = std::make_unique<instance::InProcessCluster>(Options(zipf, drift));
    ASSERT_TRUE(cluster_->Start().ok());
    StartRun(rate_per_s);
  }
  void StartRun(double rate_per_s = 0) {
    control::v1::StartRun request;
    request.set_run_id(7);
    request.set_mpl(kMpl);
    request.set_seed(1);
    request.set_anywhere(true);
    request.set_rate_per_s(rate_per_s);
    request.set_began_ns(cluster_->NowNs());
    const absl::Status started = cluster_->StartRun(request);
    ASSERT_TRUE(started.ok()) << started;
  }
  size_t Here() const {
    size_t here = 0;
    for (uint32_t i = 0; i < kIslands; ++i) {
      if (!cluster_->alive(i)) continue;
      for (const auto& worker : cluster_->island(i).workers()) here += worker->clients().here();
    }
    return here;
  }
  uint64_t CommittedBy(uint32_t island) const {
    uint64_t committed = 0;
    for (const auto& worker : cluster_->island(island).workers()) {
      for (const instance::ScopeCounters& scope : worker->counters().scopes)
        committed += scope.committed.Get();
    }
    return committed;
  }
  void ExpectSound() {
    ASSERT_TRUE(cluster_->Drain(5 * runtime::kNsPerSecond));
    const instance::InProcessCluster::Totals totals = cluster_->Sum();
    EXPECT_EQ(totals.audit_sum, totals.audit_committed);
  }

  std::unique_ptr<instance::InProcessCluster> cluster_;
};

TEST_F(MicroClients, Skewed_CrowdAtTheHotIslandAndNobodyIsForgotten) {
  ASSERT_NO_FATAL_FAILURE(Begin("1"));
  constexpr size_t kPopulation = 4 * kMpl;  // of four workers
  cluster_->Step();
  size_t seen_all = 0, hot_waits = 0, others_wait = 0, steps = 0;
  const int64_t until_ns = cluster_->NowNs() + 200 * runtime::kNsPerMs;
  for (; cluster_->NowNs() < until_ns; ++steps) {
    cluster_->Step();
    ASSERT_LE(Here(), kPopulation);
    seen_all += Here() == kPopulation;  // nobody is on the way
    hot_waits += cluster_->island(0).workers()[0]->counters().clients_waiting.Get();
    others_wait += cluster_->island(2).workers()[0]->counters().clients_waiting.Get();
  }
  EXPECT_GT(seen_all, 10u);
  // H(2,000) / H(6,000) = 0.88 of the transactions begin on island 0, which has one worker of four.
  const auto hot = static_cast<double>(CommittedBy(0)), all = static_cast<double>(cluster_->Committed());
  EXPECT_GT(all, 1'000);
  EXPECT_NEAR(hot / all, 0.88, 0.04);
  EXPECT_GT(hot_waits, 5 * steps);  // clients, each time
  // Whoever has come in this round counts, and goes to a slot in it: at most one, on average.
  EXPECT_LT(others_wait, steps);
  ExpectSound();
}

// 2,000 rows, an island's, each 100 ms: who is hot is another island each time, and the first one again; and
// the same once more, for the clock is the simulation's.
TEST_F(MicroClients, Drift_TakesTheCrowdFromIslandToIsland) {
  std::vector<uint64_t> first_run;
  for (int run = 0; run < 2; ++run) {
    ASSERT_NO_FATAL_FAILURE(Begin("1.2", /*rate_per_s=*/0, /*drift=*/"20000"));
    std::vector<uint64_t> counts;
    for (uint32_t leg = 0; leg < 4; ++leg) {
      uint64_t before[kIslands];
      for (uint32_t i = 0; i < kIslands; ++i) before[i] = CommittedBy(i);
      cluster_->RunFor(100 * runtime::kNsPerMs);
      for (uint32_t i = 0; i < kIslands; ++i) counts.push_back(CommittedBy(i) - before[i]);
      const uint64_t* of_leg = &counts[size_t{leg} * kIslands];
      EXPECT_EQ(std::max_element(of_leg, of_leg + kIslands) - of_leg, leg % kIslands) << "leg " << leg;
    }
    ExpectSound();
    if (run == 0) first_run = counts;
    EXPECT_EQ(counts, first_run);
  }
}

TEST_F(MicroClients, Uniform_SharesTheLoad) {
  ASSERT_NO_FATAL_FAILURE(Begin("0"));
  cluster_->RunFor(200 * runtime::kNsPerMs);
  const auto all = static_cast<double>(cluster_->Committed());
  for (uint32_t i = 0; i < kIslands; ++i)
    EXPECT_NEAR(static_cast<double>(CommittedBy(i)) / all, 1.0 / 3, 0.05) << "island " << i;
  ExpectSound();
}

TEST_F(MicroClients, IslandThatDies_TakesItsClientsAndBringsNewOnes) {
  ASSERT_NO_FATAL_FAILURE(Begin("1"));
  cluster_->RunFor(50 * runtime::kNsPerMs);
  cluster_->Crash(0);
  cluster_->RunFor(200 * runtime::kNsPerMs);
  EXPECT_LT(Here(), size_t{4 * kMpl});
  ASSERT_TRUE(cluster_->Restart(0).ok());
  StartRun();
  EXPECT_TRUE(cluster_->RunUntil([this] { return CommittedBy(0) > 100; }, 5 * runtime::kNsPerSecond));
  EXPECT_GE(Here(), 1u);
  EXPECT_LE(Here(), size_t{5 * kMpl});
  ASSERT_TRUE(cluster_->Drain(5 * runtime::kNsPerSecond));
}

TEST_F(MicroClients, Rate_IsKeptAndGoesWhereTheRowsAre) {
  ASSERT_NO_FATAL_FAILURE(Begin("1", /*rate_per_s=*/2'000));
  cluster_->RunFor(runtime::kNsPerSecond);
  const auto all = static_cast<double>(cluster_->Committed());
  EXPECT_NEAR(all, 2'000, 250);  // five standard deviations
  EXPECT_NEAR(static_cast<double>(CommittedBy(0)) / all, 0.88, 0.04);
  ExpectSound();
}

}  // namespace
}  // namespace islands::experiments
