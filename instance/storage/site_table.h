// The rows of one table on one site: a B+tree, with the trees of the table's secondary indexes kept in step.
// Store::At hands it out, once for each operation.
//
// Transactions, locks and undo are the caller's: a SiteTable changes what it is told to at once. The caller
// holds the row locks that make concurrent calls on one key meaningful; page latches make all concurrent
// calls safe.
//
// Thread safety: all functions from every worker; Clear and Check only while no other call is active. Of a
// store that is alone (StoreOptions) no two calls may overlap.
//
// Invariants:
//  1. Every entry of a secondary index names an existing row (no ghost) whose fields give that entry, and
//     every row has its entry in each index (while no operation on that row is under way).
//  2. No page latch is held while a callback of the caller runs, except in Modify, whose callback only writes
//     to the span.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/storage/btree/btree.h"
#include "instance/storage/catalog.h"

namespace islands::storage {

// Codes: OK, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED (the pool is full; no row and no index changed),
// INVALID_ARGUMENT (key empty or too long, row of another length than the table's row_bytes or too long, a
// new key outside the site, a part outside the row).
class SiteTable {
 public:
  // Root pages of the rows' tree, and of each index's.
  struct Tree {
    uint32_t id = 0;
    uint64_t root = 0;
  };
  SiteTable(const TableDefinition& definition, SiteSpace* space, Tree rows, const std::vector<Tree>& indexes);
  SiteTable(const SiteTable&) = delete;
  SiteTable& operator=(const SiteTable&) = delete;

  bool FitsRow(RowView row) const {
    return row.size() <= kMaxRowBytes && (definition_.row_bytes == 0 || row.size() == definition_.row_bytes);
  }

  // Several lookups go down their trees side by side, ahead of Read and Modify, which take them as hints; see
  // BTree. Ended by FinishLookups.
  void StartLookup(KeyView key, size_t bytes, Lookup* lookup) const {
    IsKey(key) ? rows_.StartLookup(key, bytes, lookup) : void(*lookup = {});
  }
  void StartInsert(KeyView key, Lookup* lookup) const {
    IsKey(key) ? rows_.StartInsert(key, lookup) : void(*lookup = {});
  }
  void FollowLookup(KeyView key, size_t bytes, Lookup* lookup) const {
    IsKey(key) ? rows_.FollowLookup(key, bytes, lookup) : void(*lookup = {});
  }
  static void FinishLookups(std::span<Lookup> lookups) { BTree::FinishLookups(lookups); }

  // Hands the row to `take(TornBytes)`, maybe several times: only the last counts, and only with OK. kAgain:
  // the hint stays good for a second operation on the same key.
  template <bool kAgain = false, typename Take>
  absl::StatusCode Read(KeyView key, Lookup* hint, Take take) const {
    if (!rows_.IsOf(hint) && !IsKey(key)) [[unlikely]]
      return absl::StatusCode::kInvalidArgument;
    return rows_.Find<kAgain>(key, hint, take) == KeyState::kRow ? absl::StatusCode::kOk
                                                                 : absl::StatusCode::kNotFound;
  }
  // Copies the row; `row` keeps its capacity between calls, so a warm buffer is not reallocated.
  absl::StatusCode Read(KeyView key, std::vector<std::byte>* row) const;
  // What is there under this key, its bytes (a ghost's too) in `row`. INVALID_ARGUMENT shows as kAbsent.
  KeyState Find(KeyView key, std::vector<std::byte>* row) const;

  // Runs `change` once on the row's bytes, in place under the page's exclusive latch; it may write to `part`
  // only. Where `part` is in an index, on a copy that then replaces the row.
  absl::StatusCode Modify(KeyView key, RowPart part, absl::FunctionRef<void(std::span<std::byte>)> change,
                          Lookup* hint = nullptr);
  // A ghost of this key becomes the row. `expected`, and ABORTED: as BTree::Insert. RESOURCE_EXHAUSTED may
  // leave a ghost of a new key, to be buried (RemoveGhost): others may have locked the gap below it.
  absl::StatusCode Insert(KeyView key, RowView row, std::optional<uint64_t> expected = {},
                          Lookup* hint = nullptr);
  absl::StatusCode Replace(KeyView key, RowView row, Lookup* hint = nullptr);

  // Deleting in two steps (btree.h): MarkGhost hides the row and takes its index entries away, RemoveGhost
  // gives the ghost's room back. NOT_FOUND: there is no such row, or ghost.
  absl::StatusCode MarkGhost(KeyView key);
  absl::StatusCode RemoveGhost(KeyView key);

  // Undo of each of them, by whoever still holds the row's lock. An island may have died between a row's
  // change and that of its index entries, or between two steps of an undo: whatever part of the change is
  // there, and whatever part has been undone, the row is as before afterwards. They find room in any case.
  void UndoModify(KeyView key, size_t offset, RowView before);
  void UndoInsert(KeyView key);                  // leaves a ghost, or nothing where there is nothing
  void UndoRevive(KeyView key, RowView before);  // Insert of what was a ghost with these bytes
  void UndoReplace(KeyView key, RowView before);
  void UndoMarkGhost(KeyView key);

  // For those who lock gaps: as BTree's.
  uint64_t key_changes() const { return rows_.key_changes(); }
  BTree::Gap FindGap(KeyView key, Lookup* place, std::vector<std::byte>* ghost, KeyBuffer* next) const {
    if (!IsKey(key)) return {.last = true};  // Insert says what is wrong
    return rows_.FindGap(key, place, ghost, next);
  }

  // Of the trees of its rows and of all its indexes together.
  size_t levels() const;

  // As BTree's.
  void Scan(KeyView first, KeyView end, bool reverse,
            absl::FunctionRef<bool(KeyView key, RowView row)> visit) const {
    rows_.Scan(first, end, reverse, visit);
  }
  void ScanAll(KeyView first, KeyView end, bool reverse,
               absl::FunctionRef<bool(KeyView key, RowView row, bool ghost)> visit,
               std::vector<uint64_t>* missing = nullptr) const {
    rows_.ScanAll(first, end, reverse, visit, missing);
  }
  // Over a secondary index, bounds being encoded index components; visits primary keys in index order.
  // `missing`: as BTree::ScanAll.
  absl::StatusCode IndexScan(IndexId index, KeyView first, KeyView end, bool reverse,
                             absl::FunctionRef<bool(KeyView primary_key)> visit,
                             std::vector<uint64_t>* missing = nullptr) const;
  uint64_t Count() const { return rows_.Count(); }

  void Clear();
  // Walks the trees, and compares rows and entries. Number of pages in use.
  absl::StatusOr<uint64_t> Check() const;

 private:
  // The entries of one row, in the order of the table's indexes.
  using Entries = std::vector<std::string>;

  static bool IsKey(KeyView key) { return !key.empty() && key.size() <= partitioner::kMaxKeyBytes; }
  static bool IsBound(KeyView key) { return key.size() <= kMaxTreeKeyBytes; }
  absl::StatusCode MakeEntries(KeyView key, RowView row, Entries* entries) const;
  // ALREADY_EXISTS: only in undo.
  absl::StatusCode InsertEntry(size_t index, const std::string& entry, size_t key_bytes);
  bool RemoveEntry(size_t index, const std::string& entry);
  // All entries of `after` that differ from `before` (empty: none are there yet), or nothing.
  absl::StatusCode InsertEntries(const Entries& before, const Entries& after, size_t key_bytes);
  void RemoveEntries(const Entries& entries, const Entries& but_not);
  absl::StatusCode ReplaceIndexed(KeyView key, RowView before, RowView after);
  Entries EntriesOf(KeyView key, RowView row) const;  // that is in the table
  void UndoEntries(const Entries& now, const Entries& before, size_t key_bytes);
  absl::Status CheckIndex(size_t index, uint64_t rows) const;

  const TableDefinition& definition_;
  BTree rows_;
  std::vector<std::unique_ptr<BTree>> indexes_;
};

}  // namespace islands::storage
