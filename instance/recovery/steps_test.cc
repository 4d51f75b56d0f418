// An island that dies between any two of its records: workers stepped one after the other from a seed, and
// recovery from what their rings had held at any moment, deaths during recovery among them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "instance/log/journal.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/recovery/stream_merge.h"
#include "runtime/random.h"
#include "runtime/seeds_testing.h"

namespace islands::recovery {
namespace {

using instance::Batch;
using instance::Branch;
using instance::Executor;
using instance::Progress;
using partitioner::Uint64Key;

constexpr size_t kRingBytes = 64 << 20;
constexpr uint64_t kKeys = 2000;

storage::Catalog MakeCatalog(int indexes) {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("rows");
  table->add_key("uint64");
  table->set_range_end(kKeys);
  for (int i = 0; i < indexes; ++i) {
    control::v1::IndexSpec* index = table->add_indexes();
    index->set_name("index_" + std::to_string(i));
    index->add_key("row:" + std::to_string(i % 8) + ":uint32");
  }
  return *storage::Catalog::Create(specs, 1);
}

// As it was appended.
struct Kept {
  log::StreamId stream;
  uint64_t lsn;
  uint8_t kind;
  std::string body;
};
using Log = std::vector<Kept>;

// One life of an island, and its records in the order in which they were appended.
class Life {
 public:
  Life(const storage::Catalog& catalog, size_t workers, uint64_t number, const Log& before,
       size_t ring_bytes = kRingBytes)
      : board_(std::vector<uint32_t>{static_cast<uint32_t>(workers)}), alone_(workers == 1), number_(number) {
    const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 64 << 20, .alone = alone_};
    store_ = *storage::Store::CreateForRedo(catalog, options);
    recovery_.emplace(catalog, *store_, std::vector<log::EpochCut>());
    StreamMerge merge;
    const auto redo = [&](const log::StreamId& stream, const log::Record& record) {
      return recovery_->Redo(stream, record);
    };
    absl::Status redone;
    for (const Kept& kept : before) {
      const log::Record record{kept.lsn, kept.kind, std::as_bytes(std::span(kept.body))};
      if (redone.ok()) redone = merge.Add(kept.stream, record, redo);
    }
    if (redone.ok()) redone = merge.Finish(redo);
    EXPECT_TRUE(redone.ok()) << redone;
    board_.RaiseEpoch(recovery_->last().epoch() + 1);
    shared_.emplace(workers, board_.epoch(), recovery_->last());
    workers_.resize(workers);
    for (uint32_t i = 0; i < workers; ++i) {
      workers_[i].ring = log::Ring::InMemory({number, 0, i}, ring_bytes);
      workers_[i].journal = std::make_unique<log::Journal>(board_, *workers_[i].ring, recovery_->last(),
                                                           alone_ ? nullptr : &*shared_);
    }
    if (before.empty()) {
      workers_[0].journal->Listen();
      store_ = *storage::Store::Create(catalog, options, *files_);
      workers_[0].journal->AppendDone();
      EndStep(0);
    } else if (redone.ok()) {
      redone = recovery_->FindTrees();
      EXPECT_TRUE(redone.ok()) << redone;
    }
    for (uint32_t i = 0; i < workers; ++i) {
      workers_[i].executor = std::make_unique<Executor>(
          catalog, *store_, locks_,
          instance::ExecutorOptions{
              .worker = i, .alone = alone_, .journal = workers_[i].journal.get(), .wait_for_room = [this, i] {
                ++waits_;
                Keep(workers_[i]);
                workers_[i].ring->SetHead(workers_[i].ring->tail());
              }});
    }
  }
  ~Life() { storage::page_change_sink = nullptr; }

  // To the end.
  void Undo() {
    workers_[0].journal->Listen();
    EXPECT_TRUE(recovery_->UndoLosers(*workers_[0].executor, [] { return true; }));
    EndStep(0);
  }

  struct Transaction {
    std::unique_ptr<Branch> branch;
    Changes changes;
  };
  struct Worker {
    std::unique_ptr<log::Ring> ring;
    std::unique_ptr<log::Journal> journal;
    std::unique_ptr<Executor> executor;
    std::vector<Transaction> transactions = std::vector<Transaction>(2);
    uint64_t kept = 0;  // of the ring
  };
  size_t workers() const { return workers_.size(); }
  Worker& Listen(size_t worker) {
    workers_[worker].journal->Listen();
    return workers_[worker];
  }
  // Control goes back; what the worker has appended is kept.
  void EndStep(size_t number) {
    Worker& worker = workers_[number];
    if (worker.executor != nullptr) worker.executor->EndQuiet();
    worker.journal->EndStep();
    worker.journal->EndListening();
    Keep(worker);
  }
  void Keep(Worker& worker) {
    const log::Ring& ring = *worker.ring;
    const absl::Status whole = VisitRecords(ring, worker.kept, ring.tail(), [&](const log::Record& record) {
      log_.push_back({ring.stream(), record.lsn, record.kind, Text(record.body)});
      return absl::OkStatus();
    });
    ASSERT_TRUE(whole.ok()) << whole;
    worker.kept = ring.tail();
  }

  storage::Store& store() { return *store_; }
  log::Board& board() { return board_; }
  const Log& log() const { return log_; }
  size_t losers() const { return recovery_->losers(); }
  uint64_t number() const { return number_; }
  int waits() const { return waits_; }
  uint64_t commit_epoch() const { return shared_->commits().epoch(); }

 private:
  log::Board board_;
  const bool alone_;
  const uint64_t number_;
  std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  std::unique_ptr<storage::Store> store_;
  std::optional<Recovery> recovery_;
  std::optional<log::IslandLog> shared_;
  std::vector<Worker> workers_;
  int waits_ = 0;
  Log log_;
};

// What random transactions did, and what of it has to be there when.
class Work {
 public:
  Work(Life& life, uint64_t seed, size_t most_row_bytes)
      : life_(life), random_(seed), most_row_bytes_(most_row_bytes) {}

  void Step() {
    const size_t number = random_.Below(life_.workers());
    Life::Worker& worker = life_.Listen(number);
    Life::Transaction& transaction = worker.transactions[random_.Below(worker.transactions.size())];
    if (!transaction.branch) Begin(number, transaction);
    const uint64_t dice = random_.Below(10);
    if (dice < 2) {
      End(worker, transaction, dice == 0);
    } else if (dice == 2) {
      worker.executor->RemoveGhosts(&wakeups_);
    } else {
      Change(worker, transaction);
    }
    if (random_.Below(20) == 0) life_.board().RaiseEpoch(life_.board().epoch() + 1);
    life_.EndStep(number);
    wakeups_.clear();
    if (ended_) committed_.push_back({ended_at_ + 1, *std::exchange(ended_, std::nullopt)});
  }
  // As transactions leave them of which the first `records` of the log tell.
  Rows Expected(size_t records) const {
    Rows rows;
    for (const auto& [at, changes] : committed_) {
      if (at <= records) Apply(changes, &rows);
    }
    return rows;
  }
  size_t commits() const { return committed_.size(); }

 private:
  void Begin(size_t number, Life::Transaction& transaction) {
    transaction.branch = std::make_unique<Branch>();
    transaction.branch->locks.transaction = {0, static_cast<uint32_t>(number), life_.number(), ++sequence_};
    transaction.branch->locks.wake_token = sequence_;
    transaction.branch->locks.worker = static_cast<uint32_t>(number);
    transaction.changes.clear();
  }
  std::string Row() {
    std::string row(16 + random_.Below(random_.Below(4) == 0 ? most_row_bytes_ : 60), '\0');
    for (char& byte : row) byte = static_cast<char>('a' + random_.Below(26));
    return row;
  }
  void Change(Life::Worker& worker, Life::Transaction& transaction) {
    Batch batch;
    std::vector<std::pair<uint64_t, std::optional<std::string>>> wanted;
    for (uint64_t left = 1 + random_.Below(8); left > 0; --left) {
      const uint64_t key = random_.Below(kKeys);
      const std::string row = Row();
      switch (random_.Below(6)) {
        case 0:
          batch.Replace(0, Uint64Key(key), Bytes(row));
          wanted.emplace_back(key, row);
          break;
        case 1:
          batch.Delete(0, Uint64Key(key));
          wanted.emplace_back(key, std::nullopt);
          break;
        case 2:
          batch.Write(0, Uint64Key(key), 0, Bytes(row.substr(0, 4)));
          wanted.emplace_back(key, row.substr(0, 4) + "+");  // "+": the rest stays
          break;
        default:
          batch.Insert(0, Uint64Key(key), Bytes(row));
          wanted.emplace_back(key, row);
      }
    }
    batch.ResetResults();
    std::vector<instance::RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    instance::Failure failure;
    const Progress progress = worker.executor->Run(*transaction.branch, batch, routes, &cursor, &failure);
    if (progress != Progress::kDone) return End(worker, transaction, /*commit=*/false);
    for (uint32_t i = 0; i < batch.size(); ++i) {
      if (batch.code(i) == absl::StatusCode::kOk) Note(transaction, wanted[i].first, wanted[i].second);
    }
  }
  void Note(Life::Transaction& transaction, uint64_t key, std::optional<std::string> row) {
    if (row && row->ends_with('+')) {
      const auto own = transaction.changes.find(key);
      const std::string before = own != transaction.changes.end() ? *own->second : rows_.at(key);
      row->pop_back();
      row = *row + before.substr(row->size());
    }
    transaction.changes[key] = row;
  }
  void End(Life::Worker& worker, Life::Transaction& transaction, bool commit) {
    if (commit) {
      ended_at_ = life_.log().size();
      // Of a worker alone the record with the commit is the first one of its step that is new.
      worker.executor->Commit(*transaction.branch, &wakeups_);
      Apply(transaction.changes, &rows_);
      if (!transaction.changes.empty()) ended_ = std::move(transaction.changes);
    } else {
      worker.executor->Rollback(*transaction.branch, &wakeups_);
    }
    transaction.branch.reset();
  }

  Life& life_;
  runtime::Random random_;
  const size_t most_row_bytes_;
  std::vector<locks::Wakeup> wakeups_;
  std::vector<std::pair<size_t, Changes>> committed_;
  std::optional<Changes> ended_;
  size_t ended_at_ = 0;
  Rows rows_;
  uint64_t sequence_ = 0;
};

// As a logger leaves them, round by round and in each stream by stream.
Log FirstOf(const Log& log, size_t records, runtime::Random& random) {
  Log first(log.begin(), log.begin() + static_cast<ptrdiff_t>(records));
  for (auto round = first.begin(); round != first.end();) {
    const auto left = static_cast<size_t>(first.end() - round);
    const auto end = round + static_cast<ptrdiff_t>(std::min<size_t>(left, 1 + random.Below(100)));
    std::stable_sort(round, end, [](const Kept& a, const Kept& b) { return a.stream < b.stream; });
    round = end;
  }
  return first;
}

uint64_t next_life = 2;

// Recovers from the first records, dies at some moment of that, recovers again.
size_t CheckDeathAt(const storage::Catalog& catalog, size_t workers, const Log& log, const Rows& expected,
                    runtime::Random& random, int deaths) {
  Life next(catalog, workers, next_life++, log);
  const size_t losers = next.losers();
  if (testing::Test::HasFailure()) return losers;
  next.Undo();
  EXPECT_TRUE(RowsOf(next.store()) == expected)
      << RowsOf(next.store()).size() << " rows, not " << expected.size();
  const absl::Status sound = next.store().Check();
  EXPECT_TRUE(sound.ok()) << sound;
  if (deaths == 0 || next.log().empty() || testing::Test::HasFailure()) return losers;
  Log again = log;
  const size_t more = 1 + random.Below(next.log().size());
  again.insert(again.end(), next.log().begin(), next.log().begin() + static_cast<ptrdiff_t>(more));
  CheckDeathAt(catalog, workers, again, expected, random, deaths - 1);
  return losers;
}

struct Mix {
  size_t workers;
  int indexes;
  size_t most_row_bytes;
  int steps;
  int deaths;  // moments of one seed that are looked at
  uint64_t seeds;
};

void CheckMix(const Mix& mix) {
  const auto [first, count] = runtime::SeedsToRun(mix.seeds);
  const storage::Catalog catalog = MakeCatalog(mix.indexes);
  size_t losers = 0, commits = 0;
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Life life(catalog, mix.workers, 1, {});
    const size_t created = life.log().size();
    Work work(life, seed, mix.most_row_bytes);
    for (int step = 0; step < mix.steps && !testing::Test::HasFailure(); ++step) work.Step();
    runtime::Random random(seed + 1000);
    for (int i = 0; i < mix.deaths && !testing::Test::HasFailure(); ++i) {
      const size_t records = created + random.Below(life.log().size() - created + 1);
      SCOPED_TRACE(std::to_string(records) + " of " + std::to_string(life.log().size()) + " records");
      losers += CheckDeathAt(catalog, mix.workers, FirstOf(life.log(), records, random),
                             work.Expected(records), random, 2);
    }
    commits += work.commits();
  }
  if (count < mix.seeds) return;
  EXPECT_GT(losers, 20u);
  EXPECT_GT(commits, 100u);
}

// An insert into a table with many indexes, all of whose pages split at once, is more than a record holds.
TEST(Steps, ManyIndexes_AnOperationIsInSeveralRecords) { CheckMix({1, 60, 40, 1500, 12, 3}); }
TEST(Steps, OneWorker) { CheckMix({1, 2, 1200, 500, 20, 6}); }
TEST(Steps, TwoWorkers) { CheckMix({2, 1, 1200, 500, 20, 6}); }
TEST(Steps, ThreeWorkersManyIndexes) { CheckMix({3, 8, 300, 700, 12, 4}); }
TEST(Steps, ThreeWorkersLargeRows) { CheckMix({3, 0, 1500, 900, 20, 6}); }

// What is to be undone may take many rings; the worker ends steps on the way, and waits for the logger.
TEST(Steps, Undo_OfMoreThanARingHolds) {
  const storage::Catalog catalog = MakeCatalog(1);
  Life life(catalog, 1, 1, {});
  std::vector<std::unique_ptr<Branch>> branches;
  for (uint64_t first = 0; first < 1600; first += 400) {
    Life::Worker& worker = life.Listen(0);
    branches.push_back(std::make_unique<Branch>());
    branches.back()->locks.transaction = {0, 0, 1, first + 1};
    Batch batch;
    std::vector<instance::RoutedOperation> routes;
    for (uint64_t key = first; key < first + 400; ++key) {
      batch.Insert(0, Uint64Key(key), Bytes(std::string(900, static_cast<char>('a' + key % 26))));
      batch.Replace(0, Uint64Key(key), Bytes(std::string(20 + key % 900, 'x')));
      for (uint32_t i = 0; i < 2; ++i) routes.push_back({static_cast<uint32_t>(routes.size()), 0, 0});
    }
    batch.ResetResults();
    size_t cursor = 0;
    instance::Failure failure;
    ASSERT_EQ(worker.executor->Run(*branches.back(), batch, routes, &cursor, &failure), Progress::kDone)
        << failure.status;
    life.EndStep(0);
  }
  Life next(catalog, 1, 2, life.log(), log::Ring::kLeastCapacity);
  EXPECT_EQ(next.losers(), 4u);
  next.Undo();
  EXPECT_GT(next.waits(), 2);
  EXPECT_TRUE(RowsOf(next.store()).empty());
  Log both = life.log();
  both.insert(both.end(), next.log().begin(), next.log().end());
  Life last(catalog, 1, 3, both);
  EXPECT_EQ(last.losers(), 0u);
  EXPECT_TRUE(RowsOf(last.store()).empty());
  EXPECT_TRUE(last.store().Check().ok());
}

}  // namespace
}  // namespace islands::recovery
