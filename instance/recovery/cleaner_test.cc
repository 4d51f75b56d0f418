#include "instance/recovery/cleaner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "instance/log/epoch_file.h"
#include "instance/log/journal.h"
#include "instance/recovery/snapshot.h"
#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/disk_page.h"
#include "runtime/file_system_memory.h"

namespace islands::recovery {
namespace {

using partitioner::Uint64Key;

constexpr std::array<uint32_t, 1> kWorkers = {1};

// An island whose log is said to be durable by hand.
class CleanerTest : public testing::Test {
 protected:
  CleanerTest() {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(1000);
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    store_ =
        *storage::Store::Create(*catalog_, {.sites = {0, 1}, .pool_bytes = 4 << 20, .alone = true}, files_);
    for (uint64_t key = 0; key < 100; ++key) Insert(key);
    EXPECT_TRUE(files_.MakeDirectories("/log").ok());
    epoch_file_ = *files_.Open("/log/EPOCH", /*create=*/true, /*direct=*/false);
    board_.RaiseEpoch(10);
    WriteEpoch(0, {});
    auto data = WriteGeneration(files_, *catalog_, {.directory = "/data", .cluster = 1}, *store_, {1, {}},
                                NoProgress);
    EXPECT_TRUE(data.ok()) << data.status();
    const Cleaner::Options options{.log_directory = "/log", .pages_per_call = 5, .batch_pages = 4};
    auto cleaner =
        Cleaner::Create(files_, *store_, board_, *std::move(data), options, [this] { return oldest_open_; });
    EXPECT_TRUE(cleaner.ok()) << cleaner.status();
    cleaner_ = *std::move(cleaner);
    journal_.Listen();
  }
  ~CleanerTest() override { journal_.EndListening(); }

  void Insert(uint64_t key) {
    const std::vector<std::byte> row(500, static_cast<std::byte>(key));
    ASSERT_EQ(store_->At(0, 0)->Insert(Uint64Key(key), row), absl::StatusCode::kOk);
  }
  void Commit() {
    journal_.AppendDone();
    journal_.EndStep();
  }
  void WriteEpoch(uint64_t reaches, const log::LogPosition& end) {
    std::vector<std::byte> file = log::EncodeEpochBlock({.number = 2, .reaches = reaches, .ends = {end}});
    file.resize(2 * file.size());
    const runtime::IoRequest write{
        .kind = runtime::IoKind::kWrite, .file = epoch_file_, .buffer = std::span(file)};
    ASSERT_TRUE(storage::BlockingQueue(files_).Do(write).ok());
  }
  // Until it has nothing to do. Returns how many calls had.
  int Run() {
    int calls = 0;
    for (int idle = 0; idle < 3; ++idle) {
      for (; cleaner_->RunOnce(); ++calls) idle = 0;
    }
    return calls;
  }
  // The highest of a page at home.
  uint64_t HighestEpochAtHome() {
    const std::string site = *files_.ReadFile("/data/generation-0000000001-site-00000");
    uint64_t highest = 0;
    for (size_t at = 0; at < site.size(); at += storage::kPageBytes) {
      storage::PageHeader header;
      std::memcpy(&header, site.data() + at, sizeof(header));
      highest = std::max(highest, log::Lsn::FromValue(header.lsn).epoch());
    }
    return highest;
  }

  runtime::MemoryFileSystem files_;
  log::Board board_{kWorkers};
  std::unique_ptr<log::Ring> ring_ = log::Ring::InMemory({1, 0, 0}, log::Ring::kLeastCapacity);
  log::Journal journal_{board_, *ring_, log::Lsn::FromValue(1)};
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  runtime::FileHandle epoch_file_ = -1;
  std::unique_ptr<Cleaner> cleaner_;
  uint64_t oldest_open_ = UINT64_MAX;
};

// A page from a file may say anything, and have a checksum that is right.
TEST_F(CleanerTest, Snapshot_RefusesAPageThatIsNotOfTheLog) {
  journal_.EndListening();
  const auto set_lsn = [&](uint64_t lsn) {
    const storage::GuardX page(store_->space(0).At(2));
    auto* header =
        reinterpret_cast<storage::PageHeader*>(page.Change({.bytes = sizeof(storage::PageHeader)}));
    return std::exchange(header->lsn, lsn);
  };
  uint64_t generation = 1;
  const auto take = [&] {
    auto data = storage::DataFiles::Create(
        files_, {.directory = "/snapshots", .generation = ++generation, .sites = store_->sites()});
    EXPECT_TRUE(data.ok()) << data.status();
    journal_.Listen();
    Snapshot snapshot(files_, *store_, *data, journal_);
    EXPECT_TRUE(snapshot.Begin().ok());
    for (int calls = 0; calls < 1000 && !snapshot.done() && snapshot.failure().ok(); ++calls)
      snapshot.RunOnce(/*pages=*/10);
    journal_.EndListening();
    EXPECT_EQ(snapshot.done(), snapshot.failure().ok());
    return snapshot.failure();
  };
  EXPECT_TRUE(take().ok());
  const uint64_t before = set_lsn(0);
  EXPECT_THAT(take().message(), testing::HasSubstr("page 2 of site 0 has LSN 0.0, and the log has come to"));
  set_lsn(log::Lsn::Of(board_.epoch() + 3, 7).value());
  EXPECT_THAT(take().message(), testing::HasSubstr("restore both from one copy"));
  set_lsn(before);
  EXPECT_TRUE(take().ok());
  journal_.Listen();
}

TEST_F(CleanerTest, RunOnce_NothingToDoIsNothingDone) {
  board_.SetDurable(9);
  Run();  // G is 10, and nobody knows whether anything of it is to come
  EXPECT_EQ(cleaner_->waits_for(), 10u);
  board_.RaiseEpoch(11);
  board_.SetDurable(10);
  Run();
  EXPECT_EQ(cleaner_->waits_for(), 0u);
  board_.RaiseEpoch(12);
  board_.SetDurable(11);
  Run();
  const uint64_t steps = files_.steps();
  EXPECT_EQ(cleaner_->pages_written(), 0u);
  EXPECT_GE(cleaner_->checkpoint().bound, 10u);
  Run();
  EXPECT_EQ(files_.steps(), steps);
}

// Its own wish for an epoch that is durable is no reason for another checkpoint, nor are other islands.
TEST_F(CleanerTest, AtRest_EpochsGoOnAndItDoesNot) {
  const auto go_on = [&](const log::LogPosition& end) {
    for (int round = 0; round < 10; ++round) {
      WriteEpoch(board_.epoch(), end);
      board_.RaiseEpoch(board_.epoch() + 1);
      board_.SetDurable(board_.epoch() - 1);
      Run();
    }
    return cleaner_->checkpoint().number;
  };
  Insert(500);
  Commit();
  const uint64_t number = go_on({1, 1000});
  EXPECT_GT(number, 1u);
  EXPECT_EQ(cleaner_->pages_written(), 1u);
  EXPECT_EQ(go_on({1, 1000}), number);
  EXPECT_TRUE(cleaner_->idle() || cleaner_->waits_for() == 0);
  Insert(501);
  Commit();
  EXPECT_GT(go_on({1, 2000}), number);
  EXPECT_EQ(cleaner_->pages_written(), 2u);
}

TEST_F(CleanerTest, Page_WaitsForItsEpoch) {
  Insert(500);
  Commit();
  Run();
  EXPECT_EQ(cleaner_->waits_for(), 10u);
  EXPECT_EQ(HighestEpochAtHome(), 0u);
  board_.RaiseEpoch(11);
  Run();
  EXPECT_EQ(HighestEpochAtHome(), 0u);
  board_.SetDurable(10);
  Run();
  EXPECT_EQ(HighestEpochAtHome(), 10u);
  EXPECT_EQ(cleaner_->pages_written(), 1u);
  EXPECT_EQ(cleaner_->waits_for(), 11u) << "with its checkpoint";
  EXPECT_EQ(cleaner_->checkpoint().bound, 1u);
  board_.RaiseEpoch(12);
  board_.SetDurable(11);
  Run();
  EXPECT_EQ(cleaner_->checkpoint().bound, 10u) << "the epoch in which its pass began";
}

TEST_F(CleanerTest, NewPages_MakeTheFileGrowByAnExtent) {
  const auto bytes = [&] { return files_.ReadFile("/data/generation-0000000001-site-00000")->size(); };
  const uint64_t loaded = bytes();
  EXPECT_EQ(loaded, store_->space(0).end_page() * storage::kPageBytes);
  for (const uint64_t key : {200, 220, 240}) {
    for (uint64_t i = key; i < key + 20; ++i) Insert(i);
    Commit();
    board_.RaiseEpoch(board_.epoch() + 1);
    board_.SetDurable(board_.epoch() - 1);
    Run();
    EXPECT_EQ(bytes(), loaded + (256 << 10));
  }
  EXPECT_GT(store_->space(0).end_page() * storage::kPageBytes, loaded);
}

TEST_F(CleanerTest, Checkpoint_StaysBehindOpenTransactions) {
  for (oldest_open_ = 10; board_.epoch() < 15; board_.RaiseEpoch(board_.epoch() + 1)) {
    Insert(500 + board_.epoch());
    Commit();
    board_.RaiseEpoch(board_.epoch() + 1);
    board_.SetDurable(board_.epoch() - 1);
    Run();
    EXPECT_LE(cleaner_->checkpoint().bound, 10u);
  }
  EXPECT_EQ(cleaner_->checkpoint().bound, 10u);
  oldest_open_ = UINT64_MAX;
  Insert(600);
  Commit();
  WriteEpoch(board_.epoch(), {1, 5000});
  for (int i = 0; i < 3; ++i) {
    board_.RaiseEpoch(board_.epoch() + 1);
    board_.SetDurable(board_.epoch() - 1);
    Run();
  }
  EXPECT_GE(cleaner_->checkpoint().bound, 15u);
}

TEST_F(CleanerTest, Checkpoint_BeginsBehindWhatTheBoundHasNoUseFor) {
  for (uint64_t epoch = 10; epoch < 30; ++epoch) {
    WriteEpoch(epoch - 1, {1 + epoch / 8, 5000 + epoch});
    Insert(500 + epoch);
    Commit();
    board_.RaiseEpoch(epoch + 1);
    board_.SetDurable(epoch);
    Run();
    const Checkpoint& checkpoint = cleaner_->checkpoint();
    EXPECT_LT(checkpoint.position.offset == 0 ? 0 : checkpoint.position.offset - 5001, checkpoint.bound);
  }
  EXPECT_GT(cleaner_->checkpoint().position, (log::LogPosition{4, 5024}));
}

// Whoever goes by a checkpoint that is not on disk removes segments that the one on disk needs.
TEST_F(CleanerTest, Error_OfItsSyncIsNoCheckpoint) {
  const auto run = [&] {
    const std::vector<std::byte> row(500, static_cast<std::byte>(board_.epoch()));
    ASSERT_EQ(store_->At(0, 0)->Replace(Uint64Key(5), row), absl::StatusCode::kOk);
    Commit();
    WriteEpoch(board_.epoch(), {1, 5000 + board_.epoch()});
    for (int i = 0; i < 3; ++i) {
      board_.RaiseEpoch(board_.epoch() + 1);
      board_.SetDurable(board_.epoch() - 1);
      Run();
    }
  };
  run();
  uint64_t steps = files_.steps();
  run();
  steps = files_.steps() - steps;
  const uint64_t number = cleaner_->checkpoint().number;
  ASSERT_EQ(steps, 9u) << "EPOCH; copies, home and checkpoint, each written and synced; a checkpoint more";
  files_.Inject(6, runtime::DiskFault::kEio);
  run();
  EXPECT_FALSE(cleaner_->failure().ok());
  EXPECT_EQ(cleaner_->checkpoint().number, number);
}

TEST_F(CleanerTest, Error_EndsIt) {
  Insert(500);
  Commit();
  board_.RaiseEpoch(11);
  board_.SetDurable(10);
  files_.Inject(2, runtime::DiskFault::kEio);
  Run();
  EXPECT_FALSE(cleaner_->failure().ok());
  EXPECT_FALSE(cleaner_->RunOnce());
  EXPECT_EQ(cleaner_->checkpoint().bound, 1u);
}

}  // namespace
}  // namespace islands::recovery
