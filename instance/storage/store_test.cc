#include "instance/storage/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "instance/storage/btree/btree_testing.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

using absl::StatusCode;
using partitioner::KeyType;
using partitioner::Uint64Key;
using runtime::Random;
using testing::ElementsAre;
using testing::HasSubstr;

enum Table : TableId { kPlain = 0, kIndexed = 1, kReplicated = 2 };
enum Index : IndexId { kByName = 0, kByBalance = 1 };

// plain: key uint64 in [0, 100), rows of any length. indexed: the same keys, row = balance (8), name (16),
// filling.
Catalog MakeCatalog() {
  Catalog::TableSpecs specs;
  for (const char* name : {"plain", "indexed", "replicated"}) {
    control::v1::TableSpec* spec = specs.Add();
    spec->set_name(name);
    spec->add_key("uint64");
    spec->set_range_end(100);
  }
  specs[kReplicated].set_replicated(true);
  specs[kReplicated].set_row_bytes(4);
  const auto add_index = [&](const char* name, std::vector<std::string> components) {
    control::v1::IndexSpec* index = specs[kIndexed].add_indexes();
    index->set_name(name);
    for (const std::string& component : components) index->add_key(component);
  };
  add_index("by_name", {"row:8:string:16"});
  add_index("by_balance", {"row:0:int64"});
  return *Catalog::Create(specs, 10);
}

std::string Person(int64_t balance, const std::string& name, size_t filling = 0) {
  std::string row(24, '\0');
  std::memcpy(row.data(), &balance, sizeof(balance));
  std::memcpy(row.data() + 8, name.data(), name.size());
  return row + std::string(filling, 'f');
}

StatusCode RemoveFrom(SiteTable& rows, KeyView key) {
  const StatusCode code = rows.MarkGhost(key);
  return code == StatusCode::kOk ? rows.RemoveGhost(key) : code;
}

class StoreTest : public testing::Test {
 protected:
  // This island has sites 2 .. 5 of 10: keys 20 .. 59.
  explicit StoreTest(uint64_t pool_pages = 2000)
      : catalog_(MakeCatalog()), files_(runtime::MakeMemoryFileSystem()) {
    auto store = Store::Create(catalog_, {.sites = {2, 4}, .pool_bytes = pool_pages * kPageBytes}, *files_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void TearDown() override {
    const absl::Status status = store_->Check();
    EXPECT_TRUE(status.ok()) << status;
  }

  static uint32_t Site(uint64_t key) { return static_cast<uint32_t>(key / 10); }
  StatusCode Insert(TableId table, uint64_t key, const std::string& row) {
    return store_->At(table, Site(key))->Insert(Uint64Key(key), Bytes(row));
  }
  StatusCode Replace(TableId table, uint64_t key, const std::string& row) {
    return store_->At(table, Site(key))->Replace(Uint64Key(key), Bytes(row));
  }
  StatusCode Remove(TableId table, uint64_t key) {
    return RemoveFrom(*store_->At(table, Site(key)), Uint64Key(key));
  }
  std::string Read(TableId table, uint64_t key) {
    std::vector<std::byte> row;
    const StatusCode code = store_->At(table, Site(key))->Read(Uint64Key(key), &row);
    return code == StatusCode::kOk ? Text(row) : absl::StatusCodeToString(code);
  }
  static uint64_t Number(KeyView key) {
    return std::get<uint64_t>((*partitioner::DecodeKey({KeyType::kUint64}, key))[0]);
  }

  std::vector<uint64_t> ByName(uint32_t site, const std::string& first, const std::string& end,
                               bool reverse = false) {
    std::string from, to;
    if (!first.empty()) partitioner::AppendString(first, &from);
    if (!end.empty()) partitioner::AppendString(end, &to);
    std::vector<uint64_t> keys;
    EXPECT_EQ(store_->At(kIndexed, site)
                  ->IndexScan(kByName, Bytes(from), Bytes(to), reverse,
                              [&](KeyView key) { return keys.push_back(Number(key)), true; }),
              StatusCode::kOk);
    return keys;
  }
  std::vector<uint64_t> ByBalance(uint32_t site) {
    std::vector<uint64_t> keys;
    EXPECT_EQ(store_->At(kIndexed, site)
                  ->IndexScan(kByBalance, {}, {}, false,
                              [&](KeyView key) { return keys.push_back(Number(key)), true; }),
              StatusCode::kOk);
    return keys;
  }

  Catalog catalog_;
  std::unique_ptr<runtime::FileSystem> files_;
  std::unique_ptr<Store> store_;
};

class SmallStoreTest : public StoreTest {
 protected:
  SmallStoreTest() : StoreTest(26) {}
};

TEST_F(StoreTest, RowOperations_OnOneRow) {
  EXPECT_EQ(Read(kPlain, 25), "NOT_FOUND");
  EXPECT_EQ(Insert(kPlain, 25, "first"), StatusCode::kOk);
  EXPECT_EQ(Insert(kPlain, 25, "again"), StatusCode::kAlreadyExists);
  EXPECT_EQ(Read(kPlain, 25), "first");
  EXPECT_EQ(store_->At(kPlain, 2)->Modify(Uint64Key(25), {0, 1},
                                          [](std::span<std::byte> row) { row[0] = std::byte{'F'}; }),
            StatusCode::kOk);
  EXPECT_EQ(Read(kPlain, 25), "First");
  EXPECT_EQ(Replace(kPlain, 25, ""), StatusCode::kOk);
  EXPECT_EQ(Read(kPlain, 25), "");
  EXPECT_EQ(Replace(kPlain, 26, "x"), StatusCode::kNotFound);
  EXPECT_EQ(Remove(kPlain, 25), StatusCode::kOk);
  EXPECT_EQ(Remove(kPlain, 25), StatusCode::kNotFound);
  EXPECT_EQ(store_->At(kPlain, 2)->Modify(Uint64Key(25), {0, 1}, [](std::span<std::byte>) { FAIL(); }),
            StatusCode::kNotFound);
}

TEST_F(StoreTest, RowOperations_InvalidArguments) {
  const std::string long_key(257, 'k'), long_row(kMaxRowBytes + 1, 'r'), bound(600, 'b');
  std::vector<std::byte> row;
  EXPECT_EQ(Insert(kPlain, 25, long_row), StatusCode::kInvalidArgument);
  EXPECT_EQ(Insert(kPlain, 25, long_row.substr(1)), StatusCode::kOk);
  EXPECT_EQ(Replace(kPlain, 25, long_row), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->At(kPlain, 2)->Insert(Bytes(long_key), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->At(kPlain, 2)->Insert({}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->At(kPlain, 2)->Read(Bytes(long_key), &row), StatusCode::kInvalidArgument);
  const auto any = [](KeyView) { return true; };
  EXPECT_EQ(store_->At(kIndexed, 2)->IndexScan(0, Bytes(bound), {}, false, any),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->At(kIndexed, 2)->IndexScan(0, {}, Bytes(bound), true, any), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->At(kPlain, 2)->Modify(Uint64Key(25), {kMaxRowBytes - 1, 2}, [](auto) { FAIL(); }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->At(kIndexed, 2)->IndexScan(/*index=*/2, {}, {}, false, [](KeyView) { return true; }),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(store_->Truncate(3).ok());
  EXPECT_EQ(store_->CountRows(3), 0u);
  EXPECT_EQ(store_->At(kReplicated, kReplicatedSite)->Insert(Uint64Key(1), Bytes("five!")),
            StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, At_NullWhereTheTableIsNot) {
  for (const uint32_t site : {0u, 1u, 6u, 9u, kMaxSites, kReplicatedSite}) {
    EXPECT_EQ(store_->At(kPlain, site), nullptr) << site;
  }
  EXPECT_EQ(store_->At(kReplicated, 2), nullptr);
  EXPECT_EQ(store_->At(kReplicated, 6), nullptr);
  EXPECT_EQ(store_->At(3, 2), nullptr);
}

TEST_F(StoreTest, ReplicatedTable_LivesOnItsOwnSite) {
  EXPECT_EQ(store_->At(kReplicated, kReplicatedSite)->Insert(Uint64Key(~0ull), Bytes("four")),
            StatusCode::kOk);
  std::vector<std::byte> row;
  EXPECT_EQ(store_->At(kReplicated, kReplicatedSite)->Read(Uint64Key(~0ull), &row), StatusCode::kOk);
  EXPECT_EQ(Text(row), "four");
  EXPECT_EQ(store_->CountRows(kReplicated), 1u);
}

TEST_F(StoreTest, Scan_OneSiteInBothDirections) {
  for (uint64_t key = 20; key < 60; ++key)
    ASSERT_EQ(Insert(kPlain, key, std::to_string(key)), StatusCode::kOk);
  const auto scan = [&](KeyView first, KeyView end, bool reverse, size_t limit) {
    std::vector<uint64_t> keys;
    store_->At(kPlain, 3)->Scan(first, end, reverse, [&](KeyView key, RowView row) {
      EXPECT_EQ(Text(row), std::to_string(Number(key)));
      keys.push_back(Number(key));
      return keys.size() < limit;
    });
    return keys;
  };
  EXPECT_THAT(scan({}, {}, false, 99), ElementsAre(30, 31, 32, 33, 34, 35, 36, 37, 38, 39));
  EXPECT_THAT(scan(Uint64Key(33), Uint64Key(36), false, 99), ElementsAre(33, 34, 35));
  EXPECT_THAT(scan(Uint64Key(33), Uint64Key(36), true, 99), ElementsAre(35, 34, 33));
  EXPECT_THAT(scan({}, {}, true, 3), ElementsAre(39, 38, 37));
  EXPECT_THAT(scan(Uint64Key(36), Uint64Key(33), false, 99), ElementsAre());
  EXPECT_EQ(store_->CountRows(kPlain), 40u);
}

TEST_F(StoreTest, Indexes_FollowInsertReplaceModifyRemove) {
  ASSERT_EQ(Insert(kIndexed, 30, Person(5, "cleo")), StatusCode::kOk);
  ASSERT_EQ(Insert(kIndexed, 31, Person(-7, "abe")), StatusCode::kOk);
  ASSERT_EQ(Insert(kIndexed, 32, Person(5, "bob")), StatusCode::kOk);
  ASSERT_EQ(Insert(kIndexed, 40, Person(1, "other site")), StatusCode::kOk);
  EXPECT_EQ(Insert(kIndexed, 30, Person(1, "twice")), StatusCode::kAlreadyExists);
  EXPECT_THAT(ByName(3, "", ""), ElementsAre(31, 32, 30));
  EXPECT_THAT(ByName(3, "", "", true), ElementsAre(30, 32, 31));
  EXPECT_THAT(ByName(3, "b", "c"), ElementsAre(32));
  EXPECT_THAT(ByName(3, "bob", "cleo"), ElementsAre(32));
  EXPECT_THAT(ByName(4, "", ""), ElementsAre(40));
  EXPECT_THAT(ByBalance(3), ElementsAre(31, 30, 32));

  ASSERT_EQ(Replace(kIndexed, 32, Person(-8, "zoe", 500)), StatusCode::kOk);
  EXPECT_THAT(ByName(3, "", ""), ElementsAre(31, 30, 32));
  EXPECT_THAT(ByBalance(3), ElementsAre(32, 31, 30));

  EXPECT_EQ(store_->At(kIndexed, 3)
                ->Modify(Uint64Key(31), {0, 8},
                         [](std::span<std::byte> row) {
                           const int64_t balance = 100;
                           std::memcpy(row.data(), &balance, sizeof(balance));
                         }),
            StatusCode::kOk);
  EXPECT_THAT(ByBalance(3), ElementsAre(32, 30, 31));
  EXPECT_THAT(ByName(3, "", ""), ElementsAre(31, 30, 32));
  EXPECT_EQ(Read(kIndexed, 31), Person(100, "abe"));

  ASSERT_EQ(Remove(kIndexed, 30), StatusCode::kOk);
  EXPECT_THAT(ByName(3, "", ""), ElementsAre(31, 32));
  EXPECT_THAT(ByBalance(3), ElementsAre(32, 31));
  EXPECT_EQ(Remove(kIndexed, 30), StatusCode::kNotFound);
  EXPECT_EQ(Replace(kIndexed, 30, Person(0, "x")), StatusCode::kNotFound);
}

TEST_F(StoreTest, Indexes_HaveNoEntriesOfGhosts) {
  ASSERT_EQ(Insert(kIndexed, 31, Person(7, "ann")), StatusCode::kOk);
  ASSERT_EQ(Insert(kIndexed, 32, Person(5, "bob")), StatusCode::kOk);
  ASSERT_EQ(store_->At(kIndexed, 3)->MarkGhost(Uint64Key(31)), StatusCode::kOk);
  EXPECT_EQ(ByName(3, "", ""), (std::vector<uint64_t>{32}));
  EXPECT_EQ(store_->CountRows(kIndexed), 1u);
  ASSERT_TRUE(store_->Check().ok()) << store_->Check();
  store_->At(kIndexed, 3)->UndoMarkGhost(Uint64Key(31));
  EXPECT_EQ(ByName(3, "", ""), (std::vector<uint64_t>{31, 32}));
  ASSERT_EQ(store_->At(kIndexed, 3)->MarkGhost(Uint64Key(31)), StatusCode::kOk);
  ASSERT_EQ(Insert(kIndexed, 31, Person(9, "zoe")), StatusCode::kOk);
  EXPECT_EQ(ByName(3, "", ""), (std::vector<uint64_t>{32, 31}));
  EXPECT_EQ(store_->At(kIndexed, 3)->RemoveGhost(Uint64Key(31)), StatusCode::kNotFound)
      << "it is a row again";
  ASSERT_EQ(store_->At(kIndexed, 3)->MarkGhost(Uint64Key(31)), StatusCode::kOk);
  EXPECT_EQ(store_->At(kIndexed, 3)->RemoveGhost(Uint64Key(31)), StatusCode::kOk);
  std::vector<std::byte> row;
  EXPECT_EQ(store_->At(kIndexed, 3)->Find(Uint64Key(31), &row), KeyState::kAbsent);
}

TEST_F(StoreTest, Indexes_RowTooShortForThemIsRefused) {
  EXPECT_EQ(Insert(kIndexed, 30, "short"), StatusCode::kInvalidArgument);
  ASSERT_EQ(Insert(kIndexed, 30, Person(5, "cleo")), StatusCode::kOk);
  EXPECT_EQ(Replace(kIndexed, 30, "short"), StatusCode::kInvalidArgument);
  EXPECT_EQ(Read(kIndexed, 30), Person(5, "cleo"));
}

TEST_F(StoreTest, Truncate_EmptiesTheTableAndItsIndexesOnly) {
  for (uint64_t key = 20; key < 60; ++key) {
    ASSERT_EQ(Insert(kPlain, key, std::string(1000, 'p')), StatusCode::kOk);
    ASSERT_EQ(Insert(kIndexed, key, Person(static_cast<int64_t>(key), "name", 1000)), StatusCode::kOk);
  }
  ASSERT_TRUE(store_->Truncate(kIndexed).ok());
  EXPECT_EQ(store_->CountRows(kIndexed), 0u);
  EXPECT_EQ(store_->CountRows(kPlain), 40u);
  EXPECT_TRUE(ByName(3, "", "").empty());
  const uint64_t resident = store_->Usage().resident_pages;
  for (uint64_t key = 20; key < 60; ++key) {
    ASSERT_EQ(Insert(kIndexed, key, Person(0, "name", 1000)), StatusCode::kOk);
  }
  EXPECT_EQ(store_->Usage().resident_pages, resident);
}

TEST_F(StoreTest, Usage_CountsPages) {
  const PoolUsage usage = store_->Usage();
  EXPECT_EQ(usage.capacity_pages, 2000u);
  // Per own site: header, plain, indexed and two indexes; the replicated site has a header and one tree.
  EXPECT_EQ(usage.resident_pages, 4u * 5 + 2);
  EXPECT_NE(usage.region, nullptr);
  EXPECT_GT(usage.region_bytes, 2000 * kPageBytes);
}

// Every operation may be refused for want of pages, in the middle of its index changes: then nothing has
// changed.
TEST_F(SmallStoreTest, PoolFull_RowsAndIndexesAgree) {
  Random random(7);
  std::map<uint64_t, std::string> model;
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t key = 30 + random.Below(10);
    // The row's length and its entries vary, so that different trees run out of room.
    const std::string row = Person(static_cast<int64_t>(random.Below(3)), std::string(random.Below(17), 'n'),
                                   random.Below(kMaxRowBytes - 24));
    const uint64_t filler = 40 + random.Below(10);
    StatusCode code = StatusCode::kOk;
    switch (random.Below(4)) {
      case 0:
        code = Insert(kIndexed, key, row);
        if (code == StatusCode::kOk) model[key] = row;
        break;
      case 1:
        code = Replace(kIndexed, key, row);
        if (code == StatusCode::kOk) model[key] = row;
        break;
      case 2:
        code = Remove(kIndexed, key);
        if (code == StatusCode::kOk) model.erase(key);
        break;
      case 3:  // takes pages and gives them back on another site
        code = random.Below(2) == 0 ? Insert(kPlain, filler, std::string(kMaxRowBytes, 'x'))
                                    : Remove(kPlain, filler);
        break;
    }
    if (code == StatusCode::kResourceExhausted) ++refused;
    ASSERT_EQ(Read(kIndexed, key), model.contains(key) ? model[key] : "NOT_FOUND");
    if (i % 50 == 0) {
      ASSERT_TRUE(store_->Check().ok());
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(store_->CountRows(kIndexed), model.size());
}

// Index trees that split: refused in the middle of a row's entries.
TEST_F(SmallStoreTest, PoolFull_ManyIndexEntries) {
  const Catalog catalog = [] {
    Catalog::TableSpecs specs;
    control::v1::TableSpec* spec = specs.Add();
    spec->set_name("wide");
    spec->add_key("uint64");
    spec->set_range_end(1'000'000);
    for (int i = 0; i < 3; ++i) {
      control::v1::IndexSpec* index = spec->add_indexes();
      index->set_name("index" + std::to_string(i));
      index->add_key("row:" + std::to_string(i * 8) + ":uint64");
      index->add_key("row:24:string:100");
    }
    return *Catalog::Create(specs, 1);
  }();
  auto store = *Store::Create(catalog, {.sites = {0, 1}, .pool_bytes = 60 * kPageBytes}, *files_);
  Random random(11);
  std::map<uint64_t, std::string> model;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t key = random.Below(600);
    std::string row(124, 'w');
    for (int field = 0; field < 3; ++field) {
      const uint64_t value = random();
      std::memcpy(row.data() + field * 8, &value, sizeof(value));
    }
    StatusCode code = StatusCode::kOk;
    const uint64_t dice = random.Below(10);
    if (dice < 5) {
      code = store->At(0, 0)->Insert(Uint64Key(key), Bytes(row));
      if (code == StatusCode::kOk) model[key] = row;
    } else if (dice < 8) {
      code = store->At(0, 0)->Modify(Uint64Key(key), {0, row.size()}, [&](std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), row.data(), row.size());
      });
      if (code == StatusCode::kOk) model[key] = row;
    } else {
      code = RemoveFrom(*store->At(0, 0), Uint64Key(key));
      if (code == StatusCode::kOk) model.erase(key);
    }
    refused += code == StatusCode::kResourceExhausted;
    if (i % 20 == 0) {
      const absl::Status status = store->Check();
      ASSERT_TRUE(status.ok()) << i << ": " << status;
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(store->CountRows(0), model.size());
  for (const auto& [key, row] : model) {
    std::vector<std::byte> found;
    ASSERT_EQ(store->At(0, 0)->Read(Uint64Key(key), &found), StatusCode::kOk);
    ASSERT_EQ(Text(found), row);
  }
}

// Tables come while there are rows.
class AddedTableTest : public StoreTest {
 protected:
  AddedTableTest() {
    control::v1::TableSpec spec;
    spec.set_name("added");
    spec.add_key("uint64");
    spec.set_range_end(100);
    for (const char* name : {"one", "two"}) {
      control::v1::IndexSpec* index = spec.add_indexes();
      index->set_name(name);
      index->add_key("row:0:int64");
    }
    EXPECT_EQ(Insert(kIndexed, 25, Person(1, "Ann")), StatusCode::kOk);
    EXPECT_EQ(store_->MissingTrees(catalog_), 0u);
    EXPECT_TRUE(catalog_.Add(spec).ok());
    added_ = catalog_.Find("added")->id;
  }
  // Rows of it are there and are found by its indexes; those of others as well.
  void UseIt() {
    EXPECT_EQ(store_->MissingTrees(catalog_), 0u);
    for (const uint64_t key : {20, 31, 59})
      EXPECT_EQ(Insert(added_, key, Person(static_cast<int64_t>(key), "x")), StatusCode::kOk);
    EXPECT_EQ(store_->CountRows(added_), 3u);
    EXPECT_EQ(store_->At(added_, 9), nullptr);
    EXPECT_EQ(Read(kIndexed, 25), Person(1, "Ann"));
    EXPECT_THAT(ByBalance(2), ElementsAre(25));
  }
  TableId added_ = 0;
};

TEST_F(AddedTableTest, MakeTrees_OthersStayWhereTheyAre) {
  const TableDefinition* definition = &catalog_.table(kPlain);
  const SiteTable* rows = store_->At(kIndexed, 2);
  EXPECT_EQ(store_->At(added_, 2), nullptr);
  EXPECT_EQ(store_->MissingTrees(catalog_), 4u * 3);
  const uint64_t free = store_->FreePages();
  ASSERT_TRUE(store_->MakeTrees(catalog_, [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(store_->FreePages(), free - 12);
  EXPECT_EQ(store_->At(kIndexed, 2), rows);
  EXPECT_EQ(&catalog_.table(kPlain), definition);
  UseIt();
}

// Whoever died on the way had made some; they are found, and the rest is made.
TEST_F(AddedTableTest, MakeTrees_GoesOnWhereItEnded) {
  for (int most = 0; most < 12; ++most) {
    int made = 0;
    const absl::Status ended = store_->MakeTrees(
        catalog_, [&] { return made++ == 1 ? absl::UnavailableError("enough") : absl::OkStatus(); });
    EXPECT_EQ(ended.ok(), most == 11) << ended;
    EXPECT_EQ(store_->MissingTrees(catalog_), 11u - static_cast<uint64_t>(most));
  }
  UseIt();
}

// Tables that a header does not know are made; a header that is none knows nothing, and is no reason to make
// any.
TEST(Store, FindTrees_WhereThereIsNoHeader) {
  const Catalog catalog = MakeCatalog();
  for (const bool zeros : {false, true}) {
    auto store = *Store::CreateForRedo(catalog, {.sites = {0, 1}, .pool_bytes = 100 * kPageBytes});
    for (const uint32_t site : {0u, kReplicatedSite}) {
      if (zeros) store->PageForRedo(PageId(site, 0));
    }
    const absl::Status found = store->FindTrees(catalog);
    EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss) << found;
    EXPECT_THAT(std::string(found.message()), HasSubstr("table 'plain' on site 0 has lost its pages"));
  }
}

TEST(Store, Create_PoolTooSmallForEmptyTrees) {
  const Catalog catalog = MakeCatalog();
  auto files = runtime::MakeMemoryFileSystem();
  const absl::Status status =
      Store::Create(catalog, {.sites = {0, 10}, .pool_bytes = 8 * kPageBytes}, *files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("buffer_pool"));
}

// The trees of sites know their bounds: also where the range begins or ends with the key type.
TEST(Store, Insert_FirstAndLastKeysOfEverySite) {
  struct Case {
    KeyType type;
    int64_t begin, end;
  };
  for (const Case& c :
       {Case{KeyType::kUint8, 0, 256}, Case{KeyType::kInt8, -128, 128}, Case{KeyType::kInt16, -7, 900},
        Case{KeyType::kUint64, 5, 12}, Case{KeyType::kInt64, INT64_MIN, INT64_MAX},
        Case{KeyType::kUint32, 1, 0xffffffffll + 1}, Case{KeyType::kUint16, 3, 4}}) {
    Catalog::TableSpecs specs;
    control::v1::TableSpec* spec = specs.Add();
    spec->set_name("t");
    spec->add_key(std::string(partitioner::KeyTypeName(c.type)));
    spec->add_key("string");
    spec->set_range_begin(c.begin);
    spec->set_range_end(c.end);
    const auto catalog = Catalog::Create(specs, 6);
    ASSERT_TRUE(catalog.ok()) << catalog.status();
    const auto files = runtime::MakeMemoryFileSystem();
    auto store = *Store::Create(*catalog, {.sites = {0, 6}, .pool_bytes = 1000 * kPageBytes}, *files);
    const partitioner::RangePartition& partition = *catalog->table(0).partition;
    uint64_t rows = 0;
    for (uint32_t site = 0; site < 6; ++site) {
      if (partition.SiteBegin(site) == partition.SiteBegin(site + 1)) continue;
      for (const int64_t first : {partition.SiteBegin(site), partition.SiteBegin(site + 1) - 1}) {
        for (const char* second : {"", "x", "\xff\xff"}) {
          std::string key;
          partitioner::IsSigned(c.type)
              ? partitioner::AppendSigned(c.type, first, &key)
              : partitioner::AppendUnsigned(c.type, static_cast<uint64_t>(first), &key);
          partitioner::AppendString(second, &key);
          const StatusCode code = store->At(0, site)->Insert(Bytes(key), Bytes("row"));
          ASSERT_TRUE(code == StatusCode::kOk || code == StatusCode::kAlreadyExists)
              << first << " " << second;
          rows += code == StatusCode::kOk ? 1 : 0;
          // Not a key of the next site.
          if (site + 1 < 6 && partition.SiteBegin(site + 1) != partition.SiteBegin(site + 2)) {
            ASSERT_EQ(store->At(0, site + 1)->Insert(Bytes(key), Bytes("row")), StatusCode::kInvalidArgument);
          }
        }
      }
    }
    EXPECT_EQ(store->CountRows(0), rows);
    EXPECT_TRUE(store->Check().ok());
  }
}

TEST(Store, Create_CallsBindMemoryOnce) {
  const Catalog catalog = MakeCatalog();
  auto files = runtime::MakeMemoryFileSystem();
  std::vector<std::pair<void*, size_t>> calls;
  auto bind = [&](void* address, size_t bytes) { calls.emplace_back(address, bytes); };
  absl::FunctionRef<void(void*, size_t)> bind_memory = bind;
  const auto store = *Store::Create(
      catalog,
      {.sites = {0, 10}, .pool_bytes = 1 << 20, .data_directory = "data", .bind_memory = &bind_memory},
      *files);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].first, store->Usage().region);
  EXPECT_EQ(calls[0].second, store->Usage().region_bytes);
}

}  // namespace
}  // namespace islands::storage
