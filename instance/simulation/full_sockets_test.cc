// Sockets full in both directions: every island floods the next with distributed transactions over
// connections that hold one packet at a time. New transactions are pushed back; messages of the second phase
// queue behind what is there and are never refused, so everything that has begun ends well.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

using instance::Batch;
using instance::KeyView;
using instance::RowView;
using instance::TableId;
using partitioner::Uint64Key;
using runtime::kNsPerMs;
using runtime::kNsPerSecond;

constexpr uint64_t kRowsPerIsland = 1000;
constexpr size_t kRowBytes = 1000;
constexpr uint32_t kMpl = 400;
constexpr int kWrites = 8;  // of a whole row each, in one batch to the other island
// What an island lets queue for one peer before it stops beginning transactions (instance/worker/worker.cc).
constexpr size_t kCongestionBytes = 1u << 20;

int64_t Count(RowView row) {
  int64_t count = 0;
  std::memcpy(&count, row.data(), sizeof(count));
  return count;
}

struct Flood final : instance::Request {
  uint64_t here = 0, there = 0;
  int batches = 0;
};

// Requests that run at the same time meet in no row: what is slow here is the network.
class Floods final : public instance::Generator {
 public:
  Floods(uint32_t island, uint32_t islands) : island_(island), islands_(islands) {}
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Flood>(); }
  void Next(runtime::Random&, instance::Request& request) override {
    auto& flood = static_cast<Flood&>(request);
    const uint64_t n = next_++ % (kRowsPerIsland / 2);
    flood.here = island_ * kRowsPerIsland + n;
    flood.there = (island_ + 1) % islands_ * kRowsPerIsland + kRowsPerIsland / 2 + n;
    flood.batches = 1 + static_cast<int>(next_ % 3);
    flood.audit_delta = 2;
  }

 private:
  const uint64_t island_, islands_;
  uint64_t next_ = 0;
};

class Flooding final : public instance::Workload {
 public:
  Flooding(TableId table, uint32_t islands) : table_(table), islands_(islands) {}
  const char* name() const override { return "flooding"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(instance::Loader& loader) const override {
    const std::vector<std::byte> row(kRowBytes);
    for (uint64_t n = 0; n < islands_ * kRowsPerIsland; ++n) {
      const Uint64Key key(n);
      if (absl::Status status = loader.Insert(table_, key, row); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Floods>(context.island, islands_);
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const auto& flood = static_cast<const Flood&>(request);
    const Uint64Key here(flood.here);
    const Uint64Key there(flood.there);
    const std::vector<std::byte> filling(kRowBytes - sizeof(int64_t), std::byte{7});
    Batch& batch = transaction.batch();
    for (int n = 0; n < flood.batches; ++n) {
      batch.Clear();
      for (int i = 0; i < kWrites; ++i) batch.Write(table_, there, sizeof(int64_t), filling);
      if (n == 0) {
        batch.Add(table_, here, 0, 1);
        batch.Add(table_, there, 0, 1);
      }
      runtime::Task<absl::Status> step = transaction.Execute(batch);
      absl::Status status = co_await step;
      if (!status.ok()) co_return status;
    }
    co_return absl::OkStatus();
  }
  int64_t AuditRow(TableId, KeyView, RowView row) const override { return Count(row); }

 private:
  const TableId table_;
  const uint32_t islands_;
};

SimOptions Options(uint64_t seed, uint32_t islands) {
  SimOptions options;
  options.seed = seed;
  options.islands = islands;
  options.sites = islands;
  options.hub.connection_bytes = 1;  // full with anything under way
  options.delay = [](runtime::Random& random, messaging::Address, messaging::Address) {
    return static_cast<int64_t>(kNsPerMs + random.Below(4 * kNsPerMs));
  };
  control::v1::TableSpec& table = *options.config.add_tables();
  table.set_name("rows");
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(static_cast<int64_t>(islands * kRowsPerIsland));
  table.set_row_bytes(kRowBytes);
  options.open = [islands](const storage::Catalog& catalog) {
    return std::make_shared<Flooding>(catalog.Find("rows")->id, islands);
  };
  return options;
}

size_t QueuedBytes(SimCluster& cluster, uint32_t from) {
  return cluster.island(from).workers()[0]->links().QueuedBytes((from + 1) % cluster.islands());
}

class FullSockets : public testing::TestWithParam<uint64_t> {};

TEST_P(FullSockets, BothDirections_EveryTransactionEndsAndEverythingDrains) {
  const auto islands = static_cast<uint32_t>(2 + GetParam() % 2);
  SimCluster cluster(Options(GetParam(), islands));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(kMpl).ok());

  std::vector<size_t> longest(islands);
  bool all_congested = false;
  const int64_t until_ns = cluster.NowNs() + 400 * kNsPerMs;
  while (cluster.NowNs() < until_ns) {
    cluster.Step();
    bool congested = true;
    for (uint32_t i = 0; i < islands; ++i) {
      const size_t queued = QueuedBytes(cluster, i);
      longest[i] = std::max(longest[i], queued);
      congested &= queued > kCongestionBytes;
    }
    all_congested |= congested;
  }
  // Full both ways at once, and yet never more than what was begun before and one batch of each may add.
  EXPECT_TRUE(all_congested);
  for (const size_t queued : longest) EXPECT_LT(queued, kCongestionBytes + kMpl * (kWrites + 2) * kRowBytes);
  const uint64_t committed_before = cluster.Sum().committed;
  EXPECT_GT(committed_before, 2 * kMpl);

  ASSERT_TRUE(cluster.Drain(10 * kNsPerSecond));
  const SimCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.locks_held, 0u);
  EXPECT_EQ(totals.branches_open, 0u);
  // A lost message of the second phase would have shown as one of these.
  EXPECT_EQ(totals.unknown, 0u);
  EXPECT_EQ(totals.aborted, 0u);
  EXPECT_EQ(totals.distributed, totals.committed);
  EXPECT_EQ(totals.audit_sum, totals.audit_committed);
  EXPECT_EQ(totals.audit_sum, static_cast<int64_t>(2 * totals.committed));
  for (uint32_t i = 0; i < islands; ++i) EXPECT_EQ(QueuedBytes(cluster, i), 0u);
  // What was waited for has its name, and nothing else has.
  for (uint32_t i = 0; i < islands; ++i) {
    const control::v1::Snapshot snapshot = cluster.island(i).TakeSnapshot();
    ASSERT_EQ(snapshot.workers(0).queue_waits_size(), 1);
    const control::v1::QueueWaits& waits = snapshot.workers(0).queue_waits(0);
    EXPECT_EQ(waits.queue(), fmt::format("link from island {} to {}", i, (i + 1) % islands));
    EXPECT_GT(waits.seconds(), 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FullSockets, testing::Range<uint64_t>(1, 3));

}  // namespace
}  // namespace islands::simulation
