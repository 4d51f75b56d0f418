#include "instance/recovery/island_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "instance/log/board.h"
#include "instance/log/journal.h"
#include "instance/log/page_changes_reader.h"
#include "instance/log/record.h"
#include "instance/recovery/recovery.h"
#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/page_writer.h"
#include "runtime/file_system_memory.h"

namespace islands::recovery {
namespace {

using partitioner::Uint64Key;
using storage::PageId;
using testing::HasSubstr;

storage::Catalog MakeCatalog(int64_t end = 1000) {
  storage::Catalog::TableSpecs specs;
  for (const char* name : {"rows", "everywhere"}) {
    control::v1::TableSpec* table = specs.Add();
    table->set_name(name);
    table->add_key("uint64");
    table->set_range_end(end);
  }
  specs[1].set_replicated(true);
  return *storage::Catalog::Create(specs, 4);
}

class IslandDataTest : public testing::Test {
 protected:
  IslandDataTest() {
    store_ = *storage::Store::Create(catalog_, kStore, files_);
    for (uint64_t key = 250; key < 750; ++key) Put(0, key < 500 ? 1 : 2, key, 300);
    for (uint64_t key = 0; key < 50; ++key) Put(1, storage::kReplicatedSite, key, 30);
  }
  void Put(uint32_t table, uint32_t site, uint64_t key, size_t bytes) {
    const std::vector<std::byte> row(bytes, static_cast<std::byte>(key));
    ASSERT_EQ(store_->At(table, site)->Insert(Uint64Key(key), row), absl::StatusCode::kOk);
  }
  // The operating system's files, past the page cache where it lets us.
  void OnARealDisk(bool direct) {
    const std::string directory = testing::TempDir() + "islands_island_data_test";
    std::filesystem::remove_all(directory);
    const auto files = runtime::MakePosixFileSystem();
    const IslandDataOptions where{.directory = directory, .cluster = 9, .island = 1, .direct = direct};
    auto loaded = WriteGeneration(*files, catalog_, where, *store_, {}, NoProgress);
    if (direct && loaded.status().code() == absl::StatusCode::kInvalidArgument)
      GTEST_SKIP() << "no O_DIRECT here: " << loaded.status();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    auto read = storage::Store::CreateForRedo(catalog_, kStore);
    EXPECT_EQ(ReadGeneration(*files, catalog_, where, **read, NoProgress).status().code(),
              absl::StatusCode::kUnavailable)
        << "the loader has them";
    WriteBatch(*files, *loaded->files);
    loaded = absl::UnknownError("lets go of them");
    const auto data = ReadGeneration(*files, catalog_, where, **read, NoProgress);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_TRUE((*read)->FindTrees(catalog_).ok() && (*read)->Check().ok());
    EXPECT_EQ((*read)->CountRows(0), 500u);
    EXPECT_EQ((*read)->space(0).Home(1), 5u) << "of the batch";
    std::filesystem::remove_all(directory);
  }
  // Page 1 of the first site once more, with LSN 5; it does not come home.
  void WriteBatch(runtime::FileSystem& files, const storage::DataFiles& data) {
    storage::PageWriter writer(files, data, 3);
    const storage::GuardX page(store_->space(0).At(1));
    reinterpret_cast<storage::PageHeader*>(page.Redo())->lsn = 5;
    std::copy_n(page.bytes(), storage::kPageBytes, writer.Add(0, 1).begin());
    writer.Begin();
    for (int done = 0; done < 2;) {
      writer.queue().Wait(1'000'000'000);
      done += writer.RunOnce() ? 1 : 0;
    }
    ASSERT_TRUE(writer.failure().ok()) << writer.failure();
  }
  absl::Status Load() { return WriteGeneration(files_, catalog_, kWhere, *store_, {}, NoProgress).status(); }
  // From the files alone.
  absl::Status Start(const storage::Catalog& catalog, const storage::StoreOptions& options,
                     const IslandDataOptions& where) {
    auto read = storage::Store::CreateForRedo(catalog, options);
    if (!read.ok()) return read.status();
    absl::StatusOr<IslandData> data = ReadGeneration(files_, catalog, where, **read, NoProgress);
    if (!data.ok()) return data.status();
    if (absl::Status found = (*read)->FindTrees(catalog); !found.ok()) return found;
    EXPECT_EQ((*read)->CountRows(0), 500u);
    EXPECT_EQ((*read)->CountRows(1), 50u);
    return (*read)->Check();
  }
  absl::Status Start() { return Start(catalog_, kStore, kWhere); }
  void Damage(const std::string& path, size_t offset) {
    std::string content = *files_.ReadFile(path);
    content[offset] ^= 1;
    ASSERT_TRUE(files_.ReplaceFile(path, content).ok());
  }

  static constexpr storage::StoreOptions kStore{
      .island = 1, .sites = {1, 2}, .pool_bytes = 4 << 20, .alone = true};
  const IslandDataOptions kWhere{.directory = "/data", .cluster = 9, .island = 1};
  const storage::Catalog catalog_ = MakeCatalog();
  runtime::MemoryFileSystem files_;
  std::unique_ptr<storage::Store> store_;
};

TEST_F(IslandDataTest, RealDisk) { OnARealDisk(/*direct=*/false); }
TEST_F(IslandDataTest, RealDisk_PastThePageCache) { OnARealDisk(/*direct=*/true); }

// Of one table, into a store that pages: the rows of the other come along, those on disk too, and the old
// generation stays as it is until nobody wants it any more.
TEST_F(IslandDataTest, Load_IntoAPagedStoreKeepsOtherTables) {
  ASSERT_TRUE(Load().ok());
  storage::StoreOptions few = kStore;
  few.pool_bytes = 24 * storage::kPageBytes;
  few.paged = true;
  IslandDataOptions next = kWhere;
  next.generation = 2;
  const auto open = [&](const IslandDataOptions& where) {
    store_ = *storage::Store::CreateForRedo(catalog_, few);
    absl::Status status = ReadGeneration(files_, catalog_, where, *store_, NoProgress).status();
    return status.ok() ? store_->FindTrees(catalog_) : status;
  };
  ASSERT_TRUE(open(kWhere).ok());
  {
    auto begun = BeginGeneration(files_, next, *store_);
    ASSERT_TRUE(begun.ok()) << begun.status();
    ASSERT_TRUE(store_->Truncate(1).ok());
    for (uint64_t key = 0; key < 200; ++key) Put(1, storage::kReplicatedSite, key, 900);
    const auto loaded =
        WriteGeneration(files_, catalog_, next, *store_, {7, {3, 5000}}, NoProgress, *std::move(begun));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_GT(store_->pager()->counters().evicted, 10u);
    EXPECT_LE(store_->Usage().resident_pages, 24u + 16u);
  }
  for (const IslandDataOptions& where : {next, kWhere}) {
    const absl::Status opened = open(where);
    ASSERT_TRUE(opened.ok()) << opened;
    EXPECT_EQ(store_->CountRows(0), 500u);
    EXPECT_EQ(store_->CountRows(1), where.generation == 2 ? 200u : 50u);
    const absl::Status sound = store_->Check();
    EXPECT_TRUE(sound.ok()) << sound;
  }
}

// No file is any longer then than it was.
TEST_F(IslandDataTest, PagesThatRowsHaveLeft_AreUsedAgainInTheNextLife) {
  const auto remove = [&](uint64_t key) {
    storage::SiteTable& rows = *store_->At(0, 1);
    ASSERT_EQ(rows.MarkGhost(Uint64Key(key)), absl::StatusCode::kOk);
    ASSERT_EQ(rows.RemoveGhost(Uint64Key(key)), absl::StatusCode::kOk);
  };
  const uint64_t end = store_->space(0).end_page();
  for (uint64_t key = 260; key < 500; ++key) remove(key);
  EXPECT_EQ(store_->space(0).end_page(), end);
  EXPECT_LT(store_->space(0).used_pages(), 5u);
  ASSERT_TRUE(Load().ok());
  storage::StoreOptions few = kStore;
  few.pool_bytes = 8 * storage::kPageBytes;
  few.paged = true;
  store_ = *storage::Store::CreateForRedo(catalog_, few);
  const auto data = ReadGeneration(files_, catalog_, kWhere, *store_, NoProgress);
  ASSERT_TRUE(data.ok() && store_->FindTrees(catalog_).ok());
  IslandDataOptions next = kWhere;
  next.generation = 2;
  const auto begun = BeginGeneration(files_, next, *store_);  // what has changed can be evicted
  ASSERT_TRUE(begun.ok()) << begun.status();
  for (uint64_t key = 260; key < 500; ++key) Put(0, 1, key, 300);
  EXPECT_GT(store_->pager()->counters().spilled, 3u);
  EXPECT_EQ(store_->space(0).end_page(), end);
  const absl::Status sound = store_->Check();
  EXPECT_TRUE(sound.ok()) << sound;
}

TEST_F(IslandDataTest, Load_IsThereAfterwards) {
  std::vector<uint64_t> done;
  const auto progress = [&](uint64_t now, uint64_t all) {
    done.push_back(now);
    EXPECT_LE(now, all);
  };
  const auto data = WriteGeneration(files_, catalog_, kWhere, *store_, {7, {3, 5000}}, progress);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(done.size(), 3u);
  EXPECT_EQ(data->checkpoint.bound, 7u);
  EXPECT_EQ(data->checkpoint.position, (log::LogPosition{3, 5000}));
  for (size_t slot = 0; slot < store_->slots(); ++slot) {
    for (uint64_t number = 0; number < store_->space(slot).end_page(); ++number)
      EXPECT_EQ(store_->space(slot).Home(number), 1u) << "LSN of a load";
  }
}

TEST_F(IslandDataTest, Load_WholeOrNotWhereverPowerDies) {
  const uint64_t before = files_.steps();
  ASSERT_TRUE(Load().ok());
  const uint64_t steps = files_.steps() - before;
  for (uint64_t left = 0; left <= steps; ++left) {
    runtime::MemoryFileSystem files({.seed = left});
    files.FailAfter(left);
    const bool loaded = WriteGeneration(files, catalog_, kWhere, *store_, {}, NoProgress).ok();
    EXPECT_EQ(loaded, left == steps);
    files.PowerLoss(left);
    const bool whole = IsGenerationWhole(files, "/data", 1);
    EXPECT_TRUE(whole || !loaded);
    if (!whole) {
      EXPECT_TRUE(WriteGeneration(files, catalog_, kWhere, *store_, {}, NoProgress).ok());
    }
    auto read = storage::Store::CreateForRedo(catalog_, kStore);
    EXPECT_TRUE(ReadGeneration(files, catalog_, kWhere, **read, NoProgress).ok());
    EXPECT_TRUE((*read)->FindTrees(catalog_).ok() && (*read)->Check().ok());
    EXPECT_EQ((*read)->CountRows(0), 500u);
  }
}

TEST_F(IslandDataTest, Start_RefusesWhatDoesNotGoTogether) {
  ASSERT_TRUE(Load().ok());
  const absl::Status started = Start();
  EXPECT_TRUE(started.ok()) << started;
  const auto code = [&](IslandDataOptions where) { return Start(catalog_, kStore, where).code(); };
  EXPECT_EQ(code({.directory = "/data", .cluster = 8, .island = 1}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({.directory = "/data", .cluster = 9, .island = 2}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({.directory = "/data", .cluster = 9, .island = 1, .generation = 2}),
            absl::StatusCode::kNotFound);
  const absl::Status other = Start(MakeCatalog(1001), kStore, kWhere);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("other tables"));
  const absl::Status small =
      Start(catalog_, {.island = 1, .sites = {1, 2}, .pool_bytes = 4096, .alone = true}, kWhere);
  EXPECT_TRUE(small.ok()) << "what undo may have taken: " << small;
}

TEST_F(IslandDataTest, Start_PoolTooSmall) {
  for (uint64_t key = 250; key < 500; ++key) {
    if (key % 2 == 0) continue;
    const std::vector<std::byte> row(1500, std::byte{1});
    ASSERT_EQ(store_->At(0, 1)->Replace(Uint64Key(key), row), absl::StatusCode::kOk);
  }
  for (uint64_t key = 1000; key < 2000; ++key) Put(1, storage::kReplicatedSite, key, 1500);
  ASSERT_TRUE(Load().ok());
  const absl::Status small =
      Start(catalog_, {.island = 1, .sites = {1, 2}, .pool_bytes = 4096, .alone = true}, kWhere);
  EXPECT_EQ(small.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(small.message()), HasSubstr("raise storage.buffer_pool"));
}

TEST_F(IslandDataTest, Start_EveryDamagedPageIsMissed) {
  ASSERT_TRUE(Load().ok());
  const std::string path = "/data/generation-0000000001-site-00002";
  const uint64_t pages = files_.ReadFile(path)->size() / storage::kPageBytes;
  ASSERT_GT(pages, 10u);
  for (uint64_t page = 0; page < pages; ++page) {
    Damage(path, page * storage::kPageBytes + page);
    const absl::Status lost = Start();
    EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss) << page;
    const std::string what = page == 0 ? "site 2" : fmt::format("page {} of site 2", page);
    EXPECT_THAT(std::string(lost.message()), HasSubstr(what));
    Damage(path, page * storage::kPageBytes + page);
  }
  EXPECT_TRUE(Start().ok());
  std::string content = *files_.ReadFile(path);
  content.pop_back();
  ASSERT_TRUE(files_.ReplaceFile(path, content).ok());
  EXPECT_EQ(Start().code(), absl::StatusCode::kDataLoss) << "cut off";
}

// A page that is not whole comes back if the log has an image of it, and not from changes.
TEST_F(IslandDataTest, Redo_OfADamagedPageBeginsWithAnImage) {
  for (const bool image : {false, true}) {
    log::Board board(std::vector<uint32_t>{1});
    const auto ring = log::Ring::InMemory({1, 0, 0}, log::Ring::kLeastCapacity);
    for (size_t slot = 0; slot < store_->slots() && image; ++slot) {  // LSN 0: the next change is an image
      for (uint64_t number = 0; number < store_->space(slot).end_page(); ++number) {
        const storage::GuardX page(store_->space(slot).At(number));
        reinterpret_cast<storage::PageHeader*>(page.Redo())->lsn = 0;
      }
    }
    ASSERT_TRUE(image || Load().ok());
    log::Journal journal(board, *ring, log::Lsn::FromValue(1));
    journal.Listen();
    const std::vector<std::byte> row(300, std::byte{7});
    ASSERT_EQ(store_->At(0, 2)->Replace(Uint64Key(600), row), absl::StatusCode::kOk);
    journal.AppendDone();
    journal.EndStep();
    journal.EndListening();
    const auto redo = [&] {
      auto read = storage::Store::CreateForRedo(catalog_, kStore);
      const auto data = ReadGeneration(files_, catalog_, kWhere, **read, NoProgress);
      Recovery recovery(catalog_, **read, {});
      recovery.BeginFrom(data->checkpoint);
      size_t taken = 0;
      const auto record = log::ParseRecord(ring->stream(), 0, ring->Bytes(0, ring->tail()), &taken);
      const absl::Status redone = recovery.Redo(ring->stream(), *record);
      return redone.ok() ? recovery.FindTrees() : redone;
    };
    EXPECT_TRUE(redo().ok()) << redo();
    size_t taken = 0;
    const auto record = log::ParseRecord(ring->stream(), 0, ring->Bytes(0, ring->tail()), &taken);
    const auto entry = log::DecodeEntry(*record);
    log::PageChangeReader reader(entry->changes);
    log::PageChangeGroup group;
    ASSERT_TRUE(reader.Next(&group));
    ASSERT_EQ(group.is_image(), image);
    const std::string path = "/data/generation-0000000001-site-00002";
    Damage(path, group.page().number() * storage::kPageBytes + 77);
    EXPECT_EQ(redo().code(), image ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss) << redo();
    Damage(path, group.page().number() * storage::kPageBytes + 77);
  }
}

// A checkpoint that can be read may not be on disk yet: its writer died before the sync. Who goes by it lets
// go of segments that the one before it needs.
TEST_F(IslandDataTest, Start_MakesDurableWhatItBelieves) {
  ASSERT_TRUE(Load().ok());
  {
    auto read = storage::Store::CreateForRedo(catalog_, kStore);
    const auto data = ReadGeneration(files_, catalog_, kWhere, **read, NoProgress);
    ASSERT_TRUE(data.ok()) << data.status();
    Checkpoint next = data->checkpoint;
    ++next.number;
    std::vector<std::byte> block = EncodeCheckpoint(next);
    const runtime::IoRequest write{.kind = runtime::IoKind::kWrite,
                                   .file = data->files->checkpoint(),
                                   .offset = next.number % 2 * block.size(),
                                   .buffer = std::span(block)};
    ASSERT_TRUE(storage::BlockingQueue(files_).Do(write).ok());
  }
  uint64_t believed = 0;
  for (int life = 0; life < 2; ++life) {
    auto read = storage::Store::CreateForRedo(catalog_, kStore);
    const auto data = ReadGeneration(files_, catalog_, kWhere, **read, NoProgress);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_GE(data->checkpoint.number, believed);
    believed = data->checkpoint.number;
    files_.PowerLoss();
  }
  EXPECT_EQ(believed, 2u);
}

TEST(Checkpoint, Decode_TakesTheNewestWholeBlock) {
  const auto two_blocks = [](uint64_t first, uint64_t second) {
    Checkpoint checkpoint{.number = first, .cluster = 1, .bound = first + 100, .sites = {{4, 7}, {65535, 9}}};
    std::vector<std::byte> file = EncodeCheckpoint(checkpoint);
    checkpoint.number = second, checkpoint.bound = second + 100;
    const std::vector<std::byte> block = EncodeCheckpoint(checkpoint);
    file.insert(file.end(), block.begin(), block.end());
    return file;
  };
  EXPECT_EQ(DecodeCheckpointFile(two_blocks(6, 7))->bound, 107u);
  EXPECT_EQ(DecodeCheckpointFile(two_blocks(8, 7))->bound, 108u);
  EXPECT_EQ(DecodeCheckpointFile(two_blocks(8, 7))->sites[1].pages, 9u);
  for (size_t byte = 0; byte < 88 + 2 * 16; ++byte) {
    std::vector<std::byte> torn = two_blocks(6, 7);
    torn[torn.size() / 2 + byte] ^= std::byte{4};
    EXPECT_EQ(DecodeCheckpointFile(torn)->bound, 106u) << "byte " << byte;
    torn[byte] ^= std::byte{4};
    EXPECT_EQ(DecodeCheckpointFile(torn).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(DecodeCheckpointFile({}).ok());
  std::vector<std::byte> cut_off = two_blocks(6, 7);
  cut_off.resize(cut_off.size() / 2);
  EXPECT_FALSE(DecodeCheckpointFile(cut_off).ok());
}

TEST(SchemaFingerprint, TellsTablesApart) {
  EXPECT_EQ(SchemaFingerprint(MakeCatalog()), SchemaFingerprint(MakeCatalog()));
  EXPECT_EQ(SchemaFingerprint(MakeCatalog()), 1456528681145690249u)
      << "it is on disk: the same in every version";
  EXPECT_NE(SchemaFingerprint(MakeCatalog()), SchemaFingerprint(MakeCatalog(999)));
}

}  // namespace
}  // namespace islands::recovery
