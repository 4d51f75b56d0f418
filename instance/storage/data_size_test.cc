#include "instance/storage/data_size.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "instance/storage/btree/btree_testing.h"
#include "instance/storage/store.h"

namespace islands::storage {
namespace {

Catalog MakeCatalog(uint32_t row_bytes, std::vector<std::string> key, std::vector<std::string> index = {},
                    int64_t rows = 30'000) {
  Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("rows");
  for (const std::string& component : key) table->add_key(component);
  table->set_range_end(rows);
  table->set_row_bytes(row_bytes);
  if (!index.empty()) {
    table->add_indexes()->set_name("some");
    for (const std::string& component : index) table->mutable_indexes(0)->add_key(component);
  }
  return *Catalog::Create(specs, 4);
}

// Sites 1 and 2 of four, and what a store takes for them.
void ExpectAbout(uint32_t row_bytes, std::vector<std::string> index, double error) {
  const Catalog catalog = MakeCatalog(row_bytes, {"uint64"}, std::move(index));
  const auto files = runtime::MakeMemoryFileSystem();
  const auto store = *Store::Create(catalog, {.sites = {1, 2}, .pool_bytes = 256 << 20}, *files);
  for (uint64_t key = 7500; key < 22'500; ++key) {
    std::string row(row_bytes, 'r');
    const uint64_t anywhere = key * 0x9E3779B97F4A7C15;
    if (row_bytes >= sizeof(anywhere)) std::memcpy(row.data(), &anywhere, sizeof(anywhere));
    const uint32_t site = *catalog.SiteOf(0, partitioner::Uint64Key(key));
    ASSERT_EQ(store->At(0, site)->Insert(partitioner::Uint64Key(key), Bytes(row)), absl::StatusCode::kOk);
  }
  const auto predicted = static_cast<double>(PagesOfTable(catalog.table(0), 1, 2).value());
  const auto taken = static_cast<double>(store->DataPages());
  EXPECT_NEAR(predicted / taken, 1, error) << predicted << " pages predicted, " << taken << " taken";
}

TEST(PagesOfTable, RowsOfAnyLength_AboutWhatAStoreTakes) {
  for (const uint32_t row_bytes : {8, 60, 250, 667, 1024}) {
    SCOPED_TRACE(row_bytes);
    ExpectAbout(row_bytes, {}, 0.1);
  }
}

TEST(PagesOfTable, Indexes_AboutWhatAStoreTakes) {
  ExpectAbout(100, {"row:0:uint64"}, 0.15);
  ExpectAbout(100, {"row:0:string:15"}, 0.15);
}

TEST(PagesOfTable, RowsThatNobodyCanCount_AreNot) {
  EXPECT_FALSE(PagesOfTable(MakeCatalog(10, {"uint64", "uint8"}).table(0), 0, 4).has_value());
  EXPECT_FALSE(PagesOfTable(MakeCatalog(0, {"uint64"}).table(0), 0, 4).has_value());
}

TEST(PagesOfTable, AllValuesThereAre_DoNotOverflow) {
  const Catalog catalog = MakeCatalog(8, {"uint64"}, {}, INT64_MAX);
  EXPECT_GT(PagesOfTable(catalog.table(0), 0, 4).value(), uint64_t{1} << 50);
}

TEST(ShouldPage, DataThatLeaveLessThanAnEighth) {
  EXPECT_FALSE(ShouldPage(56, 64));
  EXPECT_TRUE(ShouldPage(57, 64));
}

}  // namespace
}  // namespace islands::storage
