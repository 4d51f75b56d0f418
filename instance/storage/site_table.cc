#include "instance/storage/site_table.h"

#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "instance/storage/pages/buffer_pool.h"
#include "runtime/planted_bug.h"

namespace islands::storage {
namespace {

using absl::StatusCode;
using runtime::Planted;
using runtime::PlantedBug;

KeyView AsKey(const std::string& bytes) { return std::as_bytes(std::span(bytes.data(), bytes.size())); }

// The row of an index entry says where its primary key begins.
using IndexKeyBytes = uint16_t;

RowView AsRow(const IndexKeyBytes& bytes) { return std::as_bytes(std::span(&bytes, 1)); }

KeyView PrimaryKeyOf(KeyView entry, RowView row) {
  IndexKeyBytes index_bytes = 0;
  ISLANDS_CHECK(row.size() == sizeof(index_bytes));
  std::memcpy(&index_bytes, row.data(), sizeof(index_bytes));
  ISLANDS_CHECK(index_bytes < entry.size());
  return entry.subspan(index_bytes);
}

}  // namespace

SiteTable::SiteTable(const TableDefinition& definition, SiteSpace* space, Tree rows,
                     const std::vector<Tree>& indexes)
    : definition_(definition), rows_(space, rows.id, rows.root) {
  ISLANDS_CHECK(indexes.size() == definition.indexes.size());
  ISLANDS_CHECK(definition.replicated() == (space->site() == kReplicatedSite));
  for (const Tree& index : indexes) {
    indexes_.push_back(std::make_unique<BTree>(space, index.id, index.root));
  }
}

StatusCode SiteTable::MakeEntries(KeyView key, RowView row, Entries* entries) const {
  for (const IndexDefinition& index : definition_.indexes) {
    absl::StatusOr<std::string> entry = IndexEntry(definition_, index, key, row);
    if (!entry.ok()) return entry.status().code();
    ISLANDS_CHECK(entry->size() > key.size() && entry->size() <= kMaxTreeKeyBytes);
    entries->push_back(*std::move(entry));
  }
  return StatusCode::kOk;
}

StatusCode SiteTable::InsertEntry(size_t index, const std::string& entry, size_t key_bytes) {
  const auto index_bytes = static_cast<IndexKeyBytes>(entry.size() - key_bytes);
  return indexes_[index]->Insert(AsKey(entry), AsRow(index_bytes));
}

bool SiteTable::RemoveEntry(size_t index, const std::string& entry) {
  return indexes_[index]->Remove(AsKey(entry)) == StatusCode::kOk;
}

StatusCode SiteTable::InsertEntries(const Entries& before, const Entries& after, size_t key_bytes) {
  ISLANDS_CHECK(before.empty() || before.size() == after.size());
  for (size_t i = 0; i < after.size(); ++i) {
    if (!before.empty() && before[i] == after[i]) continue;
    const StatusCode code = InsertEntry(i, after[i], key_bytes);
    if (code == StatusCode::kOk) continue;
    // An entry names its row: one that is there without it breaks invariant 1.
    ISLANDS_CHECK(code == StatusCode::kResourceExhausted);
    RemoveEntries(Entries(after.begin(), after.begin() + static_cast<ptrdiff_t>(i)), before);
    return code;
  }
  return StatusCode::kOk;
}

void SiteTable::RemoveEntries(const Entries& entries, const Entries& but_not) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!but_not.empty() && but_not[i] == entries[i]) continue;
    ISLANDS_CHECK(RemoveEntry(i, entries[i]));
  }
}

// The row first: so undo knows from the row which entries there may be. Then new entries, which may fail for
// want of pages; removing old ones cannot.
StatusCode SiteTable::ReplaceIndexed(KeyView key, RowView before, RowView after) {
  Entries old_entries, new_entries;
  StatusCode code = MakeEntries(key, before, &old_entries);
  if (code == StatusCode::kOk) code = MakeEntries(key, after, &new_entries);
  if (code != StatusCode::kOk) return code;
  code = rows_.Replace(key, after);
  ISLANDS_CHECK(code == StatusCode::kOk || code == StatusCode::kResourceExhausted);  // it is there: its lock
  if (code != StatusCode::kOk) return code;
  code = InsertEntries(old_entries, new_entries, key.size());
  if (code == StatusCode::kOk) {
    RemoveEntries(old_entries, new_entries);
  } else {
    const UndoScope scope;
    ISLANDS_CHECK(rows_.Replace(key, before) == StatusCode::kOk);
  }
  return code;
}

StatusCode SiteTable::Read(KeyView key, std::vector<std::byte>* row) const {
  return IsKey(key) ? rows_.Read(key, row) : StatusCode::kInvalidArgument;
}

KeyState SiteTable::Find(KeyView key, std::vector<std::byte>* row) const {
  return IsKey(key) ? rows_.Find(key, row) : KeyState::kAbsent;
}

StatusCode SiteTable::Modify(KeyView key, RowPart part, absl::FunctionRef<void(std::span<std::byte>)> change,
                             Lookup* hint) {
  if (!IsKey(key)) return StatusCode::kInvalidArgument;
  if (indexes_.empty() || !definition_.Indexes(part.offset, part.bytes)) {
    return rows_.Modify(key, part, change, hint);
  }
  // The caller's lock on the row keeps it as it is read here until it is replaced.
  std::vector<std::byte> before;
  if (const StatusCode code = rows_.Read(key, &before); code != StatusCode::kOk) return code;
  if (!part.Within(before.size())) return StatusCode::kInvalidArgument;
  std::vector<std::byte> after = before;
  change(after);
  return ReplaceIndexed(key, before, after);
}

StatusCode SiteTable::Insert(KeyView key, RowView row, std::optional<uint64_t> expected, Lookup* hint) {
  if (!IsKey(key) || !FitsRow(row)) return StatusCode::kInvalidArgument;
  if (indexes_.empty()) return rows_.Insert(key, row, expected, hint);
  Entries entries;
  std::vector<std::byte> before;
  if (const StatusCode code = MakeEntries(key, row, &entries); code != StatusCode::kOk) return code;
  const bool ghost = rows_.Find(key, &before) == KeyState::kGhost;
  if (const StatusCode code = rows_.Insert(key, row, expected); code != StatusCode::kOk) return code;
  const StatusCode code = InsertEntries({}, entries, key.size());
  if (code == StatusCode::kOk) return code;
  if (ghost) {
    const UndoScope scope;
    ISLANDS_CHECK(rows_.Replace(key, before) == StatusCode::kOk);
  }
  // A ghost, even if there was none: a scan may have met the key since, and locked the gap below it.
  ISLANDS_CHECK(rows_.SetGhost(key, true) == StatusCode::kOk);
  if (!ghost && Planted(PlantedBug::kRemoveRefusedInsert)) (void)rows_.Remove(key);
  return code;
}

StatusCode SiteTable::Replace(KeyView key, RowView row, Lookup* hint) {
  if (!IsKey(key) || !FitsRow(row)) return StatusCode::kInvalidArgument;
  if (indexes_.empty()) return rows_.Replace(key, row, hint);
  std::vector<std::byte> before;
  if (const StatusCode code = rows_.Read(key, &before); code != StatusCode::kOk) return code;
  return ReplaceIndexed(key, before, row);
}

StatusCode SiteTable::MarkGhost(KeyView key) {
  if (!IsKey(key)) return StatusCode::kInvalidArgument;
  if (indexes_.empty()) return rows_.SetGhost(key, true);
  std::vector<std::byte> row;
  Entries entries;
  StatusCode code = rows_.Read(key, &row);
  if (code == StatusCode::kOk) code = MakeEntries(key, row, &entries);
  if (code == StatusCode::kOk) code = rows_.SetGhost(key, true);
  if (code == StatusCode::kOk) RemoveEntries(entries, {});
  return code;
}

StatusCode SiteTable::RemoveGhost(KeyView key) {
  return IsKey(key) ? rows_.Remove(key, /*only_ghost=*/true) : StatusCode::kInvalidArgument;
}

StatusCode SiteTable::IndexScan(IndexId index, KeyView first, KeyView end, bool reverse,
                                absl::FunctionRef<bool(KeyView primary_key)> visit,
                                std::vector<uint64_t>* missing) const {
  if (index >= indexes_.size() || !IsBound(first) || !IsBound(end)) return StatusCode::kInvalidArgument;
  indexes_[index]->Scan(
      first, end, reverse, [&](KeyView entry, RowView row) { return visit(PrimaryKeyOf(entry, row)); },
      missing, BTree::Reach::kAgain);
  return StatusCode::kOk;
}

size_t SiteTable::levels() const {
  size_t levels = rows_.levels();
  for (const auto& index : indexes_) levels += index->levels();
  return levels;
}

void SiteTable::Clear() {
  rows_.Clear();
  for (const auto& index : indexes_) index->Clear();
}

// Every row's entry is in the index, and there are as many entries as rows: so no entry is without its row.
// FAILED_PRECONDITION: the trees are whole, and do not agree; so it is too while an operation is under way.
absl::Status SiteTable::CheckIndex(size_t i, uint64_t rows) const {
  const IndexDefinition& index = definition_.indexes[i];
  const BTree& tree = *indexes_[i];
  absl::Status status;
  const auto fault = [&](KeyView key, std::string_view what) {
    return absl::FailedPreconditionError(fmt::format("table '{}', index '{}', row {}: {}", definition_.name,
                                                     index.name,
                                                     partitioner::KeyToString(definition_.key, key), what));
  };
  std::vector<std::byte> found;
  rows_.Scan({}, {}, false, [&](KeyView key, RowView row) {
    const absl::StatusOr<std::string> entry = IndexEntry(definition_, index, key, row);
    if (!entry.ok()) {
      status = fault(key, std::string(entry.status().message()));
    } else if (tree.Read(AsKey(*entry), &found) != StatusCode::kOk) {
      status = fault(key, "has no entry");
    } else if (CompareKeys(PrimaryKeyOf(AsKey(*entry), found), key) != 0) {
      status = fault(key, "its entry names another row");
    }
    return status.ok();
  });
  if (!status.ok()) return status;
  if (tree.Count() != rows) {
    return absl::FailedPreconditionError(fmt::format("table '{}', index '{}': {} entries for {} rows",
                                                     definition_.name, index.name, tree.Count(), rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SiteTable::Check() const {
  const absl::StatusOr<BTree::Totals> rows = rows_.Check();
  if (!rows.ok()) return rows.status();
  uint64_t pages = rows->pages;
  for (size_t i = 0; i < indexes_.size(); ++i) {
    const absl::StatusOr<BTree::Totals> entries = indexes_[i]->Check();
    if (!entries.ok()) return entries.status();
    pages += entries->pages;
  }
  for (size_t i = 0; i < indexes_.size(); ++i) {  // all trees are trees
    if (absl::Status agree = CheckIndex(i, rows->rows); !agree.ok()) return agree;
  }
  return pages;
}

}  // namespace islands::storage
