// The microbenchmark on an island with several workers, on threads of their own: whether what commits adds
// up. With the engine that has planted bugs it has to find that locks are granted to everybody
// (instance/simulation/planted).
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "experiments/micro/micro.h"
#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"

namespace islands::experiments {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr int64_t kRows = 16;        // few, so that workers meet
constexpr int64_t kEnough = 10'000;  // changes of a row

control::v1::IslandConfig Configure() {
  control::v1::IslandConfig config;
  config.set_cluster_id("threads");
  config.set_deployment("threads");
  config.set_boot_epoch(1);
  config.set_layout_generation(1);
  config.set_pool_bytes(4u << 20);
  config.set_site_count(1);
  control::v1::Peer* self = config.add_peers();
  self->set_workers(kWorkers);
  self->mutable_sites()->set_count(1);
  for (uint32_t worker = 0; worker < kWorkers; ++worker) config.add_workers()->set_cpu(-1);
  control::v1::TableSpec* table = config.add_tables();
  table->set_name(kMicroTable);
  table->add_key("uint64");
  table->set_range_end(kRows);
  table->set_row_bytes(kMicroRowBytes);
  config.add_loads()->set_workload("micro");
  return config;
}

class MicroThreads : public testing::TestWithParam<const char*> {};

TEST_P(MicroThreads, Run_CountersAddUpToWhatCommitted) {
  const instance::Parameters parameters = {{"op", GetParam()}, {"rows", "3"}};
  const runtime::MonotonicClock clock;
  const std::unique_ptr<runtime::FileSystem> files = runtime::MakeMemoryFileSystem();
  messaging::MemoryHub hub;
  const std::unique_ptr<runtime::Scheduler> scheduler = runtime::MakeThreadScheduler(clock, {});
  instance::Seams seams;
  seams.clock = &clock;
  seams.files = files.get();
  seams.scheduler = scheduler.get();
  seams.make_transport = [&](messaging::Address self) { return hub.MakeTransport(self); };
  seams.open_workload = [&](const std::string&, const storage::Catalog& catalog,
                            const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
    return MicroWorkload::Create(catalog, parameters);
  };
  const auto created = instance::Island::Create(Configure(), seams);
  ASSERT_TRUE(created.ok()) << created.status();
  instance::Island& island = **created;
  ASSERT_TRUE(island.Start().ok());
  control::v1::StartRun request;
  request.set_mpl(4);
  request.set_seed(1);
  ASSERT_TRUE(island.StartRun(request).ok());
  // On a busy machine four workers that share a core do little in a given time.
  for (int ms = 0; ms < 30'000 && (ms < 200 || island.TakeSnapshot().audit_committed() < kEnough); ms += 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(island.StopRun(0, 30 * runtime::kNsPerSecond).ok());
  const auto audit = island.Audit({});
  ASSERT_TRUE(audit.ok()) << audit.status();
  EXPECT_EQ(audit->value(), island.TakeSnapshot().audit_committed()) << "updates were lost";
  EXPECT_GE(audit->value(), kEnough);
  island.Stop();
}

INSTANTIATE_TEST_SUITE_P(Ops, MicroThreads, testing::Values("update", "add"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace islands::experiments
