// One island's rows: a buffer pool, and for every table and site of the island a B+tree, with the site-local
// trees of its secondary indexes kept in step.
//
// Transactions, locks and undo are the caller's: Store changes what it is told to at once. The caller holds
// the row locks that make concurrent calls on one key meaningful; page latches make all concurrent calls
// safe.
//
// Thread safety: row operations from every worker; Truncate only while no other call is active. With
// StoreOptions::alone no two calls may overlap.
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
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/storage/btree/btree.h"
#include "instance/storage/catalog.h"
#include "runtime/file_system.h"

namespace islands::storage {

struct StoreOptions {
  uint32_t island = 0;
  partitioner::SiteRun sites;  // the island's own
  uint64_t pool_bytes = 64u << 20;
  bool alone = false;  // one thread at a time calls the store: no latches
  std::string data_directory;
  // Called once with the pool's reserved region before any page is touched: where the island binds memory to
  // its nodes.
  absl::FunctionRef<void(void* address, size_t bytes)>* bind_memory = nullptr;
};

struct PoolUsage {
  uint64_t resident_pages = 0;
  uint64_t capacity_pages = 0;
  const void* region = nullptr;
  uint64_t region_bytes = 0;
};

// Codes: OK, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED (the pool is full; no row and no index changed),
// INVALID_ARGUMENT (key empty or too long, row of another length than the table's row_bytes or too long, a
// site of another island, a new key outside its site).
class Store {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Create(const Catalog& catalog, const StoreOptions& options,
                                                       runtime::FileSystem& files);  // `catalog` outlives it
  ~Store();

  // Hands the row to `take`, maybe several times: only the last counts, and only with OK.
  absl::StatusCode Read(TableId table, uint32_t site, KeyView key, Lookup* hint,
                        absl::FunctionRef<void(TornBytes row)> take);
  // Copies the row; `row` keeps its capacity between calls, so a warm buffer is not reallocated.
  absl::StatusCode Read(TableId table, uint32_t site, KeyView key, std::vector<std::byte>* row);
  // Runs `change` once on the row's bytes, in place under the page's exclusive latch; the length cannot
  // change. Where `part`, the bytes that may change, is in an index, on a copy that then replaces the row.
  struct Part {
    size_t offset = 0;
    size_t bytes = 0;
  };
  absl::StatusCode Modify(TableId table, uint32_t site, KeyView key, Part part,
                          absl::FunctionRef<void(std::span<std::byte>)> change, Lookup* hint = nullptr);
  // A ghost of this key becomes the row. `expected`, and ABORTED: as BTree::Insert. RESOURCE_EXHAUSTED may
  // leave a ghost of a new key, to be buried (RemoveGhost): others may have locked the gap below it.
  absl::StatusCode Insert(TableId table, uint32_t site, KeyView key, RowView row,
                          std::optional<uint64_t> expected = {});
  absl::StatusCode Replace(TableId table, uint32_t site, KeyView key, RowView row);
  absl::StatusCode Remove(TableId table, uint32_t site, KeyView key);

  // Deleting in two steps (btree.h): MarkGhost hides the row and takes its index entries away, Unghost brings
  // all of it back, RemoveGhost gives the ghost's room back. NOT_FOUND: there is no such row, or ghost.
  absl::StatusCode MarkGhost(TableId table, uint32_t site, KeyView key);
  absl::StatusCode Unghost(TableId table, uint32_t site, KeyView key);
  absl::StatusCode RemoveGhost(TableId table, uint32_t site, KeyView key);
  // What is there under this key, its bytes (a ghost's too) in `row`. INVALID_ARGUMENT shows as kAbsent.
  KeyState Find(TableId table, uint32_t site, KeyView key, std::vector<std::byte>* row);
  // The tree that holds the rows of this table and site, for those who lock gaps or look ahead;
  // null if it is not here.
  const BTree* Rows(TableId table, uint32_t site) const;

  // Rows with first <= key < end of one site, in key order or reverse, until `visit` returns false. `end`
  // empty = no upper bound. Key and row are valid during the call only.
  absl::StatusCode Scan(TableId table, uint32_t site, KeyView first, KeyView end, bool reverse,
                        absl::FunctionRef<bool(KeyView key, RowView row)> visit);
  // The same over a secondary index, bounds being encoded index components; visits primary keys in index
  // order.
  absl::StatusCode IndexScan(TableId table, IndexId index, uint32_t site, KeyView first, KeyView end,
                             bool reverse, absl::FunctionRef<bool(KeyView primary_key)> visit);

  // Empties a table on all sites of this island.
  absl::Status Truncate(TableId table);
  uint64_t CountRows(TableId table);

  PoolUsage Usage() const;
  // Walks every tree and checks order, fill, links and index agreement; for tests. Quiet store only.
  absl::Status Check();

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace islands::storage
