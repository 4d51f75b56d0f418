// What the workers of one island leave in their rings when they change the same pages: who waits for whom,
// and in what order redo finds it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/execution/executor_testing.h"
#include "runtime/file_system.h"

namespace islands::instance {
namespace {

using log::EntryKind;
using partitioner::Uint64Key;

constexpr uint64_t kSharedRows = 400;  // of ten pages and more
constexpr size_t kRowBytes = 250;

struct Seen {
  EntryKind kind;
  log::Lsn lsn;
};
using Records = std::vector<Seen>;

std::vector<EntryKind> KindsOf(const Records& records) {
  std::vector<EntryKind> kinds;
  for (const Seen& seen : records) kinds.push_back(seen.kind);
  return kinds;
}

class Shared : public testing::Test {
 protected:
  static constexpr uint32_t kWorkers = 2;
  struct Worker {
    std::unique_ptr<log::Ring> ring;
    std::unique_ptr<log::Journal> journal;
    std::unique_ptr<Executor> executor;
    std::vector<locks::Wakeup> wakeups;
    uint64_t looked_at = 0;
  };

  void SetUp() override {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(kSharedRows * 2);
    table->set_row_bytes(kRowBytes);
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    store_ = *storage::Store::Create(*catalog_, {.sites = {0, 1}, .pool_bytes = 64 << 20}, *files_);
    for (uint32_t i = 0; i < kWorkers; ++i) {
      Worker& worker = workers_[i];
      worker.ring = log::Ring::InMemory({1, 0, i}, 4 * log::Ring::kLeastCapacity);
      worker.journal = std::make_unique<log::Journal>(board_, *worker.ring, log::Lsn(), &shared_);
      worker.executor = std::make_unique<Executor>(
          *catalog_, *store_, locks_, ExecutorOptions{.worker = i, .journal = worker.journal.get()});
    }
    Batch batch;
    for (uint64_t key = 0; key < kSharedRows; ++key)
      batch.Insert(0, Uint64Key(2 * key), Bytes(std::string(kRowBytes, '\0')));
    const auto branch = Begin(0);
    Run(0, *branch, batch);
    Commit(0, *branch);
    EndStep(0);
    NewRecords(0);
  }
  void TearDown() override { storage::page_change_sink = nullptr; }

  std::unique_ptr<Branch> Begin(uint32_t worker) {
    auto branch = std::make_unique<Branch>();
    branch->locks.transaction = {0, worker, 1, ++sequence_};
    branch->locks.wake_token = sequence_;
    branch->locks.worker = worker;
    return branch;
  }
  // Within a step of the worker: it keeps control.
  void Run(uint32_t worker, Branch& branch, Batch& batch) {
    storage::page_change_sink = workers_[worker].journal.get();
    batch.ResetResults();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    Failure failure;
    ASSERT_EQ(workers_[worker].executor->Run(branch, batch, routes, &cursor, &failure), Progress::kDone)
        << failure.status;
    for (uint32_t i = 0; i < batch.size(); ++i) ASSERT_EQ(batch.code(i), absl::StatusCode::kOk);
  }
  void Add(uint32_t worker, Branch& branch, uint64_t row) {
    Batch batch;
    batch.Add(0, Uint64Key(2 * row), 0, 1);
    Run(worker, branch, batch);
  }
  void Commit(uint32_t worker, Branch& branch) {
    storage::page_change_sink = workers_[worker].journal.get();
    workers_[worker].executor->Commit(branch, &workers_[worker].wakeups);
  }
  void EndStep(uint32_t worker) {
    workers_[worker].executor->EndStep();
    workers_[worker].executor->CheckInvariants();
  }
  // Shown since the last call.
  Records NewRecords(uint32_t worker) {
    const log::Ring& ring = *workers_[worker].ring;
    uint64_t& at = workers_[worker].looked_at;
    Records records;
    for (size_t taken = 0; at < ring.tail(); at += taken) {
      const auto record = log::ParseRecord(ring.stream(), at, ring.Bytes(at, ring.tail()), &taken);
      EXPECT_TRUE(record.ok()) << record.status();
      if (!record.ok()) return records;
      records.push_back({static_cast<EntryKind>(record->kind), log::Lsn::FromValue(record->lsn)});
    }
    return records;
  }

  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  log::Board board_{std::vector<uint32_t>{kWorkers}};
  log::IslandLog shared_{kWorkers, board_.epoch(), log::Lsn()};
  std::array<Worker, kWorkers> workers_;
  uint64_t sequence_ = 0;
};

TEST_F(Shared, RowsChangedInPlace_AreOneRecord) {
  const auto branch = Begin(0);
  for (uint64_t row = 0; row < kSharedRows; row += 40) Add(0, *branch, row);
  EXPECT_TRUE(NewRecords(0).empty());
  Commit(0, *branch);
  EXPECT_EQ(KindsOf(NewRecords(0)), std::vector{EntryKind::kDone});
  EndStep(0);
}

TEST_F(Shared, ControlGivenBack_PublishesWithUndo) {
  const auto branch = Begin(0);
  Add(0, *branch, 1);
  EndStep(0);
  EXPECT_EQ(KindsOf(NewRecords(0)), std::vector{EntryKind::kUpdate});
  Add(0, *branch, 300);
  Commit(0, *branch);
  EXPECT_EQ(KindsOf(NewRecords(0)), std::vector{EntryKind::kCommit});
  EndStep(0);
}

// It may have read since what others have committed in the epoch that has begun.
TEST_F(Shared, EpochThatEndsMeanwhile_IsNotThatOfTheCommit) {
  const auto branch = Begin(0);
  Add(0, *branch, 1);
  board_.RaiseEpoch(board_.epoch() + 1);
  Commit(0, *branch);
  const Records records = NewRecords(0);
  EXPECT_EQ(KindsOf(records), (std::vector{EntryKind::kUpdate, EntryKind::kCommit}));
  EXPECT_EQ(records.at(0).lsn.epoch() + 1, records.at(1).lsn.epoch());
  EndStep(0);
}

TEST_F(Shared, EpochThatEndsMeanwhile_IsNotThatOfAVote) {
  const auto branch = Begin(0);
  branch->locks.transaction.island = 1;
  Add(0, *branch, 1);
  board_.RaiseEpoch(board_.epoch() + 1);
  workers_[0].executor->Prepare(*branch, {});
  const Records records = NewRecords(0);
  EXPECT_EQ(KindsOf(records), (std::vector{EntryKind::kUpdate, EntryKind::kPrepare}));
  EXPECT_EQ(records.at(0).lsn.epoch() + 1, records.at(1).lsn.epoch());
  Commit(0, *branch);
  EndStep(0);
}

// A page that another worker has changed in a later epoch than the one that was taken.
TEST_F(Shared, PageOfALaterEpoch_BeginsARecord) {
  const auto early = Begin(0);
  Add(0, *early, 1);
  board_.RaiseEpoch(board_.epoch() + 1);
  const auto late = Begin(1);
  Add(1, *late, 300);
  Commit(1, *late);
  EndStep(1);
  EXPECT_EQ(NewRecords(1).at(0).lsn.epoch(), board_.epoch());
  Add(0, *early, 301);
  Commit(0, *early);
  const Records records = NewRecords(0);
  EXPECT_EQ(KindsOf(records), (std::vector{EntryKind::kUpdate, EntryKind::kCommit}));
  EXPECT_EQ(records.at(0).lsn.epoch() + 1, records.at(1).lsn.epoch());
  EndStep(0);
}

// By LSN, records are in an order in which pages were changed: not only the groups within them.
TEST_F(Shared, RecordOfWhoComesLater_HasTheHigherLsn) {
  const auto first = Begin(0);
  for (uint64_t row = 0; row < kSharedRows; row += 2)
    Add(0, *first, row);  // the first page has the lowest LSN
  Commit(0, *first);
  EndStep(0);
  const auto second = Begin(1);
  Add(1, *second, 1);
  Commit(1, *second);
  EndStep(1);
  EXPECT_GT(NewRecords(1).at(0).lsn, NewRecords(0).at(0).lsn);
}

// Of a page whose change another worker has not shown yet, neither a change nor an image is shown.
TEST_F(Shared, PageChangedByTwo_TheSecondWaitsForTheFirst) {
  const auto first = Begin(0);
  Add(0, *first, 1);
  std::atomic<bool> done = false;
  Records seen;
  std::thread other([&] {
    const auto second = Begin(1);
    Add(1, *second, 2);
    Commit(1, *second);
    EndStep(1);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done);
  EXPECT_EQ(workers_[1].looked_at, workers_[1].ring->tail());
  Commit(0, *first);
  EndStep(0);
  other.join();
  EXPECT_GT(NewRecords(1).at(0).lsn, NewRecords(0).at(0).lsn);
  // The page is wanted by both: for a while its changes are shown at once.
  const auto third = Begin(0);
  Add(0, *third, 3);
  EXPECT_EQ(KindsOf(NewRecords(0)), std::vector{EntryKind::kUpdate});
  Commit(0, *third);
  EndStep(0);
}

// Each has what the other waits for.
TEST_F(Shared, PagesChangedCrosswise_NobodyIsStuck) {
  constexpr int kRounds = 2000;
  const auto work = [&](uint32_t worker) {
    for (int i = 0; i < kRounds; ++i) {
      const auto branch = std::make_unique<Branch>();
      branch->locks.transaction = {0, worker, 1, 1000 + static_cast<uint64_t>(2 * i) + worker};
      branch->locks.worker = worker;
      branch->locks.wake_token = branch->locks.transaction.sequence;
      // Rows of their own, on pages that both change.
      const uint64_t row = worker == 0 ? 0 : 399, far = worker == 0 ? 398 : 1;
      Add(worker, *branch, row);
      Add(worker, *branch, far);
      Commit(worker, *branch);
      EndStep(worker);
    }
    storage::page_change_sink = nullptr;
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(NewRecords(0).empty(), false);
  EXPECT_EQ(NewRecords(1).empty(), false);
}

}  // namespace
}  // namespace islands::instance
