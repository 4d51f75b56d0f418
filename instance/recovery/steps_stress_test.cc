// Several workers on threads of their own, each with its journal; at moments of its own the test sees what
// all rings hold, as a kill would leave them, and recovers from that.
//
// What has committed is told by the rings. Additions to rows that all share commute, and the other rows are
// one worker's each, though they lie among those of the others: so what must be there follows.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "instance/log/journal.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/recovery/stream_merge.h"
#include "runtime/random.h"

namespace islands::recovery {
namespace {

using instance::Batch;
using instance::Branch;
using instance::Executor;
using instance::Progress;
using partitioner::Uint64Key;

constexpr uint32_t kWorkers = 3;
constexpr uint64_t kShared = 30;  // rows with a counter
constexpr uint64_t kOwn = 150;    // of each worker
constexpr size_t kRingBytes = 32 << 20;
constexpr int kTransactions = 2500;  // of each worker

uint64_t SharedKey(uint64_t n) { return n * 40; }
uint64_t OwnKey(uint32_t worker, uint64_t n) { return 1 + worker + n * 8; }  // never a multiple of 8

storage::Catalog MakeCatalog() {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("rows");
  table->add_key("uint64");
  table->set_range_end(2000);
  control::v1::IndexSpec* index = table->add_indexes();
  index->set_name("by_first_bytes");
  index->add_key("row:8:uint32");
  return *storage::Catalog::Create(specs, 1);
}

struct Done {
  std::map<uint64_t, int64_t> added;
  // If it has: the record there is its commit, and no other names it; or one behind it is, by its name.
  std::optional<uint64_t> committed_at;
  Changes own;
};

class Worker {
 public:
  Worker(uint32_t number, log::Board& board, log::IslandLog& shared, log::Lsn last)
      : number_(number),
        ring_(log::Ring::InMemory({1, 0, number}, kRingBytes)),
        journal_(board, *ring_, last, &shared),
        random_(number + 1) {}

  void Open(const storage::Catalog& catalog, storage::Store& store, locks::LockTable& locks) {
    executor_.emplace(catalog, store, locks,
                      instance::ExecutorOptions{.worker = number_, .journal = &journal_});
  }
  void Run() {
    journal_.Listen();
    for (int i = 0; i < kTransactions; ++i) {
      Transact();
      if (random_.Below(8) == 0) executor_->RemoveGhosts(&wakeups_);
      wakeups_.clear();
      journal_.EndStep();
    }
    journal_.EndListening();
  }
  log::Journal& journal() { return journal_; }
  uint64_t oldest_open() const { return journal_.open().oldest(); }
  const log::Ring& ring() const { return *ring_; }
  const Done& done(uint64_t sequence) const { return done_[sequence - 1]; }
  const std::vector<Done>& all_done() const { return done_; }

 private:
  void Transact() {
    Branch branch;
    done_.emplace_back();  // before it can be in the ring
    branch.locks.transaction = {0, number_, 1, done_.size()};
    branch.locks.worker = number_;
    branch.locks.wake_token = done_.size();
    bool goes_on = true;
    for (uint64_t batches = 1 + random_.Below(3); batches > 0 && goes_on; --batches) {
      goes_on = RunBatch(branch);
      if (random_.Below(3) == 0) executor_->EndStep();  // control goes back
    }
    if (goes_on && random_.Below(6) != 0) {
      done_.back().committed_at = ring_->tail();
      executor_->Commit(branch, &wakeups_);
    } else {
      executor_->Rollback(branch, &wakeups_);
    }
  }
  bool RunBatch(Branch& branch) {
    Done& done = done_.back();
    Batch batch;
    std::vector<std::pair<uint64_t, std::optional<std::string>>> own;
    for (uint64_t left = 1 + random_.Below(3); left > 0; --left) {
      const uint64_t key = OwnKey(number_, random_.Below(kOwn));
      std::string row(16 + random_.Below(random_.Below(3) == 0 ? 900 : 40), 'r');
      for (size_t i = 0; i < 16; ++i) row[i] = static_cast<char>('a' + random_.Below(26));
      const uint64_t dice = random_.Below(6);
      if (dice < 3) batch.Insert(0, Uint64Key(key), Bytes(row));
      if (dice == 3) batch.Replace(0, Uint64Key(key), Bytes(row));
      if (dice > 3) batch.Delete(0, Uint64Key(key));
      own.emplace_back(key, dice > 3 ? std::nullopt : std::optional(row));
    }
    const auto counter = static_cast<uint32_t>(batch.size());
    const uint64_t key = SharedKey(random_.Below(kShared));
    const auto delta = static_cast<int64_t>(1 + random_.Below(100));
    batch.Add(0, Uint64Key(key), 0, delta);
    batch.ResetResults();
    std::vector<instance::RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    instance::Failure failure;
    if (executor_->Run(branch, batch, routes, &cursor, &failure) != Progress::kDone) return false;
    for (uint32_t i = 0; i < counter; ++i) {
      if (batch.code(i) == absl::StatusCode::kOk) done.own[own[i].first] = own[i].second;
    }
    done.added[key] += delta;
    return true;
  }

  const uint32_t number_;
  const std::unique_ptr<log::Ring> ring_;
  log::Journal journal_;
  runtime::Random random_;
  std::optional<Executor> executor_;
  std::vector<locks::Wakeup> wakeups_;
  std::vector<Done> done_;
};

using Tails = std::array<uint64_t, kWorkers>;
using Workers = std::vector<std::unique_ptr<Worker>>;

// As they were at one moment: nobody has appended between two looks at all of them.
Tails TailsOf(const Workers& workers) {
  const auto look = [&] {
    Tails tails;
    for (uint32_t i = 0; i < kWorkers; ++i) tails[i] = workers[i]->ring().tail();
    return tails;
  };
  Tails tails = look();
  for (Tails again = look(); again != tails; again = look()) tails = again;
  return tails;
}

std::string SharedRow(int64_t counter) {
  return std::string(reinterpret_cast<const char*>(&counter), sizeof(counter)) + "shared!!";
}

// Where the records end with which its transactions have committed.
std::map<uint64_t, const Done*> CommitsOf(const Worker& worker) {
  std::map<uint64_t, const Done*> by_place, commits, unnamed;
  for (const Done& done : worker.all_done()) {
    if (done.committed_at) by_place[*done.committed_at] = &done;
  }
  std::set<const Done*> named;
  uint64_t end = 0;
  const auto look = [&](const log::Record& record) {
    const uint64_t begin = std::exchange(end, end + log::RecordBytes(record.body.size()));
    const auto entry = log::DecodeEntry(record);
    if (entry->kind == log::EntryKind::kCommit) {
      const Done* const done = &worker.done(entry->transaction.sequence);
      commits[end] = done;
      named.insert(done);
    } else if (const auto done = by_place.find(begin);
               done != by_place.end() && entry->kind == log::EntryKind::kDone) {
      unnamed[end] = done->second;
    }
    return absl::OkStatus();
  };
  EXPECT_TRUE(VisitRecords(worker.ring(), 0, worker.ring().tail(), look).ok());
  for (const auto& [at, done] : unnamed) {
    if (!named.contains(done)) commits[at] = done;
  }
  return commits;
}

// Of the rings up to there: all redone, and what has to be there.
absl::Status Redo(const Workers& workers, const Tails& tails, Recovery* recovery, Rows* expected) {
  StreamMerge merge;
  const auto redo = [&](const log::StreamId& stream, const log::Record& record) {
    return recovery->Redo(stream, record);
  };
  std::map<uint64_t, int64_t> counters;
  for (uint64_t n = 0; n < kShared; ++n) counters[SharedKey(n)] = 0;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    const log::Ring& ring = workers[i]->ring();
    const std::map<uint64_t, const Done*> commits = CommitsOf(*workers[i]);
    uint64_t end = 0;  // of the record
    const auto add = [&](const log::Record& record) {
      if (absl::Status status = merge.Add(ring.stream(), record, redo); !status.ok()) return status;
      end += log::RecordBytes(record.body.size());
      const auto done = commits.find(end);
      if (done == commits.end()) return absl::OkStatus();
      for (const auto& [key, delta] : done->second->added) counters[key] += delta;
      Apply(done->second->own, expected);
      return absl::OkStatus();
    };
    if (absl::Status status = VisitRecords(ring, 0, tails[i], add); !status.ok()) return status;
  }
  for (const auto& [key, counter] : counters) (*expected)[key] = SharedRow(counter);
  return merge.Finish(redo);
}

void CheckRecovery(const storage::Catalog& catalog, const Workers& workers, const Tails& tails) {
  const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 64 << 20, .alone = true};
  const auto store = storage::Store::CreateForRedo(catalog, options);
  ASSERT_TRUE(store.ok());
  Recovery recovery(catalog, **store, {});
  Rows expected;
  const absl::Status redone = Redo(workers, tails, &recovery, &expected);
  ASSERT_TRUE(redone.ok()) << redone;
  ASSERT_TRUE(recovery.FindTrees().ok());
  locks::LockTable locks(locks::LockTableOptions{.buckets = 1024});
  Executor executor(catalog, **store, locks, {.alone = true});
  ASSERT_TRUE(recovery.UndoLosers(executor, [] { return true; }));
  EXPECT_TRUE(RowsOf(**store) == expected) << recovery.losers() << " losers";
  const absl::Status sound = (*store)->Check();
  EXPECT_TRUE(sound.ok()) << sound;
}

// As a cleaner on a thread of its own sees it (checkpoint.h).
struct Bound {
  uint64_t bound;
  uint64_t taken;
};

// Whoever has records of epochs below the bound had ended, in epochs up to `taken`.
void CheckBounds(const Workers& workers, const std::vector<Bound>& bounds) {
  struct Span {
    uint64_t first, end;
  };
  std::map<coordinator::TransactionId, Span> spans;
  for (const auto& worker : workers) {
    const absl::Status whole =
        VisitRecords(worker->ring(), 0, worker->ring().tail(), [&](const auto& record) {
          const auto entry = log::DecodeEntry(record);
          if (entry->kind == log::EntryKind::kDone) return absl::OkStatus();
          const uint64_t epoch = log::Lsn::FromValue(record.lsn).epoch();
          spans.try_emplace(entry->transaction, Span{epoch, 0}).first->second.end = epoch;
          return absl::OkStatus();
        });
    ASSERT_TRUE(whole.ok()) << whole;
  }
  size_t told = 0;  // of transactions that were open for a while
  for (const Bound& each : bounds) {
    for (const auto& [id, span] : spans) {
      ASSERT_TRUE(span.first >= each.bound || span.end <= each.taken)
          << id.ToString() << " from " << span.first << " to " << span.end << ", and the bound is "
          << each.bound << ", taken in " << each.taken;
      told += span.first < span.end && each.bound == span.first ? 1 : 0;
    }
  }
  EXPECT_GT(told, 0u);
}

TEST(StepsStress, WhateverTheRingsHold_TheCommittedIsThere) {
  const storage::Catalog catalog = MakeCatalog();
  log::Board board(std::vector<uint32_t>{kWorkers});
  log::IslandLog shared(kWorkers, board.epoch(), log::Lsn());
  Workers workers;
  for (uint32_t i = 0; i < kWorkers; ++i)
    workers.push_back(std::make_unique<Worker>(i, board, shared, log::Lsn()));
  const auto files = runtime::MakeMemoryFileSystem();
  workers[0]->journal().Listen();
  auto store = storage::Store::Create(catalog, {.sites = {0, 1}, .pool_bytes = 64 << 20}, *files);
  ASSERT_TRUE(store.ok());
  for (uint64_t n = 0; n < kShared; ++n)
    ASSERT_EQ((*store)->At(0, 0)->Insert(Uint64Key(SharedKey(n)), Bytes(SharedRow(0))),
              absl::StatusCode::kOk);
  workers[0]->journal().EndStep();
  workers[0]->journal().EndListening();
  locks::LockTable locks(locks::LockTableOptions{.buckets = 1024});
  for (const auto& worker : workers) worker->Open(catalog, **store, locks);
  std::atomic<uint32_t> running = kWorkers;
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&] {
      worker->Run();
      --running;
    });
  }
  std::vector<Tails> moments;
  std::vector<Bound> bounds;
  while (running != 0) {
    uint64_t bound = board.Complete() + 1;
    moments.push_back(TailsOf(workers));
    board.RaiseEpoch(board.epoch() + 1);
    std::this_thread::yield();
    for (const auto& worker : workers) bound = std::min(bound, worker->oldest_open());
    bounds.push_back({bound, board.epoch()});
  }
  for (std::thread& thread : threads) thread.join();
  moments.push_back(TailsOf(workers));
  const size_t step = 1 + moments.size() / 40;
  for (size_t i = moments.size(); i > 0 && !testing::Test::HasFailure(); i -= std::min(i, step))
    CheckRecovery(catalog, workers, moments[i - 1]);
  CheckBounds(workers, bounds);
  const Rows live = RowsOf(**store);
  Rows expected;
  const auto again = storage::Store::CreateForRedo(catalog, {.sites = {0, 1}, .pool_bytes = 64 << 20});
  Recovery recovery(catalog, **again, {});
  ASSERT_TRUE(Redo(workers, moments.back(), &recovery, &expected).ok());
  EXPECT_TRUE(live == expected);
}

}  // namespace
}  // namespace islands::recovery
