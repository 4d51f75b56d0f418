// What a local transaction of the microbenchmark costs: one island with one worker, stepped by this thread,
// no peers. Prints transactions per second and heap allocations per transaction after warm-up.
//
//   local_path_bench [--op read|update] [--rows N] [--range N] [--sites N] [--mpl N] [--zipf S] [--locks]
//                    [--transactions N] [--repeat N] [--json]
//
// For instruction counts: valgrind --tool=callgrind --toggle-collect='*Worker::RunOnce*' with a fixed number
// of transactions.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/micro/count_allocations.h"
#include "experiments/micro/micro.h"
#include "instance/island.h"
#include "instance/messaging/memory_transport.h"

namespace islands::experiments {
namespace {

struct Options {
  std::string op = "read";
  uint32_t rows = 10;
  uint64_t range = 240'000;
  uint32_t sites = 1;
  uint32_t mpl = 32;
  double zipf = 0;
  bool locks = false;
  uint64_t transactions = 500'000;
  uint32_t repeat = 3;
  bool json = false;
};

// Its workers run when somebody calls them.
class Stepped final : public runtime::Scheduler {
 public:
  void Start(std::vector<runtime::Runnable*> workers) override {
    for (runtime::Runnable* worker : workers) worker->OnThreadStart();
  }
  void Stop() override {}
};

control::v1::IslandConfig Configure(const Options& options) {
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

class LocalPath {
 public:
  explicit LocalPath(const Options& options) : options_(options) {}

  absl::Status Open() {
    const instance::Parameters parameters = {{"op", options_.op},
                                             {"rows", fmt::format("{}", options_.rows)},
                                             {"zipf", fmt::format("{}", options_.zipf)}};
    instance::Seams seams;
    seams.clock = &clock_;
    seams.files = files_.get();
    seams.scheduler = &scheduler_;
    seams.make_transport = [this](messaging::Address self) { return hub_.MakeTransport(self); };
    seams.open_workload = [parameters](
                              const std::string&, const storage::Catalog& catalog,
                              const instance::Parameters&) -> absl::StatusOr<instance::OpenedWorkload> {
      return MicroWorkload::Create(catalog, parameters);
    };
    absl::StatusOr<std::unique_ptr<instance::Island>> island =
        instance::Island::Create(Configure(options_), seams);
    if (!island.ok()) return island.status();
    island_ = *std::move(island);
    if (absl::Status status = island_->Start(); !status.ok()) return status;
    control::v1::StartRun request;
    request.set_mpl(options_.mpl);
    request.set_seed(1);
    return island_->StartRun(request);
  }

  struct Measured {
    double per_second;
    double allocations;
  };
  Measured Run(uint64_t transactions) {
    instance::Worker& worker = *island_->workers().front();
    const instance::Counter& committed = worker.counters().scopes[0].committed;
    const uint64_t before = committed.Get();
    const uint64_t allocated = AllocationsSoFar();
    const int64_t begun_ns = CpuNs();
    while (committed.Get() - before < transactions) worker.RunOnce();
    const double seconds = static_cast<double>(CpuNs() - begun_ns) / 1e9;
    const auto done = static_cast<double>(committed.Get() - before);
    return {done / seconds, static_cast<double>(AllocationsSoFar() - allocated) / done};
  }

 private:
  const Options options_;
  const runtime::MonotonicClock clock_;
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  messaging::MemoryHub hub_;
  Stepped scheduler_;
  std::unique_ptr<instance::Island> island_;
};

int Main(const Options& options) {
  LocalPath path(options);
  if (absl::Status status = path.Open(); !status.ok()) {
    fmt::print(stderr, "local_path_bench: {}\n", std::string(status.message()));
    return 1;
  }
  path.Run(std::min<uint64_t>(options.transactions, 20'000));  // warm
  std::vector<double> rates;
  double allocated = 0;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    const LocalPath::Measured measured = path.Run(options.transactions);
    rates.push_back(measured.per_second);
    allocated = std::max(allocated, measured.allocations);
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  if (options.json) {
    const nlohmann::json result = {
        {"op", options.op}, {"rows", options.rows}, {"per_second", median}, {"allocations", allocated}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}-{}: {:.0f} transactions/s (from {:.0f} to {:.0f}), {:.4f} allocations per transaction\n",
               options.op, options.rows, median, rates.front(), rates.back(), allocated);
  }
  return 0;
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) {
  islands::experiments::Options options;
  CLI::App app("What a local transaction of the microbenchmark costs on one worker");
  app.add_option("--op", options.op, "read or update")->check(CLI::IsMember({"read", "update"}));
  app.add_option("--rows", options.rows, "rows per transaction")->capture_default_str();
  app.add_option("--range", options.range, "rows of the table")->capture_default_str();
  app.add_option("--sites", options.sites, "sites of the table")->capture_default_str();
  app.add_option("--mpl", options.mpl, "transactions in flight")->capture_default_str();
  app.add_option("--zipf", options.zipf, "skew")->capture_default_str();
  app.add_flag("--locks", options.locks, "take locks and latches as with several workers");
  app.add_option("--transactions", options.transactions, "measured each time")->capture_default_str();
  app.add_option("--repeat", options.repeat, "how often to measure")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON document");
  CLI11_PARSE(app, argc, argv);
  return islands::experiments::Main(options);
}
