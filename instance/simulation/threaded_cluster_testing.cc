#include "instance/simulation/threaded_cluster_testing.h"

#include <chrono>
#include <thread>
#include <utility>

namespace islands::simulation {
namespace {

void SleepMs(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

ThreadedCluster::ThreadedCluster(SimOptions options)
    : options_(std::move(options)), files_(runtime::MakeMemoryFileSystem()), nodes_(options_.islands) {}

ThreadedCluster::~ThreadedCluster() {
  for (Node& node : nodes_) {
    if (node.island != nullptr) node.island->Stop();
  }
}

absl::Status ThreadedCluster::Start() {
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].scheduler = runtime::MakeThreadScheduler(clock_, {});
    instance::Seams seams;
    seams.clock = &clock_;
    seams.files = files_.get();
    seams.scheduler = nodes_[i].scheduler.get();
    seams.make_transport =
        [this](messaging::Address self) -> absl::StatusOr<std::unique_ptr<messaging::Transport>> {
      return hub_.MakeTransport(self);
    };
    seams.open_workload = [this](const std::string&, const storage::Catalog& catalog,
                                 const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
      return options_.open(catalog);
    };
    auto island = instance::Island::Create(ConfigOf(options_, i, /*boot_epoch=*/1), seams);
    if (!island.ok()) return island.status();
    nodes_[i].island = *std::move(island);
    if (absl::Status started = nodes_[i].island->Start(); !started.ok()) return started;
  }
  return absl::OkStatus();
}

absl::Status ThreadedCluster::Run(uint32_t mpl, int milliseconds) {
  control::v1::StartRun request;
  request.set_mpl(mpl);
  request.set_seed(7);
  for (Node& node : nodes_) {
    if (absl::Status started = node.island->StartRun(request); !started.ok()) return started;
  }
  for (int ms = 0; ms < milliseconds; ms += 10) {
    SleepMs(10);
    for (Node& node : nodes_) {  // as control and metrics threads do
      (void)node.island->TakeSnapshot();
      (void)node.island->Status();
    }
  }
  for (Node& node : nodes_) node.island->RequestStop();
  absl::Status status;
  for (Node& node : nodes_) status.Update(node.island->StopRun(0, 30 * runtime::kNsPerSecond));
  return status;
}

bool ThreadedCluster::BecomesQuiet() {
  for (int wait = 0; wait < 1000 && !Quiet(); ++wait) SleepMs(10);
  return Quiet();
}

bool ThreadedCluster::Quiet() {
  for (Node& node : nodes_) {
    const control::v1::Snapshot snapshot = node.island->TakeSnapshot();
    if (snapshot.locks_held() != 0 || snapshot.branches_open() != 0) return false;
  }
  return true;
}

}  // namespace islands::simulation
