// What tables an island has: names, key schemas, ranges, secondary indexes - built once from the deployment's
// TableSpecs.
//
// Thread safety: immutable after construction, but for Add and Drop: while nobody else uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "instance/storage/pages/limits.h"
#include "instance/storage/pages/page_latch.h"
#include "partitioner/key_codec.h"
#include "partitioner/site_map.h"
#include "proto/control.pb.h"

namespace islands::storage {

using TableId = uint32_t;  // position in the deployment's list of tables
using IndexId = uint32_t;  // position in its table's list of indexes

// One component of a secondary index key.
struct IndexComponent {
  bool from_key = false;
  uint32_t component = 0;  // from_key: which component of the primary key
  uint32_t offset = 0;     // otherwise: little-endian integer at this offset of the row,
  partitioner::KeyType type =
      partitioner::KeyType::kUint64;  // or, for strings, `string_bytes` bytes, zero-padded
  uint32_t string_bytes = 0;          // "row:16:string:20" = 20 bytes at offset 16
};

struct IndexDefinition {
  std::string name;
  std::vector<IndexComponent> components;
};

struct TableDefinition {
  TableId id = 0;
  std::string name;
  partitioner::KeySchema key;
  std::optional<partitioner::RangePartition> partition;  // empty: replicated
  uint32_t row_bytes = 0;                                // 0 = any length
  std::vector<IndexDefinition> indexes;
  bool dropped = false;  // it has no name any more, and keeps its place

  bool replicated() const { return !partition.has_value(); }
  // Whether a change of these bytes of a row can change what an index has of it.
  bool Indexes(size_t offset, size_t bytes) const;
};

class Catalog {
 public:
  using TableSpecs = google::protobuf::RepeatedPtrField<control::v1::TableSpec>;

  // Errors name the table and field: unknown key type, empty range, first component not an integer, row too
  // large, ...
  static absl::StatusOr<Catalog> Create(const TableSpecs& tables, uint32_t sites);
  // One more table behind the others, which stay where they are, as what refers to them does.
  absl::Status Add(const control::v1::TableSpec& spec);
  void Drop(TableId id) { tables_[id].dropped = true; }

  size_t size() const { return tables_.size(); }
  const TableDefinition& table(TableId id) const { return tables_[id]; }
  const TableDefinition* Find(std::string_view name) const;  // null: there is none
  uint32_t sites() const { return sites_; }
  // Of the tree with this number among all of them: its table's, for an index TABLE.INDEX. Empty: there is
  // none.
  std::string TreeName(uint32_t tree) const;
  // The site that holds `key`; kReplicatedSite for replicated tables. Error for keys that do not decode or
  // lie outside.
  absl::StatusOr<uint32_t> SiteOf(TableId table, KeyView key) const;

 private:
  std::vector<TableDefinition> tables_;  // room for as many as there may be is reserved: none ever moves
  uint32_t sites_ = 0;
  size_t trees_ = 0;
};

// What people call the latch of a page that is there: "page latch: micro site 3, leaf level".
std::string PageLatchName(const Catalog& catalog, PagePlace place);

// [a-z][a-z0-9_-]*, at most 32 characters.
bool IsTableName(std::string_view name);

// How long a row with these fields is; 0: of any length, its last field has none of its own.
// INVALID_ARGUMENT: names one of them, and what is wrong with it.
absl::StatusOr<uint32_t> RowBytesOf(const google::protobuf::RepeatedPtrField<control::v1::FieldSpec>& fields);

// The encoded index key of a row, followed by its primary key: unique, and ordered by the index's components.
absl::StatusOr<std::string> IndexEntry(const TableDefinition& table, const IndexDefinition& index,
                                       KeyView key, RowView row);

}  // namespace islands::storage
