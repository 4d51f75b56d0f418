// The primitive operations transactions are made of, and the batch that carries them to where the rows are.
//
// A procedure fills a Batch and awaits Transaction::Execute: operations for rows of this island run here,
// those for each other island are shipped in one message. All operations of a batch are independent of each
// other's results.
//
// Thread safety: none; a Batch belongs to one transaction. Memory is kept between uses: after warm-up filling
// a batch and storing its results allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/catalog.h"

namespace islands::instance {

using storage::IndexId;
using storage::KeyView;
using storage::RowView;
using storage::TableId;

enum class OperationKind : uint8_t {
  kRead = 1,
  kReadForUpdate = 2,  // reads under the lock an update of the row needs
  kAdd = 3,        // adds `delta` to the little-endian int64 at `offset`; the result row is its new 8 bytes
  kWrite = 4,      // overwrites bytes at `offset`
  kInsert = 5,     // ALREADY_EXISTS if present
  kReplace = 6,    // the whole row, another length allowed; NOT_FOUND if absent
  kDelete = 7,     // NOT_FOUND if absent
  kScan = 8,       // rows with key <= k < end_key, in key order (or reverse), at most `limit`
  kIndexScan = 9,  // the same over a secondary index of one site: the site of `site_key`
  kUpdate = 10,  // what kAdd does, by reading the whole row and writing all of it back: only the lock on the
                 // row, no latch, keeps others out between the two
  kPut = 11,     // the whole row, whether there is one or not
};

inline bool IsWrite(OperationKind kind) {
  return kind == OperationKind::kAdd || kind == OperationKind::kUpdate || kind == OperationKind::kWrite ||
         kind == OperationKind::kInsert || kind == OperationKind::kReplace ||
         kind == OperationKind::kDelete || kind == OperationKind::kPut;
}

class Batch {
 public:
  static constexpr size_t kFirstBytes = 512;      // a gateway's batches are used once, with a row or two
  static constexpr size_t kKeptBytes = 1u << 20;  // memory an idle batch holds on to
  static constexpr size_t kMaxBytes = 16u << 20;  // of keys and rows, results included: more is refused

  // An operation or a result refers to bytes in `bytes_`.
  struct Bytes {
    uint32_t offset = 0;
    uint32_t size = 0;
  };
  struct Operation {
    OperationKind kind{};
    bool reverse = false;
    TableId table = 0;
    IndexId index = 0;
    uint32_t offset = 0;  // within the row
    uint32_t limit = 0;   // scans; 0 = none
    int64_t delta = 0;
    Bytes key;
    Bytes end_key;
    Bytes row;
    Bytes site_key;  // kIndexScan: a primary key that names the site
  };
  struct ScannedRow {
    Bytes key;
    Bytes row;
  };
  struct Result {
    absl::StatusCode code = absl::StatusCode::kUnknown;
    Bytes row;
    uint32_t first_scanned = 0;  // into scanned_
    uint32_t scanned = 0;
  };

  void Clear() {
    operations_.clear();
    results_.clear();
    scanned_.clear();
    used_ = 0;
    last_elsewhere_ = false;
    if (capacity_ > kKeptBytes) bytes_.reset(), capacity_ = 0;  // a large scan is an exception
  }

  // Each returns the operation's number, which is also its result's.
  size_t Read(TableId table, KeyView key) { return AddKeyed(OperationKind::kRead, table, key); }
  size_t ReadForUpdate(TableId table, KeyView key) {
    return AddKeyed(OperationKind::kReadForUpdate, table, key);
  }
  size_t Add(TableId table, KeyView key, uint32_t offset, int64_t delta) {
    return AddCounted(OperationKind::kAdd, table, key, offset, delta);
  }
  size_t Update(TableId table, KeyView key, uint32_t offset, int64_t delta) {
    return AddCounted(OperationKind::kUpdate, table, key, offset, delta);
  }
  size_t Write(TableId table, KeyView key, uint32_t offset, RowView bytes) {
    const Memory moved_from = MakeRoom(key.size() + bytes.size());
    const size_t i = AddKeyed(OperationKind::kWrite, table, key);
    operations_[i].offset = offset;
    operations_[i].row = Store(bytes);
    return i;
  }
  size_t Insert(TableId table, KeyView key, RowView row) {
    return AddRow(OperationKind::kInsert, table, key, row);
  }
  size_t Replace(TableId table, KeyView key, RowView row) {
    return AddRow(OperationKind::kReplace, table, key, row);
  }
  size_t Put(TableId table, KeyView key, RowView row) { return AddRow(OperationKind::kPut, table, key, row); }
  size_t Delete(TableId table, KeyView key) { return AddKeyed(OperationKind::kDelete, table, key); }
  size_t Scan(TableId table, KeyView first, KeyView end, uint32_t limit = 0, bool reverse = false) {
    const Memory moved_from = MakeRoom(first.size() + end.size());
    const size_t i = AddKeyed(OperationKind::kScan, table, first);
    operations_[i].end_key = Store(end);
    operations_[i].limit = limit;
    operations_[i].reverse = reverse;
    return i;
  }
  size_t IndexScan(TableId table, IndexId index, KeyView site_key, KeyView first, KeyView end,
                   uint32_t limit = 0, bool reverse = false) {
    const Memory moved_from = MakeRoom(first.size() + end.size() + site_key.size());
    const size_t i = AddKeyed(OperationKind::kIndexScan, table, first);
    operations_[i].index = index;
    operations_[i].site_key = Store(site_key);
    operations_[i].end_key = Store(end);
    operations_[i].limit = limit;
    operations_[i].reverse = reverse;
    return i;
  }

  // Says that no later batch of the transaction has operations on other islands. Those that hold changes of
  // it then prepare at once and vote with their answer, which saves the commit an exchange of messages; a
  // later batch that has such operations fails the transaction. On one island it changes nothing.
  void LastElsewhere() { last_elsewhere_ = true; }
  bool last_elsewhere() const { return last_elsewhere_; }

  size_t size() const { return operations_.size(); }
  bool empty() const { return operations_.empty(); }
  const Operation& operation(size_t i) const { return operations_[i]; }

  // After Execute returned OK: what became of operation i. OK, NOT_FOUND or ALREADY_EXISTS.
  absl::StatusCode code(size_t i) const { return results_[i].code; }
  RowView row(size_t i) const { return View(results_[i].row); }
  size_t scanned_rows(size_t i) const { return results_[i].scanned; }
  KeyView scanned_key(size_t i, size_t n) const { return View(scanned_[results_[i].first_scanned + n].key); }
  RowView scanned_row(size_t i, size_t n) const { return View(scanned_[results_[i].first_scanned + n].row); }

  // For the execution engine.
  RowView View(Bytes at) const { return RowView(bytes_.get() + at.offset, at.size); }
  Bytes Store(RowView bytes) {
    const Memory moved_from = MakeRoom(bytes.size());
    const Bytes at{static_cast<uint32_t>(used_), static_cast<uint32_t>(bytes.size())};
    if (bytes.size() == sizeof(uint64_t)) {  // most keys: no call
      std::memcpy(bytes_.get() + used_, bytes.data(), sizeof(uint64_t));
    } else if (!bytes.empty()) {
      std::memcpy(bytes_.get() + used_, bytes.data(), bytes.size());
    }
    used_ += bytes.size();
    return at;
  }
  // Views stay valid until so many more bytes are stored.
  void Reserve(size_t more) { (void)MakeRoom(more); }
  // Room that was reserved, for the caller to fill.
  std::byte* StoreReserved(size_t bytes, Bytes* at) {
    *at = {static_cast<uint32_t>(used_), static_cast<uint32_t>(bytes)};
    used_ += bytes;
    return bytes_.get() + at->offset;
  }
  size_t stored_bytes() const { return used_; }
  // Where results end now; Rewind forgets those stored since.
  struct Mark {
    size_t bytes;
    size_t scanned;
  };
  Mark MarkResults() const { return {used_, scanned_.size()}; }
  void Rewind(const Mark& mark) {
    used_ = mark.bytes;
    scanned_.resize(mark.scanned);
  }
  void ResetResults() { results_.assign(operations_.size(), Result{}); }
  Result& result(size_t i) { return results_[i]; }
  std::vector<ScannedRow>& scanned() { return scanned_; }

 private:
  using Memory = std::unique_ptr<std::byte[]>;

  // Room for `more` bytes. If the buffer has to move, the old one is returned: arguments may be views of this
  // very batch (a row that was read, written under another key), and the caller keeps them alive until it is
  // done.
  [[nodiscard]] Memory MakeRoom(size_t more) { return capacity_ - used_ >= more ? nullptr : Grow(more); }
  Memory Grow(size_t more) {
    const size_t wanted = std::max({kFirstBytes, 2 * capacity_, used_ + more});
    auto grown = std::make_unique_for_overwrite<std::byte[]>(wanted);
    if (used_ != 0) std::memcpy(grown.get(), bytes_.get(), used_);
    capacity_ = wanted;
    bytes_.swap(grown);
    return grown;
  }

  size_t AddKeyed(OperationKind kind, TableId table, KeyView key) {
    const Bytes at = Store(key);
    Operation& operation = operations_.emplace_back();
    operation.kind = kind;
    operation.table = table;
    operation.key = at;
    return operations_.size() - 1;
  }
  size_t AddRow(OperationKind kind, TableId table, KeyView key, RowView row) {
    const Memory moved_from = MakeRoom(key.size() + row.size());
    const size_t i = AddKeyed(kind, table, key);
    operations_[i].row = Store(row);
    return i;
  }
  size_t AddCounted(OperationKind kind, TableId table, KeyView key, uint32_t offset, int64_t delta) {
    const size_t i = AddKeyed(kind, table, key);
    operations_[i].offset = offset;
    operations_[i].delta = delta;
    return i;
  }

  std::vector<Operation> operations_;
  std::vector<Result> results_;
  std::vector<ScannedRow> scanned_;
  Memory bytes_;
  size_t used_ = 0;
  size_t capacity_ = 0;
  bool last_elsewhere_ = false;
};

}  // namespace islands::instance
