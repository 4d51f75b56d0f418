// The same islands and the same bank on real threads: what the data-race detector looks at. Histories of such
// threads are judged in experiments/append/.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "instance/simulation/bank.h"
#include "instance/simulation/threaded_cluster_testing.h"

namespace islands::simulation {
namespace {

using OpenWorkload = std::shared_ptr<const instance::Workload> (*)(const storage::Catalog&);
using Node = ThreadedCluster::Node;

SimOptions Options(uint32_t islands, uint32_t workers, OpenWorkload open = OpenBank,
                   uint64_t transaction_timeout_ms = 0) {
  SimOptions options;
  options.islands = islands;
  options.workers = workers;
  options.transaction_timeout_ms = transaction_timeout_ms;
  options.table = BankTable();
  options.open = open;
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
  const auto open = [](const storage::Catalog&) -> std::shared_ptr<const instance::Workload> {
    return std::make_shared<Endless>();
  };
  ThreadedCluster cluster(Options(2, 1, open, /*transaction_timeout_ms=*/100));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.Run(2, 500).ok());
  const auto committed = [&](uint32_t island, int scope) {
    return cluster.nodes()[island].island->TakeSnapshot().workers(0).scopes(scope).committed();
  };
  const control::v1::Snapshot snapshot = cluster.nodes()[0].island->TakeSnapshot();
  EXPECT_EQ(committed(0, 0), 0u);
  EXPECT_GT(snapshot.workers(0).aborts_by_reason().at("deadline"), 0u);
  EXPECT_GT(committed(1, 2), 10u) << "transactions of the other island that read a row here";
}

TEST(Threads, Transfers_ConserveMoneyAndLeaveNothing) {
  ThreadedCluster cluster(Options(2, 2));
  ASSERT_TRUE(cluster.Start().ok());
  for (int round = 0; round < 2; ++round) ASSERT_TRUE(cluster.Run(4, 500).ok());
  EXPECT_TRUE(cluster.BecomesQuiet());
  int64_t sum = 0;
  int64_t deposited = 0;
  uint64_t committed = 0;
  for (Node& node : cluster.nodes()) {
    sum += node.island->Audit({})->value();
    const control::v1::Snapshot snapshot = node.island->TakeSnapshot();
    deposited += snapshot.audit_committed();
    for (const auto& worker : snapshot.workers()) committed += worker.scopes(2).committed();
  }
  EXPECT_EQ(sum, kAccounts * kOpeningBalance + deposited);
  EXPECT_GT(committed, 0u) << "no distributed transaction committed";
}

TEST(Threads, Load_WaitsForNobodyAndResetsTheRows) {
  ThreadedCluster cluster(Options(2, 2));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.Run(2, 100).ok());
  control::v1::LoadSpec load;
  load.set_workload("simulated");
  int64_t sum = 0;
  for (Node& node : cluster.nodes()) {
    absl::Status status = node.island->Load(load);
    for (int tries = 0; !status.ok() && tries < 100;
         ++tries) {  // the other side's last branches may still be open
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      status = node.island->Load(load);
    }
    ASSERT_TRUE(status.ok()) << status;
    sum += node.island->Audit({})->value();
  }
  EXPECT_EQ(sum, kAccounts * kOpeningBalance);
  EXPECT_TRUE(cluster.Run(2, 100).ok());
}

}  // namespace
}  // namespace islands::simulation
