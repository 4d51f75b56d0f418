#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "experiments/micro/micro.h"
#include "experiments/peers/peer.h"
#include "experiments/peers/peer_driver.h"
#include "experiments/peers/temporary_directory.h"
#include "instance/storage/catalog.h"
#include "partitioner/key_codec.h"
#include "runtime/random.h"

namespace islands::experiments {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRange = 2000;
constexpr uint32_t kRowBytes = 250;

// What the workload itself loads.
class MapLoader final : public instance::Loader {
 public:
  explicit MapLoader(const storage::Catalog& catalog) : catalog_(catalog) {}
  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t) const override { return true; }
  absl::Status Insert(instance::TableId, instance::KeyView key, instance::RowView row) override {
    const auto number = partitioner::FirstComponent({partitioner::KeyType::kUint64}, key);
    EXPECT_TRUE(number.ok());
    rows[static_cast<uint64_t>(*number)].assign(row.begin(), row.end());
    return absl::OkStatus();
  }
  std::map<uint64_t, std::vector<std::byte>> rows;

 private:
  const storage::Catalog& catalog_;
};

std::map<uint64_t, std::vector<std::byte>> RowsOfMicro() {
  storage::Catalog::TableSpecs tables;
  control::v1::TableSpec& table = *tables.Add();
  table.set_name(kMicroTable);
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(kRange);
  table.set_row_bytes(kRowBytes);
  const auto catalog = storage::Catalog::Create(tables, 1);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  const auto workload = MicroWorkload::Create(*catalog, {});
  EXPECT_TRUE(workload.ok()) << workload.status();
  MapLoader loader(*catalog);
  EXPECT_TRUE((*workload)->Load(loader).ok());
  return loader.rows;
}

std::vector<std::string> InstalledPeers() {
  std::vector<std::string> names;
  for (const std::string& name : PeerNames()) {
    if (PeerIsInstalled(name).ok()) names.push_back(name);
  }
  return names;
}

bool HasServer(std::string_view engine) { return NeedsOfPeer(engine).fixed_bytes > 0; }

std::shared_ptr<Peer> Opened(const std::string& engine, const PeerOptions& options) {
  auto made = MakePeer(engine, options);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return nullptr;
  const absl::Status loaded = (*made)->Load();
  EXPECT_TRUE(loaded.ok()) << loaded;
  return loaded.ok() ? *std::move(made) : nullptr;
}

// A server takes a second to start: tests of one engine have the same, with what those before have left.
class PeersTest : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { servers_.clear(); }

  void SetUp() override {
    if (const absl::Status installed = PeerIsInstalled(GetParam()); !installed.ok())
      GTEST_SKIP() << installed.message();
    if (!HasServer(GetParam())) {
      peer_ = Opened(GetParam(), {directory_.path, kRange, kRowBytes});
      ASSERT_NE(peer_, nullptr);
      return;
    }
    Server& server = servers_[GetParam()];
    if (server.directory == nullptr) {
      server.directory = std::make_unique<TemporaryDirectory>();
      server.peer = Opened(GetParam(), {server.directory->path, kRange, kRowBytes});
    }
    peer_ = server.peer;
    ASSERT_NE(peer_, nullptr);
  }

  std::vector<std::byte> Read(const std::vector<uint64_t>& keys) {
    std::vector<std::byte> rows(keys.size() * kRowBytes);
    const absl::Status status = peer_->Read(keys, rows.data());
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }
  int64_t Counter(uint64_t key) { return CounterOf(Read({key}).data()); }
  int64_t Sum() {
    const auto sum = peer_->SumCounters();
    EXPECT_TRUE(sum.ok()) << sum.status();
    return sum.value_or(-1);
  }
  absl::Status Change(MicroOp op, const std::vector<uint64_t>& keys) {
    return op == MicroOp::kAdd ? peer_->Add(keys) : peer_->Update(keys);
  }
  void Update(const std::vector<uint64_t>& keys) {
    const absl::Status status = peer_->Update(keys);
    ASSERT_TRUE(status.ok()) << status;
  }
  bool has_transactions() const { return NeedsOfPeer(GetParam()).files > 0; }
  // RocksDB adds to rows that it does not look at.
  bool NoticesMissingRows(MicroOp op) const { return op != MicroOp::kAdd || GetParam() != "rocksdb"; }

  struct Server {
    std::unique_ptr<TemporaryDirectory> directory;
    std::shared_ptr<Peer> peer;
  };
  static inline std::map<std::string, Server> servers_;

  TemporaryDirectory directory_;  // outlives the engine
  std::shared_ptr<Peer> peer_;
};

TEST_P(PeersTest, Load_SameRowsAsMicro) {
  const auto expected = RowsOfMicro();
  ASSERT_EQ(expected.size(), kRange);
  std::vector<uint64_t> keys;
  for (const auto& [key, row] : expected) keys.push_back(key);
  // A server's rows may have been counted up by another test, if these are shuffled.
  const size_t from = HasServer(GetParam()) ? sizeof(int64_t) : 0;
  const std::vector<std::byte> rows = Read(keys);
  for (const auto& [key, row] : expected) {
    const auto found = rows.begin() + static_cast<ptrdiff_t>(key * kRowBytes + from);
    ASSERT_TRUE(std::equal(row.begin() + static_cast<ptrdiff_t>(from), row.end(), found)) << "row " << key;
  }
  EXPECT_TRUE(HasServer(GetParam()) || Sum() == 0);
}

// Thousands of transactions, some of which find a row missing and are rolled back, against rows in a vector.
TEST_P(PeersTest, UpdateAndAdd_AgreeWithAModel) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < kRange; ++key) keys.push_back(key);
  std::vector<std::byte> model = Read(keys);
  runtime::Random random(1);
  for (int transaction = 0; transaction < 4000; ++transaction) {
    const MicroOp op = random.Below(2) == 0 ? MicroOp::kUpdate : MicroOp::kAdd;
    const bool fails = has_transactions() && NoticesMissingRows(op) && random.Below(10) == 0;
    keys.clear();
    // Half of them among few rows, so that these are changed again and again.
    for (uint64_t key = random.Below(40); key < kRange && keys.size() < 10; key += 1 + random.Below(300))
      keys.push_back(key);
    for (const uint64_t key : fails ? std::vector<uint64_t>() : keys) AddToCounter(&model[key * kRowBytes]);
    if (fails) keys.push_back(kRange);
    const absl::Status status = Change(op, keys);
    ASSERT_EQ(status.code(), fails ? absl::StatusCode::kNotFound : absl::StatusCode::kOk) << status;
    if (transaction % 1000 == 999) {
      ASSERT_TRUE(peer_->Settle().ok());
    }
    if (transaction % 100 == 0 && !fails) {
      const std::vector<std::byte> row = Read({keys.back()});
      ASSERT_TRUE(std::equal(row.begin(), row.end(), &model[keys.back() * kRowBytes])) << keys.back();
    }
  }
  keys.clear();
  for (uint64_t key = 0; key < kRange; ++key) keys.push_back(key);
  const std::vector<std::byte> rows = Read(keys);
  for (const uint64_t key : keys) {
    const auto row = rows.begin() + static_cast<ptrdiff_t>(key * kRowBytes);
    ASSERT_TRUE(std::equal(row, row + kRowBytes, model.begin() + static_cast<ptrdiff_t>(key * kRowBytes)))
        << key;
  }
}

// Some engines keep rows of more than half a page elsewhere.
TEST_P(PeersTest, UpdateAndAdd_LargeRows) {
  const TemporaryDirectory directory;
  constexpr uint32_t kLarge = 3000;
  peer_ = Opened(GetParam(), {directory.path, 50, kLarge});
  ASSERT_NE(peer_, nullptr);
  std::vector<std::byte> before(kLarge), after(kLarge);
  const uint64_t keys[] = {7};
  ASSERT_TRUE(peer_->Read(keys, before.data()).ok());
  ASSERT_TRUE(peer_->Update(keys).ok());
  ASSERT_TRUE(peer_->Add(keys).ok());
  ASSERT_TRUE(peer_->Add(keys).ok());
  ASSERT_TRUE(peer_->Read(keys, after.data()).ok());
  EXPECT_EQ(CounterOf(after.data()), 3);
  EXPECT_TRUE(std::equal(before.begin() + sizeof(int64_t), before.end(), after.begin() + sizeof(int64_t)));
  EXPECT_EQ(Sum(), 3);
  peer_.reset();  // before its directory
}

TEST_P(PeersTest, Update_AddsOneAndLeavesTheRest) {
  for (const MicroOp op : {MicroOp::kUpdate, MicroOp::kAdd}) {
    const std::vector<std::byte> before = Read({7, 1999});
    const int64_t counted = Counter(7), beside = Counter(8), last = Counter(1999), sum = Sum();
    ASSERT_TRUE(Change(op, {0, 7, 1000, 1999}).ok());
    ASSERT_TRUE(Change(op, {7}).ok());
    EXPECT_EQ(Counter(7), counted + 2);
    EXPECT_EQ(Counter(8), beside);
    EXPECT_EQ(Counter(1999), last + 1);
    EXPECT_EQ(Sum(), sum + 5);
    const std::vector<std::byte> after = Read({7, 1999});
    for (size_t i = 0; i < after.size(); ++i) {
      if (i % kRowBytes < sizeof(int64_t)) continue;
      ASSERT_EQ(after[i], before[i]) << i;
    }
  }
}

TEST_P(PeersTest, Settle_KeepsUpdates) {
  const int64_t sum = Sum(), third = Counter(3), fourth = Counter(4);
  for (uint64_t key = 0; key < kRange; key += 2) ASSERT_NO_FATAL_FAILURE(Update({key, key + 1}));
  ASSERT_TRUE(peer_->Settle().ok());
  EXPECT_EQ(Sum(), sum + static_cast<int64_t>(kRange));
  ASSERT_NO_FATAL_FAILURE(Update({3}));
  EXPECT_EQ(Counter(3), third + 2);
  EXPECT_EQ(Counter(4), fourth + 1);
}

TEST_P(PeersTest, Read_MissingRowIsAnError) {
  std::vector<std::byte> row(2 * kRowBytes);
  const uint64_t keys[] = {5, kRange};
  const int64_t counted = Counter(5);
  EXPECT_EQ(peer_->Read(keys, row.data()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Counter(5), counted);  // and the engine goes on
}

TEST_P(PeersTest, Update_MissingRowChangesNothing) {
  int64_t sum = Sum();
  for (const MicroOp op : {MicroOp::kUpdate, MicroOp::kAdd}) {
    if (!NoticesMissingRows(op)) continue;
    EXPECT_EQ(Change(op, {5, kRange}).code(), absl::StatusCode::kNotFound);
    if (!has_transactions()) ++sum;  // they stop where the row is missing
    EXPECT_EQ(Sum(), sum);
  }
}

TEST_P(PeersTest, Facts_SayWhatSpeedIsBoughtWith) {
  const PeerFacts facts = peer_->Facts();
  EXPECT_FALSE(facts.version.empty() || facts.keeps.empty() || facts.isolation.empty());
  EXPECT_EQ(facts.rolls_back, has_transactions());
}

INSTANTIATE_TEST_SUITE_P(Engines, PeersTest, testing::ValuesIn(PeerNames()),
                         [](const auto& info) { return info.param; });

TEST(Peer, MakePeer_UnknownName) {
  const auto peer = MakePeer("oracle", {});
  ASSERT_FALSE(peer.ok());
  EXPECT_NE(std::string(peer.status().message()).find("lmdb, rocksdb, bdb"), std::string::npos);
}

struct Driver {
  explicit Driver(PeerDriverOptions options) {
    options.directory = directory.path;
    auto created = PeerDriver::Create(options);
    EXPECT_TRUE(created.ok()) << created.status();
    driver = *std::move(created);
  }
  TemporaryDirectory directory;
  std::unique_ptr<PeerDriver> driver;
};

TEST(PeerDriver, Measure_EveryEngineAndOp) {
  for (double zipf : {0.0, 1.0}) {
    Driver test({.engines = InstalledPeers(), .range = kRange, .zipf = zipf, .warmup_s = 0.01});
    for (const std::string& engine : InstalledPeers()) {
      for (const MicroOp op : {MicroOp::kUpdate, MicroOp::kRead, MicroOp::kAdd, MicroOp::kUpdate}) {
        const auto measured = test.driver->Measure(engine, op, 0.02, 1);
        ASSERT_TRUE(measured.ok()) << engine << ": " << measured.status();
        EXPECT_GT(measured->transactions, 0u);
        EXPECT_GE(measured->seconds, 0.02);
      }
    }
  }
}

// Forgets every hundredth update or add.
class ForgetfulPeer final : public Peer {
 public:
  PeerFacts Facts() const override { return {.version = "forgetful"}; }
  absl::Status Load() override { return absl::OkStatus(); }
  absl::Status Read(std::span<const uint64_t>, std::byte*) override { return absl::OkStatus(); }
  absl::Status Update(std::span<const uint64_t> keys) override {
    if (++updates_ % 100 != 0) sum_ += static_cast<int64_t>(keys.size());
    return absl::OkStatus();
  }
  absl::Status Add(std::span<const uint64_t> keys) override { return Update(keys); }
  absl::StatusOr<int64_t> SumCounters() override { return sum_; }
  absl::StatusOr<std::unique_ptr<Peer>> Session() override { return std::make_unique<ForgetfulPeer>(); }

 private:
  int64_t updates_ = 0;
  int64_t sum_ = 0;
};

TEST(PeerDriver, Measure_LostUpdateIsAnError) {
  for (const auto& [op, threads] :
       {std::pair(MicroOp::kUpdate, 1u), std::pair(MicroOp::kAdd, 1u), std::pair(MicroOp::kUpdate, 2u)}) {
    const TemporaryDirectory directory;
    const auto driver = PeerDriver::Create(
        {.engines = {"forgetful"}, .directory = directory.path, .range = kRange, .threads = threads},
        [](std::string_view, const PeerOptions&) -> absl::StatusOr<std::unique_ptr<Peer>> {
          return std::make_unique<ForgetfulPeer>();
        });
    ASSERT_TRUE(driver.ok()) << driver.status();
    EXPECT_TRUE((*driver)->Measure("forgetful", MicroOp::kRead, 0.01, 1).ok());
    const auto measured = (*driver)->Measure("forgetful", op, 0.01, 1);
    ASSERT_FALSE(measured.ok());
    EXPECT_EQ(measured.status().code(), absl::StatusCode::kDataLoss);
  }
}

// Sessions side by side over few rows, more of them than the cache holds pages for: those that meet are tried
// again, and none is lost.
TEST(PeerDriver, Measure_ThreadsOnADisk) {
  for (const char* engine : {"lmdb", "rocksdb", "wiredtiger"}) {
    Driver test({.engines = {engine},
                 .range = 40'000,
                 .zipf = 1,
                 .warmup_s = 0.01,
                 .threads = 8,
                 .cache_bytes = 4 << 20,
                 .durability = PeerDurability::kLazy});
    for (const MicroOp op : {MicroOp::kUpdate, MicroOp::kRead, MicroOp::kAdd}) {
      const auto measured = test.driver->Measure(engine, op, 0.1, 1);
      ASSERT_TRUE(measured.ok()) << engine << ": " << measured.status();
      EXPECT_GT(measured->transactions, 0u);
    }
  }
}

// Sessions that change few rows meet, wait for each other in circles where an engine locks pages, and try
// again: none of their updates is lost, however much is kept.
TEST(PeerDriver, Measure_EveryDurability) {
  for (const PeerDurability durability :
       {PeerDurability::kNone, PeerDurability::kLazy, PeerDurability::kSync}) {
    for (const std::string& engine : InstalledPeers()) {
      if (NeedsOfPeer(engine).files == 0) continue;
      if (HasServer(engine) && durability == PeerDurability::kNone) continue;  // see above
      Driver test({.engines = {engine},
                   .range = 300,
                   .zipf = 1,
                   .warmup_s = 0.01,
                   .threads = engine == "sqlite" ? 1u : 4u,
                   .durability = durability});
      for (const MicroOp op : {MicroOp::kUpdate, MicroOp::kRead, MicroOp::kAdd}) {
        const auto measured = test.driver->Measure(engine, op, 0.05, 1);
        ASSERT_TRUE(measured.ok()) << engine << ": " << measured.status();
        EXPECT_GT(measured->transactions, 0u);
      }
    }
  }
}

TEST(PeerDriver, Measure_InSomeOfItsThreads) {
  Driver test({.engines = {"lmdb"}, .range = kRange, .warmup_s = 0.01, .threads = 3});
  for (const uint32_t threads : {1u, 2u, 3u})
    EXPECT_TRUE(test.driver->Measure("lmdb", MicroOp::kUpdate, 0.02, 1, threads).ok());
  EXPECT_EQ(test.driver->Measure("lmdb", MicroOp::kRead, 0.02, 1, 4).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Peer, MakePeer_WhatItCannotKeep) {
  for (const char* engine : {"descents", "interleaved"}) {
    const auto peer = MakePeer(engine, {.durability = PeerDurability::kSync});
    EXPECT_EQ(peer.status().code(), absl::StatusCode::kFailedPrecondition) << peer.status();
  }
  const auto peer = MakePeer("lmdb", {.cache_bytes = 1 << 20});
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kFailedPrecondition) << peer.status();
}

TEST(PeerDriver, Create_ThreadsOfAnEngineForOne) {
  const TemporaryDirectory directory;
  for (const std::string engine : {"descents", "sqlite"}) {
    const std::vector<std::string> built = PeerNames();
    if (std::find(built.begin(), built.end(), engine) == built.end()) continue;
    const auto driver =
        PeerDriver::Create({.engines = {engine}, .directory = directory.path, .range = kRange, .threads = 2});
    EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnimplemented) << driver.status();
  }
}

TEST(PeerDriver, Measure_EngineNotLoaded) {
  Driver test({.engines = {"descents"}, .range = kRange});
  EXPECT_EQ(test.driver->Measure("lmdb", MicroOp::kRead, 0.01, 1).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(PeerDriver, Create_NotEnoughRoom) {
  const TemporaryDirectory directory;
  for (const std::string& engine : InstalledPeers()) {
    const auto driver =
        PeerDriver::Create({.engines = {engine}, .directory = directory.path, .range = 1ull << 40});
    ASSERT_FALSE(driver.ok());
    EXPECT_EQ(driver.status().code(), absl::StatusCode::kResourceExhausted) << driver.status();
  }
}

TEST(PeerDriver, Create_FewerRowsThanATransactionTakes) {
  const TemporaryDirectory directory;
  const auto driver =
      PeerDriver::Create({.engines = {"descents"}, .directory = directory.path, .range = 9, .rows = 10});
  ASSERT_FALSE(driver.ok());
  EXPECT_NE(std::string(driver.status().message()).find("--rows: found 10"), std::string::npos);
}

}  // namespace
}  // namespace islands::experiments
