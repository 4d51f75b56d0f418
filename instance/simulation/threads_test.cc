// The same islands and the same bank on real threads: what the data-race detector looks at. Histories of such
// threads are judged in experiments/append/.
#include <gtest/gtest.h>

#include "instance/simulation/bank.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::simulation {
namespace {

using instance::InProcessCluster;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;

instance::ClusterOptions TwoIslands(uint32_t workers) {
  instance::ClusterOptions options;
  options.islands = 2;
  options.workers = workers;
  *options.config.add_tables() = BankTable();
  options.open = OpenBank;
  return options;
}

// Every transaction of island 0 reads its own rows for ever, and never waits for anything; those of the
// others read one row of island 0.
class Endless final : public instance::Workload {
 public:
  const char* name() const override { return "endless"; }
  std::vector<std::string> tables() const override { return {}; }
  absl::Status Load(instance::Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Turns>(context.island == 0);
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    while (true) {
      transaction.batch().Clear();
      transaction.batch().Read(0, partitioner::Uint64Key(0));
      runtime::Task<absl::Status> read = transaction.Execute(transaction.batch());
      absl::Status status = co_await read;
      if (!status.ok() || !static_cast<const Turn&>(request).endless) co_return status;
    }
  }

 private:
  struct Turn final : instance::Request {
    bool endless = false;
  };
  class Turns final : public instance::Generator {
   public:
    explicit Turns(bool endless) : endless_(endless) {}
    std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Turn>(); }
    void Next(runtime::Random&, instance::Request& request) override {
      static_cast<Turn&>(request).endless = endless_;
    }

   private:
    const bool endless_;
  };
};

// A deadline binds transactions that never wait, and they do not keep their worker from others' messages.
TEST(Threads, EndlessTransactions_EndByTheirDeadlineAndLetOthersThrough) {
  instance::ClusterOptions options = TwoIslands(1);
  options.config.set_transaction_timeout_ms(100);
  options.open = [](const storage::Catalog&) { return std::make_shared<Endless>(); };
  InProcessCluster cluster(options);
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(2).ok());
  cluster.RunFor(500 * kNsPerMs);
  EXPECT_TRUE(cluster.Drain(30 * kNsPerSecond));
  const instance::WorkerCounters& endless = cluster.island(0).workers()[0]->counters();
  EXPECT_EQ(endless.scopes[0].committed.Get(), 0u);
  EXPECT_GT(endless.aborts[static_cast<size_t>(instance::AbortReason::kDeadline)].Get(), 0u);
  EXPECT_GT(cluster.island(1).workers()[0]->counters().scopes[2].committed.Get(), 10u)
      << "transactions of the other island that read a row here";
}

TEST(Threads, Transfers_ConserveMoneyAndLeaveNothing) {
  instance::ClusterOptions options = TwoIslands(2);
  options.spin_ns = runtime::ThreadSchedulerOptions().spin_ns;
  InProcessCluster cluster(options);
  ASSERT_TRUE(cluster.Start().ok());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(cluster.StartRun(4).ok());
    cluster.RunFor(500 * kNsPerMs);
    EXPECT_TRUE(cluster.Drain(30 * kNsPerSecond));
  }
  const InProcessCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum, kAccounts * kOpeningBalance + totals.audit_committed);
  EXPECT_GT(totals.distributed, 0u) << "no distributed transaction committed";
}

// Whoever sees that a run has ended may let go of its workload: nobody but the atomic itself says so here.
TEST(Threads, Runs_FollowEachOtherAtOnce) {
  InProcessCluster cluster(TwoIslands(2));
  ASSERT_TRUE(cluster.Start().ok());
  const auto over = [&] { return !cluster.island(0).Running() && !cluster.island(1).Running(); };
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(cluster.StartRun(2).ok());
    cluster.RequestStop();
    ASSERT_TRUE(cluster.RunUntil(over, 30 * kNsPerSecond));
  }
  EXPECT_TRUE(cluster.Drain(30 * kNsPerSecond));
}

TEST(Threads, Load_WaitsForNobodyAndResetsTheRows) {
  InProcessCluster cluster(TwoIslands(2));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(2).ok());
  cluster.RunFor(100 * kNsPerMs);
  for (uint32_t i = 0; i < cluster.islands(); ++i) {
    ASSERT_TRUE(cluster.island(i).StopRun(0, 30 * kNsPerSecond).ok());
  }
  for (uint32_t i = 0; i < cluster.islands(); ++i) {
    absl::Status status;
    const auto loaded = [&] {
      status = cluster.island(i).Load(cluster.island(i).config().loads(0));
      return status.ok();
    };
    // The other side's last branches may still be open.
    EXPECT_TRUE(cluster.RunUntil(loaded, kNsPerSecond)) << status;
  }
  EXPECT_EQ(cluster.Sum().audit_sum, kAccounts * kOpeningBalance);
  ASSERT_TRUE(cluster.StartRun(2).ok());
  cluster.RunFor(100 * kNsPerMs);
  EXPECT_TRUE(cluster.Drain(30 * kNsPerSecond));
}

}  // namespace
}  // namespace islands::simulation
