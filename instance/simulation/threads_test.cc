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

class ThreadedCluster {
 public:
  ThreadedCluster(uint32_t islands, uint32_t workers) : nodes_(islands) {
    SimOptions options;
    options.islands = islands;
    options.workers = workers;
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
      seams.open_workload = [](const std::string&, const storage::Catalog& catalog,
                               const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
        return OpenBank(catalog);
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
