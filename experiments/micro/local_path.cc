#include "experiments/micro/local_path.h"

#include <fmt/format.h>
#include <time.h>

#include "experiments/micro/count_allocations.h"
#include "experiments/micro/micro.h"

namespace islands::experiments {
namespace {

constexpr size_t kRingBytes = 8 << 20;

instance::ClusterOptions ClusterOf(const LocalPathOptions& options) {
  instance::ClusterOptions cluster;
  cluster.pace = instance::Pace::kStepped;
  cluster.sites = options.sites;
  cluster.config.set_pool_bytes(options.range * 512 + (64u << 20));
  cluster.config.set_always_latched(options.locks);
  control::v1::TableSpec& table = *cluster.config.add_tables();
  table.set_name("micro");
  table.add_key("uint64");
  table.set_range_end(static_cast<int64_t>(options.range));
  table.set_row_bytes(kMicroRowBytes);
  const instance::Parameters parameters = {{"op", options.op},
                                           {"rows", fmt::format("{}", options.rows)},
                                           {"zipf", fmt::format("{}", options.zipf)}};
  cluster.open = [parameters](const storage::Catalog& catalog) {
    return MicroWorkload::Create(catalog, parameters);
  };
  return cluster;
}

// Of this thread, so that whoever else wants the core does not count: nothing here waits.
int64_t CpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * runtime::kNsPerSecond + time.tv_nsec;
}

}  // namespace

LocalPathCluster::LocalPathCluster(instance::ClusterOptions options, bool log)
    : InProcessCluster(std::move(options)) {
  if (!log) return;
  log_.emplace();
  log_->board = &board_;
  log_->make_ring = [this](const log::StreamId& stream) -> absl::StatusOr<std::shared_ptr<log::Ring>> {
    return ring_ = log::Ring::InMemory(stream, kRingBytes);
  };
  log_->read = [](uint32_t, const log::LogPosition&, instance::LogSeam::TakeRecord) {
    return absl::OkStatus();
  };
}

void LocalPathCluster::DrainRing() {
  if (ring_ != nullptr) ring_->SetHead(ring_->tail());
}

instance::Seams LocalPathCluster::SeamsOf(uint32_t island) {
  instance::Seams seams = InProcessCluster::SeamsOf(island);
  if (log_) seams.log = &*log_;
  return seams;
}

LocalPath::LocalPath(const LocalPathOptions& options)
    : mpl_(options.mpl), cluster_(ClusterOf(options), options.log) {}

absl::Status LocalPath::Open() {
  if (absl::Status status = cluster_.Start(); !status.ok()) return status;
  return cluster_.StartRun(mpl_);
}

LocalPath::Measured LocalPath::Run(uint64_t transactions) {
  instance::Worker& worker = *cluster_.island(0).workers().front();
  const instance::Counter& committed = worker.counters().scopes[0].committed;
  const uint64_t before = committed.Get();
  const uint64_t allocated = AllocationsSoFar();
  const int64_t begun_ns = CpuNs();
  while (committed.Get() - before < transactions) {
    worker.RunOnce();
    cluster_.DrainRing();
  }
  const double seconds = static_cast<double>(CpuNs() - begun_ns) / 1e9;
  const auto done = static_cast<double>(committed.Get() - before);
  return {done / seconds, static_cast<double>(AllocationsSoFar() - allocated) / done};
}

}  // namespace islands::experiments
