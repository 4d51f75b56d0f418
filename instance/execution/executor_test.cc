#include "instance/execution/executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "instance/execution/executor_testing.h"
#include "runtime/random.h"

namespace islands::instance {
namespace {

using partitioner::Uint64Key;

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
    executor_ = std::make_unique<Executor>(*catalog_, *store_, locks_, options_);
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
  explicit OneSite(bool latched = true) : locks_({.buckets = 1024, .latched = latched}) {}

  locks::LockTable locks_;
  ExecutorOptions options_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<Executor> executor_;
  std::vector<locks::Wakeup> wakeups_;
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
  ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(1), &row), absl::StatusCode::kOk);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()), std::string(16, 'a'));
  ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(2), &row), absl::StatusCode::kOk);
  EXPECT_EQ(row.size(), 4u);
  EXPECT_EQ(store_->At(0, 0)->Read(Uint64Key(3), &row), absl::StatusCode::kNotFound);
}

int64_t CounterOf(RowView bytes) {
  int64_t counter = 0;
  EXPECT_EQ(bytes.size(), sizeof(counter));
  std::memcpy(&counter, bytes.data(), sizeof(counter));
  return counter;
}

// Routers let no such keys through; a batch of a peer is not routed again.
TEST_F(OneSite, Insert_OfWhatIsNoKeyIsRefused) {
  Open(1 << 20);
  for (const size_t bytes : {size_t{0}, partitioner::kMaxKeyBytes + 1}) {
    Branch branch;
    Batch batch;
    batch.Insert(0, Bytes(std::string(bytes, 'k')), Bytes("row"));
    ASSERT_EQ(Run(branch, batch), Progress::kFailed) << bytes;
    EXPECT_EQ(failure_.status.code(), absl::StatusCode::kInvalidArgument);
    executor_->Rollback(branch, &wakeups_);
  }
}

// Two ways to the same row: in place, and by a copy that is written back.
TEST_F(OneSite, AddAndUpdate_ChangeTheCounterAndNothingElse) {
  Open(1 << 20);
  constexpr uint32_t kOffset = 5;
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const bool update : {false, true}) {
    const auto count = [&](Batch& batch, uint64_t key, uint32_t offset, int64_t delta) {
      update ? batch.Update(0, Uint64Key(key), offset, delta) : batch.Add(0, Uint64Key(key), offset, delta);
    };
    std::string row(40, 'r');
    std::memcpy(row.data() + kOffset, &most, sizeof(most));
    Branch branch;
    Batch batch;
    batch.Insert(0, Uint64Key(update), Bytes(row));
    count(batch, update, kOffset, -1);
    count(batch, update, kOffset, 3);  // wraps
    count(batch, 77, kOffset, 1);
    ASSERT_EQ(Run(branch, batch), Progress::kDone) << failure_.status;
    EXPECT_EQ(CounterOf(batch.row(1)), most - 1);
    EXPECT_EQ(CounterOf(batch.row(2)), std::numeric_limits<int64_t>::min() + 1);
    EXPECT_EQ(batch.code(3), absl::StatusCode::kNotFound);
    executor_->Commit(branch, &wakeups_);
    std::memcpy(row.data() + kOffset, batch.row(2).data(), sizeof(most));
    std::vector<std::byte> now;
    ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(update), &now), absl::StatusCode::kOk);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(now.data()), now.size()), row);
    for (const uint32_t beyond : {33u, 40u, 0xffffffffu}) {
      batch.Clear();
      count(batch, update, kOffset, 1);
      count(batch, update, beyond, 1);
      ASSERT_EQ(Run(branch, batch), Progress::kFailed) << beyond;
      EXPECT_EQ(failure_.status.code(), absl::StatusCode::kInvalidArgument);
      executor_->Rollback(branch, &wakeups_);
      ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(update), &now), absl::StatusCode::kOk);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(now.data()), now.size()), row);
    }
  }
}

TEST_F(OneSite, RandomChanges_AgreeWithAModel) {
  Open(1 << 20);
  runtime::Random random(3);
  std::map<uint64_t, std::string> rows;
  Branch branch;
  Batch batch;
  for (uint64_t key = 0; key < 20; ++key) {
    rows[key] = std::string(24, static_cast<char>('a' + key));
    batch.Insert(0, Uint64Key(key), Bytes(rows[key]));
  }
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  executor_->Commit(branch, &wakeups_);
  for (int transaction = 0; transaction < 5'000; ++transaction) {
    std::map<uint64_t, std::string> changed = rows;
    std::vector<int64_t> counters;  // that each operation must answer
    batch.Clear();
    for (uint64_t n = 1 + random.Below(8); n > 0; --n) {
      const uint64_t key = random.Below(20);
      const auto offset = static_cast<uint32_t>(random.Below(17));  // also over the indexed bytes
      const auto delta = static_cast<int64_t>(random());
      std::string& row = changed[key];
      uint64_t counter = 0;
      std::memcpy(&counter, row.data() + offset, sizeof(counter));
      counter += static_cast<uint64_t>(delta);
      std::memcpy(row.data() + offset, &counter, sizeof(counter));
      counters.push_back(static_cast<int64_t>(counter));
      random.Below(3) == 0 ? batch.Add(0, Uint64Key(key), offset, delta)
                           : batch.Update(0, Uint64Key(key), offset, delta);
    }
    ASSERT_EQ(Run(branch, batch), Progress::kDone) << failure_.status;
    for (size_t i = 0; i < counters.size(); ++i) ASSERT_EQ(CounterOf(batch.row(i)), counters[i]);
    const bool commits = random.Below(3) != 0;
    if (commits) rows = changed;
    commits ? executor_->Commit(branch, &wakeups_) : executor_->Rollback(branch, &wakeups_);
    std::vector<std::byte> now;
    for (const auto& [key, row] : rows) {
      ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(key), &now), absl::StatusCode::kOk);
      ASSERT_EQ(std::string(reinterpret_cast<const char*>(now.data()), now.size()), row) << key;
    }
  }
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
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

// Room that a shorter row made may be taken by somebody else before the change is undone; a full pool must
// not be in the way.
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
  Branch shrinker, taker;
  for (uint64_t n = 0; n < rows; ++n) {
    batch.Clear();
    batch.Replace(0, Uint64Key(n * 10), Bytes("bbbb"));
    ASSERT_EQ(Run(shrinker, batch), Progress::kDone);
  }
  uint64_t taken = 0;
  for (;; ++taken) {
    batch.Clear();
    batch.Insert(0, Uint64Key(taken * 10 + 1), Bytes(big));
    if (Run(taker, batch) != Progress::kDone) break;
  }
  ASSERT_GT(taken, rows / 2);
  executor_->Commit(taker, &wakeups_);
  executor_->Rollback(shrinker, &wakeups_);
  EXPECT_EQ(store_->CountRows(0), rows + taken);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

// An insert whose row has found room and one of whose entries has not: whoever scanned up to the row holds
// the gap below it, so its key stays for as long.
TEST_F(OneSite, InsertRefusedAtAnIndex_LeavesAGhostToItsScanners) {
  Open(256 << 10);
  const auto insert = [&](Branch& branch, uint64_t key, const std::string& row) {
    Batch batch;
    batch.Insert(0, Uint64Key(key), Bytes(row));
    return Run(branch, batch);
  };
  const auto state = [&](uint64_t key) {
    std::vector<std::byte> row;
    return store_->At(0, 0)->Find(Uint64Key(key), &row);
  };
  Branch filler;
  uint64_t key = 0;
  while (insert(filler, ++key * 1000, std::string(1000, 'b')) == Progress::kDone) {
  }
  ASSERT_EQ(failure_.reason, AbortReason::kStorage);
  executor_->Commit(filler, &wakeups_);
  // Leaves of the table have room for a few short rows each; the index has less.
  Branch inserter;
  uint64_t refused = 0;
  for (uint64_t n = 1; n < key && refused == 0; ++n) {
    for (uint64_t i = 1; i < 40 && refused == 0; ++i) {
      Branch attempt;
      if (insert(attempt, n * 1000 + i, "row.") == Progress::kDone) {
        executor_->Commit(attempt, &wakeups_);
        continue;
      }
      ASSERT_EQ(failure_.reason, AbortReason::kStorage);
      const bool fits = state(n * 1000 + i) == storage::KeyState::kGhost;
      executor_->Rollback(attempt, &wakeups_);
      if (!fits) break;  // the row did not fit
      refused = n * 1000 + i;
    }
  }
  ASSERT_NE(refused, 0u) << "no insert failed at the index";
  EXPECT_EQ(state(refused), storage::KeyState::kAbsent) << "nobody minds: buried by the rollback";

  ASSERT_EQ(insert(inserter, refused, "row."), Progress::kFailed);
  Branch scanner, other;
  Batch scan;
  scan.Scan(0, Uint64Key(refused - 1), Uint64Key(refused), 0, false);
  ASSERT_EQ(Run(scanner, scan), Progress::kDone);
  executor_->Rollback(inserter, &wakeups_);
  EXPECT_EQ(state(refused), storage::KeyState::kGhost) << "the scanned range ends there";
  executor_->RemoveGhosts(&wakeups_);
  EXPECT_EQ(state(refused), storage::KeyState::kGhost);
  executor_->Commit(scanner, &wakeups_);
  executor_->RemoveGhosts(&wakeups_);
  EXPECT_EQ(state(refused), storage::KeyState::kAbsent);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

TEST_F(OneSite, Undo_HasALimitThatTheErrorNames) {
  options_.most_undo_bytes = 100'000;
  Open(4 << 20);
  const std::string row(1000, 'r');
  Branch branch;
  Batch batch;
  uint64_t done = 0;
  for (;; ++done) {
    ASSERT_LT(done, 200u);
    batch.Clear();
    batch.Insert(0, Uint64Key(done), Bytes(row));
    batch.Replace(0, Uint64Key(done), Bytes(row));
    if (Run(branch, batch) != Progress::kDone) break;
  }
  EXPECT_GT(done, 50u);
  EXPECT_EQ(failure_.reason, AbortReason::kProcedure);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(failure_.status.message().find("commit in smaller pieces"), std::string::npos);
  batch.Clear();
  batch.Read(0, Uint64Key(0));
  EXPECT_EQ(Run(branch, batch), Progress::kDone) << "reads leave nothing to undo";
  executor_->Rollback(branch, &wakeups_);
  EXPECT_EQ(store_->CountRows(0), 0u);
}

// Keys 10, 20, ... 90 with rows of four bytes, and branches that touch them one operation at a time.
class Gaps : public OneSite {
 protected:
  explicit Gaps(bool latched = true) : OneSite(latched) {}
  void SetUp() override {
    Open(1 << 20);
    Branch branch;
    for (uint64_t key = 10; key < 100; key += 10) ASSERT_EQ(Insert(branch, key), Progress::kDone);
    executor_->Commit(branch, &wakeups_);
  }
  Progress Insert(Branch& branch, uint64_t key) {
    Batch batch;
    batch.Insert(0, Uint64Key(key), Bytes("row."));
    return Run(branch, batch);
  }
  Progress Delete(Branch& branch, uint64_t key) {
    Batch batch;
    batch.Delete(0, Uint64Key(key));
    return Run(branch, batch);
  }
  Progress Scan(Branch& branch, uint64_t first, uint64_t end, bool reverse = false, uint32_t limit = 0) {
    Batch batch;
    batch.Scan(0, Uint64Key(first), Uint64Key(end), limit, reverse);
    const Progress progress = Run(branch, batch);
    found_.clear();
    for (size_t n = 0; progress == Progress::kDone && n < batch.scanned_rows(0); ++n) {
      found_.push_back(partitioner::FirstComponent(catalog_->table(0).key, batch.scanned_key(0, n)).value());
    }
    return progress;
  }
  // A wait that is given up at once.
  bool Blocked(Branch& branch, Progress progress) {
    if (progress != Progress::kWaiting) return false;
    return locks_.CancelWait(branch.locks, &wakeups_);
  }
  void Commit(Branch& branch) { executor_->Commit(branch, &wakeups_); }
  void Rollback(Branch& branch) { executor_->Rollback(branch, &wakeups_); }
  storage::KeyState State(uint64_t key) {
    std::vector<std::byte> row;
    return store_->At(0, 0)->Find(Uint64Key(key), &row);
  }

  std::vector<int64_t> found_;
};

TEST_F(Gaps, Scan_KeepsItsRangeAndNoMore) {
  for (const bool reverse : {false, true}) {
    Branch scanner, other;
    ASSERT_EQ(Scan(scanner, 35, 55, reverse), Progress::kDone);
    EXPECT_EQ(found_, reverse ? (std::vector<int64_t>{50, 40}) : (std::vector<int64_t>{40, 50}));
    for (const uint64_t inside : {36, 39, 41, 54})
      EXPECT_TRUE(Blocked(other, Insert(other, inside))) << inside;
    EXPECT_TRUE(Blocked(other, Delete(other, 40)));
    EXPECT_EQ(Insert(other, 29), Progress::kDone);
    EXPECT_EQ(Insert(other, 61), Progress::kDone);
    EXPECT_EQ(Delete(other, 60), Progress::kDone);
    Rollback(other);
    Commit(scanner);
    executor_->RemoveGhosts(&wakeups_);
    EXPECT_EQ(locks_.LocksHeld(), 0u);
  }
}

TEST_F(Gaps, Scan_LimitEndsTheRange) {
  Branch scanner, other;
  ASSERT_EQ(Scan(scanner, 15, 95, false, 2), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{20, 30}));
  EXPECT_TRUE(Blocked(other, Insert(other, 25)));
  EXPECT_EQ(Insert(other, 31), Progress::kDone);
  Commit(other);
  Commit(scanner);
}

TEST_F(Gaps, Scan_ToTheEndKeepsTheLastGap) {
  Branch scanner, other;
  ASSERT_EQ(Scan(scanner, 85, 1000), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{90}));
  EXPECT_TRUE(Blocked(other, Insert(other, 500)));
  EXPECT_TRUE(Blocked(other, Insert(other, 2000)));  // the gap above the last key is one
  Commit(scanner);
  EXPECT_EQ(Insert(other, 500), Progress::kDone);
  Commit(other);
}

// Rows whose first four bytes are in the index, and four more that are not.
class Indexed : public Gaps {
 protected:
  void SetUp() override {
    Open(1 << 20);
    Branch branch;
    Batch batch;
    for (uint64_t key = 10; key < 60; key += 10) batch.Insert(0, Uint64Key(key), Bytes(Row(key)));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
    Commit(branch);
  }
  static std::string Row(uint64_t field) {
    std::string row(8, '.');
    const auto number = static_cast<uint32_t>(field);
    std::memcpy(row.data(), &number, sizeof(number));
    return row;
  }
  Progress Find(Branch& branch, uint64_t from, uint64_t to) {
    std::string first, end;
    partitioner::AppendUnsigned(partitioner::KeyType::kUint32, from, &first);
    partitioner::AppendUnsigned(partitioner::KeyType::kUint32, to, &end);
    Batch batch;
    batch.IndexScan(0, 0, Uint64Key(0), Bytes(first), Bytes(end));
    const Progress progress = Run(branch, batch);
    found_.clear();
    for (size_t n = 0; progress == Progress::kDone && n < batch.scanned_rows(0); ++n) {
      found_.push_back(partitioner::FirstComponent(catalog_->table(0).key, batch.scanned_key(0, n)).value());
    }
    return progress;
  }
  Progress Write(Branch& branch, uint64_t key, uint32_t offset, const std::string& bytes) {
    Batch batch;
    batch.Write(0, Uint64Key(key), offset, Bytes(bytes));
    return Run(branch, batch);
  }
  Progress Add(Branch& branch, uint64_t key, uint32_t offset) {
    Batch batch;
    batch.Add(0, Uint64Key(key), offset, 1);
    return Run(branch, batch);
  }
  Progress Update(Branch& branch, uint64_t key, uint32_t offset) {
    Batch batch;
    batch.Update(0, Uint64Key(key), offset, 1);
    return Run(branch, batch);
  }
  Progress Replace(Branch& branch, uint64_t key, const std::string& row) {
    Batch batch;
    batch.Replace(0, Uint64Key(key), Bytes(row));
    return Run(branch, batch);
  }
};

TEST_F(Indexed, IndexScan_KeepsItsEntriesAndRows) {
  Branch scanner, other;
  ASSERT_EQ(Find(scanner, 20, 31), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{20, 30}));
  EXPECT_TRUE(Blocked(other, Write(other, 20, 4, "xy"))) << "a row that was found";
  EXPECT_TRUE(Blocked(other, Write(other, 50, 0, Row(25)))) << "would come into the range";
  EXPECT_TRUE(Blocked(other, Add(other, 50, 0)));
  EXPECT_TRUE(Blocked(other, Update(other, 50, 0)));
  EXPECT_TRUE(Blocked(other, Replace(other, 50, Row(25))));
  EXPECT_TRUE(Blocked(other, Insert(other, 500)));
  EXPECT_TRUE(Blocked(other, Delete(other, 50)));
  Commit(scanner);
  EXPECT_EQ(Write(other, 50, 0, Row(25)), Progress::kDone);
  EXPECT_TRUE(Blocked(scanner, Find(scanner, 0, 1))) << "somebody's changes of the index are not known yet";
  Rollback(other);
  ASSERT_EQ(Find(scanner, 20, 31), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{20, 30}));
  Commit(scanner);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

TEST_F(Indexed, IndexScan_LeavesOtherRowsToOthers) {
  Branch scanner, other, second;
  ASSERT_EQ(Write(other, 40, 4, "xy"), Progress::kDone) << "changes nothing of the index";
  ASSERT_EQ(Find(scanner, 20, 31), Progress::kDone);
  EXPECT_EQ(Write(other, 50, 4, "xy"), Progress::kDone);
  EXPECT_EQ(Find(second, 20, 31), Progress::kDone);
  EXPECT_TRUE(Blocked(second, Find(second, 40, 41))) << "its row is being changed";
  Commit(other);
  ASSERT_EQ(Find(second, 40, 41), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{40}));
  Commit(second);
  Commit(scanner);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// An update writes the whole row back, but only its counter is another one.
TEST_F(Indexed, Update_MovesTheEntryOfAnIndexedCounterOnly) {
  Branch setup, scanner, other;
  ASSERT_EQ(Replace(setup, 50, Row(50) + "........"), Progress::kDone);
  Commit(setup);
  ASSERT_EQ(Find(scanner, 20, 31), Progress::kDone);
  EXPECT_EQ(Update(other, 50, 8), Progress::kDone) << "changes nothing of the index";
  Rollback(other);
  Commit(scanner);
  for (const bool commits : {false, true}) {
    ASSERT_EQ(Update(other, 50, 0), Progress::kDone);
    ASSERT_EQ(Update(other, 50, 8), Progress::kDone);
    commits ? Commit(other) : Rollback(other);
    ASSERT_EQ(Find(scanner, 50, 52), Progress::kDone);
    EXPECT_EQ(found_, (std::vector<int64_t>{50}));
    ASSERT_EQ(Find(scanner, 51, 52), Progress::kDone);
    EXPECT_EQ(found_.size(), commits ? 1u : 0u);
    Commit(scanner);
    EXPECT_TRUE(store_->Check().ok()) << store_->Check();
  }
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(Indexed, IndexScan_ThenChange_MeetsNobody) {
  // As a payment to a customer that is looked for by name does: two at once, of different names.
  Branch first, second;
  ASSERT_EQ(Find(first, 20, 21), Progress::kDone);
  ASSERT_EQ(Find(second, 30, 31), Progress::kDone);
  EXPECT_EQ(Write(first, 20, 4, "ab"), Progress::kDone);
  EXPECT_EQ(Write(second, 30, 4, "cd"), Progress::kDone);
  Commit(first);
  Commit(second);
}

TEST_F(Indexed, IndexScan_OfItsOwnChanges) {
  Branch branch;
  ASSERT_EQ(Find(branch, 20, 31), Progress::kDone);
  ASSERT_EQ(Write(branch, 50, 0, Row(25)), Progress::kDone);
  ASSERT_EQ(Delete(branch, 20), Progress::kDone);
  ASSERT_EQ(Find(branch, 20, 31), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{50, 30}));
  Rollback(branch);
  ASSERT_EQ(Find(branch, 20, 31), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{20, 30}));
  Commit(branch);
}

// What it holds of the site then covers what it reads, and nothing that it writes.
TEST_F(Gaps, Scan_ThatEscalatedStillLocksWhatItWrites) {
  Branch scanner, reader;
  for (uint64_t key = 1000; key < 1600; ++key) ASSERT_EQ(Insert(scanner, key), Progress::kDone);
  Commit(scanner);
  const uint64_t before = locks_.Escalations();
  ASSERT_EQ(Scan(scanner, 1000, 1600), Progress::kDone);
  ASSERT_GT(locks_.Escalations(), before);
  EXPECT_EQ(Scan(reader, 1100, 1110), Progress::kDone);
  Commit(reader);
  ASSERT_EQ(Delete(scanner, 1105), Progress::kDone);
  ASSERT_EQ(Insert(scanner, 2000), Progress::kDone);
  EXPECT_TRUE(Blocked(reader, Scan(reader, 1100, 1110)));
  EXPECT_TRUE(Blocked(reader, Scan(reader, 1900, 2100)));
  Rollback(scanner);
  Rollback(reader);
  executor_->RemoveGhosts(&wakeups_);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(Gaps, Insert_BlocksScansOfItsGapOnly) {
  Branch inserter, other_inserter, scanner;
  ASSERT_EQ(Insert(inserter, 45), Progress::kDone);
  EXPECT_EQ(Insert(other_inserter, 44), Progress::kDone) << "inserts share a gap";
  EXPECT_EQ(Scan(scanner, 42, 43), Progress::kDone) << "the gap below a new key is free";
  EXPECT_TRUE(Blocked(scanner, Scan(scanner, 42, 46)));
  EXPECT_TRUE(Blocked(scanner, Scan(scanner, 46, 48)));
  EXPECT_EQ(Scan(scanner, 55, 65), Progress::kDone);
  Commit(inserter);
  Commit(other_inserter);
  EXPECT_EQ(Scan(scanner, 42, 46), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{44, 45}));
  Commit(scanner);
}

// A gap that is parted by the branch's own insert stays covered on both sides.
TEST_F(Gaps, Insert_AfterOwnScanKeepsBothHalves) {
  Branch scanner, other;
  ASSERT_EQ(Scan(scanner, 41, 49), Progress::kDone);
  ASSERT_EQ(Insert(scanner, 45), Progress::kDone);
  EXPECT_TRUE(Blocked(other, Insert(other, 43)));
  EXPECT_TRUE(Blocked(other, Insert(other, 47)));
  Rollback(scanner);
  EXPECT_EQ(Insert(other, 43), Progress::kDone);
  Commit(other);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// Were the deleted key gone at once, an insert beside it would part the gap, and a scan of the lower part
// would neither see the row nor wait for it.
TEST_F(Gaps, Delete_IsSeenByScansUntilItCommits) {
  Branch deleter, inserter, scanner;
  ASSERT_EQ(Delete(deleter, 40), Progress::kDone);
  ASSERT_EQ(Insert(inserter, 45), Progress::kDone);
  Commit(inserter);
  EXPECT_TRUE(Blocked(scanner, Scan(scanner, 35, 46)));
  Rollback(deleter);
  EXPECT_EQ(Scan(scanner, 35, 46), Progress::kDone);
  EXPECT_EQ(found_, (std::vector<int64_t>{40, 45}));
  Commit(scanner);
}

TEST_F(Gaps, Ghost_StaysWhileItsGapIsLocked) {
  Branch scanner, deleter, other;
  ASSERT_EQ(Scan(scanner, 35, 38), Progress::kDone);  // 40 is the first key beyond
  ASSERT_EQ(Delete(deleter, 40), Progress::kDone);
  Commit(deleter);
  EXPECT_EQ(State(40), storage::KeyState::kGhost);
  executor_->RemoveGhosts(&wakeups_);
  EXPECT_EQ(State(40), storage::KeyState::kGhost);
  EXPECT_TRUE(Blocked(other, Insert(other, 36)));
  EXPECT_EQ(Insert(other, 45), Progress::kDone);
  EXPECT_EQ(Insert(other, 40), Progress::kDone) << "the key itself is free";
  Rollback(other);
  EXPECT_EQ(State(40), storage::KeyState::kGhost);
  Commit(scanner);
  executor_->RemoveGhosts(&wakeups_);
  EXPECT_EQ(State(40), storage::KeyState::kAbsent);
  EXPECT_EQ(executor_->ghosts(), 0u);
  EXPECT_EQ(store_->CountRows(0), 8u);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

TEST_F(Gaps, Read_OfAGhostShowsNothingOfIt) {
  Branch scanner, deleter, reader;
  ASSERT_EQ(Scan(scanner, 35, 38), Progress::kDone);
  ASSERT_EQ(Delete(deleter, 40), Progress::kDone);
  Commit(deleter);
  ASSERT_EQ(State(40), storage::KeyState::kGhost);
  Batch batch;
  batch.Read(0, Uint64Key(40));
  ASSERT_EQ(Run(reader, batch), Progress::kDone);
  EXPECT_EQ(batch.code(0), absl::StatusCode::kNotFound);
  EXPECT_TRUE(batch.row(0).empty()) << "bytes of a row that was deleted";
  Commit(reader);
  Commit(scanner);
}

TEST_F(Gaps, Rollback_OfAnInsertLeavesAGhostToItsScanners) {
  Branch inserter, scanner, other;
  ASSERT_EQ(Insert(inserter, 45), Progress::kDone);
  ASSERT_EQ(Scan(scanner, 35, 41), Progress::kDone);
  Rollback(inserter);
  EXPECT_EQ(State(45), storage::KeyState::kGhost) << "the scanned range ends there";
  EXPECT_TRUE(Blocked(other, Insert(other, 40 + 1)));
  Commit(scanner);
  executor_->RemoveGhosts(&wakeups_);
  EXPECT_EQ(State(45), storage::KeyState::kAbsent);
}

TEST_F(Gaps, DeleteInsertDelete_RollsBackToTheFirstRow) {
  Branch branch;
  Batch batch;
  batch.Delete(0, Uint64Key(40));
  batch.Insert(0, Uint64Key(40), Bytes("another, longer row"));
  batch.Delete(0, Uint64Key(40));
  batch.Insert(0, Uint64Key(40), Bytes("last"));
  ASSERT_EQ(Run(branch, batch), Progress::kDone) << failure_.status;
  Rollback(branch);
  std::vector<std::byte> row;
  ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(40), &row), absl::StatusCode::kOk);
  EXPECT_EQ(std::memcmp(row.data(), "row.", 4), 0);
  ASSERT_EQ(Run(branch, batch), Progress::kDone) << failure_.status;
  Commit(branch);
  ASSERT_EQ(store_->At(0, 0)->Read(Uint64Key(40), &row), absl::StatusCode::kOk);
  EXPECT_EQ(std::memcmp(row.data(), "last", 4), 0);
  EXPECT_TRUE(store_->Check().ok()) << store_->Check();
}

// Its rows are looked for together, before the first of them changes (Executor::LookAhead).
TEST_F(Gaps, Batch_SeesItsOwnChanges) {
  Branch branch;
  Batch batch;
  batch.Insert(0, Uint64Key(5), Bytes("first"));
  batch.Read(0, Uint64Key(10));
  batch.Read(0, Uint64Key(90));
  batch.Delete(0, Uint64Key(10));
  batch.Read(0, Uint64Key(10));
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  for (const uint32_t read : {1u, 2u}) {
    ASSERT_EQ(batch.code(read), absl::StatusCode::kOk);
    EXPECT_EQ(batch.row(read).size(), 4u);
    EXPECT_EQ(std::memcmp(batch.row(read).data(), "row.", 4), 0);
  }
  EXPECT_EQ(batch.code(4), absl::StatusCode::kNotFound);
  Commit(branch);
}

class Alone : public Gaps {
 protected:
  Alone() : Gaps(/*latched=*/false) { options_.alone = true; }

  // 30, and from 60 on; then it suspends.
  void DeleteAndScan(Branch& branch) {
    ASSERT_EQ(Delete(branch, 30), Progress::kDone);
    ASSERT_EQ(Scan(branch, 60, 65), Progress::kDone);
    executor_->EndQuiet();
  }
};

TEST_F(Alone, FirstBranch_TakesItsLocksOnlyBeforeItSuspends) {
  Branch first, second;
  Batch batch;
  batch.Read(0, Uint64Key(10));
  batch.Add(0, Uint64Key(20), 0, 0);
  batch.Write(0, Uint64Key(30), 0, Bytes("new."));
  batch.Scan(0, Uint64Key(35), Uint64Key(55));
  batch.Insert(0, Uint64Key(77), Bytes("row."));
  ASSERT_EQ(Run(first, batch), Progress::kFailed);  // an Add of 8 bytes does not fit into a row of 4
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  Rollback(first);
  batch.Clear();
  batch.Insert(0, Uint64Key(88), Bytes("row row."));
  ASSERT_EQ(Run(second, batch), Progress::kDone) << failure_.status;
  Commit(second);
  batch.Clear();
  batch.Read(0, Uint64Key(10));
  batch.Write(0, Uint64Key(30), 0, Bytes("new."));
  batch.Scan(0, Uint64Key(35), Uint64Key(55));
  batch.Insert(0, Uint64Key(77), Bytes("row."));
  batch.Update(0, Uint64Key(88), 0, 1);
  ASSERT_EQ(Run(first, batch), Progress::kDone) << failure_.status;
  EXPECT_EQ(locks_.LocksHeld(), 0u);
  EXPECT_EQ(executor_->quiet(), &first);
  executor_->EndQuiet();
  EXPECT_EQ(executor_->quiet(), nullptr);
  EXPECT_GT(locks_.LocksHeld(), 0u);
  EXPECT_TRUE(Blocked(second, Delete(second, 10)));
  EXPECT_TRUE(Blocked(second, Delete(second, 30)));
  EXPECT_TRUE(Blocked(second, Delete(second, 88)));
  EXPECT_TRUE(Blocked(second, Insert(second, 54)));
  EXPECT_TRUE(Blocked(second, Scan(second, 71, 79)));
  EXPECT_EQ(Scan(second, 78, 79), Progress::kDone) << "behind the new key all is as it was";
  EXPECT_EQ(Insert(second, 65), Progress::kDone);
  Commit(first);
  EXPECT_EQ(Delete(second, 10), Progress::kDone);
  Commit(second);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(Alone, BesideOthers_TakesNoLocksUnlessItSuspends) {
  Branch first, second, third;
  DeleteAndScan(first);
  const uint64_t of_first = locks_.LocksHeld();
  ASSERT_GT(of_first, 0u);
  ASSERT_EQ(Scan(second, 60, 65), Progress::kDone);  // as the other did
  ASSERT_EQ(Delete(second, 10), Progress::kDone);
  ASSERT_EQ(Insert(second, 15), Progress::kDone);
  EXPECT_EQ(locks_.LocksHeld(), of_first);
  Commit(second);
  EXPECT_EQ(locks_.LocksHeld(), of_first);
  EXPECT_EQ(State(10), storage::KeyState::kAbsent) << "nobody had its gap";
  ASSERT_EQ(Delete(second, 20), Progress::kDone);
  executor_->EndQuiet();
  EXPECT_GT(locks_.LocksHeld(), of_first);
  EXPECT_TRUE(Blocked(third, Delete(third, 20)));
  Rollback(third);
  // Its own locks are no reason to wait.
  ASSERT_EQ(Insert(second, 20), Progress::kDone);
  Commit(second);
  Commit(first);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(Alone, BesideOthers_WaitsForWhatTheyHave) {
  Branch first, second, third;
  DeleteAndScan(first);
  ASSERT_EQ(Delete(second, 10), Progress::kDone);
  EXPECT_TRUE(Blocked(second, Insert(second, 63)));
  ASSERT_EQ(Delete(second, 20), Progress::kDone);
  EXPECT_TRUE(Blocked(second, Delete(second, 30)));
  executor_->EndQuiet();
  // What it had before it waited is its own.
  EXPECT_TRUE(Blocked(third, Delete(third, 10)));
  EXPECT_TRUE(Blocked(third, Delete(third, 20)));
  Rollback(third);
  Commit(first);
  executor_->EndQuiet();
  EXPECT_EQ(Delete(second, 30), Progress::kDone);
  Commit(second);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// One who waits for a lock has its place in the queue.
TEST_F(Alone, BesideOthers_DoesNotOvertakeWhoWaits) {
  Branch first, second, third;
  Batch batch;
  batch.Read(0, Uint64Key(30));
  ASSERT_EQ(Run(first, batch), Progress::kDone);
  executor_->EndQuiet();
  ASSERT_EQ(Delete(second, 30), Progress::kWaiting);
  executor_->EndQuiet();
  batch.Clear();
  batch.Read(0, Uint64Key(30));
  EXPECT_EQ(Run(third, batch), Progress::kWaiting);
  Rollback(third);
  Commit(first);
  Commit(second);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

TEST_F(Alone, BesideOthers_InsertAsksForItsGapOnlyIfSomebodyHasScanned) {
  Branch first, second, third, fourth;
  ASSERT_EQ(Delete(first, 30), Progress::kDone);
  executor_->EndQuiet();
  const uint64_t of_first = locks_.LocksHeld();
  ASSERT_EQ(Insert(second, 15), Progress::kDone);
  executor_->EndQuiet();
  EXPECT_EQ(locks_.LocksHeld(), 2 * of_first) << "as for a delete: the site, its entries and the key";
  // Who scans later meets the key.
  EXPECT_TRUE(Blocked(third, Scan(third, 11, 19)));
  Rollback(third);
  EXPECT_EQ(Scan(third, 16, 19), Progress::kDone);
  executor_->EndQuiet();
  EXPECT_TRUE(Blocked(fourth, Insert(fourth, 17)));
  Rollback(fourth);
  EXPECT_TRUE(Blocked(second, Insert(second, 18))) << "not the first that it inserts";
  executor_->EndQuiet();
  Commit(third);
  EXPECT_EQ(Insert(second, 18), Progress::kDone);
  executor_->EndQuiet();
  EXPECT_EQ(Insert(fourth, 17), Progress::kDone);
  executor_->EndQuiet();
  for (Branch* each : {&first, &second, &fourth}) Commit(*each);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// Nobody writes there, which one look tells; and the keys are remembered all the same.
TEST_F(Alone, BesideReaders_ScanKeepsItsRange) {
  Branch first, second, third;
  Batch batch;
  batch.Read(0, Uint64Key(10));
  ASSERT_EQ(Run(first, batch), Progress::kDone);
  executor_->EndQuiet();
  ASSERT_EQ(Scan(second, 35, 55), Progress::kDone);
  executor_->EndQuiet();
  EXPECT_TRUE(Blocked(third, Insert(third, 54)));
  EXPECT_TRUE(Blocked(third, Delete(third, 40)));
  EXPECT_EQ(Insert(third, 65), Progress::kDone);
  for (Branch* each : {&first, &second, &third}) Commit(*each);
}

// What it has seen of a site holds until it gives control back, and no longer.
TEST_F(Alone, BesideOthers_LooksAgainAfterItHasSuspended) {
  Branch first, second, foreign;
  foreign.foreign = true;
  Batch read;
  read.Read(0, Uint64Key(10));
  ASSERT_EQ(Run(first, read), Progress::kDone);
  executor_->EndQuiet();
  ASSERT_EQ(Run(second, read), Progress::kDone);
  executor_->EndQuiet();
  ASSERT_EQ(Delete(foreign, 40), Progress::kDone);
  EXPECT_EQ(executor_->quiet(), nullptr);
  read.Clear();
  read.Read(0, Uint64Key(40));
  EXPECT_TRUE(Blocked(second, Run(second, read)));
  for (Branch* each : {&foreign, &first, &second}) Commit(*each);
}

TEST_F(Alone, QuietDelete_LeavesNoGhost) {
  Branch branch;
  ASSERT_EQ(Delete(branch, 40), Progress::kDone);
  ASSERT_EQ(Insert(branch, 41), Progress::kDone);
  Commit(branch);
  EXPECT_EQ(State(40), storage::KeyState::kAbsent);
  ASSERT_EQ(Insert(branch, 42), Progress::kDone);
  Rollback(branch);
  EXPECT_EQ(State(42), storage::KeyState::kAbsent);
  EXPECT_EQ(executor_->ghosts(), 0u);
}

TEST_F(Alone, QuietScanOfManyKeys_RemembersTheSite) {
  Branch branch, other;
  for (uint64_t key = 1000; key < 4000; ++key) ASSERT_EQ(Insert(branch, key), Progress::kDone);
  Commit(branch);
  ASSERT_EQ(Scan(branch, 1000, 4000), Progress::kDone);
  EXPECT_EQ(found_.size(), 3000u);
  executor_->EndQuiet();
  EXPECT_EQ(locks_.LocksHeld(), 1u);
  EXPECT_TRUE(Blocked(other, Insert(other, 5000)));
  Commit(branch);
  Commit(other);
}

TEST_F(Alone, QuietScanOfManyKeys_LeavesTheSiteToOthersWhoWriteThere) {
  Branch branch, other, third;
  for (uint64_t key = 1000; key < 4000; ++key) ASSERT_EQ(Insert(branch, key), Progress::kDone);
  Commit(branch);
  ASSERT_EQ(Delete(other, 10), Progress::kDone);
  executor_->EndQuiet();
  ASSERT_EQ(Scan(branch, 1000, 4000), Progress::kDone);
  EXPECT_EQ(found_.size(), 3000u);
  executor_->EndQuiet();
  EXPECT_TRUE(Blocked(third, Delete(third, 3500)));
  EXPECT_EQ(Delete(third, 20), Progress::kDone);
  for (Branch* each : {&branch, &other, &third}) Commit(*each);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
}

// Its own lock on the site is no reason to hold each row that it changes there.
TEST_F(Alone, BesideOthers_WritesBelowItsOwnSiteLockEscalate) {
  Branch branch, other;
  for (uint64_t key = 1000; key < 4000; ++key) ASSERT_EQ(Insert(branch, key), Progress::kDone);
  Commit(branch);
  ASSERT_EQ(Delete(other, 10), Progress::kDone);
  executor_->EndQuiet();
  locks_.ReleaseAll(other.locks, &wakeups_);  // open, as if elsewhere
  ASSERT_EQ(Scan(branch, 1000, 4000), Progress::kDone);
  executor_->EndQuiet();
  EXPECT_EQ(locks_.LocksHeld(), 1u);
  for (uint64_t key = 1000; key < 4000; ++key) ASSERT_EQ(Delete(branch, key), Progress::kDone);
  EXPECT_EQ(locks_.Escalations(), 1u);
  EXPECT_LT(locks_.LocksHeld(), 1500u);
  Rollback(branch);
  Rollback(other);
  EXPECT_EQ(locks_.LocksHeld(), 0u);
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

TEST_F(OneSite, Reads_TooLargeAResultIsRefused) {
  Open(1 << 20);
  Branch branch;
  Batch batch;
  const std::string big(1500, 'b');
  batch.Insert(0, Uint64Key(1), Bytes(big));
  ASSERT_EQ(Run(branch, batch), Progress::kDone);
  batch.Clear();
  for (size_t bytes = 0; bytes < 2 * Batch::kMaxBytes; bytes += big.size()) batch.Read(0, Uint64Key(1));
  EXPECT_EQ(Run(branch, batch), Progress::kFailed);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_LT(batch.stored_bytes(), Batch::kMaxBytes + Batch::kMaxBytes / 4);
  executor_->Rollback(branch, &wakeups_);
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
