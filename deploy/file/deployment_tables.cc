#include "deploy/file/deployment_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "instance/storage/catalog.h"
#include "partitioner/key_codec.h"

namespace islands::deploy {
namespace {

using control::v1::IndexSpec;
using control::v1::TableSpec;
using partitioner::KeyType;

constexpr size_t kMaxTables = 256;
constexpr std::string_view kKeyTypes = "uint8, uint16, uint32, uint64, int8, int16, int32, int64 or string";

using storage::IsTableName;

// The values that a partitioned table's first key component can have, as [begin, end).
std::pair<int64_t, int64_t> ValuesOf(KeyType type) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const int bits = static_cast<int>(partitioner::KeyTypeBytes(type)) * 8;
  const bool is_signed = type >= KeyType::kInt8 && type <= KeyType::kInt64;
  if (bits == 64) return {is_signed ? kMin : 0, kMax};
  if (is_signed) return {-(int64_t{1} << (bits - 1)), int64_t{1} << (bits - 1)};
  return {0, int64_t{1} << bits};
}

// The n of "key:n" or "row:n:..."; small numbers only, so that sums of them cannot overflow.
std::optional<uint32_t> SmallNumber(absl::string_view text) {
  uint32_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value > (1u << 20)) return std::nullopt;
  return value;
}

// Why `text` is no index component of this table; nullopt if it is one.
std::optional<std::string> WrongComponent(const std::string& text, const TableSpec& table) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2 && parts[0] == "key") {
    const auto component = SmallNumber(parts[1]);
    if (component && *component < static_cast<uint32_t>(table.key_size())) return std::nullopt;
    return fmt::format("key:0 to key:{}", table.key_size() - 1);
  }
  constexpr std::string_view kForms = "row:OFFSET:INTEGER_TYPE, row:OFFSET:string:BYTES or key:COMPONENT";
  if (parts.size() < 3 || parts[0] != "row") return std::string(kForms);
  const auto type = partitioner::ParseKeyType(parts[2]);
  const auto offset = SmallNumber(parts[1]);
  if (!type.ok() || !offset || (parts.size() == 4) != (*type == KeyType::kString) || parts.size() > 4) {
    return std::string(kForms);
  }
  uint64_t bytes = partitioner::KeyTypeBytes(*type);
  if (*type == KeyType::kString) {
    const auto length = SmallNumber(parts[3]);
    if (!length || *length == 0) return std::string(kForms);
    bytes = *length;
  }
  const uint64_t row_bytes = table.row_bytes() > 0 ? table.row_bytes() : storage::kMaxRowBytes;
  if (*offset + bytes <= row_bytes) return std::nullopt;
  return fmt::format("bytes within the row's {}", row_bytes);
}

class TableReader {
 public:
  TableReader(Positions* positions, Complaints* complaints)
      : positions_(positions), complaints_(complaints) {}

  TableSpec Read(const YamlNode& node, const std::string& path) {
    const MapReader map(node, path, {"name", "key", "range", "fields", "row_bytes", "replicated", "indexes"},
                        positions_, complaints_);
    TableSpec table;
    ReadName(map, &table);
    ReadKey(map, &table);
    table.set_replicated(map.Bool("replicated").value_or(false));
    ReadRange(map, &table);
    if (const auto bytes = map.Integer("row_bytes", 0, storage::kMaxRowBytes)) table.set_row_bytes(*bytes);
    ReadFields(map, &table);
    if (table.key_size() > 0) ReadIndexes(map, &table);
    return table;
  }

 private:
  void ReadName(const MapReader& map, TableSpec* table) {
    constexpr std::string_view kExpected = "a table name: [a-z][a-z0-9_-]*, at most 32 characters";
    if (!map.Has("name")) {
      map.Complain(map.at(), fmt::format("found a table without 'name', expected {}", kExpected));
    } else if (const auto name = map.Text("name", kExpected)) {
      if (IsTableName(*name)) {
        table->set_name(*name);
      } else {
        map.Unexpected("name", kExpected);
      }
    }
  }

  void ReadKey(const MapReader& map, TableSpec* table) {
    if (!map.Has("key")) {
      map.Complain(map.at(), "found a table without 'key', expected a list of key types such as [uint64]");
      return;
    }
    if (const YamlNode& key = *map.Find("key"); key.kind == YamlNode::Kind::kMap)
      return ReadNamedKey(map, key, table);
    for (const YamlNode& item : map.List("key", "a list of key types such as [uint64], or {id: uint64}")) {
      if (item.kind == YamlNode::Kind::kScalar && partitioner::ParseKeyType(item.text).ok()) {
        table->add_key(item.text);
      } else {
        map.Complain(item.at, fmt::format("found {}, expected a key type: {}", item.Describe(), kKeyTypes));
        table->clear_key();
        return;
      }
    }
  }

  void ReadNamedKey(const MapReader& map, const YamlNode& key, TableSpec* table) {
    for (size_t i = 0; i + 1 < key.items.size(); i += 2) {
      const YamlNode& type = key.items[i + 1];
      if (type.kind != YamlNode::Kind::kScalar || !partitioner::ParseKeyType(type.text).ok()) {
        map.Complain(type.at, fmt::format("found {}, expected a key type: {}", type.Describe(), kKeyTypes));
        table->clear_key();
        table->clear_key_names();
        return;
      }
      table->add_key_names(key.items[i].text);
      table->add_key(type.text);
    }
  }

  // A row's parts, in order; how long it is follows from them.
  void ReadFields(const MapReader& map, TableSpec* table) {
    if (!map.Has("fields")) return;
    const YamlNode& fields = *map.Find("fields");
    if (fields.kind != YamlNode::Kind::kMap) {
      map.Complain("fields",
                   fmt::format("found {}, expected names and types such as {{balance: int64, owner: "
                               "'string:20'}}",
                               fields.Describe()));
      return;
    }
    for (size_t i = 0; i + 1 < fields.items.size(); i += 2) {
      const YamlNode& type = fields.items[i + 1];
      control::v1::FieldSpec& field = *table->add_fields();
      field.set_name(fields.items[i].text);
      field.set_type(type.kind == YamlNode::Kind::kScalar ? type.text : type.Describe());
    }
    const absl::StatusOr<uint32_t> bytes = storage::RowBytesOf(table->fields());
    if (!bytes.ok()) {
      map.Complain("fields",
                   fmt::format("found {}, expected fields of a row", std::string(bytes.status().message())));
    } else if (!map.Has("row_bytes")) {
      table->set_row_bytes(*bytes);
    }
  }

  void ReadRange(const MapReader& map, TableSpec* table) {
    if (table->replicated()) {
      if (map.Has("range")) {
        map.Complain("range",
                     "found a range on a replicated table, expected none: it is whole on every island");
      }
      return;
    }
    if (!map.Has("range")) {
      map.Complain(map.at(),
                   "found a table without 'range', expected [FIRST, END) of its first key component, such "
                   "as 'range: [0, 240000]', or 'replicated: true'");
      return;
    }
    const std::vector<YamlNode>& items = map.List("range", "two whole numbers [FIRST, END]");
    if (items.empty()) return;
    const auto begin = ParseInteger(items[0]);
    const auto end = items.size() == 2 ? ParseInteger(items[1]) : std::nullopt;
    if (!begin || !end) {
      map.Complain("range", "found another range, expected two whole numbers [FIRST, END]");
    } else if (*begin >= *end) {
      map.Complain("range",
                   fmt::format("found the empty range [{}, {}], expected FIRST < END", *begin, *end));
    } else if (table->key_size() > 0) {
      CheckRange(map, *begin, *end, table);
    }
  }

  void CheckRange(const MapReader& map, int64_t begin, int64_t end, TableSpec* table) {
    const KeyType type = *partitioner::ParseKeyType(table->key(0));
    if (type == KeyType::kString) {
      map.Complain(
          map.Find("key")->items[0].at,
          "found 'string' as the first key component of a partitioned table, expected an integer type");
      return;
    }
    const auto [first, last] = ValuesOf(type);
    if (begin < first || end > last) {
      map.Complain("range", fmt::format("found [{}, {}], expected values of {}: within [{}, {}]", begin, end,
                                        table->key(0), first, last));
      return;
    }
    table->set_range_begin(begin);
    table->set_range_end(end);
  }

  void ReadIndexes(const MapReader& map, TableSpec* table) {
    const std::vector<YamlNode>& items = map.List("indexes", "a list of {name: ..., key: [...]}");
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].kind != YamlNode::Kind::kMap) {
        map.Complain(items[i].at,
                     fmt::format("found {}, expected {{name: ..., key: [...]}}", items[i].Describe()));
        continue;
      }
      const MapReader index(items[i], fmt::format("{}[{}]", map.Path("indexes"), i), {"name", "key"},
                            positions_, complaints_);
      ReadIndex(index, table);
    }
  }

  void ReadIndex(const MapReader& map, TableSpec* table) {
    constexpr std::string_view kExpected = "an index name: [a-z][a-z0-9_-]*, at most 32 characters";
    IndexSpec index;
    for (const char* key : {"name", "key"}) {
      if (!map.Has(key)) {
        map.Complain(map.at(),
                     fmt::format("found an index without '{}', expected {{name: ..., key: [...]}}", key));
      }
    }
    if (const auto name = map.Text("name", kExpected)) {
      index.set_name(*name);
      const auto same = [&](const IndexSpec& other) { return other.name() == *name; };
      if (!IsTableName(*name)) {
        map.Unexpected("name", kExpected);
      } else if (std::any_of(table->indexes().begin(), table->indexes().end(), same)) {
        map.Complain("name", fmt::format("found index '{}' twice, expected different names", *name));
      }
    }
    for (const YamlNode& item : map.List("key", "a list such as ['row:16:uint64', 'key:0']")) {
      const bool scalar = item.kind == YamlNode::Kind::kScalar;
      const auto wrong = WrongComponent(scalar ? item.text : "", *table);
      if (wrong) map.Complain(item.at, fmt::format("found {}, expected {}", item.Describe(), *wrong));
      index.add_key(item.text);
    }
    *table->add_indexes() = std::move(index);
  }

  Positions* positions_;
  Complaints* complaints_;
};

// What only the catalog itself may know to be wrong; asked once everything else is right.
void AskCatalog(const std::vector<TableSpec>& tables, const MapReader& data, const Positions& positions,
                Complaints* complaints) {
  storage::Catalog::TableSpecs so_far;
  for (size_t i = 0; i < tables.size(); ++i) {
    *so_far.Add() = tables[i];
    const auto catalog = storage::Catalog::Create(so_far, 1);
    if (catalog.ok()) continue;
    complaints->Add(positions.at(fmt::format("{}[{}]", data.Path("tables"), i)),
                    fmt::format("found a table that the catalog refuses ({}), expected a valid one",
                                std::string(catalog.status().message())));
    return;
  }
}

}  // namespace

std::vector<TableSpec> ReadTables(const MapReader& data, Positions* positions, Complaints* complaints) {
  std::vector<TableSpec> tables;
  const size_t before = complaints->size();
  TableReader reader(positions, complaints);
  const std::vector<YamlNode>& items = data.List("tables", "a list of tables");
  if (items.size() > kMaxTables) {
    data.Complain("tables", fmt::format("found {} tables, expected at most {}", items.size(), kMaxTables));
    return tables;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", data.Path("tables"), i);
    (*positions)[path] = items[i].at;
    if (items[i].kind != YamlNode::Kind::kMap) {
      complaints->Add(items[i].at,
                      fmt::format("found {}, expected a table such as {{name: micro, key: [uint64], "
                                  "range: [0, 240000], row_bytes: 250}}",
                                  items[i].Describe()));
      continue;
    }
    TableSpec table = reader.Read(items[i], path);
    const auto same = [&](const TableSpec& other) { return other.name() == table.name(); };
    if (!table.name().empty() && std::any_of(tables.begin(), tables.end(), same)) {
      complaints->Add(positions->at(path + ".name"),
                      fmt::format("found table '{}' twice, expected different names", table.name()));
    }
    tables.push_back(std::move(table));
  }
  if (complaints->size() == before) AskCatalog(tables, data, *positions, complaints);
  return tables;
}

TableSpec DefaultTable() {
  TableSpec table;
  table.set_name("micro");
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(240000);
  table.set_row_bytes(250);
  return table;
}

}  // namespace islands::deploy
