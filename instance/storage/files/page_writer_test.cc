// Pages on a disk that loses power at any step: whatever is found afterwards is whole, and not older than
// what was said to be home.
#include "instance/storage/files/page_writer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "instance/storage/files/page_reader.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

constexpr uint64_t kPages = 40;
const DataFilesOptions kThreeSites{.directory = "/data", .sites = {4, 5, 65535}};

// Every state of a page is another, in every sector of it.
void Fill(PageId id, uint64_t lsn, PageBytes page) {
  const PageHeader header{.page_id = id.value(), .lsn = lsn, .type = PageType::kTree};
  for (size_t at = 0; at < kPageBytes; at += sizeof(lsn)) std::memcpy(page.data() + at, &lsn, sizeof(lsn));
  std::memcpy(page.data(), &header, sizeof(header));
}

class Disk {
 public:
  Disk(uint64_t seed, uint32_t sector_bytes)
      : random_(seed), files_({.seed = seed, .sector_bytes = sector_bytes}) {
    EXPECT_TRUE(DataFiles::Create(files_, kThreeSites).ok());
    // They hold pages, if only old ones: every page was home once.
    std::vector<PageId> all;
    for (const uint32_t site : kThreeSites.sites) {
      for (uint64_t number = 0; number < kPages; ++number) all.emplace_back(site, number);
    }
    EXPECT_TRUE(Open());
    for (const PageId id : all) {
      if (writer_->complete()) Flush();
      Copy(id);
    }
    Flush();
  }

  // Copies some pages, as a cleaner does: by site and number.
  void Collect() {
    if (writer_->busy()) return;
    const size_t slot = random_.Below(kThreeSites.sites.size());
    for (uint64_t number = random_.Below(kPages); number < kPages && !writer_->complete(); ++number) {
      if (!batch_.contains(PageId(kThreeSites.sites[slot], number)) && random_.Below(3) != 0)
        Copy({kThreeSites.sites[slot], number});
    }
  }
  void Begin() {
    if (!writer_->busy() && writer_->size() != 0) writer_->Begin();
  }
  void Step() {
    const uint64_t done = writer_->done();
    writer_->RunOnce();
    if (!writer_->failure().ok()) return Kill();  // as its island is
    if (writer_->done() == done) return;
    for (const auto& [id, lsn] : batch_) home_[id] = lsn;
    batch_.clear();
  }
  void Flush() {
    Begin();
    while (writer_->busy()) Step();
  }
  // A write or a sync will fail.
  void Hurt() { files_.Inject(random_.Below(10), runtime::DiskFault::kEio); }
  // What is in flight is carried out, and nothing more.
  void Kill() {
    Close();
    if (!Open()) LosePower();  // it had failed already, unnoticed
  }
  // Perhaps once more in the middle of the restart, or later, when nobody looks.
  void LosePower() {
    files_.PowerLoss(random_());
    Close();
    if (random_.Below(2) == 0) {
      files_.FailAfter(random_.Below(30));
      if (Open()) return Compare();
      files_.PowerLoss(random_());
      Close();
    }
    EXPECT_TRUE(Open());
    Compare();
  }
  void Compare() {
    for (size_t slot = 0; slot < kThreeSites.sites.size(); ++slot) {
      const auto visit = [&](uint64_t number, ConstPageBytes page) {
        const PageId id(kThreeSites.sites[slot], number);
        EXPECT_TRUE(IsWhole(page, id)) << "page " << number << " of slot " << slot;
        const uint64_t lsn = HeaderOf(page).lsn;
        EXPECT_GE(lsn, home_[id]);
        EXPECT_LE(lsn, copied_[id]);
        DiskPage expected;
        Fill(id, lsn, expected.bytes);
        StampChecksum(expected.bytes);
        EXPECT_EQ(std::memcmp(page.data(), expected.bytes.data(), kPageBytes), 0);
        copied_[id] = home_[id] = lsn;
      };
      const absl::Status read = ReadPages(files_, data_->site(slot), kPages, visit);
      EXPECT_TRUE(read.ok()) << read;
    }
  }

 private:
  void Copy(PageId id) {
    const uint64_t lsn = ++lsn_;
    Fill(id, lsn, writer_->Add(*data_->SlotOf(id.site()), id.number()));
    batch_[id] = copied_[id] = lsn;
  }
  bool Open() {
    absl::StatusOr<DataFiles> data = DataFiles::Open(files_, kThreeSites);
    if (!data.ok()) return false;
    data_.emplace(*std::move(data));
    if (!RestoreFromDoubleWrite(files_, *data_).ok()) return false;
    writer_ = std::make_unique<PageWriter>(files_, *data_, 1 + random_.Below(20));
    return true;
  }
  void Close() {
    writer_.reset();
    data_.reset();
    batch_.clear();
  }

  runtime::Random random_;
  runtime::MemoryFileSystem files_;
  std::optional<DataFiles> data_;
  std::unique_ptr<PageWriter> writer_;
  uint64_t lsn_ = 0;
  std::map<PageId, uint64_t> batch_, home_, copied_;  // LSNs
};

TEST(PageWriter, Property_EveryPageIsWholeAndNotOlderThanItsHome) {
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Disk disk(seed, seed % 2 == 0 ? 512 : 4096);
    runtime::Random random(seed + 1000);
    for (int step = 0; step < 600 && !testing::Test::HasFailure(); ++step) {
      const uint64_t what = random.Below(100);
      if (what < 2) {
        disk.Kill();
      } else if (what < 6) {
        disk.LosePower();
      } else if (what < 8) {
        disk.Hurt();
      } else if (what < 30) {
        disk.Collect();
      } else if (what < 50) {
        disk.Begin();
      } else {
        disk.Step();
      }
    }
  }
}

// Copies, home, and home again: each write finds no room once.
TEST(PageWriter, FullDisk_IsTriedAgain) {
  for (const uint64_t step : {0u, 2u, 3u}) {
    runtime::MemoryFileSystem files;
    const auto data = DataFiles::Create(files, kThreeSites);
    ASSERT_TRUE(data.ok()) << data.status();
    PageWriter writer(files, *data, 8);
    Fill({4, 3}, 7, writer.Add(0, 3));
    Fill({5, 9}, 8, writer.Add(1, 9));
    files.Inject(step, runtime::DiskFault::kEnospc);
    writer.Begin();
    int full = 0;
    for (int i = 0; i < 30 && writer.busy(); ++i) {
      writer.RunOnce();
      full += !writer.full().ok();
    }
    EXPECT_GT(full, 0) << step;
    EXPECT_TRUE(writer.failure().ok() && writer.full().ok()) << writer.failure();
    EXPECT_EQ(writer.done(), 2u);
    files.PowerLoss(1);
    const auto again = DataFiles::Open(files, kThreeSites);
    ASSERT_TRUE(again.ok()) << again.status();
    for (const auto& [slot, number, lsn] : {std::tuple{0, 3, 7}, {1, 9, 8}}) {
      uint64_t found = 0;
      const auto visit = [&](uint64_t at, ConstPageBytes page) {
        if (at == static_cast<uint64_t>(number)) found = HeaderOf(page).lsn;
      };
      EXPECT_TRUE(ReadPages(files, again->site(static_cast<size_t>(slot)), 10, visit).ok());
      EXPECT_EQ(found, static_cast<uint64_t>(lsn));
    }
  }
}

// It says so, and writes nothing more. A sync that finds no room has failed like any other.
TEST(PageWriter, Error_EndsIt) {
  for (uint64_t step = 0; step < 4; ++step) {
    runtime::MemoryFileSystem files;
    const auto data = DataFiles::Create(files, kThreeSites);
    ASSERT_TRUE(data.ok()) << data.status();
    PageWriter writer(files, *data, 8);
    Fill({4, 3}, 7, writer.Add(0, 3));
    const uint64_t before = files.steps();
    files.Inject(step, step % 2 == 0 ? runtime::DiskFault::kEio : runtime::DiskFault::kEnospc);
    writer.Begin();
    for (int i = 0; i < 10; ++i) writer.RunOnce();
    EXPECT_FALSE(writer.failure().ok()) << step;
    EXPECT_TRUE(writer.busy());
    EXPECT_EQ(writer.done(), 0u);
    EXPECT_EQ(files.steps(), before + step + 1);
  }
}

}  // namespace
}  // namespace islands::storage
