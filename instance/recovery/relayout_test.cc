#include "instance/recovery/relayout.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "instance/log/box_manifest.h"
#include "instance/log/epoch_file.h"
#include "instance/log/logger.h"
#include "instance/recovery/island_data.h"
#include "instance/recovery/recovery.h"
#include "runtime/check.h"
#include "runtime/file_system_memory.h"

namespace islands::recovery {
namespace {

using testing::HasSubstr;

constexpr char kId[] = "00000000000000090000000000000000";
constexpr uint64_t kCluster = 9;
constexpr uint64_t kEpoch = 70;  // the last one of the old log
constexpr uint64_t kPoolBytes = 4 << 20;
constexpr uint64_t kFewBytes = 32 * storage::kPageBytes;  // with which it pages

// Two tables cut into sites, one with negative keys and an index; one that every island has; one that was
// dropped.
storage::Catalog::TableSpecs Tables() {
  storage::Catalog::TableSpecs specs;
  const auto add = [&](const char* name, const char* key, int64_t begin, int64_t end) {
    control::v1::TableSpec* table = specs.Add();
    table->set_name(name);
    table->add_key(key);
    table->set_range_begin(begin);
    table->set_range_end(end);
    return table;
  };
  add("rows", "uint64", 0, 1000);
  control::v1::TableSpec* indexed = add("indexed", "int8", -100, 100);
  indexed->add_key("string");
  indexed->set_row_bytes(16);
  control::v1::IndexSpec* index = indexed->add_indexes();
  index->set_name("by_number");
  index->add_key("row:8:uint64");
  add("everywhere", "uint64", 0, 50)->set_replicated(true);
  add("gone", "uint64", 0, 50)->set_dropped(1);
  return specs;
}

// By table and key.
using Rows = std::map<std::pair<std::string, std::string>, std::string>;

std::string BytesOf(partitioner::KeyView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

storage::Manifest ManifestOf(uint32_t sites, uint32_t islands) {
  storage::Manifest manifest;
  manifest.cluster_id = kId;
  manifest.deployment = "test";
  manifest.sites = sites;
  manifest.islands = islands;
  manifest.tables = Tables();
  for (uint32_t island = 0; island < islands; ++island) manifest.boot_epochs.push_back(3 + island);
  manifest.workers.assign(islands, 1);
  manifest.data_generation = 4;
  manifest.load = "{}";
  return manifest;
}

std::string DirectoryOf(uint32_t island) { return "/data/island-" + std::to_string(island); }

std::unique_ptr<storage::Store> MakeStore(runtime::FileSystem& files, const storage::Catalog& catalog,
                                          partitioner::SiteRun sites) {
  return *storage::Store::Create(catalog, {.sites = sites, .pool_bytes = kPoolBytes, .alone = true}, files);
}

class RelayoutTest : public testing::Test {
 protected:
  struct Cut {
    uint32_t sites, islands;
  };
  RelayoutTest() { ISLANDS_CHECK(files_->MakeDirectories("/data").ok()); }

  // A deployment that was taken down, with rows and some old segments.
  void Make(uint32_t sites, uint32_t islands, uint64_t rows = 600) {
    have_ = ManifestOf(sites, islands);
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(Tables(), sites));
    const auto map = *partitioner::SiteMap::Create(sites, islands);
    stores_.clear();
    for (uint32_t island = 0; island < islands; ++island)
      stores_.push_back(MakeStore(*files_, *catalog_, map.SitesOf(island)));
    const auto put = [&](storage::TableId table, const std::string& key, const std::string& row) {
      const partitioner::KeyView view = std::as_bytes(std::span(key));
      const uint32_t site = *catalog_->SiteOf(table, view);
      for (uint32_t island = 0; island < islands; ++island) {
        if (site != storage::kReplicatedSite && map.IslandOf(site) != island) continue;
        storage::SiteTable* there = stores_[island]->At(table, site);
        ASSERT_EQ(there->Insert(view, std::as_bytes(std::span(row))), absl::StatusCode::kOk);
      }
      rows_[{catalog_->table(table).name, key}] = row;
    };
    for (uint64_t i = 0; i < rows; ++i) {
      std::string key;
      partitioner::AppendUnsigned(partitioner::KeyType::kUint64, i * 1000 / rows, &key);
      put(0, key, std::string(1 + i % 90 * width_, static_cast<char>('a' + i % 26)));
    }
    for (int64_t i = -100; i < 100; ++i) {
      std::string key;
      partitioner::AppendSigned(partitioner::KeyType::kInt8, i, &key);
      partitioner::AppendString("name", &key);
      put(1, key, fmt::format("{:016}", i + 100));
    }
    for (uint64_t i = 0; i < 50; ++i) {
      std::string key;
      partitioner::AppendUnsigned(partitioner::KeyType::kUint64, i, &key);
      put(2, key, "everywhere");
    }
    for (uint32_t island = 0; island < islands; ++island) {
      const IslandDataOptions where{DirectoryOf(island), kCluster, island, have_.data_generation};
      ASSERT_TRUE(WriteGeneration(*files_, *catalog_, where, *stores_[island], {1, {}}, NoProgress).ok());
      const std::string log = log::IslandDirectory("/log", island);
      ASSERT_TRUE(files_->MakeDirectories(log).ok());
      ASSERT_TRUE(files_->ReplaceFile(log + "/segment-0000000001", "what the old log has").ok());
    }
    log::BoxManifest box{.cluster = kCluster, .lives = have_.boot_epochs};
    ASSERT_TRUE(log::WriteBoxManifest(*files_, "/log", box).ok());
    ASSERT_TRUE(log::MakeEpochFile(*files_, "/log/EPOCH", kCluster, islands, kEpoch).ok());
    ASSERT_TRUE(storage::SaveManifest(have_, "/data", *files_).ok());
  }

  absl::Status Recut(uint32_t sites, uint32_t islands, uint64_t pool_bytes = kPoolBytes) {
    const auto go_on = [](uint32_t /*island*/, uint64_t /*rows*/) { return absl::OkStatus(); };
    auto relayout = Relayout::Create(*files_, {.data_directory = "/data",
                                               .log_directory = "/log",
                                               .have = have_,
                                               .tables = Tables(),
                                               .sites = sites,
                                               .workers = std::vector<uint32_t>(islands, 2),
                                               .pool_bytes = std::vector<uint64_t>(islands, pool_bytes),
                                               .paged = pool_bytes == kFewBytes});
    if (!relayout.ok()) return relayout.status();
    absl::Status status;
    for (uint32_t island = 0; island < have_.islands && status.ok(); ++island)
      status = (*relayout)->Take(island, *stores_[island], go_on);
    if (status.ok()) status = (*relayout)->Switch();
    storage::Manifest manifest = (*relayout)->manifest();
    if (status.ok()) status = FinishRelayout(*files_, "/data", "/log", &manifest);
    return status;
  }

  // Of the first table every so manyth row is left in the stores.
  void Keep(uint64_t every) {
    uint64_t at = 0;
    for (auto row = rows_.begin(); row != rows_.end();) {
      const auto& [table, key] = row->first;
      if (table != "rows" || at++ % every == 0) {
        ++row;
        continue;
      }
      const partitioner::KeyView view = std::as_bytes(std::span(key));
      const uint32_t site = *catalog_->SiteOf(0, view);
      for (const auto& store : stores_) {
        storage::SiteTable* there = store->At(0, site);
        if (there == nullptr) continue;
        ASSERT_EQ(there->MarkGhost(view), absl::StatusCode::kOk);
        ASSERT_EQ(there->RemoveGhost(view), absl::StatusCode::kOk);
      }
      row = rows_.erase(row);
    }
  }

  void DieAtAnyStep(const Cut& before, const Cut& after, uint64_t pool_bytes);

  // What whoever comes next finds, on this disk, through all that a start does.
  void Check(runtime::FileSystem& files, storage::Manifest* found = nullptr) {
    auto manifest = storage::LoadManifest("/data", files);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    const absl::Status finished = FinishRelayout(files, "/data", "/log", &*manifest);
    ASSERT_TRUE(finished.ok()) << finished;
    EXPECT_EQ(storage::ManifestToText(*storage::LoadManifest("/data", files)),
              storage::ManifestToText(*manifest));
    const storage::Catalog catalog = *storage::Catalog::Create(Tables(), manifest->sites);
    const auto map = *partitioner::SiteMap::Create(manifest->sites, manifest->islands);
    const auto box = log::ReadBoxManifest(files, "/log", kCluster, manifest->islands);
    ASSERT_TRUE(box.ok()) << box.status();
    const auto epoch = log::ReadEpochFile(files, "/log/EPOCH", kCluster, manifest->islands);
    ASSERT_TRUE(epoch.ok()) << epoch.status();
    EXPECT_GE(epoch->epoch, kEpoch);
    Rows rows;
    for (uint32_t island = 0; island < manifest->islands; ++island) {
      auto store = *storage::Store::CreateForRedo(
          catalog, {.sites = map.SitesOf(island), .pool_bytes = kPoolBytes, .alone = true});
      const IslandDataOptions where{DirectoryOf(island), kCluster, island, manifest->data_generation};
      const auto data = ReadGeneration(files, catalog, where, *store, NoProgress);
      ASSERT_TRUE(data.ok()) << data.status();
      ASSERT_TRUE(store->FindTrees(catalog).ok());
      ASSERT_TRUE(store->Check().ok());
      // Nothing of it is from an epoch that the log may come to again.
      EXPECT_LE(data->checkpoint.bound, epoch->epoch + 1);
      Collect(catalog, *store, &rows);
      if (manifest->data_generation == have_.data_generation) continue;
      const std::string log = log::IslandDirectory("/log", island);
      if (files.Exists(log)) {
        EXPECT_THAT(*files.List(log), testing::IsEmpty()) << "of the old log";
      }
      EXPECT_GE(manifest->boot_epochs[island], have_.boot_epochs.back());
    }
    EXPECT_EQ(rows, rows_);
    if (found != nullptr) *found = *manifest;
  }
  static void Collect(const storage::Catalog& catalog, const storage::Store& store, Rows* rows) {
    for (storage::TableId table = 0; table < catalog.size(); ++table) {
      for (const uint32_t site : store.sites()) {
        const storage::SiteTable* there = store.At(table, site);
        if (there == nullptr) continue;
        there->Scan({}, {}, false, [&](storage::KeyView key, storage::RowView row) {
          const bool replicated = site == storage::kReplicatedSite;
          const bool added =
              rows->emplace(std::pair(catalog.table(table).name, BytesOf(key)), BytesOf(row)).second;
          EXPECT_TRUE(added || replicated) << "twice: " << catalog.table(table).name;
          if (!replicated) {
            EXPECT_EQ(*catalog.SiteOf(table, key), site);
          }
          return true;
        });
      }
    }
  }

  std::unique_ptr<runtime::MemoryFileSystem> files_ = std::make_unique<runtime::MemoryFileSystem>();
  uint64_t width_ = 1;  // of rows: so many times
  storage::Manifest have_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::vector<std::unique_ptr<storage::Store>> stores_;
  Rows rows_;
};

TEST_F(RelayoutTest, EveryCutOfEveryOther_KeepsEveryRow) {
  const std::vector<Cut> cuts = {{24, 24}, {24, 4}, {24, 1}, {7, 3}, {1, 1}, {64, 5}};
  for (size_t turn = 0; turn < cuts.size() * cuts.size(); ++turn) {
    const Cut &before = cuts[turn / cuts.size()], &after = cuts[turn % cuts.size()];
    for (const uint64_t pool_bytes : {kPoolBytes, kFewBytes}) {
      files_ = std::make_unique<runtime::MemoryFileSystem>();
      ASSERT_TRUE(files_->MakeDirectories("/data").ok());
      rows_.clear();
      Make(before.sites, before.islands);
      const absl::Status cut = Recut(after.sites, after.islands, pool_bytes);
      ASSERT_TRUE(cut.ok()) << cut;
      storage::Manifest found;
      Check(*files_, &found);
      EXPECT_EQ(found.islands, after.islands);
      EXPECT_EQ(found.sites, after.sites);
      EXPECT_EQ(found.data_generation, have_.data_generation + 1);
      for (uint32_t island = 0; island < before.islands; ++island) {
        const std::vector<std::string> names = *files_->List(DirectoryOf(island));
        EXPECT_THAT(names, testing::Not(testing::Contains(HasSubstr("generation-0000000004"))));
        EXPECT_EQ(names.empty(), island >= after.islands);
      }
    }
  }
}

// To the cut that there is: nothing is left of pages that deletes have made free, and most rows go through a
// pool that has room for a few.
TEST_F(RelayoutTest, SameCut_HasNoFreePages) {
  width_ = 10;
  Make(3, 2, 1000);
  std::map<std::string, size_t> before;
  for (uint32_t island = 0; island < 2; ++island) {
    const std::vector<std::string> names = *files_->List(DirectoryOf(island));
    for (const std::string& name : names)
      before[DirectoryOf(island) + name] = files_->ReadFile(DirectoryOf(island) + "/" + name)->size();
  }
  Keep(8);
  uint64_t free = 0;
  for (const auto& store : stores_) free += store->space(0).end_page() - store->space(0).used_pages();
  EXPECT_GT(free, 30u);
  const absl::Status done = Recut(3, 2, kFewBytes);
  ASSERT_TRUE(done.ok()) << done;
  storage::Manifest found;
  Check(*files_, &found);
  EXPECT_EQ(found.islands, 2u);
  const storage::Catalog catalog = *storage::Catalog::Create(Tables(), 3);
  uint64_t bytes = 0, bytes_before = 0;
  for (uint32_t island = 0; island < 2; ++island) {
    auto store =
        *storage::Store::CreateForRedo(catalog, {.sites = partitioner::SiteMap::Create(3, 2)->SitesOf(island),
                                                 .pool_bytes = kPoolBytes,
                                                 .alone = true});
    const IslandDataOptions where{DirectoryOf(island), kCluster, island, found.data_generation};
    const auto data = ReadGeneration(*files_, catalog, where, *store, NoProgress);
    ASSERT_TRUE(data.ok()) << data.status();
    for (size_t slot = 0; slot < store->slots(); ++slot) {
      EXPECT_EQ(store->space(slot).end_page(), store->space(slot).used_pages());
      EXPECT_EQ(*files_->Size(data->files->site(slot)), store->space(slot).end_page() * storage::kPageBytes);
      bytes += *files_->Size(data->files->site(slot));
    }
  }
  for (const auto& [name, size] : before) bytes_before += name.find("-site-") != std::string::npos ? size : 0;
  EXPECT_LT(2 * bytes, bytes_before);
}

// Whatever step it dies at, as a process or by a loss of power, and once more while it is finished: the rows
// are those of before, in one of the two cuts.
TEST_F(RelayoutTest, DeathAtAnyStep_LeavesOneOfTheTwoCuts) { DieAtAnyStep({6, 3}, {6, 2}, kPoolBytes); }
TEST_F(RelayoutTest, DeathAtAnyStep_WhereItPagesAndTheCutIsTheSame) {
  DieAtAnyStep({2, 2}, {2, 2}, kFewBytes);
}

void RelayoutTest::DieAtAnyStep(const Cut& before, const Cut& after, uint64_t pool_bytes) {
  uint64_t olds = 0, news = 0;
  if (pool_bytes == kFewBytes) width_ = 10;
  bool whole = false;
  for (uint64_t step = 0; !whole; ++step) {
    files_ = std::make_unique<runtime::MemoryFileSystem>();
    ASSERT_TRUE(files_->MakeDirectories("/data").ok());
    rows_.clear();
    Make(before.sites, before.islands, pool_bytes == kFewBytes ? 300 : 60);
    files_->FailAfter(step);
    whole = Recut(after.sites, after.islands, pool_bytes).ok();
    const auto look = [&](std::unique_ptr<runtime::MemoryFileSystem> disk) {
      storage::Manifest found;
      disk->ForgetFaults();
      const auto again = disk->AfterKill();
      again->FailAfter(step % 9);  // the one who finishes dies, too
      auto manifest = storage::LoadManifest("/data", *again);
      ASSERT_TRUE(manifest.ok());
      (void)FinishRelayout(*again, "/data", "/log", &*manifest);
      const auto last = again->AfterPowerLoss(step);
      Check(*last, &found);
      const bool old = found.data_generation == have_.data_generation;
      (old ? olds : news) += 1;
      ASSERT_EQ(found.islands, old ? before.islands : after.islands);
      EXPECT_FALSE(old && whole);
      // What is left of it is no obstacle, and goes.
      ASSERT_TRUE(RemoveUnfinished(*last, "/data", found).ok());
      Check(*last);
    };
    look(files_->AfterKill());
    for (const uint64_t seed : {1, 2, 3}) look(files_->AfterPowerLoss(seed * 1000 + step));
    if (HasFatalFailure()) FAIL() << "at step " << step;
  }
  EXPECT_GT(olds, 100u);
  EXPECT_GT(news, 20u);
}

// Made in another place it would leave the old one, which could be taken for this data's later.
TEST_F(RelayoutTest, Finish_OnlyWhereTheLogWas) {
  Make(4, 2);
  storage::Manifest manifest = have_;
  manifest.relaid = kEpoch;
  const absl::Status finished = FinishRelayout(*files_, "/data", "/elsewhere", &manifest);
  EXPECT_EQ(finished.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(finished.message()), HasSubstr("change it back"));
  EXPECT_FALSE(files_->Exists("/elsewhere"));
  EXPECT_EQ(manifest.relaid, kEpoch);
  // By hand, say; nothing of the log goes for it.
  manifest.relaid = UINT64_MAX;
  EXPECT_EQ(FinishRelayout(*files_, "/data", "/log", &manifest).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(*files_->List("/log/island-0"), testing::SizeIs(1));
}

TEST_F(RelayoutTest, LogThatWasNotClosed_IsRefused) {
  Make(4, 2);
  const log::BoxManifest box{.cluster = kCluster, .ring_directory = {{1}}, .lives = have_.boot_epochs};
  ASSERT_TRUE(log::WriteBoxManifest(*files_, "/log", box).ok());
  EXPECT_THAT(std::string(Recut(4, 1).message()), HasSubstr("not taken down"));
}

TEST_F(RelayoutTest, RowsThatDoNotFit_NameTheSetting) {
  Make(4, 2, 1000);
  const absl::Status status = Recut(4, 1, 64 << 10);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("storage.buffer_pool"));
  Check(*files_);
}

}  // namespace
}  // namespace islands::recovery
