#include "instance/recovery/warm_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/recovery/island_data.h"
#include "runtime/file_system_memory.h"

namespace islands::recovery {
namespace {

using partitioner::Uint64Key;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::SizeIs;

const IslandDataOptions kWhere{.directory = "/data", .cluster = 7, .island = 2};
const WarmPages kOf{.cluster = 7, .generation = 1, .island = 2, .pages = {}};
constexpr uint64_t kPages = 64;  // of the first life's pool

// Two lives of a paged store with ten times the rows that its pool holds.
class WarmPagesTest : public testing::Test {
 protected:
  WarmPagesTest() {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(10'000);
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 2));
    store_ = *storage::Store::Create(*catalog_, OptionsOf(kPages), files_);
    auto begun = BeginGeneration(files_, kWhere, *store_);
    EXPECT_TRUE(begun.ok()) << begun.status();
    for (uint64_t key = 0; key < 10'000; ++key) {
      const std::vector<std::byte> row(250, static_cast<std::byte>(key));
      EXPECT_EQ(store_->At(0, *catalog_->SiteOf(0, Uint64Key(key)))->Insert(Uint64Key(key), row),
                absl::StatusCode::kOk);
    }
    EXPECT_TRUE(
        WriteGeneration(files_, *catalog_, kWhere, *store_, {1, {}}, NoProgress, *std::move(begun)).ok());
    BeginLife(kPages);
  }
  static storage::StoreOptions OptionsOf(uint64_t pages) {
    return {.sites = {0, 2}, .pool_bytes = pages * storage::kPageBytes, .alone = true, .paged = true};
  }
  void BeginLife(uint64_t pages) {
    data_ = {};
    store_.reset();  // with the locks of its files
    store_ = *storage::Store::CreateForRedo(*catalog_, OptionsOf(pages));
    auto data = ReadGeneration(files_, *catalog_, kWhere, *store_, NoProgress);
    ASSERT_TRUE(data.ok()) << data.status();
    data_ = *std::move(data);
    ASSERT_TRUE(store_->FindTrees(*catalog_).ok());
  }
  // Rows of which each is on a page of its own.
  void Use(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) {
      const uint64_t key = i * 40;
      std::vector<std::byte> row;
      ASSERT_EQ(store_->At(0, *catalog_->SiteOf(0, Uint64Key(key)))->Read(Uint64Key(key), &row),
                absl::StatusCode::kOk);
    }
  }
  std::vector<uint64_t> InMemory() const {
    PagesInMemory walk(*store_);
    while (walk.Look(3)) continue;
    std::vector<uint64_t> pages = walk.Take();
    std::ranges::sort(pages);
    return pages;
  }
  std::unique_ptr<WarmUp> Warm() {
    return std::make_unique<WarmUp>(files_, *store_, "/data", kOf, &progress_);
  }
  // Returns how often it had something to do.
  int Run(WarmUp& warm_up, int64_t now_ns = 1) {
    int calls = 0;
    while (warm_up.RunOnce(now_ns)) {
      ++calls;
      EXPECT_LE(progress_.done, progress_.listed.load());
    }
    return calls;
  }
  WarmPages Kept() {
    const absl::StatusOr<std::string> text = files_.ReadFile(WarmPagesPath("/data", 1));
    EXPECT_TRUE(text.ok()) << text.status();
    const auto warm = DecodeWarmPages(std::as_bytes(std::span(*text)));
    EXPECT_TRUE(warm.has_value());
    return warm.value_or(WarmPages{});
  }
  void Keep(const WarmPages& warm, size_t left_out = 0) {
    const std::vector<std::byte> bytes = EncodeWarmPages(warm);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size() - left_out);
    ASSERT_TRUE(files_.ReplaceFile(WarmPagesPath("/data", 1), text).ok());
  }

  runtime::MemoryFileSystem files_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<storage::Store> store_;
  IslandData data_;
  WarmingUp progress_;
};

TEST_F(WarmPagesTest, AnotherLife_HasTheSamePagesAgain) {
  ASSERT_NO_FATAL_FAILURE(Use(100, 40));
  const std::vector<uint64_t> there = InMemory();
  ASSERT_GT(there.size(), 40u);
  ASSERT_TRUE(SaveWarmPages(files_, *store_, "/data", kOf).ok());
  ASSERT_NO_FATAL_FAILURE(BeginLife(2 * kPages));
  ASSERT_LT(InMemory().size(), 10u) << "what FindTrees wants";
  const auto warm_up = Warm();
  EXPECT_EQ(progress_.listed, there.size());
  EXPECT_GE(Run(*warm_up), static_cast<int>(there.size() / 16));
  EXPECT_THAT(InMemory(), ElementsAreArray(there));
  EXPECT_EQ(progress_.listed, 0u) << "it is over";
  const uint64_t read = store_->pager()->counters().read;
  ASSERT_NO_FATAL_FAILURE(Use(100, 40));
  EXPECT_EQ(store_->pager()->counters().read, read) << "all of them are there";
}

TEST_F(WarmPagesTest, MarkedPages_AreReadLast) {
  ASSERT_NO_FATAL_FAILURE(Use(0, 40));
  const std::vector<uint64_t> there = InMemory();
  std::vector<uint64_t> marked;
  for (const uint64_t id : there) {
    const auto page = storage::PageId::FromValue(id);
    if (page.number() % 3 != 0) continue;
    store_->space(page.site()).Mark(page.number());
    marked.push_back(id);
  }
  ASSERT_THAT(marked, SizeIs(testing::Gt(3u)));
  ASSERT_TRUE(SaveWarmPages(files_, *store_, "/data", kOf).ok());
  const std::vector<uint64_t> kept = Kept().pages;
  ASSERT_EQ(kept.size(), there.size());
  EXPECT_THAT(std::vector<uint64_t>(kept.end() - static_cast<ptrdiff_t>(marked.size()), kept.end()),
              ElementsAreArray(marked));
}

TEST_F(WarmPagesTest, ASmallerPool_TakesTheFirstAndEvictsNothing) {
  ASSERT_NO_FATAL_FAILURE(Use(0, 50));
  ASSERT_TRUE(SaveWarmPages(files_, *store_, "/data", kOf).ok());
  const std::vector<uint64_t> kept = Kept().pages;
  ASSERT_NO_FATAL_FAILURE(BeginLife(40));
  Run(*Warm());
  EXPECT_EQ(store_->pager()->counters().evicted, 0u);
  const storage::PoolUsage pool = store_->Usage();
  EXPECT_LE(pool.resident_pages, pool.capacity_pages);
  EXPECT_GT(pool.resident_pages + 16, pool.capacity_pages);
  const std::vector<uint64_t> there = InMemory();
  for (size_t i = 0; i < 16; ++i) EXPECT_TRUE(std::ranges::binary_search(there, kept[i])) << i;
}

TEST_F(WarmPagesTest, ListsThatAreNotOurs_AreNoneAndNoError) {
  ASSERT_NO_FATAL_FAILURE(Use(0, 40));
  WarmPages ours = kOf;
  ours.pages = InMemory();
  const auto expect_cold = [&](const char* what) {
    ASSERT_NO_FATAL_FAILURE(BeginLife(2 * kPages));
    const uint64_t read = store_->pager()->counters().read;
    const auto warm_up = Warm();
    EXPECT_EQ(progress_.listed, 0u) << what;
    EXPECT_EQ(Run(*warm_up), 0) << what;
    EXPECT_EQ(store_->pager()->counters().read, read) << what;
  };
  expect_cold("there is none");
  WarmPages other = ours;
  other.cluster = 8;
  ASSERT_NO_FATAL_FAILURE(Keep(other));
  expect_cold("of another cluster");
  other = ours;
  other.generation = 2;
  ASSERT_NO_FATAL_FAILURE(Keep(other));
  expect_cold("of another generation");
  other = ours;
  other.island = 3;
  ASSERT_NO_FATAL_FAILURE(Keep(other));
  expect_cold("of another island");
  ASSERT_NO_FATAL_FAILURE(Keep(ours, /*left_out=*/5));
  expect_cold("torn");
}

TEST_F(WarmPagesTest, PagesThatThereAreNot_ArePassedOver) {
  WarmPages list = kOf;
  list.pages = {
      storage::PageId(0, 1 << 20).value(), storage::PageId(9, 1).value(), UINT64_MAX,
      storage::PageId(0, 5).value(),       storage::PageId(0, 5).value(), storage::PageId(0, 0).value()};
  ASSERT_NO_FATAL_FAILURE(Keep(list));
  ASSERT_NO_FATAL_FAILURE(BeginLife(kPages));
  const uint64_t read = store_->pager()->counters().read;
  Run(*Warm());
  EXPECT_EQ(store_->pager()->counters().read, read + 1);
  EXPECT_FALSE(store_->space(0).OnDisk(5));
}

TEST_F(WarmPagesTest, OnceAMinute_TheListIsOfNow) {
  WarmPages longer = kOf;
  longer.generation = 9;
  longer.pages.assign(1000, 1);
  ASSERT_NO_FATAL_FAILURE(Keep(longer));
  const auto warm_up = Warm();
  ASSERT_NO_FATAL_FAILURE(Use(0, 40));
  EXPECT_EQ(Run(*warm_up, 1), 0);
  EXPECT_EQ(Run(*warm_up, WarmUp::kSaveEveryNs), 0);
  EXPECT_EQ(Kept().generation, 9u) << "it is not time yet";
  EXPECT_GT(Run(*warm_up, WarmUp::kSaveEveryNs + 1), 0);
  WarmPages kept = Kept();
  std::ranges::sort(kept.pages);
  EXPECT_EQ(kept.generation, 1u);
  EXPECT_THAT(kept.pages, ElementsAreArray(InMemory()));
  ASSERT_NO_FATAL_FAILURE(Use(60, 40));
  EXPECT_EQ(Run(*warm_up, WarmUp::kSaveEveryNs + 2), 0);
  EXPECT_GT(Run(*warm_up, 2 * WarmUp::kSaveEveryNs + 1), 0);
  kept = Kept();
  std::ranges::sort(kept.pages);
  EXPECT_THAT(kept.pages, ElementsAreArray(InMemory()));
}

}  // namespace
}  // namespace islands::recovery
