// What a distributed transaction costs in instructions and allocations: two one-worker islands in one thread,
// ten rows changed per transaction (Batch::Add or Batch::Update), over the in-memory transport.
//
//   build/release/bench/distributed_bench                          time, messages, rounds, allocations
//   valgrind --tool=callgrind --toggle-collect='*RunMeasured*' build/release/bench/distributed_bench
//       --benchmark_filter=Add10/multisite:100/mpl:32 --benchmark_min_time=0
//
// One thread and a clock that is stepped: the same instructions in every run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "instance/testing/in_process_cluster.h"

namespace {
std::atomic<uint64_t> g_allocations{0};
}  // namespace

// Not inlined: GCC would see free() meet memory from the library's operator new, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace islands::simulation {
namespace {

using partitioner::Uint64Key;

constexpr uint64_t kRows = 240'000;
constexpr uint32_t kRowBytes = 250;
constexpr uint32_t kSites = 24;
constexpr uint32_t kIslands = 2;
constexpr size_t kRowsPerTransaction = 10;
constexpr uint64_t kMeasured = 2'000;  // transactions per iteration

struct Keys final : instance::Request {
  std::array<uint64_t, kRowsPerTransaction> keys;
};

class KeyGenerator final : public instance::Generator {
 public:
  KeyGenerator(partitioner::SiteRun sites, uint32_t multisite_percent)
      : sites_(sites), multisite_percent_(multisite_percent) {}
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Keys>(); }
  // As experiments/micro: one site of this island, or one row of it and the others from anywhere.
  void Next(runtime::Random& random, instance::Request& request) override {
    auto& keys = static_cast<Keys&>(request).keys;
    constexpr uint64_t kSiteRows = kRows / kSites;
    const uint64_t home = (sites_.first + random.Below(sites_.count)) * kSiteRows;
    const bool multisite = random.Below(100) < multisite_percent_;
    keys[0] = home + random.Below(kSiteRows);
    for (size_t i = 1; i < keys.size(); ++i) {
      keys[i] = multisite ? random.Below(kRows) : home + random.Below(kSiteRows);
    }
    std::sort(keys.begin(), keys.end());
  }

 private:
  const partitioner::SiteRun sites_;
  const uint32_t multisite_percent_;
};

class Changes final : public instance::Workload {
 public:
  Changes(bool update, uint32_t multisite_percent) : update_(update), multisite_percent_(multisite_percent) {}
  const char* name() const override { return "changes"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(instance::Loader& loader) const override {
    const std::vector<std::byte> row(kRowBytes);
    for (uint64_t i = 0; i < kRows; ++i) {
      if (!loader.Owns(static_cast<uint32_t>(i / (kRows / kSites)))) continue;
      const Uint64Key key(i);
      if (absl::Status status = loader.Insert(0, key, row); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<KeyGenerator>(context.sites, multisite_percent_);
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    instance::Batch& batch = transaction.batch();
    for (const uint64_t key : static_cast<const Keys&>(request).keys) {
      update_ ? batch.Update(0, Uint64Key(key), 0, 1) : batch.Add(0, Uint64Key(key), 0, 1);
    }
    batch.LastElsewhere();
    runtime::Task<absl::Status> execute = transaction.Execute(batch);
    co_return co_await execute;
  }

 private:
  const bool update_;
  const uint32_t multisite_percent_;
};

instance::ClusterOptions TwoIslands(bool update, uint32_t multisite_percent) {
  instance::ClusterOptions options;
  options.pace = instance::Pace::kSimulated;
  options.seed = 0;
  options.islands = kIslands;
  options.sites = kSites;
  options.config.set_pool_bytes(128u << 20);
  control::v1::TableSpec& table = *options.config.add_tables();
  table.set_name("rows");
  table.add_key("uint64");
  table.set_range_end(kRows);
  table.set_row_bytes(kRowBytes);
  options.open = [workload = std::make_shared<Changes>(update, multisite_percent)](const storage::Catalog&) {
    return workload;
  };
  return options;
}

class Measured {
 public:
  Measured(bool update, uint32_t multisite_percent, uint32_t mpl)
      : cluster_(TwoIslands(update, multisite_percent)) {
    Check(cluster_.Start());
    Check(cluster_.StartRun(mpl));
    // Under another name than what is measured, for callgrind's toggle.
    while (Committed() < kMeasured) cluster_.Step();
  }
  ~Measured() { (void)cluster_.Drain(10 * runtime::kNsPerSecond); }

  // Runs until `transactions` more have committed; returns the rounds that took.
  [[gnu::noinline]] uint64_t RunMeasured(uint64_t transactions) {
    const uint64_t until = Committed() + transactions;
    uint64_t rounds = 0;
    for (; Committed() < until; ++rounds) cluster_.Step();
    return rounds;
  }
  uint64_t Committed() const { return cluster_.Committed(); }
  uint64_t Aborted() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < kIslands; ++i) {
      for (const auto& scope : cluster_.island(i).workers()[0]->counters().scopes) sum += scope.aborted.Get();
    }
    return sum;
  }
  uint64_t Messages() const { return Sent(&messaging::PeerTraffic::messages_sent); }
  uint64_t Bytes() const { return Sent(&messaging::PeerTraffic::bytes_sent); }

 private:
  static void Check(const absl::Status& status) {
    if (!status.ok()) std::abort();
  }
  uint64_t Sent(std::atomic<uint64_t> messaging::PeerTraffic::*counter) const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < kIslands; ++i) {
      sum += (cluster_.island(i).workers()[0]->links().Traffic(1 - i).*counter).load();
    }
    return sum;
  }

  instance::InProcessCluster cluster_;
};

void Run(benchmark::State& state, bool update) {
  Measured cluster(update, static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)));
  const uint64_t allocations = g_allocations.load();
  const uint64_t messages = cluster.Messages();
  const uint64_t bytes = cluster.Bytes();
  const uint64_t aborted = cluster.Aborted();
  const uint64_t committed = cluster.Committed();
  uint64_t rounds = 0;
  for (auto _ : state) rounds += cluster.RunMeasured(kMeasured);
  const auto transactions = static_cast<double>(cluster.Committed() - committed);
  state.SetItemsProcessed(static_cast<int64_t>(transactions));
  const auto each = [&](uint64_t count) { return static_cast<double>(count) / transactions; };
  state.counters["allocations"] = each(g_allocations.load() - allocations);
  state.counters["messages"] = each(cluster.Messages() - messages);
  state.counters["bytes"] = each(cluster.Bytes() - bytes);
  state.counters["rounds"] = each(rounds);
  state.counters["aborts"] = each(cluster.Aborted() - aborted);
}

void BM_Add10(benchmark::State& state) { Run(state, false); }
BENCHMARK(BM_Add10)->ArgNames({"multisite", "mpl"})->ArgsProduct({{20, 100}, {1, 8, 32, 64}});
void BM_Update10(benchmark::State& state) { Run(state, true); }
BENCHMARK(BM_Update10)->ArgNames({"multisite", "mpl"})->ArgsProduct({{20, 100}, {32}});

}  // namespace
}  // namespace islands::simulation
