// Workers of one island on one table: rows that move, and scans that must never see one twice or not at all;
// the same by an index, in which rows move as well; counters that are changed by copies of their rows, and
// must add up; rows that stay, and must be found among those that come and go.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "instance/execution/executor.h"
#include "runtime/random.h"

namespace islands::instance {
namespace {

using partitioner::Uint64Key;

constexpr uint32_t kWorkers = 4;
constexpr uint64_t kKeys = 240;
constexpr uint64_t kRows = 60;
constexpr size_t kLeastBytes = 16;  // of a row: the indexed field and one that is not
constexpr uint64_t kHotRows = 4;
constexpr uint64_t kStaying = 8;  // every so many keys
constexpr uint32_t kCounterAt = 8;

struct Shared {
  Shared(bool inherit, bool with_index, bool key_hints = true)
      : indexed(with_index), locks({.buckets = 256, .inherit = inherit, .escalate_after = 40}) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(kKeys);
    if (indexed) {
      control::v1::IndexSpec* index = table->add_indexes();
      index->set_name("by_field");
      index->add_key("row:0:uint64");
    }
    catalog = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    storage::StoreOptions options;
    options.sites = {0, 1};
    options.pool_bytes = 1 << 20;
    options.key_hints = key_hints;
    store = *storage::Store::Create(*catalog, options, *files);
    const std::vector<std::byte> row(400);  // few to a leaf, so that leaves split and merge
    for (uint64_t key = 0; key < kRows; ++key) {
      EXPECT_EQ(store->At(0, 0)->Insert(Uint64Key(key * kKeys / kRows), row), absl::StatusCode::kOk);
    }
  }
  const bool indexed;
  const std::unique_ptr<runtime::FileSystem> files = runtime::MakeMemoryFileSystem();
  std::unique_ptr<storage::Catalog> catalog;
  std::unique_ptr<storage::Store> store;
  locks::LockTable locks;
  std::atomic<uint64_t> moved = 0, changed = 0, scanned = 0, deadlocks = 0, phantoms = 0, counted = 0,
                        missed = 0;
};

// Plays a worker: what would suspend a coroutine, spins.
class Player {
 public:
  Player(Shared& shared, uint32_t worker)
      : shared_(shared),
        executor_(*shared.catalog, *shared.store, shared.locks, {.worker = worker}),
        random_(runtime::Random::Stream(7, worker)) {
    branch_.locks.worker = worker;
  }
  ~Player() {
    for (int tries = 0; executor_.ghosts() != 0 && tries < 10'000; ++tries) {
      executor_.RemoveGhosts(&wakeups_);
      std::this_thread::yield();
    }
  }

  void PlayOne() {
    branch_.locks.transaction = {0, branch_.locks.worker, 1, ++sequence_};
    const bool committed = random_.Below(3) == 0                      ? Look()
                           : shared_.indexed && random_.Below(2) == 0 ? Change()
                                                                      : Move();
    committed ? executor_.Commit(branch_, &wakeups_) : executor_.Rollback(branch_, &wakeups_);
    wakeups_.clear();
    // What an abort left behind must go before the next look at the whole.
    if (random_.Below(8) == 0) executor_.RemoveGhosts(&wakeups_);
  }

  // Many at once, so that they are looked for ahead. Each has its key as its first bytes.
  void LookUpStaying() {
    branch_.locks.transaction = {0, branch_.locks.worker, 1, ++sequence_};
    batch_.Clear();
    std::vector<uint64_t> keys;
    for (int n = 0; n < 16; ++n) {
      keys.push_back(random_.Below(kKeys / kStaying) * kStaying);
      batch_.Read(0, Uint64Key(keys.back()));
    }
    EXPECT_TRUE(Run());
    for (uint32_t n = 0; n < keys.size(); ++n) {
      const bool right = batch_.code(n) == absl::StatusCode::kOk &&
                         std::memcmp(batch_.row(n).data(), &keys[n], sizeof(keys[n])) == 0;
      if (!right) ++shared_.missed;
    }
    executor_.Commit(branch_, &wakeups_);
    wakeups_.clear();
  }

  // The row of this key, which nobody counts, comes or goes.
  void ComeOrGo(uint64_t key, size_t most_bytes) {
    branch_.locks.transaction = {0, branch_.locks.worker, 1, ++sequence_};
    batch_.Clear();
    batch_.Delete(0, Uint64Key(key));
    bool done = Run();
    if (done && batch_.code(0) != absl::StatusCode::kOk) {
      const std::vector<std::byte> row(kLeastBytes + random_.Below(most_bytes));
      batch_.Clear();
      batch_.Insert(0, Uint64Key(key), row);
      done = Run();
    }
    done ? executor_.Commit(branch_, &wakeups_) : executor_.Rollback(branch_, &wakeups_);
    wakeups_.clear();
    executor_.RemoveGhosts(&wakeups_);
  }

  // Scans [first, end) twice: what was seen once is seen again.
  void LookTwiceAt(uint64_t first, uint64_t end) {
    branch_.locks.transaction = {0, branch_.locks.worker, 1, ++sequence_};
    const bool done = LookTwice(first, end);
    done ? executor_.Commit(branch_, &wakeups_) : executor_.Rollback(branch_, &wakeups_);
    wakeups_.clear();
  }

  uint64_t Draw(uint64_t bound) { return random_.Below(bound); }

  // Adds 1 to some of the hot rows' counters; now and then it is rolled back.
  void CountOne() {
    branch_.locks.transaction = {0, branch_.locks.worker, 1, ++sequence_};
    batch_.Clear();
    for (uint64_t key = 0; key < kHotRows; ++key) {
      if (random_.Below(2) == 0) batch_.Update(0, Uint64Key(key * kKeys / kRows), kCounterAt, 1);
    }
    const bool committed = Run() && random_.Below(5) != 0;
    if (committed) shared_.counted += batch_.size();
    committed ? executor_.Commit(branch_, &wakeups_) : executor_.Rollback(branch_, &wakeups_);
    wakeups_.clear();
  }

  // The same as a client that computes for itself: reads them to be written, and then writes them. Rows
  // beside them come in between.
  void CountByWriting() {
    branch_.locks.transaction = {0, branch_.locks.worker, 1, ++sequence_};
    batch_.Clear();
    std::vector<uint64_t> keys, counters;
    for (uint64_t row = 0; row < kHotRows; ++row) {
      if (random_.Below(2) == 0) keys.push_back(row * kKeys / kRows);
    }
    for (const uint64_t key : keys) batch_.ReadForUpdate(0, Uint64Key(key));
    bool done = Run();
    for (uint32_t n = 0; done && n < keys.size(); ++n) {
      EXPECT_EQ(batch_.code(n), absl::StatusCode::kOk);
      std::memcpy(&counters.emplace_back(), batch_.row(n).data() + kCounterAt, sizeof(counters[0]));
    }
    if (done) {
      batch_.Clear();
      for (size_t n = 0; n < keys.size(); ++n) {
        const std::vector<std::byte> row(kLeastBytes + random_.Below(800));
        if (random_.Below(3) == 0) batch_.Put(0, Uint64Key(keys[n] + 1 + random_.Below(2)), row);
        ++counters[n];
        batch_.Write(0, Uint64Key(keys[n]), kCounterAt, std::as_bytes(std::span(&counters[n], 1)));
      }
      done = Run();
    }
    const bool committed = done && random_.Below(5) != 0;
    if (committed) shared_.counted += keys.size();
    committed ? executor_.Commit(branch_, &wakeups_) : executor_.Rollback(branch_, &wakeups_);
    wakeups_.clear();
    executor_.RemoveGhosts(&wakeups_);
  }

 private:
  // False: victim of a deadlock.
  bool Run() {
    batch_.ResetResults();
    batch_.scanned().clear();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch_.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    while (true) {
      failure_ = {};
      switch (executor_.Run(branch_, batch_, routes, &cursor, &failure_)) {
        case Progress::kDone:
          return true;
        case Progress::kFailed:
          EXPECT_EQ(failure_.reason, AbortReason::kDeadlock) << failure_.status;
          ++shared_.deadlocks;
          return false;
        case Progress::kWaiting:
          while (!shared_.locks.WaitOver(branch_.locks)) std::this_thread::yield();
          break;
        case Progress::kWaitingForRoom:
        case Progress::kWaitingForPages:
          ADD_FAILURE() << "there is no log, and all is in memory";
          return false;
      }
    }
  }

  // One row goes to another key; now and then it is rolled back after all.
  bool Move() {
    batch_.Clear();
    batch_.Delete(0, Uint64Key(random_.Below(kKeys)));
    if (!Run() || batch_.code(0) != absl::StatusCode::kOk) return false;
    std::vector<std::byte> row(kLeastBytes + random_.Below(800));
    const uint64_t field = random_.Below(kKeys);
    std::memcpy(row.data(), &field, sizeof(field));
    do {
      batch_.Clear();
      batch_.Insert(0, Uint64Key(random_.Below(kKeys)), row);
      if (!Run()) return false;
    } while (batch_.code(0) != absl::StatusCode::kOk);
    ++shared_.moved;
    return random_.Below(5) != 0;
  }

  // A row's bytes change, those that are in the index or others.
  bool Change() {
    const uint64_t field = random_.Below(kKeys);
    batch_.Clear();
    batch_.Write(0, Uint64Key(random_.Below(kKeys)), random_.Below(2) == 0 ? 0 : sizeof(field),
                 std::as_bytes(std::span(&field, 1)));
    if (!Run() || batch_.code(0) != absl::StatusCode::kOk) return false;
    ++shared_.changed;
    return random_.Below(5) != 0;
  }

  std::vector<int64_t> Scan(uint64_t first, uint64_t end, bool reverse) {
    batch_.Clear();
    if (by_index_) {
      batch_.IndexScan(0, 0, Uint64Key(0), Uint64Key(first), Uint64Key(end), 0, reverse);
    } else {
      batch_.Scan(0, Uint64Key(first), Uint64Key(end), 0, reverse);
    }
    std::vector<int64_t> keys;
    if (!Run()) return keys;
    for (size_t n = 0; n < batch_.scanned_rows(0); ++n) {
      keys.push_back(
          partitioner::FirstComponent(shared_.catalog->table(0).key, batch_.scanned_key(0, n)).value());
    }
    if (reverse) std::reverse(keys.begin(), keys.end());
    return keys;
  }

  bool LookTwice(uint64_t first, uint64_t end) {
    const std::vector<int64_t> before = Scan(first, end, random_.Below(2) == 0);
    if (failure_.set()) return false;
    std::this_thread::yield();
    const std::vector<int64_t> after = Scan(first, end, random_.Below(2) == 0);
    if (failure_.set()) return false;
    if (before != after) ++shared_.phantoms;
    return true;
  }

  // All rows are there; or: what was seen once is seen again.
  bool Look() {
    by_index_ = shared_.indexed && random_.Below(2) == 0;
    if (random_.Below(4) == 0) {
      const std::vector<int64_t> all = Scan(0, kKeys, random_.Below(2) == 0);
      if (failure_.set()) return false;
      if (all.size() != kRows) ++shared_.phantoms;
    } else {
      const uint64_t first = random_.Below(kKeys);
      if (!LookTwice(first, first + random_.Below(30))) return false;
    }
    ++shared_.scanned;
    return true;
  }

  Shared& shared_;
  Executor executor_;
  runtime::Random random_;
  Branch branch_;
  Batch batch_;
  bool by_index_ = false;  // the scans of this look
  Failure failure_;
  std::vector<locks::Wakeup> wakeups_;
  uint64_t sequence_ = 0;
};

void Play(bool inherit, bool indexed = false) {
#ifdef ISLANDS_TSAN
  constexpr int kTransactions = 1500;
#else
  constexpr int kTransactions = 8000;
#endif
  Shared shared(inherit, indexed);
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&shared, worker] {
      Player player(shared, worker);
      for (int n = 0; n < kTransactions; ++n) player.PlayOne();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.phantoms, 0u);
  EXPECT_GT(shared.moved, 100u);
  EXPECT_GT(shared.scanned, 100u);
  EXPECT_EQ(shared.changed > 100, indexed);
  EXPECT_EQ(shared.locks.LocksHeld(), 0u);
  EXPECT_EQ(shared.locks.OwnersWaiting(), 0u);
  EXPECT_EQ(shared.store->CountRows(0), kRows);
  EXPECT_TRUE(shared.store->Check().ok()) << shared.store->Check();
  std::printf("%lu moved, %lu scanned, %lu deadlocks\n", shared.moved.load(), shared.scanned.load(),
              shared.deadlocks.load());
}

void CountAll(void (Player::*count_one)(), int share) {
#ifdef ISLANDS_TSAN
  constexpr int kTransactions = 3'000;
#else
  constexpr int kTransactions = 20'000;
#endif
  Shared shared(/*inherit=*/true, /*indexed=*/false);
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&shared, worker, count_one, share] {
      Player player(shared, worker);
      for (int n = 0; n < kTransactions / share; ++n) (player.*count_one)();
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t sum = 0;
  std::vector<std::byte> row;
  for (uint64_t key = 0; key < kHotRows; ++key) {
    ASSERT_EQ(shared.store->At(0, 0)->Read(Uint64Key(key * kKeys / kRows), &row), absl::StatusCode::kOk);
    uint64_t counter = 0;
    std::memcpy(&counter, row.data() + kCounterAt, sizeof(counter));
    sum += counter;
  }
  EXPECT_EQ(sum, shared.counted.load());
  EXPECT_GT(sum, 100u);
  EXPECT_EQ(shared.locks.LocksHeld(), 0u);
  EXPECT_TRUE(shared.store->Check().ok()) << shared.store->Check();
}

// The lock on a row is all that keeps another worker out while an update has its copy.
TEST(ExecutorStress, Updates_AddUp) { CountAll(&Player::CountOne, 1); }
TEST(ExecutorStress, ReadsAndThenWrites_AddUp) { CountAll(&Player::CountByWriting, 4); }

// With hints few look-ups go down the tree.
TEST(ExecutorStress, RowsThatStay_AreFound) {
#ifdef ISLANDS_TSAN
  constexpr int kTransactions = 2'000;
#else
  constexpr int kTransactions = 10'000;
#endif
  for (const bool key_hints : {false, true}) {
    Shared shared(/*inherit=*/true, /*indexed=*/false, key_hints);
    for (uint64_t key = 0; key < kKeys; key += kStaying) {
      std::vector<std::byte> row(400);
      std::memcpy(row.data(), &key, sizeof(key));
      ASSERT_EQ(shared.store->At(0, 0)->Replace(Uint64Key(key), row), absl::StatusCode::kOk);
    }
    std::vector<std::thread> threads;
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&shared, worker] {
        Player player(shared, worker);
        for (int n = 0; n < kTransactions; ++n) {
          const uint64_t staying = player.Draw(kKeys / kStaying) * kStaying;
          worker % 2 == 0 ? player.LookUpStaying()
                          : player.ComeOrGo(staying + 1 + player.Draw(kStaying - 1), /*most_bytes=*/800);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(shared.missed, 0u);
    EXPECT_EQ(shared.locks.LocksHeld(), 0u);
    EXPECT_TRUE(shared.store->Check().ok()) << shared.store->Check();
  }
}

// Inserts part one another's gaps between choosing and locking them.
TEST(ExecutorStress, RowsThatCrowd_AreSeenByScansOrNot) {
#ifdef ISLANDS_TSAN
  constexpr int kTransactions = 2'000;
#else
  constexpr int kTransactions = 10'000;
#endif
  constexpr uint64_t kCrowd = 12;  // keys
  Shared shared(/*inherit=*/true, /*indexed=*/false);
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&shared, worker] {
      Player player(shared, worker);
      for (int n = 0; n < kTransactions; ++n) {
        const uint64_t key = player.Draw(kCrowd);
        worker % 2 == 0 ? player.LookTwiceAt(key, key + 1 + player.Draw(3))
                        : player.ComeOrGo(key, /*most_bytes=*/1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.phantoms, 0u);
  EXPECT_EQ(shared.locks.LocksHeld(), 0u);
  EXPECT_TRUE(shared.store->Check().ok()) << shared.store->Check();
}

TEST(ExecutorStress, MovingRows_AreSeenExactlyOnce) { Play(/*inherit=*/true); }
TEST(ExecutorStress, MovingRowsWithoutInheritance_AreSeenExactlyOnce) { Play(/*inherit=*/false); }
TEST(ExecutorStress, RowsThatMoveInAnIndex_AreSeenExactlyOnce) { Play(/*inherit=*/true, /*indexed=*/true); }

}  // namespace
}  // namespace islands::instance
