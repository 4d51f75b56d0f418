#include "experiments/micro/local_path.h"

#include <fmt/format.h>
#include <time.h>

#include "experiments/micro/count_allocations.h"
#include "experiments/micro/micro.h"
#include "instance/island/island.h"
#include "instance/messaging/memory_transport.h"

namespace islands::experiments {
namespace {

// Its workers run when somebody calls them.
class Stepped final : public runtime::Scheduler {
 public:
  void Start(std::vector<runtime::Runnable*> workers) override {
    for (runtime::Runnable* worker : workers) worker->OnThreadStart();
  }
  void Stop() override {}
};

control::v1::IslandConfig Configure(const LocalPathOptions& options) {
  control::v1::IslandConfig config;
  config.set_cluster_id("bench");
  config.set_deployment("bench");
  config.set_boot_epoch(1);
  config.set_layout_generation(1);
  config.set_pool_bytes(options.range * 512 + (64u << 20));
  config.set_site_count(options.sites);
  config.set_always_latched(options.locks);
  control::v1::Peer* self = config.add_peers();
  self->set_workers(1);
  self->mutable_sites()->set_count(options.sites);
  config.add_workers()->set_cpu(-1);
  control::v1::TableSpec* table = config.add_tables();
  table->set_name("micro");
  table->add_key("uint64");
  table->set_range_end(static_cast<int64_t>(options.range));
  table->set_row_bytes(kMicroRowBytes);
  config.add_loads()->set_workload("micro");
  return config;
}

// Of this thread, so that whoever else wants the core does not count: nothing here waits.
int64_t CpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * runtime::kNsPerSecond + time.tv_nsec;
}

}  // namespace

struct LocalPath::Impl {
  explicit Impl(LocalPathOptions o) : options(std::move(o)) {}

  const LocalPathOptions options;
  const runtime::MonotonicClock clock;
  const std::unique_ptr<runtime::FileSystem> files = runtime::MakeMemoryFileSystem();
  messaging::MemoryHub hub;
  Stepped scheduler;
  std::unique_ptr<instance::Island> island;
};

LocalPath::LocalPath(LocalPathOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
LocalPath::~LocalPath() = default;

absl::Status LocalPath::Open() {
  const instance::Parameters parameters = {{"op", impl_->options.op},
                                           {"rows", fmt::format("{}", impl_->options.rows)},
                                           {"zipf", fmt::format("{}", impl_->options.zipf)}};
  instance::Seams seams;
  seams.clock = &impl_->clock;
  seams.files = impl_->files.get();
  seams.scheduler = &impl_->scheduler;
  seams.make_transport = [this](messaging::Address self) { return impl_->hub.MakeTransport(self); };
  seams.open_workload = [parameters](
                            const std::string&, const storage::Catalog& catalog,
                            const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
    return MicroWorkload::Create(catalog, parameters);
  };
  absl::StatusOr<std::unique_ptr<instance::Island>> island =
      instance::Island::Create(Configure(impl_->options), seams);
  if (!island.ok()) return island.status();
  impl_->island = *std::move(island);
  if (absl::Status status = impl_->island->Start(); !status.ok()) return status;
  control::v1::StartRun request;
  request.set_mpl(impl_->options.mpl);
  request.set_seed(1);
  return impl_->island->StartRun(request);
}

LocalPath::Measured LocalPath::Run(uint64_t transactions) {
  instance::Worker& worker = *impl_->island->workers().front();
  const instance::Counter& committed = worker.counters().scopes[0].committed;
  const uint64_t before = committed.Get();
  const uint64_t allocated = AllocationsSoFar();
  const int64_t begun_ns = CpuNs();
  while (committed.Get() - before < transactions) worker.RunOnce();
  const double seconds = static_cast<double>(CpuNs() - begun_ns) / 1e9;
  const auto done = static_cast<double>(committed.Get() - before);
  return {done / seconds, static_cast<double>(AllocationsSoFar() - allocated) / done};
}

}  // namespace islands::experiments
