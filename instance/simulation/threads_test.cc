// The same islands and the same bank on real threads: what the data-race detector looks at.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "instance/messaging/memory_transport.h"
#include "instance/simulation/bank.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

struct Node {
  std::unique_ptr<runtime::Scheduler> scheduler;
  std::unique_ptr<instance::Island> island;
};

using OpenWorkload = std::shared_ptr<const instance::Workload> (*)(const storage::Catalog&);

class ThreadedCluster {
 public:
  ThreadedCluster(uint32_t islands, uint32_t workers, OpenWorkload open = OpenBank,
                  uint64_t transaction_timeout_ms = 0)
      : nodes_(islands) {
    SimOptions options;
    options.islands = islands;
    options.workers = workers;
    options.transaction_timeout_ms = transaction_timeout_ms;
    options.table = BankTable();
    for (uint32_t i = 0; i < islands; ++i) {
      nodes_[i].scheduler = runtime::MakeThreadScheduler(clock_, {});
      instance::Seams seams;
      seams.clock = &clock_;
      seams.files = files_.get();
      seams.scheduler = nodes_[i].scheduler.get();
      seams.make_transport =
          [this](messaging::Address self) -> absl::StatusOr<std::unique_ptr<messaging::Transport>> {
        return hub_.MakeTransport(self);
      };
      seams.open_workload = [open](const std::string&, const storage::Catalog& catalog,
                                   const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
        return open(catalog);
      };
      auto island = instance::Island::Create(ConfigOf(options, i, /*boot_epoch=*/1), seams);
      EXPECT_TRUE(island.ok()) << island.status();
      nodes_[i].island = *std::move(island);
      EXPECT_TRUE(nodes_[i].island->Start().ok());
    }
  }
  ~ThreadedCluster() {
    for (Node& node : nodes_) node.island->Stop();
  }

  void Run(uint32_t mpl, int milliseconds) {
    control::v1::StartRun request;
    request.set_mpl(mpl);
    request.set_seed(7);
    for (Node& node : nodes_) ASSERT_TRUE(node.island->StartRun(request).ok());
    for (int ms = 0; ms < milliseconds; ms += 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      for (Node& node : nodes_) {  // as control and metrics threads do all the time
        (void)node.island->TakeSnapshot();
        (void)node.island->Status();
      }
    }
    for (Node& node : nodes_) node.island->RequestStop();
    for (Node& node : nodes_) ASSERT_TRUE(node.island->StopRun(0, 30 * runtime::kNsPerSecond).ok());
  }

  bool Quiet() {
    for (Node& node : nodes_) {
      const control::v1::Snapshot snapshot = node.island->TakeSnapshot();
      if (snapshot.locks_held() != 0 || snapshot.branches_open() != 0) return false;
    }
    return true;
  }
  std::vector<Node>& nodes() { return nodes_; }

 private:
  const runtime::MonotonicClock clock_;
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  messaging::MemoryHub hub_;
  std::vector<Node> nodes_;
};

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
  ThreadedCluster cluster(2, 1, open, /*transaction_timeout_ms=*/100);
  cluster.Run(2, 500);
  const auto committed = [&](uint32_t island, int scope) {
    return cluster.nodes()[island].island->TakeSnapshot().workers(0).scopes(scope).committed();
  };
  const control::v1::Snapshot snapshot = cluster.nodes()[0].island->TakeSnapshot();
  EXPECT_EQ(committed(0, 0), 0u);
  EXPECT_GT(snapshot.workers(0).aborts_by_reason().at("deadline"), 0u);
  EXPECT_GT(committed(1, 2), 10u) << "transactions of the other island that read a row here";
}

TEST(Threads, Transfers_ConserveMoneyAndLeaveNothing) {
  ThreadedCluster cluster(2, 2);
  for (int round = 0; round < 2; ++round) cluster.Run(4, 500);
  for (int wait = 0; wait < 1000 && !cluster.Quiet(); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(cluster.Quiet());
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
  ThreadedCluster cluster(2, 2);
  cluster.Run(2, 100);
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
  cluster.Run(2, 100);
}

}  // namespace
}  // namespace islands::simulation
