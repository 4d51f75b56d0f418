#include "instance/storage/catalog.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"

namespace islands::storage {
namespace {

using partitioner::KeySchema;
using partitioner::KeyType;
using partitioner::kMaxKeyBytes;
using Fields = google::protobuf::RepeatedPtrField<std::string>;

absl::Status TableError(const control::v1::TableSpec& spec, std::string_view field, std::string_view reason) {
  return absl::InvalidArgumentError(fmt::format("table '{}', {}: {}", spec.name(), field, reason));
}

// Of a part of a table; whoever asks how a deployment is hears all of them.
absl::Status CheckName(const control::v1::TableSpec& spec, std::string_view field, std::string_view name) {
  constexpr size_t kMostBytes = 64;
  if (!name.empty() && name.size() <= kMostBytes) return absl::OkStatus();
  return TableError(spec, field,
                    name.empty()
                        ? "one has no name"
                        : fmt::format("a name of {} bytes, expected at most {}", name.size(), kMostBytes));
}

std::vector<std::string_view> SplitAtColons(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

bool ParseNumber(std::string_view text, uint32_t* number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end;
}

// One past the component that begins at `begin` of an encoded key; nullopt when the bytes are not that
// component.
std::optional<size_t> ComponentEnd(KeyType type, KeyView key, size_t begin) {
  if (type != KeyType::kString) {
    const size_t end = begin + partitioner::KeyTypeBytes(type);
    return end <= key.size() ? std::optional(end) : std::nullopt;
  }
  for (size_t i = begin; i + 1 < key.size(); ++i) {
    if (key[i] != std::byte{0}) continue;
    if (key[i + 1] == std::byte{1}) return i + 2;
    if (key[i + 1] != std::byte{0xff}) return std::nullopt;
    ++i;
  }
  return std::nullopt;
}

bool IsKeyOf(const KeySchema& schema, KeyView key) {
  if (key.size() > kMaxKeyBytes) return false;
  size_t at = 0;
  for (const KeyType type : schema) {
    const std::optional<size_t> end = ComponentEnd(type, key, at);
    if (!end) return false;
    at = *end;
  }
  return at == key.size();
}

absl::StatusOr<KeySchema> ParseKey(const control::v1::TableSpec& spec) {
  KeySchema schema;
  size_t least_bytes = 0;
  for (const std::string& name : spec.key()) {
    const absl::StatusOr<KeyType> type = partitioner::ParseKeyType(name);
    if (!type.ok()) return TableError(spec, "key", std::string(type.status().message()));
    schema.push_back(*type);
    least_bytes += *type == KeyType::kString ? 2 : partitioner::KeyTypeBytes(*type);
  }
  if (schema.empty()) return TableError(spec, "key", "needs at least one component");
  if (least_bytes > kMaxKeyBytes) {
    return TableError(spec, "key",
                      fmt::format("{} bytes when encoded; at most {}", least_bytes, kMaxKeyBytes));
  }
  return schema;
}

// The values the type can hold, as [lowest, highest] in int64: what is above INT64_MAX cannot be partitioned
// by.
std::pair<int64_t, int64_t> Bounds(KeyType type) {
  const size_t bits = 8 * partitioner::KeyTypeBytes(type);
  if (partitioner::IsSigned(type)) return {INT64_MIN >> (64 - bits), INT64_MAX >> (64 - bits)};
  return {0, bits == 64 ? INT64_MAX : static_cast<int64_t>((uint64_t{1} << bits) - 1)};
}

absl::StatusOr<partitioner::RangePartition> ParseRange(const control::v1::TableSpec& spec,
                                                       const KeySchema& key, uint32_t sites) {
  if (key[0] == KeyType::kString) {
    return TableError(spec, "key",
                      "the first component must be an integer, because rows are partitioned by it");
  }
  auto partition = partitioner::RangePartition::Create(spec.range_begin(), spec.range_end(), sites);
  if (!partition.ok()) return TableError(spec, "range", std::string(partition.status().message()));
  const auto [lowest, highest] = Bounds(key[0]);
  if (partition->begin() < lowest || partition->end() - 1 > highest) {
    return TableError(spec, "range",
                      fmt::format("[{}, {}) does not fit the first key component, {}", partition->begin(),
                                  partition->end(), partitioner::KeyTypeName(key[0])));
  }
  return partition;
}

// "key:COMPONENT", "row:OFFSET:TYPE" or "row:OFFSET:string:BYTES".
absl::StatusOr<IndexComponent> ParseComponent(std::string_view text, const TableDefinition& table) {
  const std::vector<std::string_view> parts = SplitAtColons(text);
  IndexComponent component;
  if (parts.size() == 2 && parts[0] == "key" && ParseNumber(parts[1], &component.component)) {
    if (component.component >= table.key.size()) {
      return absl::InvalidArgumentError(
          fmt::format("'{}': the key has components 0 to {}", text, table.key.size() - 1));
    }
    component.from_key = true;
    component.type = table.key[component.component];
    return component;
  }
  if (parts.size() < 3 || parts[0] != "row" || !ParseNumber(parts[1], &component.offset)) {
    return absl::InvalidArgumentError(
        fmt::format("'{}': expected key:COMPONENT, row:OFFSET:TYPE or row:OFFSET:string:BYTES", text));
  }
  const absl::StatusOr<KeyType> type = partitioner::ParseKeyType(parts[2]);
  if (!type.ok())
    return absl::InvalidArgumentError(fmt::format("'{}': {}", text, std::string(type.status().message())));
  component.type = *type;
  const bool is_string = *type == KeyType::kString;
  const bool string_ok =
      parts.size() == 4 && ParseNumber(parts[3], &component.string_bytes) && component.string_bytes > 0;
  if (is_string ? !string_ok : parts.size() != 3) {
    return absl::InvalidArgumentError(
        fmt::format("'{}': expected {}", text, is_string ? "row:OFFSET:string:BYTES" : "row:OFFSET:TYPE"));
  }
  const uint64_t end =
      uint64_t{component.offset} + (is_string ? component.string_bytes : partitioner::KeyTypeBytes(*type));
  const uint64_t limit = table.row_bytes == 0 ? kMaxRowBytes : table.row_bytes;
  if (end > limit) {
    return absl::InvalidArgumentError(
        fmt::format("'{}': ends at byte {} of a row of at most {}", text, end, limit));
  }
  return component;
}

absl::Status ParseIndexes(const control::v1::TableSpec& spec, TableDefinition* table) {
  absl::flat_hash_set<std::string> names;
  for (const control::v1::IndexSpec& index : spec.indexes()) {
    const std::string field = fmt::format("index '{}'", index.name());
    if (absl::Status name = CheckName(spec, "indexes", index.name()); !name.ok()) return name;
    if (!names.insert(index.name()).second) return TableError(spec, field, "the name is used twice");
    if (index.key().empty()) return TableError(spec, field, "needs at least one component");
    IndexDefinition definition{.name = index.name(), .components = {}};
    for (const std::string& text : index.key()) {
      const absl::StatusOr<IndexComponent> component = ParseComponent(text, *table);
      if (!component.ok()) return TableError(spec, field, std::string(component.status().message()));
      definition.components.push_back(*component);
    }
    table->indexes.push_back(std::move(definition));
  }
  return absl::OkStatus();
}

// Of a field; nullopt: there is no such type. 0: of any length.
std::optional<uint32_t> FieldBytes(std::string_view type) {
  if (type == "double") return 8;
  if (type == "string" || type == "bytes") return 0;
  const std::vector<std::string_view> parts = SplitAtColons(type);
  if (parts.size() == 2 && (parts[0] == "string" || parts[0] == "bytes")) {
    uint32_t bytes = 0;
    return ParseNumber(parts[1], &bytes) && bytes > 0 ? std::optional(bytes) : std::nullopt;
  }
  const absl::StatusOr<KeyType> number = partitioner::ParseKeyType(type);
  if (!number.ok() || *number == KeyType::kString) return std::nullopt;
  return static_cast<uint32_t>(partitioner::KeyTypeBytes(*number));
}

// Of those who read and write rows by name; the engine knows bytes.
absl::Status CheckNames(const control::v1::TableSpec& spec) {
  if (!spec.key_names().empty() && spec.key_names_size() != spec.key_size()) {
    return TableError(spec, "key_names",
                      fmt::format("{} for a key of {} components", spec.key_names_size(), spec.key_size()));
  }
  absl::flat_hash_set<std::string> names;
  for (const std::string& name : spec.key_names()) {
    if (absl::Status sound = CheckName(spec, "key_names", name); !sound.ok()) return sound;
    if (!names.insert(name).second)
      return TableError(spec, "key_names", fmt::format("'{}' is used twice", name));
  }
  for (const control::v1::FieldSpec& field : spec.fields()) {
    if (absl::Status sound = CheckName(spec, "fields", field.name()); !sound.ok()) return sound;
    if (!names.insert(field.name()).second)
      return TableError(spec, "fields", fmt::format("'{}' is used twice", field.name()));
  }
  if (spec.fields().empty()) return absl::OkStatus();
  const absl::StatusOr<uint32_t> bytes = RowBytesOf(spec.fields());
  if (!bytes.ok()) return TableError(spec, "fields", std::string(bytes.status().message()));
  if (*bytes == spec.row_bytes()) return absl::OkStatus();
  return TableError(spec, "row_bytes",
                    *bytes == 0 ? fmt::format("{}, but its last field is of any length", spec.row_bytes())
                                : fmt::format("{}, but its fields take {}", spec.row_bytes(), *bytes));
}

absl::StatusOr<TableDefinition> ParseTable(const control::v1::TableSpec& spec, uint32_t sites) {
  TableDefinition table{.id = 0,
                        .name = spec.name(),
                        .key = {},
                        .partition = {},
                        .row_bytes = spec.row_bytes(),
                        .indexes = {},
                        .dropped = spec.dropped() != 0};
  absl::StatusOr<KeySchema> key = ParseKey(spec);
  if (!key.ok()) return key.status();
  table.key = *std::move(key);
  if (!spec.replicated()) {
    absl::StatusOr<partitioner::RangePartition> partition = ParseRange(spec, table.key, sites);
    if (!partition.ok()) return partition.status();
    table.partition = *partition;
  }
  if (spec.row_bytes() > kMaxRowBytes) {
    return TableError(spec, "row_bytes",
                      fmt::format("{}; at most {} are allowed", spec.row_bytes(), kMaxRowBytes));
  }
  if (absl::Status indexes = ParseIndexes(spec, &table); !indexes.ok()) return indexes;
  if (absl::Status names = CheckNames(spec); !names.ok()) return names;
  return table;
}

uint64_t LittleEndian(RowView row, size_t offset, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(row[offset + i]);
  return value;
}

// Zero padding at the end of a string field is not part of the string, so that bounds are written without it.
std::string_view StringField(RowView row, const IndexComponent& component) {
  std::string_view text(reinterpret_cast<const char*>(row.data()) + component.offset, component.string_bytes);
  const size_t last = text.find_last_not_of('\0');
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// That a component which is no part of the key takes of the row.
size_t RowBytes(const IndexComponent& component) {
  return component.type == KeyType::kString ? component.string_bytes
                                            : partitioner::KeyTypeBytes(component.type);
}

void AppendField(const IndexComponent& component, RowView row, std::string* entry) {
  if (component.type == KeyType::kString) {
    partitioner::AppendString(StringField(row, component), entry);
    return;
  }
  const size_t bytes = partitioner::KeyTypeBytes(component.type);
  const uint64_t value = LittleEndian(row, component.offset, bytes);
  if (partitioner::IsSigned(component.type)) {
    const size_t unused_bits = 64 - 8 * bytes;
    partitioner::AppendSigned(component.type, static_cast<int64_t>(value << unused_bits) >> unused_bits,
                              entry);
  } else {
    partitioner::AppendUnsigned(component.type, value, entry);
  }
}

bool AppendKeyComponent(const KeySchema& schema, uint32_t component, KeyView key, std::string* entry) {
  size_t begin = 0;
  for (uint32_t i = 0;; ++i) {
    const std::optional<size_t> end = ComponentEnd(schema[i], key, begin);
    if (!end) return false;
    if (i == component) {
      entry->append(reinterpret_cast<const char*>(key.data()) + begin, *end - begin);
      return true;
    }
    begin = *end;
  }
}

}  // namespace

absl::StatusOr<Catalog> Catalog::Create(const TableSpecs& tables, uint32_t sites) {
  if (sites == 0 || sites > kMaxSites) {
    return absl::InvalidArgumentError(fmt::format("sites: {}; expected 1 to {}", sites, kMaxSites));
  }
  Catalog catalog;
  catalog.sites_ = sites;
  catalog.tables_.reserve(kMaxTrees);
  for (const control::v1::TableSpec& spec : tables) {
    if (absl::Status added = catalog.Add(spec); !added.ok()) return added;
  }
  return catalog;
}

absl::Status Catalog::Add(const control::v1::TableSpec& spec) {
  if (spec.name().empty()) return absl::InvalidArgumentError("a table has no name");
  absl::StatusOr<TableDefinition> table = ParseTable(spec, sites_);
  if (!table.ok()) return table.status();
  if (!table->dropped && Find(spec.name()) != nullptr) return TableError(spec, "name", "used by two tables");
  table->id = static_cast<TableId>(tables_.size());
  if (trees_ + 1 + table->indexes.size() > kMaxTrees) {
    return TableError(
        spec, "tables",
        fmt::format("at most {} tables and indexes together, and those that were dropped count", kMaxTrees));
  }
  trees_ += 1 + table->indexes.size();
  tables_.push_back(*std::move(table));
  return absl::OkStatus();
}

const TableDefinition* Catalog::Find(std::string_view name) const {
  for (const TableDefinition& table : tables_) {
    if (table.name == name && !table.dropped) return &table;
  }
  return nullptr;
}

std::string Catalog::TreeName(uint32_t tree) const {
  for (const TableDefinition& table : tables_) {
    if (tree == 0) return table.name;
    if (--tree < table.indexes.size()) return fmt::format("{}.{}", table.name, table.indexes[tree].name);
    tree -= static_cast<uint32_t>(table.indexes.size());
  }
  return "";
}

std::string PageLatchName(const Catalog& catalog, PagePlace place) {
  const std::string site =
      place.site() == kReplicatedSite ? "replicated" : fmt::format("site {}", place.site());
  if (place.type() == PageType::kSiteHeader) return fmt::format("page latch: {}, header", site);
  const std::string level = place.level() == 0 ? "leaf level" : fmt::format("level {}", place.level());
  return fmt::format("page latch: {} {}, {}", catalog.TreeName(place.tree()), site, level);
}

absl::StatusOr<uint32_t> Catalog::SiteOf(TableId table, KeyView key) const {
  if (table >= tables_.size()) {
    return absl::InvalidArgumentError(fmt::format("no table {}; there are {}", table, tables_.size()));
  }
  const TableDefinition& definition = tables_[table];
  if (definition.replicated()) {
    if (IsKeyOf(definition.key, key)) return kReplicatedSite;
    return absl::InvalidArgumentError(fmt::format("table '{}': {} is not a key of it", definition.name,
                                                  partitioner::KeyToString(definition.key, key)));
  }
  const absl::StatusOr<int64_t> first = partitioner::FirstComponent(definition.key, key);
  if (!first.ok()) return first.status();
  return definition.partition->SiteOf(*first);
}

bool TableDefinition::Indexes(size_t offset, size_t bytes) const {
  for (const IndexDefinition& index : indexes) {
    for (const IndexComponent& component : index.components) {
      if (component.from_key) continue;
      if (offset < component.offset + RowBytes(component) && component.offset < offset + bytes) return true;
    }
  }
  return false;
}

bool IsTableName(std::string_view name) {
  if (name.empty() || name.size() > 32 || name[0] < 'a' || name[0] > 'z') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

absl::StatusOr<uint32_t> RowBytesOf(
    const google::protobuf::RepeatedPtrField<control::v1::FieldSpec>& fields) {
  uint64_t all = 0;
  for (int i = 0; i < fields.size(); ++i) {
    const control::v1::FieldSpec& field = fields[i];
    if (field.name().empty()) return absl::InvalidArgumentError("a field has no name");
    const std::optional<uint32_t> bytes = FieldBytes(field.type());
    if (!bytes) {
      return absl::InvalidArgumentError(
          fmt::format("'{}': '{}' is no type; expected int8 to int64, uint8 to uint64, double, string:BYTES, "
                      "bytes:BYTES, or string or bytes for the last one",
                      field.name(), field.type()));
    }
    if (*bytes == 0 && i + 1 < fields.size()) {
      return absl::InvalidArgumentError(fmt::format(
          "'{}': only the last field may be of any length; write {}:BYTES", field.name(), field.type()));
    }
    all += *bytes;
    if (all > kMaxRowBytes)
      return absl::InvalidArgumentError(fmt::format("{} bytes and more; at most {}", all, kMaxRowBytes));
    if (*bytes == 0) return 0u;
  }
  return static_cast<uint32_t>(all);
}

absl::StatusOr<std::string> IndexEntry(const TableDefinition& table, const IndexDefinition& index,
                                       KeyView key, RowView row) {
  std::string entry;
  for (const IndexComponent& component : index.components) {
    if (component.from_key) {
      if (!AppendKeyComponent(table.key, component.component, key, &entry)) {
        return absl::InvalidArgumentError(fmt::format("table '{}': not a key of it", table.name));
      }
      continue;
    }
    const size_t bytes = RowBytes(component);
    if (size_t{component.offset} + bytes > row.size()) {
      return absl::InvalidArgumentError(
          fmt::format("table '{}', index '{}': the row has {} bytes, the index reads to {}", table.name,
                      index.name, row.size(), component.offset + bytes));
    }
    AppendField(component, row, &entry);
  }
  if (entry.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(fmt::format("table '{}', index '{}': {} bytes when encoded; at most {}",
                                                  table.name, index.name, entry.size(), kMaxKeyBytes));
  }
  entry.append(reinterpret_cast<const char*>(key.data()), key.size());
  return entry;
}

}  // namespace islands::storage
