#include "instance/executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace islands::instance {
namespace {

using partitioner::Uint64Key;

RowView Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

class OneSite : public testing::Test {
 protected:
  void Open(uint64_t pool_bytes) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(1'000'000);
    control::v1::IndexSpec* index = table->add_indexes();
    index->set_name("by_first_bytes");
    index->add_key("row:0:uint32");
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    storage::StoreOptions options;
    options.sites = {0, 1};
    options.pool_bytes = pool_bytes;
    auto store = storage::Store::Create(*catalog_, options, *files_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    executor_ = std::make_unique<Executor>(*catalog_, *store_, locks_);
  }

  // Carries out the batch for the branch, all of it on site 0.
  Progress Run(Branch& branch, Batch& batch) {
    batch.ResetResults();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    failure_ = {};
    return executor_->Run(branch, batch, routes, &cursor, &failure_);
  }

  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  storage::LockTable locks_{storage::LockTableOptions{.buckets = 1024}};
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<Executor> executor_;
  std::vector<storage::Wakeup> wakeups_;
  Failure failure_;
};

TEST_F(OneSite, Rollback_PutsEverythingBack) {
  Open(1 << 20);
  Branch setup;
  Batch batch;
  batch.Insert(0, Uint64Key(1), Bytes(std::string(16, 'a')));
  batch.Insert(0, Uint64Key(2), Bytes("two!"));
  ASSERT_EQ(Run(setup, batch), Progress::kDone);
  executor_->Commit(setup, &wakeups_);
  Branch branch;
  batch.Clear();
  batch.Add(0, Uint64Key(1), 8, 5);
  batch.Write(0, Uint64Key(1), 4, Bytes("xy"));
  batch.Replace(0, Uint64Key(2), Bytes("something longer"));
  batch.Delete(0, Uint64Key(2));
  batch.Insert(0, Uint64Key(3), Bytes("three"));
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  executor_->Rollback(branch, &wakeups_);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  std::vector<std::byte> row;
  ASSERT_EQ(store_->Read(0, 0, Uint64Key(1), &row), absl::StatusCode::kOk);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()), std::string(16, 'a'));
  ASSERT_EQ(store_->Read(0, 0, Uint64Key(2), &row), absl::StatusCode::kOk);
  EXPECT_EQ(row.size(), 4u);
  EXPECT_EQ(store_->Read(0, 0, Uint64Key(3), &row), absl::StatusCode::kNotFound);
}

TEST_F(OneSite, IndexScan_FollowsChangesAndRollbacks) {
  Open(1 << 20);
  const auto row_of = [](uint32_t field) {
    std::string row(8, '.');
    std::memcpy(row.data(), &field, sizeof(field));
    return row;
  };
  const auto found = [&](uint32_t from, uint32_t to, bool reverse) {
    std::string first, end;
    partitioner::AppendUnsigned(partitioner::KeyType::kUint32, from, &first);
    partitioner::AppendUnsigned(partitioner::KeyType::kUint32, to, &end);
    Branch reader;
    Batch batch;
    batch.IndexScan(0, 0, Uint64Key(0), Bytes(first), Bytes(end), 0, reverse);
    EXPECT_EQ(Run(reader, batch), Progress::kDone) << failure_.status;
    std::vector<uint32_t> fields;
    for (size_t n = 0; n < batch.scanned_rows(0); ++n) {
      uint32_t field = 0;
      std::memcpy(&field, batch.scanned_row(0, n).data(), sizeof(field));
      fields.push_back(field);
    }
    executor_->Commit(reader, &wakeups_);
    return fields;
  };
  Branch branch;
  Batch batch;
  for (uint64_t key = 0; key < 6; ++key) {
    batch.Insert(0, Uint64Key(key), Bytes(row_of(static_cast<uint32_t>(100 - 10 * key))));
  }
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  executor_->Commit(branch, &wakeups_);
  EXPECT_EQ(found(60, 100, false), (std::vector<uint32_t>{60, 70, 80, 90}));
  EXPECT_EQ(found(60, 100, true), (std::vector<uint32_t>{90, 80, 70, 60}));
  batch.Clear();
  batch.Write(0, Uint64Key(1), 0, Bytes(row_of(65)));  // was 90
  batch.Delete(0, Uint64Key(2));                       // was 80
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  executor_->Rollback(branch, &wakeups_);
  EXPECT_EQ(found(60, 100, false), (std::vector<uint32_t>{60, 70, 80, 90}));
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  executor_->Commit(branch, &wakeups_);
  EXPECT_EQ(found(60, 100, false), (std::vector<uint32_t>{60, 65, 70}));
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

// Room that a delete made may be taken by somebody else before the delete is undone; a full pool must not be
// in the way.
TEST_F(OneSite, Rollback_FindsRoomInAFullPool) {
  Open(256 << 10);
  const std::string big(1500, 'b');
  Branch filler;
  Batch batch;
  uint64_t rows = 0;
  for (;; ++rows) {
    batch.Clear();
    batch.Insert(0, Uint64Key(rows * 10), Bytes(big));
    if (Run(filler, batch) != Progress::kDone) break;
  }
  EXPECT_EQ(failure_.reason, AbortReason::kStorage);
  ASSERT_GT(rows, 20u);
  executor_->Commit(filler, &wakeups_);
  Branch deleter, taker;
  for (uint64_t n = 0; n < rows; ++n) {
    batch.Clear();
    batch.Delete(0, Uint64Key(n * 10));
    ASSERT_EQ(Run(deleter, batch), Progress::kDone);
    batch.Clear();
    batch.Insert(0, Uint64Key(n * 10 + 1), Bytes(big));
    ASSERT_EQ(Run(taker, batch), Progress::kDone) << failure_.status;
  }
  executor_->Commit(taker, &wakeups_);
  executor_->Rollback(deleter, &wakeups_);
  EXPECT_EQ(store_->CountRows(0), 2 * rows);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

TEST_F(OneSite, Scan_TooLargeAResultIsRefused) {
  Open(64 << 20);
  Branch branch;
  Batch batch;
  const std::string big(1500, 'b');
  const uint64_t rows = Batch::kMaxBytes / big.size() + 10;
  for (uint64_t n = 0; n < rows; ++n) {
    batch.Clear();
    batch.Insert(0, Uint64Key(n), Bytes(big));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
  }
  batch.Clear();
  batch.Scan(0, {}, {});
  EXPECT_EQ(Run(branch, batch), Progress::kFailed);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kOutOfRange);
  batch.Clear();
  batch.Scan(0, {}, {}, 100, true);
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  EXPECT_EQ(batch.scanned_rows(0), 100u);
  executor_->Commit(branch, &wakeups_);
}

TEST(Batch, Arguments_MayBeViewsOfTheBatch) {
  Batch batch;
  const std::string row(100, 'r');
  batch.Insert(0, Uint64Key(1), Bytes(row));
  for (int i = 0; i < 200; ++i) {
    batch.Replace(0, batch.View(batch.operation(0).key), batch.View(batch.operation(0).row));
  }
  const Batch::Operation& last = batch.operation(200);
  ASSERT_EQ(batch.View(last.row).size(), row.size());
  EXPECT_EQ(std::memcmp(batch.View(last.row).data(), row.data(), row.size()), 0);
  EXPECT_EQ(std::memcmp(batch.View(last.key).data(), Uint64Key(1).bytes, 8), 0);
}

}  // namespace
}  // namespace islands::instance
