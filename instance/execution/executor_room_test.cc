// What an executor does when its worker's log ring has little room: it says so before it changes anything,
// and undo finds room. The test is the logger, and a slow one.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "instance/execution/executor.h"
#include "instance/execution/executor_testing.h"
#include "runtime/file_system.h"
#include "runtime/random.h"

namespace islands::instance {
namespace {

using partitioner::Uint64Key;

// One of the island's workers; the others stand still.
class Room : public testing::Test {
 protected:
  void Open(size_t workers, size_t ring_bytes, int indexes = 1, const char* indexed = "row:0:uint32") {
    executor_.reset();  // of an Open before this one, before what it uses
    journal_.reset();
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(5000);
    if (indexes == 0) table->set_row_bytes(100);  // so that no undo may take a page more
    for (int i = 0; i < indexes; ++i) {
      control::v1::IndexSpec* index = table->add_indexes();
      index->set_name("index_" + std::to_string(i));
      index->add_key(indexed);
    }
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    const bool alone = workers == 1;
    store_ = *storage::Store::Create(*catalog_, {.sites = {0, 1}, .pool_bytes = 64 << 20, .alone = alone},
                                     *files_);
    board_ = std::make_unique<log::Board>(std::vector<uint32_t>{static_cast<uint32_t>(workers)});
    shared_ = std::make_unique<log::IslandLog>(workers, board_->epoch(), log::Lsn());
    ring_ = log::Ring::InMemory({1, 0, 0}, ring_bytes);
    journal_ = std::make_unique<log::Journal>(*board_, *ring_, log::Lsn(), alone ? nullptr : shared_.get());
    executor_ = std::make_unique<Executor>(
        *catalog_, *store_, locks_,
        ExecutorOptions{.alone = alone, .journal = journal_.get(), .wait_for_room = [this] {
                          ++waits_of_undo_;
                          Drain();
                        }});
    journal_->Listen();
  }
  ~Room() override { storage::page_change_sink = nullptr; }

  std::unique_ptr<Branch> Begin() {
    auto branch = std::make_unique<Branch>();
    branch->locks.transaction = {0, 0, 1, ++sequence_};
    branch->locks.wake_token = sequence_;
    return branch;
  }
  Progress Run(Branch& branch, Batch& batch, size_t* cursor) {
    const Progress progress = RunWithin(branch, batch, cursor);
    EndStep();
    return progress;
  }
  // The worker's step goes on.
  Progress RunWithin(Branch& branch, Batch& batch, size_t* cursor) {
    if (*cursor == 0) batch.ResetResults();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    return executor_->Run(branch, batch, routes, cursor, &failure_);
  }
  void EndStep() {
    executor_->EndStep();
    executor_->CheckInvariants();
    wakeups_.clear();
  }
  // The logger takes what is there, or only some.
  void Drain(size_t most_records = SIZE_MAX) {
    uint64_t at = ring_->head();
    for (size_t taken = 0; at < ring_->tail() && most_records > 0; at += taken, --most_records) {
      const auto record = log::ParseRecord(ring_->stream(), at, ring_->Bytes(at, ring_->tail()), &taken);
      ASSERT_TRUE(record.ok()) << record.status();
    }
    ring_->SetHead(at);
  }

  // What is in the ring. Valid until it is drained.
  std::vector<log::Entry> Entries() {
    std::vector<log::Entry> entries;
    size_t taken = 0;
    for (uint64_t at = ring_->head(); at < ring_->tail(); at += taken) {
      const auto record = log::ParseRecord(ring_->stream(), at, ring_->Bytes(at, ring_->tail()), &taken);
      EXPECT_TRUE(record.ok()) << record.status();
      if (!record.ok()) break;
      entries.push_back(*log::DecodeEntry(*record));
    }
    return entries;
  }

  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::IslandLog> shared_;
  std::unique_ptr<log::Ring> ring_;
  std::unique_ptr<log::Journal> journal_;
  std::unique_ptr<Executor> executor_;
  std::vector<locks::Wakeup> wakeups_;
  Failure failure_;
  uint64_t sequence_ = 0;
  int waits_of_undo_ = 0;
};

class SlowLogger : public Room, public testing::WithParamInterface<std::tuple<size_t, uint64_t>> {
 protected:
  struct Transaction {
    std::unique_ptr<Branch> branch;
    std::unique_ptr<Batch> batch;
    size_t cursor = 0;
    int waits = 0;
  };
  void Fill(Batch* batch) {
    for (uint64_t left = 1 + random_.Below(12); left > 0; --left) {
      const uint64_t key = random_.Below(5000);
      const std::string row(4 + random_.Below(1400), static_cast<char>('a' + random_.Below(26)));
      const uint64_t dice = random_.Below(8);
      if (dice < 5) batch->Insert(0, Uint64Key(key), Bytes(row));
      if (dice == 5) batch->Replace(0, Uint64Key(key), Bytes(row));
      if (dice == 6) batch->Delete(0, Uint64Key(key));
      if (dice == 7) batch->Write(0, Uint64Key(key), 0, Bytes(row.substr(0, 4)));
    }
  }
  void End(Transaction& transaction, bool commit) {
    commit ? executor_->Commit(*transaction.branch, &wakeups_)
           : executor_->Rollback(*transaction.branch, &wakeups_);
    ++(commit ? commits_seen_ : rollbacks_);
    transaction = {};
    EndStep();
  }
  void Step(Transaction& transaction) {
    if (!transaction.branch) transaction.branch = Begin();
    if (!transaction.batch) {
      transaction.batch = std::make_unique<Batch>();
      transaction.cursor = 0;
      Fill(transaction.batch.get());
    }
    switch (Run(*transaction.branch, *transaction.batch, &transaction.cursor)) {
      case Progress::kWaitingForRoom:
        ++waits_;
        if (++transaction.waits > 300) End(transaction, /*commit=*/false);  // its deadline
        return;
      case Progress::kDone:
        transaction.batch.reset();
        if (random_.Below(3) == 0) End(transaction, random_.Below(4) != 0);
        return;
      default:
        failures_ += failure_.status.code() == absl::StatusCode::kFailedPrecondition ? 1 : 0;
        return End(transaction, /*commit=*/false);
    }
  }

  runtime::Random random_{std::get<1>(GetParam())};
  int waits_ = 0, commits_seen_ = 0, rollbacks_ = 0, failures_ = 0;
};

TEST_P(SlowLogger, RingIsNeverTooFullAndNobodyIsStuck) {
  Open(std::get<0>(GetParam()), log::Ring::kLeastCapacity);
  std::vector<Transaction> transactions(4);
  for (int step = 0; step < 60'000; ++step) {
    Step(transactions[random_.Below(transactions.size())]);
    if (random_.Below(4) == 0) executor_->RemoveGhosts(&wakeups_);
    EndStep();
    if (random_.Below(3) == 0) Drain(random_.Below(4));
  }
  EXPECT_GT(waits_, 50);
  EXPECT_GT(commits_seen_, 300);
  EXPECT_GT(rollbacks_, 100);
  for (Transaction& transaction : transactions) {
    if (transaction.branch) End(transaction, /*commit=*/false);
  }
  EXPECT_TRUE(store_->Check().ok());
}
INSTANTIATE_TEST_SUITE_P(All, SlowLogger,
                         testing::Combine(testing::Values(1, 2), testing::Values(1, 2, 3, 4)));

TEST_F(Room, Transaction_ThatChangesTooMuchFailsAndSaysWhy) {
  Open(1, log::Ring::kLeastCapacity);
  const auto branch = Begin();
  Progress progress = Progress::kDone;
  for (uint64_t key = 0; key < 5000 && progress == Progress::kDone; ++key) {
    Batch batch;
    batch.Insert(0, Uint64Key(key), Bytes(std::string(1000, 'r')));
    size_t cursor = 0;
    progress = Run(*branch, batch, &cursor);
    Drain();
  }
  ASSERT_EQ(progress, Progress::kFailed);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(failure_.status.message().find("storage.log.ring_bytes"), std::string::npos) << failure_.status;
  executor_->Rollback(*branch, &wakeups_);
  EndStep();
  EXPECT_EQ(store_->CountRows(0), 0u);
}

TEST_F(Room, Operation_ThatNoRingLikeThatHoldsFailsAndSaysWhy) {
  Open(2, log::Ring::kLeastCapacity, /*indexes=*/60);
  const auto branch = Begin();
  Batch batch;
  batch.Insert(0, Uint64Key(7), Bytes("a row"));
  size_t cursor = 0;
  ASSERT_EQ(Run(*branch, batch, &cursor), Progress::kFailed);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(failure_.status.message().find("storage.log.ring_bytes"), std::string::npos) << failure_.status;
  executor_->Rollback(*branch, &wakeups_);
}

// Nothing is begun that the log may have no room for; what there is can be read, and undone.
TEST_F(Room, FullDisk_RefusesChangesUntilItHasRoom) {
  Open(1, log::Ring::kLeastCapacity);
  const auto branch = Begin();
  Batch first, second, read;
  first.Insert(0, Uint64Key(7), Bytes("a row"));
  second.Insert(0, Uint64Key(8), Bytes("a row"));
  read.Read(0, Uint64Key(7));
  size_t cursor = 0;
  ASSERT_EQ(Run(*branch, first, &cursor), Progress::kDone);
  board_->SetFull(true);
  EXPECT_EQ(Run(*branch, second, &(cursor = 0)), Progress::kFailed);
  EXPECT_EQ(failure_.reason, AbortReason::kStorage);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(failure_.status.message().find("disk with the log is full"), std::string::npos);
  EXPECT_EQ(Run(*branch, read, &(cursor = 0)), Progress::kDone);
  executor_->Rollback(*branch, &wakeups_);
  EndStep();
  EXPECT_EQ(store_->CountRows(0), 0u);
  board_->SetFull(false);
  const auto later = Begin();
  EXPECT_EQ(Run(*later, second, &(cursor = 0)), Progress::kDone) << failure_.status;
  executor_->Rollback(*later, &wakeups_);
}

// Bytes that change in place may wait for the end of a step, and a rollback is one step.
TEST_F(Room, Undo_OfMoreThanOneRecordHolds) {
  for (const size_t workers : {1, 2}) {
    Open(workers, 8 << 20, /*indexes=*/0);
    constexpr uint64_t kRows = 1500;
    Batch insert, write;
    for (uint64_t key = 0; key < kRows; ++key) {
      insert.Insert(0, Uint64Key(key), Bytes(std::string(100, 'a')));
      write.Write(0, Uint64Key(key), 0, Bytes(std::string(100, 'b')));
    }
    size_t cursor = 0;
    auto branch = Begin();
    ASSERT_EQ(Run(*branch, insert, &(cursor = 0)), Progress::kDone) << failure_.status;
    executor_->Commit(*branch, &wakeups_);
    EndStep();
    Drain();
    branch = Begin();
    ASSERT_EQ(Run(*branch, write, &(cursor = 0)), Progress::kDone) << failure_.status;
    Drain();
    executor_->Rollback(*branch, &wakeups_);
    EndStep();
    Drain();
    std::vector<std::byte> row;
    ASSERT_EQ(store_->At(0, 0)->Find(Uint64Key(kRows - 1), &row), storage::KeyState::kRow);
    EXPECT_EQ(row.front(), std::byte{'a'});
    storage::page_change_sink = nullptr;
  }
}

// Small batches of one step, which are noted at their ends: what they change and what undoes it are more than
// a record holds.
TEST_F(Room, Step_OfManyBatchesIsInSeveralRecords) {
  for (const size_t workers : {1, 2}) {
    Open(workers, 64 << 20, /*indexes=*/0);
    constexpr uint64_t kRows = 1500;
    Batch insert;
    for (uint64_t key = 0; key < kRows; ++key) insert.Insert(0, Uint64Key(key), Bytes(std::string(100, 'a')));
    size_t cursor = 0;
    auto branch = Begin();
    ASSERT_EQ(Run(*branch, insert, &(cursor = 0)), Progress::kDone) << failure_.status;
    executor_->Commit(*branch, &wakeups_);
    EndStep();
    Drain();
    const uint64_t begun = ring_->tail();
    branch = Begin();
    for (uint64_t first = 0; first < kRows; first += 10) {
      Batch write;
      for (uint64_t key = first; key < first + 10; ++key)
        write.Write(0, Uint64Key(key), 0, Bytes(std::string(100, 'b')));
      ASSERT_EQ(RunWithin(*branch, write, &(cursor = 0)), Progress::kDone) << failure_.status;
      EXPECT_LT(branch->undo.bytes() - branch->undo_published_bytes, log::Journal::kMostCollected);
    }
    EndStep();
    EXPECT_GT(ring_->tail() - begun, 2 * log::kMostRecordBytes);
    Drain();
    executor_->Rollback(*branch, &wakeups_);
    EndStep();
    Drain();
    std::vector<std::byte> row;
    for (const uint64_t key : {uint64_t{0}, kRows - 1}) {
      ASSERT_EQ(store_->At(0, 0)->Find(Uint64Key(key), &row), storage::KeyState::kRow);
      EXPECT_EQ(row.front(), std::byte{'a'});
    }
    storage::page_change_sink = nullptr;
  }
}

// An index has no entry for strings that are too long, which an update finds out after it was remembered.
TEST_F(Room, Undo_OfAWriteThatFailedIsNotMoreThanTheLogHas) {
  for (const size_t workers : {1, 2}) {
    Open(workers, 8 << 20, /*indexes=*/1, "row:0:string:400");
    Batch insert, write, too_long;
    for (const uint64_t key : {1, 2}) insert.Insert(0, Uint64Key(key), Bytes(std::string(400, '\0')));
    write.Write(0, Uint64Key(1), 0, Bytes("short"));
    too_long.Write(0, Uint64Key(2), 0, Bytes(std::string(390, 'l')));
    size_t cursor = 0;
    auto branch = Begin();
    ASSERT_EQ(Run(*branch, insert, &(cursor = 0)), Progress::kDone) << failure_.status;
    executor_->Commit(*branch, &wakeups_);
    EndStep();
    Drain();
    branch = Begin();
    ASSERT_EQ(Run(*branch, write, &(cursor = 0)), Progress::kDone) << failure_.status;
    ASSERT_EQ(Run(*branch, too_long, &(cursor = 0)), Progress::kFailed);
    const coordinator::TransactionId id = branch->locks.transaction;
    executor_->Rollback(*branch, &wakeups_);
    EndStep();
    UndoLog logged;
    for (const log::Entry& entry : Entries()) {
      if (entry.transaction != id) continue;
      ASSERT_TRUE(logged.Decode(entry.undo).ok());
      if (entry.kind == log::EntryKind::kCompensation) {
        EXPECT_LE(entry.left, logged.size());
      }
    }
    storage::page_change_sink = nullptr;
  }
}

// What two-phase commit says has to fit as well, whoever of the island's has filled the ring meanwhile, and
// however long the logger stands still.
TEST_F(Room, TwoPhaseCommit_BeginsOnlyWithRoomForAllItSays) {
  for (const size_t workers : {1, 2}) {
    Open(workers, log::Ring::kLeastCapacity);
    std::vector<std::unique_ptr<Branch>> open;
    Progress progress = Progress::kDone;
    for (uint64_t key = 0; progress == Progress::kDone; ++key) {
      ASSERT_LT(key, 1000u);
      open.push_back(Begin());
      Batch batch;
      batch.Insert(0, Uint64Key(key), Bytes(std::string(1000, 'r')));
      size_t cursor = 0;
      progress = Run(*open.back(), batch, &cursor);
    }
    ASSERT_EQ(progress, Progress::kWaitingForRoom);
    const std::vector<coordinator::Fellow> others(23, coordinator::Fellow{1, 1});
    std::vector<coordinator::TransactionId> decided;
    int promised = 0;
    for (;; ++promised) {
      ASSERT_LT(promised, 100'000);
      const auto branch = Begin();  // has written on other islands only
      if (!executor_->ReserveTwoPhases(*branch, others.size())) break;
      if (promised % 3 == 0) {
        executor_->Prepare(*branch, others);
      } else {
        promised % 3 == 1 ? executor_->DecideAlone(*branch) : executor_->Decide(*branch, others);
        decided.push_back(branch->locks.transaction);
      }
      executor_->Commit(*branch, &wakeups_);
      EndStep();
    }
    EXPECT_GT(promised, 10);
    for (const coordinator::TransactionId& id : decided) journal_->AppendEnd(id);
    EndStep();
    for (const auto& branch : open) {  // there is room for what was promised before, too
      executor_->Rollback(*branch, &wakeups_);
      EndStep();
    }
    EXPECT_EQ(waits_of_undo_, 0);
    Drain();
    EXPECT_EQ(store_->CountRows(0), 0u);
    storage::page_change_sink = nullptr;
  }
}

// Pages that a disk has brought back may be old: undo says so before it takes anything for granted.
TEST_F(Room, Undo_KnowsWhetherItSuitsTheRows) {
  Open(1, log::Ring::kLeastCapacity);
  const auto branch = Begin();
  Batch batch;
  batch.Insert(0, Uint64Key(7), Bytes("a row"));
  size_t cursor = 0;
  ASSERT_EQ(Run(*branch, batch, &cursor), Progress::kDone);
  executor_->Commit(*branch, &wakeups_);
  EndStep();
  const auto suits = [&](auto&& record) {
    UndoLog undo;
    record(undo);
    int complaints = 0;
    const bool all = undo.Suits(*store_, [&](TableId, uint32_t, KeyView) { ++complaints; });
    EXPECT_EQ(complaints, all ? 0 : 1);
    return all;
  };
  const Uint64Key there(7), gone(8);
  EXPECT_TRUE(suits([&](UndoLog& undo) { undo.RecordWrite(0, 0, there, 2, Bytes("row")); }));
  EXPECT_FALSE(suits([&](UndoLog& undo) { undo.RecordWrite(0, 0, there, 3, Bytes("row")); }));
  EXPECT_FALSE(suits([&](UndoLog& undo) { undo.RecordWrite(0, 0, gone, 0, Bytes("row")); }));
  EXPECT_FALSE(suits([&](UndoLog& undo) { undo.RecordReplace(0, 0, gone, Bytes("row")); }));
  EXPECT_FALSE(suits([&](UndoLog& undo) { undo.RecordDelete(0, 0, gone); }));
  EXPECT_TRUE(suits([&](UndoLog& undo) { undo.RecordInsert(0, 0, gone); }));
  // What undo of the newer one leaves is what the older one finds.
  EXPECT_FALSE(suits([&](UndoLog& undo) {
    undo.RecordWrite(0, 0, there, 10, Bytes("row"));
    undo.RecordReplace(0, 0, there, Bytes("a longer row"));
  }));
  EXPECT_TRUE(suits([&](UndoLog& undo) {
    undo.RecordWrite(0, 0, there, 9, Bytes("row"));
    undo.RecordReplace(0, 0, there, Bytes("a longer row"));
  }));
  EXPECT_FALSE(suits([&](UndoLog& undo) {
    undo.RecordWrite(0, 0, there, 0, Bytes("row"));
    undo.RecordInsert(0, 0, there);
  }));
}

// What is left of the log's room is for what has begun.
TEST_F(Room, FullDisk_GhostsWaitToBeBuried) {
  Open(2, log::Ring::kLeastCapacity);
  Batch insert, remove;
  constexpr uint64_t kRows = 2;  // what undoes more does not fit into so small a ring
  for (uint64_t key = 0; key < kRows; ++key) {
    insert.Insert(0, Uint64Key(key), Bytes("a row"));
    remove.Delete(0, Uint64Key(key));
  }
  size_t cursor = 0;
  for (Batch* batch : {&insert, &remove}) {
    const auto branch = Begin();
    ASSERT_EQ(Run(*branch, *batch, &(cursor = 0)), Progress::kDone) << failure_.status;
    board_->SetFull(batch == &remove);
    executor_->Commit(*branch, &wakeups_);
    EndStep();
  }
  const uint64_t appended = ring_->tail();
  EXPECT_EQ(executor_->ghosts(), kRows);
  executor_->RemoveGhosts(&wakeups_);
  EndStep();
  EXPECT_EQ(executor_->ghosts(), kRows);
  EXPECT_EQ(ring_->tail(), appended);
  board_->SetFull(false);
  executor_->RemoveGhosts(&wakeups_);
  EndStep();
  EXPECT_EQ(executor_->ghosts(), 0u);
}

TEST_F(Room, ForeignBranches_HoldHalfOfARingAtMost) {
  Open(2, log::Ring::kLeastCapacity);
  std::vector<std::unique_ptr<Branch>> branches;
  Progress progress = Progress::kDone;
  for (uint64_t key = 0; progress == Progress::kDone; ++key) {
    ASSERT_LT(key, 1000u);
    branches.push_back(Begin());
    branches.back()->foreign = true;
    Batch batch;
    for (uint64_t i = 0; i < 8; ++i) batch.Insert(0, Uint64Key(key * 8 + i), Bytes(std::string(1000, 'r')));
    size_t cursor = 0;
    progress = Run(*branches.back(), batch, &cursor);
    Drain();
  }
  ASSERT_EQ(progress, Progress::kFailed);
  EXPECT_EQ(failure_.status.code(), absl::StatusCode::kResourceExhausted) << failure_.status;
  auto own = Begin();  // there is room left for those of the island
  Batch batch;
  batch.Insert(0, Uint64Key(4999), Bytes("a row"));
  size_t cursor = 0;
  EXPECT_EQ(Run(*own, batch, &cursor), Progress::kDone) << failure_.status;
  branches.push_back(std::move(own));
  for (const auto& branch : branches) {
    executor_->Rollback(*branch, &wakeups_);
    EndStep();
    Drain();
  }
  EXPECT_EQ(store_->CountRows(0), 0u);
}

// Of what cannot be repeated nothing is encoded: it is asked for in every Sweep.
TEST_F(Room, RepeatPrepare_RefusesWhatIsTooMuch) {
  Open(1, size_t{8} << 20, /*indexes=*/0);
  Branch branch;
  branch.locks.transaction = {1, 0, 1, ++sequence_};
  branch.foreign = true;
  for (uint64_t i = 0; i < 3000; ++i) branch.undo.RecordWrite(0, 0, Uint64Key(i), 0, Bytes("12345678"));
  executor_->Adopt(branch);
  journal_->NoteEarlier(log::EntryKind::kPrepare, branch.locks.transaction, 1);
  EXPECT_GT(branch.undo.LeastBytesInLog(), log::Journal::kMostCollected);
  const uint64_t appended = journal_->appended_bytes();
  EXPECT_FALSE(executor_->RepeatPrepare(branch, {}));
  EXPECT_EQ(journal_->appended_bytes(), appended);
  EXPECT_EQ(journal_->open().oldest(), 1u);
  journal_->EndStep();
  journal_->EndListening();
}

}  // namespace
}  // namespace islands::instance
