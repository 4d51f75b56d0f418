// A transaction's part on one island: the locks it holds there and what it takes to undo its changes.
//
// Thread safety: none; a branch lives on one worker.
//
// Invariants:
//  1. Every change in the store made through a branch has an undo entry until Commit or Rollback.
//  2. After Commit or Rollback the branch holds no locks and no undo entries, and can be used again without
//     allocation.
#pragma once

#include <cstdint>
#include <vector>

#include "instance/operation.h"
#include "instance/storage/lock_table.h"
#include "instance/storage/store.h"

namespace islands::instance {

class UndoLog {
 public:
  void RecordWrite(TableId table, uint32_t site, KeyView key, uint32_t offset, RowView before);
  void RecordInsert(TableId table, uint32_t site, KeyView key);
  void RecordReplace(TableId table, uint32_t site, KeyView key, RowView before);
  void RecordRemove(TableId table, uint32_t site, KeyView key, RowView before);
  bool empty() const { return entries_.empty(); }
  void Clear();
  // Newest first; then empty.
  void Rollback(storage::Store& store);

 private:
  enum class Kind : uint8_t { kWrite, kInsert, kReplace, kRemove };
  struct Entry {
    Kind kind;
    TableId table;
    uint32_t site;
    uint32_t offset;
    uint32_t key_at, key_bytes, row_at, row_bytes;  // in bytes_
  };
  void Record(Kind kind, TableId table, uint32_t site, KeyView key, uint32_t offset, RowView before);
  void Undo(const Entry& entry, storage::Store& store);

  std::vector<Entry> entries_;
  std::vector<std::byte> bytes_;
};

struct Branch {
  storage::LockOwner locks;
  UndoLog undo;

  bool wrote() const { return !undo.empty(); }
};

}  // namespace islands::instance
