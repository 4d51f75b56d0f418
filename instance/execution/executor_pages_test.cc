// What an executor does when the pages that an operation needs are on disk: the branch waits, the thread goes
// on. The test is the worker: between two runs it puts in place what has been read, and nothing else is read.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/execution/executor_testing.h"
#include "instance/storage/files/page_fetcher.h"
#include "runtime/file_system.h"

namespace islands::instance {
namespace {

using partitioner::Uint64Key;

constexpr uint64_t kPagedRows = 4000;  // some 280 leaves
constexpr uint64_t kStep = 1237;       // from an entry of the index to the next one's row

// An island of one worker, or one of an island's; the pool has a quarter of the pages.
class Pages : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(1 << 20);
    control::v1::IndexSpec* index = table->add_indexes();
    index->set_name("by_first_bytes");
    index->add_key("row:0:uint32");
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    store_ = *storage::Store::Create(
        *catalog_,
        {.sites = {0, 1}, .pool_bytes = 80 * storage::kPageBytes, .alone = GetParam(), .paged = true},
        *files_);
    auto data = storage::DataFiles::Create(*files_, {.directory = "/data", .generation = 1, .sites = {0}});
    ASSERT_TRUE(data.ok()) << data.status();
    ASSERT_TRUE(pager().MoveTo(*files_, std::make_shared<storage::DataFiles>(*std::move(data))).ok());
    for (uint64_t key = 0; key < kPagedRows; ++key)
      ASSERT_EQ(store_->At(0, 0)->Insert(Uint64Key(key), Bytes(Row(key))), absl::StatusCode::kOk);
    ASSERT_TRUE(pager().HasRoom(40));
    ASSERT_TRUE(pager().EndSpill().ok());
    fetcher_ = std::make_unique<storage::PageFetcher>(pager());
    executor_ = std::make_unique<Executor>(*catalog_, *store_, locks_,
                                           ExecutorOptions{.alone = GetParam(), .fetcher = fetcher_.get()});
  }
  static std::string Row(uint64_t key) {
    std::string row(200, '.');
    const auto number = static_cast<uint32_t>(key * kStep % kPagedRows);
    std::memcpy(row.data(), &number, sizeof(number));
    return row;
  }
  storage::Pager& pager() { return *store_->pager(); }

  // Until it is done. All that is read meanwhile has been waited for with `waits_`, but what `by_thread_` is.
  Progress Run(Branch& branch, Batch& batch) {
    batch.ResetResults();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    waits_ = by_thread_ = 0;
    while (true) {
      const uint64_t read = pager().counters().read;
      const Progress progress = executor_->Run(branch, batch, routes, &cursor, &failure_);
      executor_->EndQuiet();
      by_thread_ += pager().counters().read - read;
      if (progress != Progress::kWaitingForPages) return progress;
      ++waits_;
      std::vector<storage::PagesWanted*> over;
      while (fetcher_->reading()) fetcher_->WaitFor(1'000'000), fetcher_->Poll(&over);
      EXPECT_EQ(over, std::vector{&branch.pages});
    }
  }
  void ExpectRows(const Batch& batch, const std::vector<uint64_t>& keys) {
    ASSERT_EQ(batch.scanned_rows(0), keys.size());
    for (size_t n = 0; n < keys.size(); ++n) {
      EXPECT_EQ(partitioner::FirstComponent(catalog_->table(0).key, batch.scanned_key(0, n)).value(),
                static_cast<int64_t>(keys[n]));
    }
  }

  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<storage::PageFetcher> fetcher_;
  std::unique_ptr<Executor> executor_;
  std::vector<locks::Wakeup> wakeups_;
  Failure failure_;
  size_t waits_ = 0;
  uint64_t by_thread_ = 0;  // pages read while an operation ran
};

// What is remembered of a row that was read to be written is of no use once its page is gone.
TEST_P(Pages, Write_OfARowThatWasReadBefore_WaitsForItsPage) {
  size_t waits = 0;
  for (uint64_t key = 7; key < kPagedRows; key += 397) {
    Branch branch;
    Batch batch;
    batch.ReadForUpdate(0, Uint64Key(key));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
    for (uint64_t other = 0; other < kPagedRows; other += 8) {
      batch.Clear();
      batch.Read(0, Uint64Key(other));
      ASSERT_EQ(Run(branch, batch), Progress::kDone);
    }
    batch.Clear();
    batch.Write(0, Uint64Key(key), 8, Bytes("written"));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
    ASSERT_EQ(batch.code(0), absl::StatusCode::kOk);
    EXPECT_EQ(by_thread_, 0u) << key;
    waits += waits_;
    batch.Clear();
    batch.Read(0, Uint64Key(key));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
    EXPECT_EQ(std::memcmp(batch.row(0).data(), (Row(key).substr(0, 8) + "written").data(), 15), 0) << key;
    executor_->Commit(branch, &wakeups_);
  }
  EXPECT_GT(waits, 5u);
}

TEST_P(Pages, Scan_WaitsForItsPages) {
  for (const bool reverse : {false, true}) {
    for (const uint64_t first : {0u, 900u, 1800u, 2700u, 3600u}) {
      Branch branch;
      Batch batch;
      batch.Scan(0, Uint64Key(first), Uint64Key(first + 300), 0, reverse);
      ASSERT_EQ(Run(branch, batch), Progress::kDone);
      EXPECT_EQ(by_thread_, 0u) << first;
      EXPECT_EQ(branch.pages.of_scan, 0u);
      std::vector<uint64_t> keys;
      for (uint64_t n = 0; n < 300; ++n) keys.push_back(reverse ? first + 299 - n : first + n);
      ExpectRows(batch, keys);
      executor_->Commit(branch, &wakeups_);
      EXPECT_EQ(locks_.LocksHeld(), 0u);
    }
    EXPECT_GT(waits_, 0u);  // for those of the last one
  }
}

TEST_P(Pages, IndexScan_WaitsForItsRows) {
  std::string first, end;
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, 100, &first);
  partitioner::AppendUnsigned(partitioner::KeyType::kUint32, 120, &end);
  std::vector<uint64_t> keys(20);
  for (uint64_t key = 0; key < kPagedRows; ++key) {
    if (const uint64_t entry = key * kStep % kPagedRows; entry >= 100 && entry < 120) keys[entry - 100] = key;
  }
  Branch branch;
  Batch batch;
  batch.IndexScan(0, 0, Uint64Key(0), Bytes(first), Bytes(end));
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  EXPECT_EQ(by_thread_, 0u);
  EXPECT_GT(waits_, 0u);
  EXPECT_LT(waits_, 8u);  // its rows are on twenty pages, which are read together
  ExpectRows(batch, keys);
  executor_->Commit(branch, &wakeups_);
}

TEST_P(Pages, RowsOfOneTransaction_AreReadTogetherUnlessItMayNotLookAhead) {
  for (const bool look_ahead : {true, false}) {
    executor_ = std::make_unique<Executor>(
        *catalog_, *store_, locks_,
        ExecutorOptions{.alone = GetParam(), .look_ahead = look_ahead, .fetcher = fetcher_.get()});
    Branch branch;
    Batch batch;
    for (uint64_t n = 0; n < 10; ++n) batch.Read(0, Uint64Key((look_ahead ? 0 : 200) + n * 400));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
    EXPECT_EQ(by_thread_, 0u);
    if (look_ahead) {
      EXPECT_LT(waits_, 5u);  // a level of the tree each
    } else {
      EXPECT_GT(waits_, 7u);  // a row each, but for those that were there
    }
    for (uint32_t i = 0; i < batch.size(); ++i) EXPECT_EQ(batch.result(i).code, absl::StatusCode::kOk);
    executor_->Commit(branch, &wakeups_);
  }
}

// All rows have more pages than the pool: what was read first has gone again when the last comes.
TEST_P(Pages, Scan_OfMoreThanThePoolEnds) {
  Branch branch;
  Batch batch;
  batch.Scan(0, Uint64Key(0), Uint64Key(kPagedRows), 0, false);
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  EXPECT_GT(waits_, 0u);
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < kPagedRows; ++key) keys.push_back(key);
  ExpectRows(batch, keys);
  executor_->Rollback(branch, &wakeups_);
}

// What it has met is locked while it waits for more.
TEST_P(Pages, Scan_KeepsItsLocksWhileItWaits) {
  const std::vector<RoutedOperation> routes = {{0, 0, 0}};
  Branch scanner, other;
  Batch scan, insert;
  scan.Scan(0, Uint64Key(0), Uint64Key(kPagedRows), 0, false);
  scan.ResetResults();
  size_t cursor = 0;
  std::vector<storage::PagesWanted*> over;
  while (locks_.LocksHeld() < 100) {
    ASSERT_EQ(executor_->Run(scanner, scan, routes, &cursor, &failure_), Progress::kWaitingForPages);
    executor_->EndQuiet();
    EXPECT_EQ(scan.scanned_rows(0), 0u);  // nobody sees the half of it
    while (fetcher_->reading()) fetcher_->WaitFor(1'000'000), fetcher_->Poll(&over);
  }
  insert.Delete(0, Uint64Key(50));
  EXPECT_EQ(Run(other, insert), Progress::kWaiting);
  EXPECT_TRUE(locks_.CancelWait(other.locks, &wakeups_));
  executor_->Rollback(other, &wakeups_);
  executor_->Rollback(scanner, &wakeups_);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// A transaction fails since it has changed too much, in a step that waits for the pages of a scan, too: reads
// refer to its branch until they have come.
TEST_P(Pages, FailureWhileItWaits_WaitsForItsReads) {
  const bool alone = GetParam();
  log::Board board{std::vector<uint32_t>{alone ? 1u : 2u}};
  log::IslandLog shared(alone ? 1 : 2, board.epoch(), log::Lsn());
  auto ring = log::Ring::InMemory({1, 0, 0}, 4 << 20);
  log::Journal journal(board, *ring, log::Lsn(), alone ? nullptr : &shared);
  executor_.reset();
  executor_ = std::make_unique<Executor>(
      *catalog_, *store_, locks_,
      ExecutorOptions{.alone = alone, .journal = &journal, .fetcher = fetcher_.get()});
  journal.Listen();
  Branch branch;
  branch.locks.transaction = {0, 0, 1, 1};
  Progress progress = Progress::kDone;
  uint64_t key = 0;
  std::vector<storage::PagesWanted*> over;
  int batches = 0;
  while (progress == Progress::kDone && batches < 20) {
    ++batches;
    Batch batch;
    std::vector<RoutedOperation> routes;
    for (uint32_t n = 0; n < 5; ++n) batch.Delete(0, Uint64Key(key++)), routes.push_back({n, 0, 0});
    const uint64_t first = 500 + 400 * (batches % 8);
    batch.Scan(0, Uint64Key(first), Uint64Key(first + 200), 0, false), routes.push_back({5, 0, 0});
    batch.ResetResults();
    size_t cursor = 0;
    while (true) {
      progress = executor_->Run(branch, batch, routes, &cursor, &failure_);
      if (progress == Progress::kFailed) break;
      executor_->EndStep();
      journal.EndListening();
      journal.Listen();
      if (progress != Progress::kWaitingForPages) break;
      while (fetcher_->reading()) fetcher_->WaitFor(1'000'000), fetcher_->Poll(&over);
      if (failure_.set()) break;
    }
  }
  EXPECT_TRUE(failure_.set());
  EXPECT_EQ(branch.pages.left, 0u);
  EXPECT_FALSE(fetcher_->reading());
  executor_->Rollback(branch, &wakeups_);
  executor_->EndStep();
  storage::page_change_sink = nullptr;
  executor_.reset();
}

INSTANTIATE_TEST_SUITE_P(Workers, Pages, testing::Bool(),
                         [](const auto& of) { return of.param ? "One" : "Many"; });

}  // namespace
}  // namespace islands::instance
