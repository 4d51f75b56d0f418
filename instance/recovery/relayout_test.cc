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
      put(0, key, std::string(1 + i % 90, static_cast<char>('a' + i % 26)));
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
                                               .pool_bytes = std::vector<uint64_t>(islands, pool_bytes)});
    if (!relayout.ok()) return relayout.status();
    absl::Status status;
    for (uint32_t island = 0; island < have_.islands && status.ok(); ++island)
      status = (*relayout)->Take(island, *stores_[island], go_on);
    if (status.ok()) status = (*relayout)->Switch();
    storage::Manifest manifest = (*relayout)->manifest();
    if (status.ok()) status = FinishRelayout(*files_, "/data", "/log", &manifest);
    return status;
  }

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
  storage::Manifest have_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::vector<std::unique_ptr<storage::Store>> stores_;
  Rows rows_;
};

TEST_F(RelayoutTest, EveryCutOfEveryOther_KeepsEveryRow) {
  struct Cut {
    uint32_t sites, islands;
  };
  const std::vector<Cut> cuts = {{24, 24}, {24, 4}, {24, 1}, {7, 3}, {1, 1}, {64, 5}};
  for (const Cut& before : cuts) {
    for (const Cut& after : cuts) {
      files_ = std::make_unique<runtime::MemoryFileSystem>();
      ASSERT_TRUE(files_->MakeDirectories("/data").ok());
      rows_.clear();
      Make(before.sites, before.islands);
      const absl::Status cut = Recut(after.sites, after.islands);
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

// Whatever step it dies at, as a process or by a loss of power, and once more while it is finished: the rows
// are those of before, in one of the two cuts.
TEST_F(RelayoutTest, DeathAtAnyStep_LeavesOneOfTheTwoCuts) {
  uint64_t olds = 0, news = 0;
  bool whole = false;
  for (uint64_t step = 0; !whole; ++step) {
    files_ = std::make_unique<runtime::MemoryFileSystem>();
    ASSERT_TRUE(files_->MakeDirectories("/data").ok());
    rows_.clear();
    Make(6, 3, 60);
    files_->FailAfter(step);
    whole = Recut(6, 2).ok();
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
      (found.islands == 3 ? olds : news) += 1;
      ASSERT_TRUE(found.islands == 3 || found.islands == 2);
      if (whole) {
        EXPECT_EQ(found.islands, 2u);
      }
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
