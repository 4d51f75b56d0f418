#include "instance/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace islands::instance {

using storage::LockMode;
using storage::LockName;
using storage::LockResult;

static_assert(std::endian::native == std::endian::little, "counters in rows are little endian");

namespace {

Failure FailureOfLock() {
  return {AbortReason::kDeadlock, absl::AbortedError("chosen as victim of a deadlock")};
}

Failure FailureOfStorage(absl::StatusCode code, const storage::TableDefinition& table) {
  if (code == absl::StatusCode::kResourceExhausted) {
    return {AbortReason::kStorage,
            absl::ResourceExhaustedError(
                fmt::format("table '{}': the buffer pool is full; raise storage.buffer_pool", table.name))};
  }
  if (code == absl::StatusCode::kOutOfRange) {
    return {AbortReason::kProcedure,
            absl::OutOfRangeError(
                fmt::format("table '{}': the scan's result is too large; scan with a limit", table.name))};
  }
  return {AbortReason::kProcedure,
          absl::Status(code, fmt::format("table '{}': the row or the bytes written do not fit", table.name))};
}

bool IsResult(absl::StatusCode code) {
  return code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound ||
         code == absl::StatusCode::kAlreadyExists;
}

}  // namespace

Progress Executor::Run(Branch& branch, Batch& batch, std::span<const RoutedOperation> operations,
                       size_t* cursor, Failure* failure) {
  for (; *cursor < operations.size(); ++*cursor) {
    const RoutedOperation& routed = operations[*cursor];
    const Target target{branch, batch, routed.operation, routed.site, routed.last_site};
    switch (Lock(target)) {
      case LockResult::kGranted:
        break;
      case LockResult::kWaiting:
        return Progress::kWaiting;
      case LockResult::kDeadlock:
        *failure = FailureOfLock();
        return Progress::kFailed;
    }
    const absl::StatusCode code = Apply(target);
    if (!IsResult(code)) {
      *failure = FailureOfStorage(code, catalog_.table(batch.operation(routed.operation).table));
      return Progress::kFailed;
    }
    batch.result(routed.operation).code = code;
  }
  return Progress::kDone;
}

void Executor::Commit(Branch& branch, std::vector<storage::Wakeup>* wakeups) {
  branch.undo.Clear();
  locks_.ReleaseAll(branch.locks, wakeups);
}

void Executor::Rollback(Branch& branch, std::vector<storage::Wakeup>* wakeups) {
  branch.undo.Rollback(store_);
  locks_.ReleaseAll(branch.locks, wakeups);
}

LockResult Executor::Lock(const Target& target) {
  if (target.site == storage::kReplicatedSite) return LockResult::kGranted;  // read-only after loading
  switch (target.batch.operation(target.number).kind) {
    case OperationKind::kRead:
      return LockKey(target, LockMode::kIS, LockMode::kS);
    case OperationKind::kScan:
    case OperationKind::kIndexScan:
      return LockSites(target);
    default:
      return LockKey(target, LockMode::kIX, LockMode::kX);
  }
}

LockResult Executor::LockKey(const Target& target, LockMode intention, LockMode mode) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  storage::LockOwner& owner = target.branch.locks;
  const LockResult result = locks_.Acquire(owner, LockName{operation.table, target.site, 0}, intention);
  if (result != LockResult::kGranted) return result;
  const KeyView key = target.batch.View(operation.key);
  const LockName name{operation.table, target.site, storage::KeyHash(key.data(), key.size())};
  return locks_.Acquire(owner, name, mode);
}

LockResult Executor::LockSites(const Target& target) {
  const TableId table = target.batch.operation(target.number).table;
  for (uint32_t site = target.site; site <= target.last_site; ++site) {
    const LockResult result = locks_.Acquire(target.branch.locks, LockName{table, site, 0}, LockMode::kS);
    if (result != LockResult::kGranted) return result;
  }
  return LockResult::kGranted;
}

absl::StatusCode Executor::Apply(const Target& target) {
  switch (target.batch.operation(target.number).kind) {
    case OperationKind::kRead:
    case OperationKind::kReadForUpdate:
      return Read(target);
    case OperationKind::kAdd:
      return Add(target);
    case OperationKind::kWrite:
      return Write(target);
    case OperationKind::kInsert:
      return Insert(target);
    case OperationKind::kReplace:
      return Replace(target);
    case OperationKind::kDelete:
      return Delete(target);
    case OperationKind::kScan:
      return Scan(target);
    case OperationKind::kIndexScan:
      return IndexScan(target);
  }
  return absl::StatusCode::kInvalidArgument;
}

absl::StatusCode Executor::Read(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const absl::StatusCode code =
      store_.Read(operation.table, target.site, target.batch.View(operation.key), &row_);
  if (code == absl::StatusCode::kOk) target.batch.result(target.number).row = target.batch.Store(row_);
  return code;
}

absl::StatusCode Executor::Add(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  int64_t before = 0;
  int64_t after = 0;
  bool fits = false;
  const absl::StatusCode code = store_.Modify(
      operation.table, target.site, target.batch.View(operation.key), [&](std::span<std::byte> row) {
        fits = row.size() >= sizeof(before) && operation.offset <= row.size() - sizeof(before);
        if (!fits) return;
        std::memcpy(&before, row.data() + operation.offset, sizeof(before));
        // Unsigned, so that a counter that overflows wraps instead of being undefined.
        after = static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(operation.delta));
        std::memcpy(row.data() + operation.offset, &after, sizeof(after));
      });
  if (code != absl::StatusCode::kOk) return code;
  if (!fits) return absl::StatusCode::kInvalidArgument;
  target.branch.undo.RecordWrite(operation.table, target.site, target.batch.View(operation.key),
                                 operation.offset, std::as_bytes(std::span(&before, 1)));
  target.batch.result(target.number).row = target.batch.Store(std::as_bytes(std::span(&after, 1)));
  return code;
}

absl::StatusCode Executor::Write(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const RowView bytes = target.batch.View(operation.row);
  bool fits = false;
  const absl::StatusCode code = store_.Modify(
      operation.table, target.site, target.batch.View(operation.key), [&](std::span<std::byte> row) {
        fits = operation.offset <= row.size() && bytes.size() <= row.size() - operation.offset;
        if (!fits) return;
        const auto at = row.subspan(operation.offset, bytes.size());
        row_.assign(at.begin(), at.end());
        std::copy(bytes.begin(), bytes.end(), at.begin());
      });
  if (code != absl::StatusCode::kOk) return code;
  if (!fits) return absl::StatusCode::kInvalidArgument;
  target.branch.undo.RecordWrite(operation.table, target.site, target.batch.View(operation.key),
                                 operation.offset, row_);
  return code;
}

absl::StatusCode Executor::Insert(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  const RowView row = target.batch.View(operation.row);
  const uint32_t row_bytes = catalog_.table(operation.table).row_bytes;
  if (row_bytes != 0 && row.size() != row_bytes) return absl::StatusCode::kInvalidArgument;
  const absl::StatusCode code = store_.Insert(operation.table, target.site, key, row);
  if (code == absl::StatusCode::kOk) target.branch.undo.RecordInsert(operation.table, target.site, key);
  return code;
}

absl::StatusCode Executor::Replace(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  const RowView row = target.batch.View(operation.row);
  const uint32_t row_bytes = catalog_.table(operation.table).row_bytes;
  if (row_bytes != 0 && row.size() != row_bytes) return absl::StatusCode::kInvalidArgument;
  absl::StatusCode code = store_.Read(operation.table, target.site, key, &row_);
  if (code != absl::StatusCode::kOk) return code;
  code = store_.Replace(operation.table, target.site, key, row);
  if (code == absl::StatusCode::kOk)
    target.branch.undo.RecordReplace(operation.table, target.site, key, row_);
  return code;
}

absl::StatusCode Executor::Delete(const Target& target) {
  const Batch::Operation& operation = target.batch.operation(target.number);
  const KeyView key = target.batch.View(operation.key);
  absl::StatusCode code = store_.Read(operation.table, target.site, key, &row_);
  if (code != absl::StatusCode::kOk) return code;
  code = store_.Remove(operation.table, target.site, key);
  if (code == absl::StatusCode::kOk) target.branch.undo.RecordRemove(operation.table, target.site, key, row_);
  return code;
}

absl::StatusCode Executor::Scan(const Target& target) {
  const Batch::Operation operation = target.batch.operation(target.number);
  Batch& batch = target.batch;
  Batch::Result& result = batch.result(target.number);
  result.first_scanned = static_cast<uint32_t>(batch.scanned().size());
  result.scanned = 0;
  // Bounds are copied: storing rows may move the batch's bytes under them.
  const KeyView first_view = batch.View(operation.key), end_view = batch.View(operation.end_key);
  const std::vector<std::byte> first(first_view.begin(), first_view.end()),
      end(end_view.begin(), end_view.end());
  const auto full = [&] { return operation.limit != 0 && result.scanned >= operation.limit; };
  const uint32_t count = target.last_site - target.site + 1;
  for (uint32_t n = 0; n < count && !full(); ++n) {
    const uint32_t site = operation.reverse ? target.last_site - n : target.site + n;
    const absl::StatusCode code =
        store_.Scan(operation.table, site, first, end, operation.reverse, [&](KeyView key, RowView row) {
          const Batch::Bytes key_at = batch.Store(key);
          batch.scanned().push_back({key_at, batch.Store(row)});
          ++result.scanned;
          return !full() && batch.stored_bytes() <= Batch::kMaxBytes;
        });
    if (code != absl::StatusCode::kOk) return code;
    if (batch.stored_bytes() > Batch::kMaxBytes) return absl::StatusCode::kOutOfRange;
  }
  return absl::StatusCode::kOk;
}

absl::StatusCode Executor::IndexScan(const Target& target) {
  const Batch::Operation operation = target.batch.operation(target.number);
  Batch& batch = target.batch;
  Batch::Result& result = batch.result(target.number);
  result.first_scanned = static_cast<uint32_t>(batch.scanned().size());
  result.scanned = 0;
  keys_.clear();
  uint32_t found = 0;
  const absl::StatusCode code =
      store_.IndexScan(operation.table, operation.index, target.site, batch.View(operation.key),
                       batch.View(operation.end_key), operation.reverse, [&](KeyView key) {
                         const auto bytes = static_cast<uint16_t>(key.size());
                         const auto prefix = std::as_bytes(std::span(&bytes, 1));
                         keys_.insert(keys_.end(), prefix.begin(), prefix.end());
                         keys_.insert(keys_.end(), key.begin(), key.end());
                         if (keys_.size() > Batch::kMaxBytes) return false;
                         return operation.limit == 0 || ++found < operation.limit;
                       });
  if (code != absl::StatusCode::kOk) return code;
  if (keys_.size() > Batch::kMaxBytes) return absl::StatusCode::kOutOfRange;
  for (size_t at = 0; at < keys_.size();) {
    uint16_t bytes = 0;
    std::memcpy(&bytes, keys_.data() + at, sizeof(bytes));
    const KeyView key(keys_.data() + at + sizeof(bytes), bytes);
    at += sizeof(bytes) + bytes;
    if (store_.Read(operation.table, target.site, key, &row_) != absl::StatusCode::kOk) continue;
    const Batch::Bytes key_at = batch.Store(key);
    batch.scanned().push_back({key_at, batch.Store(row_)});
    ++result.scanned;
    if (batch.stored_bytes() > Batch::kMaxBytes) return absl::StatusCode::kOutOfRange;
  }
  return absl::StatusCode::kOk;
}

}  // namespace islands::instance
