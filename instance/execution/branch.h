// A transaction's part on one island: the locks it holds there and what it takes to undo its changes.
//
// Thread safety: none; a branch lives on one worker.
//
// Invariants:
//  1. Every change in the store made through a branch has an undo entry until Commit or Rollback, and had it
//     when anybody could see the change first. An entry may be there twice, or for a change that did not come
//     to be: it undoes what it finds.
//  2. After Commit or Rollback the branch holds no locks and no undo entries, and can be used again without
//     allocation.
//  3. Since a branch that takes no locks (`quiet`) became so nobody else has run on its island. It has in
//     `touched` what it would have locked since, and no other branch has a lock in the way of that. It never
//     is quiet when its coroutine is suspended (Executor::EndQuiet).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "instance/locks/lock_table.h"
#include "instance/log/entry.h"
#include "instance/storage/files/page_fetcher.h"
#include "instance/storage/store.h"
#include "instance/workload/operation.h"

namespace islands::instance {

class UndoLog {
  enum class Kind : uint8_t { kWrite, kInsert, kGhost, kRevive, kReplace, kDelete };

 public:
  static constexpr size_t kMostHeadBytes = 26;  // of an entry in the log: a byte, five varints of 32 bits
  static constexpr size_t kMostEntryBytes =
      kMostHeadBytes + partitioner::kMaxKeyBytes + storage::kMaxRowBytes;
  static constexpr size_t kMostBytes = 2u << 30;  // far above what ExecutorOptions let in

  void RecordWrite(TableId table, uint32_t site, KeyView key, uint32_t offset, RowView before);
  void RecordInsert(TableId table, uint32_t site, KeyView key);
  // An insert that failed and left a ghost of its key.
  void RecordGhost(TableId table, uint32_t site, KeyView key);
  // An insert that brought a ghost back; `before` are the ghost's bytes.
  void RecordRevive(TableId table, uint32_t site, KeyView key, RowView before);
  void RecordReplace(TableId table, uint32_t site, KeyView key, RowView before);
  void RecordDelete(TableId table, uint32_t site, KeyView key);
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }

  // For the log: the entries from number `first` to below `end`, oldest first. Each is
  //   kind (1 byte); varints: table, site, offset, bytes of key, bytes of row before; key, row
  void Encode(size_t first, size_t end, std::vector<std::byte>* out) const;
  // Adds what Encode wrote. DATA_LOSS: it is not that.
  absl::Status Decode(std::span<const std::byte> bytes);
  // Whether all of it is about tables and sites that are there.
  bool Fits(const storage::Store& store) const;
  // Whether Rollback finds everywhere what it takes for granted. For entries that come from a log: pages that
  // a disk has brought back may be old states of themselves. If not, `complain` hears of the first such row.
  bool Suits(const storage::Store& store,
             absl::FunctionRef<void(TableId table, uint32_t site, KeyView key)> complain) const;
  // The last entries are not needed any more: what they would have undone did not come to be, or has been
  // undone before the island died.
  void DropLast(size_t left);
  // Of entries, keys and rows. Positions are 32 bits: who records keeps far below that (ExecutorOptions).
  size_t bytes() const { return bytes_.size() + entries_.size() * sizeof(Entry); }
  // Encode makes no fewer: of each entry its kind and five varints, besides.
  size_t LeastBytesInLog() const { return bytes_.size() + 6 * entries_.size(); }
  struct EntrySize {
    TableId table;
    size_t bytes;     // in the log, at most
    bool comes_back;  // what is undone may need a page more than it had
  };
  EntrySize SizeOf(size_t number) const {
    const Entry& entry = entries_[number];
    return {entry.table, kMostHeadBytes + entry.key_bytes + entry.row_bytes,
            entry.kind != Kind::kInsert && entry.kind != Kind::kGhost};
  }
  void Clear();
  // Newest first. The entries stay, for VisitGhosts, until Clear. `after_each` hears how many are left.
  void Rollback(storage::Store& store, absl::FunctionRef<void(size_t left)> after_each);
  // Every key that was changed, once for each change.
  void VisitKeys(absl::FunctionRef<void(TableId table, uint32_t site, KeyView key)> visit) const;
  // Keys this branch may have left as ghosts: those it deleted, or, rolled back, those it tried to insert.
  void VisitGhosts(bool committed,
                   absl::FunctionRef<void(TableId table, uint32_t site, KeyView key)> visit) const;

 private:
  struct Entry {
    Kind kind;
    TableId table;
    uint32_t site;
    uint32_t offset;
    uint32_t key_at, key_bytes, row_at, row_bytes;  // in bytes_
  };
  // What is in the place of a row, as far as undo cares.
  struct Found {
    storage::KeyState state;
    size_t bytes;
  };
  // As Undo leaves it. False: Undo would not get that far.
  static bool Try(const Entry& entry, Found* found);
  void Record(Kind kind, TableId table, uint32_t site, KeyView key, uint32_t offset, RowView before);
  void Undo(const Entry& entry, storage::Store& store);

  std::vector<Entry> entries_;
  std::vector<std::byte> bytes_;
  bool any_ghosts_ = false;
};

struct Branch {
  struct Touched {
    locks::LockName name;
    locks::LockMode mode;
  };

  locks::LockOwner locks;
  UndoLog undo;
  bool open = false;       // has carried out an operation, and has not ended
  bool quiet = false;      // takes no locks
  bool published = false;  // has left records in the log that do not end it
  bool decided = false;    // one that says that it has committed
  // Whose procedure it is and what that was given, if it is to be in the log instead of what it has changed;
  // good until Commit. No workload: it is not.
  log::Command command;
  size_t undo_published = 0;  // entries of `undo` that are in them, and their bytes
  size_t undo_published_bytes = 0;
  bool foreign = false;          // another island's transaction; set before its first operation
  size_t undo_reserved = 0;      // entries of `undo` for which there is room in the log,
  size_t log_reserved = 0;       // and how much that is
  bool scanned = false;          // holds gaps
  std::vector<Touched> touched;  // while quiet
  storage::PagesWanted pages;    // of a paged store

  bool wrote() const { return !undo.empty(); }
};

}  // namespace islands::instance
