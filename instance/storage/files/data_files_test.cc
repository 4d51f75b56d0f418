#include "instance/storage/files/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/double_write.h"
#include "instance/storage/files/file_size.h"
#include "instance/storage/files/page_reader.h"
#include "runtime/file_system_memory.h"

namespace islands::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const DataFilesOptions kOptions{.directory = "/data", .generation = 3, .sites = {4, 65535}};

DiskPage PageOf(PageId id, uint64_t lsn) {
  DiskPage page{};
  const PageHeader header{.page_id = id.value(), .lsn = lsn};
  std::memcpy(page.bytes.data(), &header, sizeof(header));
  StampChecksum(page.bytes);
  return page;
}

TEST(DiskPage, IsWhole_FindsEveryBitAndOtherPlaces) {
  const PageId id(4, 9);
  DiskPage page = PageOf(id, 7);
  EXPECT_TRUE(IsWhole(page.bytes, id));
  EXPECT_FALSE(IsWhole(page.bytes, PageId(4, 8)));
  EXPECT_FALSE(IsWhole(page.bytes, PageId(5, 9)));
  for (size_t bit = 0; bit < 8 * kPageBytes; ++bit) {
    page.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_FALSE(IsWhole(page.bytes, id)) << bit;
    page.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  EXPECT_FALSE(IsWhole(DiskPage{}.bytes, PageId(0, 0)));
}

TEST(DataFiles, Open_ByOneAtATime) {
  runtime::MemoryFileSystem files;
  EXPECT_EQ(DataFiles::Open(files, kOptions).status().code(), absl::StatusCode::kNotFound);
  {
    const auto data = DataFiles::Create(files, kOptions);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(DataFiles::Open(files, kOptions).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(data->SlotOf(65535), 1u);
    EXPECT_EQ(data->SlotOf(5), std::nullopt);
  }
  EXPECT_TRUE(DataFiles::Open(files, kOptions).ok());
  files.PowerLoss();
  EXPECT_TRUE(DataFiles::Open(files, kOptions).ok()) << "their names were synced";
}

TEST(DataFiles, OtherSet_IsMadeWhenItIsWanted) {
  runtime::MemoryFileSystem files;
  auto data = DataFiles::Create(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->UseSet(1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(data->set(), 0u);
  const runtime::FileHandle first = data->site(0);
  ASSERT_TRUE(data->OpenOther().ok());
  EXPECT_NE(data->other_site(0), first);
  ASSERT_TRUE(data->UseSet(1).ok());
  EXPECT_EQ(data->other_site(0), first);
  EXPECT_EQ(data->PathOf(0), "/data/generation-0000000003-site-00004-b");
  ASSERT_TRUE(data->OpenOther().ok()) << "it is open";
  data = absl::UnknownError("closed");
  files.PowerLoss();
  data = DataFiles::Open(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->UseSet(1).ok()) << "their names were synced";
  ASSERT_TRUE(RemoveOtherGenerations(files, "/data", 4).ok());
  EXPECT_TRUE(files.List("/data")->empty());
}

TEST(DataFiles, RemoveOtherGenerations_LeavesOne) {
  runtime::MemoryFileSystem files;
  for (const uint64_t generation : {2, 3, 31}) {
    DataFilesOptions options = kOptions;
    options.generation = generation;
    ASSERT_TRUE(DataFiles::Create(files, options).ok());
  }
  ASSERT_TRUE(files.ReplaceFile("/data/else", "").ok());
  ASSERT_TRUE(RemoveOtherGenerations(files, "/data", 3).ok());
  EXPECT_THAT(*files.List("/data"),
              ElementsAre("else", "generation-0000000003-checkpoint", "generation-0000000003-double-write",
                          "generation-0000000003-site-00004", "generation-0000000003-site-65535"));
}

TEST(FileSize, GrowFor_ByExtents) {
  runtime::MemoryFileSystem files;
  const auto data = DataFiles::Create(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<uint64_t> sizes;  // each once, in pages
  for (uint64_t end = 1; end < 8'000; ++end) {
    GrowFor(files, *data, 0, end);
    const uint64_t pages = *files.Size(data->site(0)) / kPageBytes;
    ASSERT_GE(pages, end);
    if (sizes.empty() || pages != sizes.back()) sizes.push_back(pages);
  }
  EXPECT_EQ(sizes.front(), 64u);
  EXPECT_EQ(sizes[1], 128u);
  EXPECT_LT(sizes.size(), 40u);
  GrowFor(files, *data, 0, 100);
  EXPECT_EQ(*files.Size(data->site(0)) / kPageBytes, sizes.back()) << "it has as many";
  EXPECT_EQ(*files.Size(data->site(1)), 0u);
  GrowFor(files, *data, 1, 100'000);
  GrowFor(files, *data, 1, 100'001);
  EXPECT_EQ(*files.Size(data->site(1)) / kPageBytes, 102'048u) << "no more than 8 MiB at once";
}

// Who writes hears of it, and only if there is no room for what he has.
TEST(FileSize, GrowFor_OnAFullDiskLeavesItToWrites) {
  runtime::MemoryFileSystem files;
  const auto data = DataFiles::Create(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  files.SetRoom(10 * kPageBytes);
  GrowFor(files, *data, 0, 2);
  EXPECT_EQ(*files.Size(data->site(0)), 0u);
  std::vector<DiskPage> pages(2);
  EXPECT_TRUE(
      BlockingQueue(files)
          .Do({.kind = runtime::IoKind::kWrite, .file = data->site(0), .buffer = AsBytes(std::span(pages))})
          .ok());
}

TEST(FileSize, UsedBytesOfSites_LeavesOutFreePagesAndWhatIsBehind) {
  runtime::MemoryFileSystem files;
  const auto data = DataFiles::Create(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto write = [&](size_t slot, uint64_t next, uint64_t free, bool whole) {
    DiskPage header = PageOf(PageId(data->SiteOf(slot), 0), 5);
    const std::array<uint64_t, 4> fields = {0x31455449534c5349, next, 7, free};
    std::memcpy(header.bytes.data() + 32, fields.data(), sizeof(fields));
    StampChecksum(header.bytes);
    if (!whole) header.bytes[99] ^= std::byte{1};
    ASSERT_TRUE(BlockingQueue(files)
                    .Do({.kind = runtime::IoKind::kWrite, .file = data->site(slot), .buffer = header.bytes})
                    .ok());
    ASSERT_TRUE(files.Allocate(data->site(slot), 100 * kPageBytes).ok());
  };
  const auto used = [&] { return *UsedBytesOfSites(files, "/data", 3) / kPageBytes; };
  write(0, 50, 20, true);
  write(1, 4, 0, true);
  EXPECT_EQ(used(), 34u);
  write(1, 4, 0, false);
  EXPECT_EQ(used(), 130u) << "all of the file";
  write(1, 4, 4, true);  // makes no sense
  EXPECT_EQ(used(), 130u);
  EXPECT_EQ(*UsedBytesOfSites(files, "/data", 4), 0u);
}

TEST(DoubleWrite, DecodeBatch_LeavesOutWhatIsNotOfIt) {
  std::vector<DiskPage> file = {{}, PageOf({4, 1}, 10), PageOf({4, 2}, 11), PageOf({4, 3}, 12)};
  EncodeBatchHeader(5, std::span(file).subspan(1), &file[0]);
  EXPECT_EQ(DecodeBatch(AsBytes(std::span(file))).size(), 3u);
  file[2] = PageOf({4, 2}, 9);  // of an earlier batch
  file[3].bytes[100] ^= std::byte{1};
  const std::vector<ConstPageBytes> batch = DecodeBatch(AsBytes(std::span(file)));
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(HeaderOf(batch[0]).lsn, 10u);
  file[0].bytes[30] ^= std::byte{1};
  EXPECT_TRUE(DecodeBatch(AsBytes(std::span(file))).empty());
}

TEST(DoubleWrite, Restore_LeavesWhatIsNewerAtHome) {
  runtime::MemoryFileSystem files;
  const auto data = DataFiles::Create(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  BlockingQueue queue(files);
  std::vector<DiskPage> home = {PageOf({4, 0}, 10), PageOf({4, 1}, 10), PageOf({4, 2}, 10)};
  home[2].bytes[500] = std::byte{1};  // torn
  std::vector<DiskPage> batch = {{}, PageOf({4, 0}, 9), PageOf({4, 1}, 11), PageOf({4, 2}, 11)};
  EncodeBatchHeader(1, std::span(batch).subspan(1), &batch[0]);
  queue.Submit({.kind = runtime::IoKind::kWrite, .file = data->site(0), .buffer = AsBytes(std::span(home))});
  queue.Submit(
      {.kind = runtime::IoKind::kWrite, .file = data->double_write(), .buffer = AsBytes(std::span(batch))});
  ASSERT_TRUE(queue.WaitAll().ok());
  ASSERT_TRUE(RestoreFromDoubleWrite(files, *data).ok());
  std::vector<uint64_t> lsns(4);
  const auto visit = [&](uint64_t number, ConstPageBytes page) {
    lsns[number] = IsWhole(page, PageId(4, number)) ? HeaderOf(page).lsn : 0;
  };
  ASSERT_TRUE(ReadPages(files, data->site(0), 4, visit).ok());
  EXPECT_THAT(lsns, ElementsAre(10, 11, 11, 0));
}

TEST(ReadPages, ManyPages_EachOnce) {
  runtime::MemoryFileSystem files;
  const auto data = DataFiles::Create(files, kOptions);
  ASSERT_TRUE(data.ok()) << data.status();
  constexpr uint64_t kPages = 3 * kPagesPerRead * kReadsInFlight + 5;
  std::vector<DiskPage> pages;
  for (uint64_t number = 0; number < kPages; ++number) pages.push_back(PageOf({4, number}, number + 1));
  BlockingQueue queue(files);
  ASSERT_TRUE(
      queue.Do({.kind = runtime::IoKind::kWrite, .file = data->site(0), .buffer = AsBytes(std::span(pages))})
          .ok());
  std::vector<int> seen(kPages + 2);
  const auto visit = [&](uint64_t number, ConstPageBytes page) {
    EXPECT_EQ(IsWhole(page, PageId(4, number)), number < kPages);
    ++seen[number];
  };
  ASSERT_TRUE(ReadPages(files, data->site(0), kPages + 2, visit).ok());
  EXPECT_THAT(seen, testing::Each(1));
  const absl::Status lost = ReadPages(files, -1, 1, visit);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("not open"));
}

}  // namespace
}  // namespace islands::storage
