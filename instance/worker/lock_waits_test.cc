#include "instance/worker/lock_waits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "instance/worker/mailbox.h"

namespace islands::instance {
namespace {

class LockWaitsTest : public testing::Test {
 protected:
  static constexpr locks::LockName kName{.table = 0, .site = 0, .key_hash = 77};
  static constexpr storage::TableId kTable = 0;
  static constexpr uint64_t kRow = 7;

  static storage::Catalog MakeCatalog() {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* rows = specs.Add();
    rows->set_name("rows");
    rows->add_key("uint64");
    rows->set_range_end(100);
    rows->set_row_bytes(16);
    return *storage::Catalog::Create(specs, 10);
  }

  LockWaitsTest() {
    shared_.catalog = &catalog_;
    shared_.locks = &locks_;
    shared_.colleagues = {{&own_mail_, nullptr, nullptr}, {&others_mail_, nullptr, nullptr}};
    for (Waiter* waiter : {&first_, &second_}) {
      waiter->branch.locks.transaction = {0, 0, 1, lock_waits_.NextToken()};
      waiter->branch.locks.wake_token = waiter->branch.locks.transaction.sequence;
    }
    batch_.Add(kTable, partitioner::Uint64Key(kRow), 0, 1);
    EXPECT_EQ(Acquire(first_), locks::LockResult::kGranted);
    EXPECT_EQ(Acquire(second_), locks::LockResult::kWaiting);
  }
  ~LockWaitsTest() override {
    for (Waiter* waiter : {&second_, &first_}) locks_.ReleaseAll(waiter->branch.locks, &wakeups_);
  }
  locks::LockResult Acquire(Waiter& waiter) {
    return locks_.Acquire(waiter.branch.locks, kName, locks::LockMode::kX);
  }
  void Release(Waiter& waiter) {
    locks_.ReleaseAll(waiter.branch.locks, &wakeups_);
    lock_waits_.Deliver(&wakeups_);
  }
  void StartWait(Waiter& waiter) {
    wait_ = lock_waits_.Await(waiter, batch_, 0);
    wait_.Start();
  }
  void Round() {
    turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
    turns_.ResumeReady([] {}, [] {});
  }

  const storage::Catalog catalog_ = MakeCatalog();
  runtime::ManualClock clock_;
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 64}};
  std::vector<locks::Wakeup> wakeups_;
  WorkerOptions options_;
  WorkerShared shared_;
  WorkerCounters counters_;
  Mailbox own_mail_{[] {}}, others_mail_{[] {}};
  Turns turns_{clock_};
  LockWaits lock_waits_{options_, shared_, turns_, counters_};
  Waiter first_, second_;
  Batch batch_;  // with the operation that waits
  runtime::Task<void> wait_;
};

// The row is named, with all the time that was waited for it.
TEST_F(LockWaitsTest, Await_SaysForWhatRow) {
  StartWait(second_);
  clock_.AdvanceNs(5 * runtime::kNsPerMs);
  Release(first_);
  Round();
  const std::vector<RowWaits::Row> rows = lock_waits_.rows().List();
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0].table, "rows");
  EXPECT_EQ(rows[0].shown_key, "7");
  EXPECT_EQ(rows[0].waits, 1);
  EXPECT_EQ(rows[0].waited_ns, 5 * runtime::kNsPerMs);
}

// A holder that waits for other islands, planted beside one that only runs: its row comes out on top, with
// what it did.
TEST_F(LockWaitsTest, Await_SaysWhatTheHolderDid) {
  StartWait(second_);
  clock_.AdvanceNs(runtime::kNsPerMs);
  Release(first_);
  Round();
  turns_.Note(second_, Stay::kRemote);
  first_.branch.locks.wake_token = lock_waits_.NextToken();
  batch_.Clear();
  batch_.Add(kTable, partitioner::Uint64Key(kRow + 1), 0, 1);
  EXPECT_EQ(Acquire(first_), locks::LockResult::kWaiting);
  StartWait(first_);
  clock_.AdvanceNs(20 * runtime::kNsPerMs);
  Release(second_);
  Round();
  std::vector<RowWaits::Row> rows = lock_waits_.rows().List();
  std::ranges::sort(rows, std::greater(), &RowWaits::Row::waited_ns);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].shown_key, "8");
  EXPECT_EQ(rows[0].holder_ns[static_cast<size_t>(Stay::kRemote)], 20 * runtime::kNsPerMs);
  EXPECT_EQ(rows[1].holder_ns[static_cast<size_t>(Stay::kRemote)], 0);
}

// Waits of several rows for the one lock of their site are its waits.
TEST(RowWaits, Add_NamesTheLock) {
  const storage::TableDefinition table{.name = "rows", .key = {partitioner::KeyType::kUint64}};
  RowWaits waits;
  const auto add = [&](uint64_t key, uint64_t key_hash) {
    waits.Add(table, partitioner::Uint64Key(key), {.name = {.site = 3, .key_hash = key_hash}}, 1);
  };
  add(7, 77);
  add(7, 77 | locks::kGapBit);
  for (const uint64_t hash : {locks::kSupremumGap, locks::kIndexEntries, uint64_t{0}}) {
    add(7, hash);
    add(8, hash);
  }
  std::vector<std::string> found;
  for (const RowWaits::Row& row : waits.List())
    found.push_back(fmt::format("{}: {}", row.shown_key, row.waits));
  EXPECT_THAT(found, testing::ElementsAre("7: 1", "7, a gap: 1", "site 3, behind its last key: 2",
                                          "site 3, entries of indexes: 2", "site 3, all of it: 2"));
}

// Where the transaction was, if somebody watches it: waiting, then ready, then on its core again.
TEST_F(LockWaitsTest, Await_MovesTheStaysOfWhoIsWatched) {
  turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
  second_.stays.Begin(Stay::kRunning, clock_.NowNs());
  StartWait(second_);
  clock_.AdvanceNs(5 * runtime::kNsPerMs);
  Release(first_);
  clock_.AdvanceNs(2 * runtime::kNsPerMs);
  Round();
  clock_.AdvanceNs(runtime::kNsPerMs);
  const Stays::Times times_ns = second_.stays.End(clock_.NowNs());
  const auto of = [&](Stay stay) { return times_ns[static_cast<size_t>(stay)]; };
  EXPECT_EQ(of(Stay::kLock), 5 * runtime::kNsPerMs);
  EXPECT_EQ(of(Stay::kTurn), 2 * runtime::kNsPerMs);
  EXPECT_EQ(of(Stay::kRunning), runtime::kNsPerMs);
}

// More rows than there are places: the one that is waited for longest stays, whatever comes.
TEST(RowWaits, Add_KeepsTheLongest) {
  storage::TableDefinition table{.name = "rows", .key = {partitioner::KeyType::kUint64}};
  RowWaits waits;
  for (uint64_t round = 0; round < 50; ++round) {
    waits.Add(table, partitioner::Uint64Key(1'000'000), {.name = {.key_hash = 1}}, 1000);
    for (uint64_t other = 0; other < 2 * RowWaits::kMost; ++other)
      waits.Add(table, partitioner::Uint64Key(round * 1000 + other), {.name = {.key_hash = 1}}, 10);
  }
  std::vector<RowWaits::Row> rows = waits.List();
  EXPECT_EQ(rows.size(), RowWaits::kMost);
  // Whatever places it took over, what a row shows as its own is its own: here, never more than 10 a wait.
  for (const RowWaits::Row& row : rows) {
    EXPECT_LE(row.waited_ns - row.over_ns, (row.shown_key == "1000000" ? 1000 : 10) * row.waits);
  }
  const auto longest = std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.waited_ns - a.over_ns < b.waited_ns - b.over_ns;
  });
  EXPECT_EQ(longest->shown_key, "1000000");
  EXPECT_EQ(longest->waits, 50);
  EXPECT_EQ(longest->waited_ns - longest->over_ns, 50 * 1000);
}

TEST_F(LockWaitsTest, Await_EndsByAGrant) {
  StartWait(second_);
  ASSERT_FALSE(wait_.done());
  ASSERT_EQ(lock_waits_.Sorted().size(), 1u);
  EXPECT_EQ(lock_waits_.Sorted()[0].second, &second_);
  clock_.AdvanceNs(500);
  Release(first_);
  Round();
  EXPECT_TRUE(wait_.done());
  EXPECT_FALSE(second_.failure.set());
  EXPECT_TRUE(lock_waits_.empty());
  EXPECT_EQ(counters_.lock_waits.Get(), 1u);
  EXPECT_EQ(counters_.lock_wait_ns.Get(), 500u);
}

// Whoever is woken looks whether the wait is over: wake-ups may be stale.
TEST_F(LockWaitsTest, Wake_WithoutAGrantGoesOnWaiting) {
  StartWait(second_);
  lock_waits_.Wake(second_.branch.locks.wake_token);
  lock_waits_.Wake(12345);  // nobody's
  Round();
  EXPECT_FALSE(wait_.done());
  EXPECT_FALSE(lock_waits_.empty());
  second_.Fail(AbortReason::kDeadline, absl::DeadlineExceededError("end"));
  turns_.Resume(second_);
  Round();
  EXPECT_TRUE(wait_.done());
}

TEST_F(LockWaitsTest, Sweep_EndsWaitsThatLastTooLong) {
  StartWait(second_);
  clock_.AdvanceNs(options_.lock_timeout_ns - 1);
  turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
  lock_waits_.Sweep();
  EXPECT_FALSE(second_.failure.set());
  clock_.AdvanceNs(1);
  turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
  lock_waits_.Sweep();
  EXPECT_EQ(second_.failure.reason, AbortReason::kLockTimeout);
  Round();
  EXPECT_TRUE(wait_.done());
}

TEST_F(LockWaitsTest, Await_NotForABranchThatIsStuck) {
  shared_.stuck.Set(first_.branch.locks.transaction, true);
  StartWait(second_);
  EXPECT_TRUE(wait_.done());
  EXPECT_EQ(second_.failure.reason, AbortReason::kPeerUnresponsive);
}

TEST_F(LockWaitsTest, Sweep_EndsWaitsForABranchThatHasGotStuck) {
  StartWait(second_);
  shared_.stuck.Set({5, 0, 1, 1}, true);
  lock_waits_.Sweep();
  EXPECT_FALSE(second_.failure.set());
  shared_.stuck.Set(first_.branch.locks.transaction, true);
  lock_waits_.Sweep();
  EXPECT_EQ(second_.failure.reason, AbortReason::kPeerUnresponsive);
  Round();
  EXPECT_TRUE(wait_.done());
}

TEST_F(LockWaitsTest, Deliver_ToAColleagueByMail) {
  std::vector<locks::Wakeup> wakeups = {{.worker = 1, .wake_token = 42}};
  lock_waits_.Deliver(&wakeups);
  EXPECT_TRUE(wakeups.empty());
  std::vector<uint64_t> tokens;
  others_mail_.Drain([&](const locks::Wakeup& wakeup) { tokens.push_back(wakeup.wake_token); });
  EXPECT_THAT(tokens, testing::ElementsAre(42u));
  EXPECT_EQ(own_mail_.Drain([](const locks::Wakeup&) {}), 0u);
}

}  // namespace
}  // namespace islands::instance
