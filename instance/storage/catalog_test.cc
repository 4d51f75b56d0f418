#include "instance/storage/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "instance/storage/btree/btree_testing.h"

namespace islands::storage {
namespace {

using control::v1::TableSpec;
using partitioner::KeyType;
using testing::HasSubstr;

Catalog::TableSpecs One(const std::function<void(TableSpec*)>& change = [](TableSpec*) {}) {
  Catalog::TableSpecs specs;
  TableSpec* spec = specs.Add();
  spec->set_name("accounts");
  spec->add_key("uint64");
  spec->add_key("string");
  spec->set_range_end(1000);
  spec->set_row_bytes(100);
  change(spec);
  return specs;
}

void AddIndex(TableSpec* spec, const std::string& name, const std::vector<std::string>& components) {
  control::v1::IndexSpec* index = spec->add_indexes();
  index->set_name(name);
  for (const std::string& component : components) index->add_key(component);
}

std::string Key(uint64_t number, const std::string& text) {
  std::string key;
  partitioner::AppendUnsigned(KeyType::kUint64, number, &key);
  partitioner::AppendString(text, &key);
  return key;
}

TEST(Catalog, PageLatchName_IsForPeople) {
  auto specs = One([](TableSpec* spec) {
    AddIndex(spec, "by_name", {"row:16:string:20"});
    AddIndex(spec, "by_age", {"row:0:int32"});
  });
  TableSpec* replicated = specs.Add();
  replicated->set_name("items");
  replicated->add_key("string");
  replicated->set_replicated(true);
  const Catalog catalog = *Catalog::Create(specs, 10);
  const auto name = [&](uint32_t site, uint32_t tree, uint8_t level) {
    return PageLatchName(catalog, PagePlace(PageType::kTree, site, tree, level));
  };
  EXPECT_EQ(name(3, 0, 0), "page latch: accounts site 3, leaf level");
  EXPECT_EQ(name(3, 2, 1), "page latch: accounts.by_age site 3, level 1");
  EXPECT_EQ(name(kReplicatedSite, 3, 0), "page latch: items replicated, leaf level");
  EXPECT_EQ(PageLatchName(catalog, PagePlace(PageType::kSiteHeader, 5, 0, 0)), "page latch: site 5, header");
  EXPECT_EQ(catalog.TreeName(4), "");
}

TEST(Catalog, Create_ReadsEveryField) {
  auto specs = One([](TableSpec* spec) {
    AddIndex(spec, "by_name", {"row:16:string:20", "row:0:int32", "key:1"});
  });
  TableSpec* replicated = specs.Add();
  replicated->set_name("items");
  replicated->add_key("string");
  replicated->set_replicated(true);
  const auto catalog = Catalog::Create(specs, 10);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_EQ(catalog->size(), 2u);
  EXPECT_EQ(catalog->sites(), 10u);
  const TableDefinition& table = catalog->table(0);
  EXPECT_EQ(catalog->Find("accounts"), &table);
  EXPECT_EQ(catalog->Find("nothing"), nullptr);
  EXPECT_EQ(table.key, (partitioner::KeySchema{KeyType::kUint64, KeyType::kString}));
  EXPECT_EQ(table.row_bytes, 100u);
  EXPECT_FALSE(table.replicated());
  EXPECT_EQ(table.partition->end(), 1000);
  ASSERT_EQ(table.indexes.size(), 1u);
  const auto& components = table.indexes[0].components;
  ASSERT_EQ(components.size(), 3u);
  EXPECT_EQ(components[0].offset, 16u);
  EXPECT_EQ(components[0].type, KeyType::kString);
  EXPECT_EQ(components[0].string_bytes, 20u);
  EXPECT_EQ(components[1].type, KeyType::kInt32);
  EXPECT_TRUE(components[2].from_key);
  EXPECT_EQ(components[2].component, 1u);
  EXPECT_EQ(catalog->table(1).id, 1u);
  EXPECT_TRUE(catalog->table(1).replicated());
}

TEST(Catalog, Add_AndDrop_MoveNothing) {
  Catalog catalog = *Catalog::Create(One(), 10);
  const TableDefinition* accounts = catalog.Find("accounts");
  TableSpec spec = One()[0];
  EXPECT_THAT(std::string(catalog.Add(spec).message()), HasSubstr("used by two tables"));
  for (int i = 0; i < 100; ++i) {
    spec.set_name("more" + std::to_string(i));
    ASSERT_TRUE(catalog.Add(spec).ok());
  }
  EXPECT_EQ(catalog.Find("accounts"), accounts);
  catalog.Drop(catalog.Find("more7")->id);
  EXPECT_EQ(catalog.Find("more7"), nullptr);
  spec.set_name("more7");  // the name is free
  ASSERT_TRUE(catalog.Add(spec).ok());
  EXPECT_EQ(catalog.Find("more7")->id, 101u);
  EXPECT_EQ(catalog.table(8).name, "more7");
  // As a manifest has them.
  Catalog::TableSpecs specs = One();
  specs[0].set_dropped(1);
  *specs.Add() = One()[0];
  EXPECT_EQ(Catalog::Create(specs, 10)->Find("accounts")->id, 1u);
}

TEST(Catalog, Create_FieldsAreTheWholeRow) {
  const auto with_fields = [](std::vector<std::pair<std::string, std::string>> fields, uint32_t row_bytes) {
    return Catalog::Create(One([&](TableSpec* spec) {
                             spec->set_row_bytes(row_bytes);
                             for (const auto& [name, type] : fields) {
                               spec->add_fields()->set_name(name);
                               spec->mutable_fields()->rbegin()->set_type(type);
                             }
                           }),
                           10)
        .status();
  };
  EXPECT_TRUE(with_fields({{"balance", "int64"}, {"rate", "double"}, {"name", "string:20"}}, 36).ok());
  EXPECT_TRUE(with_fields({{"flags", "uint8"}, {"text", "string"}}, 0).ok());
  const auto what = [&](std::vector<std::pair<std::string, std::string>> fields, uint32_t row_bytes) {
    return std::string(with_fields(std::move(fields), row_bytes).message());
  };
  EXPECT_THAT(what({{"a", "int64"}}, 9), HasSubstr("row_bytes: 9, but its fields take 8"));
  EXPECT_THAT(what({{"a", "bytes"}, {"b", "int8"}}, 0), HasSubstr("only the last field"));
  EXPECT_THAT(what({{"a", "int8"}, {"a", "int8"}}, 2), HasSubstr("used twice"));
  EXPECT_THAT(what({{"a", "float"}}, 4), HasSubstr("'float'"));
  EXPECT_THAT(what({{"a", "string:0"}}, 0), HasSubstr("'string:0'"));
  EXPECT_THAT(what({{"", "int8"}}, 1), HasSubstr("has no name"));
  EXPECT_THAT(what({{std::string(65, 'a'), "int8"}}, 1),
              HasSubstr("a name of 65 bytes, expected at most 64"));
  EXPECT_THAT(what({{"a", "bytes:9999"}}, 0), HasSubstr("at most"));
}

TEST(Catalog, SiteOf_PartitionedAndReplicated) {
  auto specs = One();
  TableSpec* replicated = specs.Add();
  replicated->set_name("items");
  replicated->add_key("uint64");
  replicated->set_replicated(true);
  const Catalog catalog = *Catalog::Create(specs, 10);
  EXPECT_EQ(*catalog.SiteOf(0, Bytes(Key(0, ""))), 0u);
  EXPECT_EQ(*catalog.SiteOf(0, Bytes(Key(99, "x"))), 0u);
  EXPECT_EQ(*catalog.SiteOf(0, Bytes(Key(100, "x"))), 1u);
  EXPECT_EQ(*catalog.SiteOf(0, Bytes(Key(999, "x"))), 9u);
  EXPECT_FALSE(catalog.SiteOf(0, Bytes(Key(1000, "x"))).ok());
  EXPECT_FALSE(catalog.SiteOf(0, partitioner::Uint64Key(5)).ok());
  EXPECT_FALSE(catalog.SiteOf(0, {}).ok());
  EXPECT_FALSE(catalog.SiteOf(2, partitioner::Uint64Key(5)).ok());
  EXPECT_EQ(*catalog.SiteOf(1, partitioner::Uint64Key(~0ull)), kReplicatedSite);
  EXPECT_FALSE(catalog.SiteOf(1, Bytes(Key(5, "x"))).ok());
}

struct BadSpec {
  const char* name;
  std::function<void(TableSpec*)> change;
  std::vector<std::string> complaint;  // all of it is in the message
};

const BadSpec kBadSpecs[] = {
    {"NoName", [](TableSpec* s) { s->clear_name(); }, {"no name"}},
    {"NoKey", [](TableSpec* s) { s->clear_key(); }, {"accounts", "key", "at least one"}},
    {"UnknownKeyType",
     [](TableSpec* s) { s->set_key(1, "uint23"); },
     {"accounts", "key", "uint23", "uint32"}},
    {"StringFirst",
     [](TableSpec* s) { s->set_key(0, "string"); },
     {"accounts", "first component", "integer"}},
    {"EmptyRange", [](TableSpec* s) { s->set_range_end(0); }, {"accounts", "range"}},
    {"RangeBelowUnsigned",
     [](TableSpec* s) { s->set_range_begin(-1); },
     {"accounts", "range", "[-1, 1000)", "uint64"}},
    {"RangeAboveType", [](TableSpec* s) { s->set_key(0, "uint8"); }, {"accounts", "range", "uint8"}},
    {"RangeBelowType",
     [](TableSpec* s) { s->set_key(0, "int8"), s->set_range_begin(-129), s->set_range_end(1); },
     {"accounts", "range", "int8"}},
    {"LongRow", [](TableSpec* s) { s->set_row_bytes(1537); }, {"accounts", "row_bytes", "1537", "1536"}},
    {"LongKey",
     [](TableSpec* s) {
       for (int i = 0; i < 32; ++i) s->add_key("int64");
     },
     {"accounts", "key", "256"}},
    {"IndexNoName", [](TableSpec* s) { AddIndex(s, "", {"key:0"}); }, {"accounts", "no name"}},
    {"IndexNoKey", [](TableSpec* s) { AddIndex(s, "i", {}); }, {"accounts", "'i'", "at least one"}},
    {"IndexTwice",
     [](TableSpec* s) { AddIndex(s, "i", {"key:0"}), AddIndex(s, "i", {"key:1"}); },
     {"'i'", "twice"}},
    {"IndexNonsense", [](TableSpec* s) { AddIndex(s, "i", {"hello"}); }, {"'hello'", "row:OFFSET:TYPE"}},
    {"IndexNoSuchComponent", [](TableSpec* s) { AddIndex(s, "i", {"key:2"}); }, {"'key:2'", "0 to 1"}},
    {"IndexNegativeOffset", [](TableSpec* s) { AddIndex(s, "i", {"row:-1:uint8"}); }, {"'row:-1:uint8'"}},
    {"IndexBadType", [](TableSpec* s) { AddIndex(s, "i", {"row:0:float"}); }, {"'row:0:float'", "uint64"}},
    {"IndexBehindRow",
     [](TableSpec* s) { AddIndex(s, "i", {"row:93:uint64"}); },
     {"'row:93:uint64'", "101", "100"}},
    {"IndexStringNoBytes",
     [](TableSpec* s) { AddIndex(s, "i", {"row:0:string"}); },
     {"row:OFFSET:string:BYTES"}},
    {"IndexStringZeroBytes",
     [](TableSpec* s) { AddIndex(s, "i", {"row:0:string:0"}); },
     {"row:OFFSET:string:BYTES"}},
    {"IndexStringBehindRow", [](TableSpec* s) { AddIndex(s, "i", {"row:90:string:11"}); }, {"101"}},
    {"IndexIntegerWithBytes", [](TableSpec* s) { AddIndex(s, "i", {"row:0:uint8:1"}); }, {"row:OFFSET:TYPE"}},
};

class CatalogErrorTest : public testing::TestWithParam<BadSpec> {};
INSTANTIATE_TEST_SUITE_P(All, CatalogErrorTest, testing::ValuesIn(kBadSpecs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CatalogErrorTest, Create_NamesTableAndField) {
  const absl::Status status = Catalog::Create(One(GetParam().change), 10).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& part : GetParam().complaint)
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(Catalog, Create_OtherErrors) {
  EXPECT_FALSE(Catalog::Create(One(), 0).ok());
  EXPECT_FALSE(Catalog::Create(One(), kMaxSites + 1).ok());
  EXPECT_TRUE(Catalog::Create(One(), kMaxSites).ok());
  EXPECT_TRUE(Catalog::Create({}, 1).ok());
  auto twice = One();
  *twice.Add() = twice[0];
  EXPECT_THAT(std::string(Catalog::Create(twice, 1).status().message()), HasSubstr("two tables"));
  const auto many = One([](TableSpec* spec) {
    for (size_t i = 0; i < kMaxTrees; ++i) AddIndex(spec, std::to_string(i), {"key:0"});
  });
  EXPECT_THAT(std::string(Catalog::Create(many, 1).status().message()), HasSubstr("256"));
}

TEST(IndexEntry, OrdersByComponentsThenPrimaryKey) {
  const Catalog catalog = *Catalog::Create(One([](TableSpec* spec) {
                                             AddIndex(spec, "i", {"row:4:string:8", "row:0:int32", "key:1"});
                                           }),
                                           1);
  const TableDefinition& table = catalog.table(0);
  const auto entry = [&](const std::string& name, int32_t number, uint64_t key, const std::string& text) {
    std::string row(100, '\0');
    std::memcpy(row.data(), &number, sizeof(number));
    std::memcpy(row.data() + 4, name.data(), name.size());
    return *IndexEntry(table, table.indexes[0], Bytes(Key(key, text)), Bytes(row));
  };
  EXPECT_LT(entry("ann", 5, 1, "a"), entry("anna", -5, 0, "a"));
  EXPECT_LT(entry("ann", -5, 9, "z"), entry("ann", 5, 1, "a"));
  EXPECT_LT(entry("ann", 5, 9, "a"), entry("ann", 5, 1, "b"));
  EXPECT_LT(entry("ann", 5, 1, "a"), entry("ann", 5, 2, "a"));
  EXPECT_LT(entry("", 5, 1, "a"), entry("a", 5, 1, "a"));
  // A bound is written without the field's padding; a full field has none.
  std::string bound;
  partitioner::AppendString("ann", &bound);
  EXPECT_EQ(entry("ann", 5, 1, "a").substr(0, bound.size()), bound);
  EXPECT_LT(entry("abcdefgh", 5, 1, "a"), entry("abcdefgi", 5, 1, "a"));
}

TEST(IndexEntry, RowTooShortOrKeyMalformed) {
  const Catalog catalog = *Catalog::Create(One([](TableSpec* spec) {
                                             spec->set_row_bytes(0);
                                             AddIndex(spec, "fields", {"row:8:uint32", "row:12:string:4"});
                                             AddIndex(spec, "key", {"key:1"});
                                             AddIndex(spec, "wide", {"row:0:string:400"});
                                           }),
                                           1);
  const TableDefinition& table = catalog.table(0);
  const std::string key = Key(1, "a"), row(16, 'r');
  EXPECT_TRUE(IndexEntry(table, table.indexes[0], Bytes(key), Bytes(row)).ok());
  const absl::Status too_short =
      IndexEntry(table, table.indexes[0], Bytes(key), Bytes(row.substr(1))).status();
  EXPECT_EQ(too_short.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_short.message()), HasSubstr("'fields'"));
  EXPECT_FALSE(IndexEntry(table, table.indexes[1], Bytes(key.substr(0, 9)), Bytes(row)).ok());
  EXPECT_THAT(
      std::string(
          IndexEntry(table, table.indexes[2], Bytes(key), Bytes(std::string(400, 'w'))).status().message()),
      HasSubstr("at most 256"));
}

}  // namespace
}  // namespace islands::storage
