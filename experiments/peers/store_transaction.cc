#include "experiments/peers/store_transaction.h"

#include <fmt/format.h>

#include <algorithm>

namespace islands::experiments {

using instance::Batch;
using instance::OperationKind;

namespace {

void Copy(RowView bytes, std::vector<std::byte>* to) { to->assign(bytes.begin(), bytes.end()); }

// No key lies between nothing and a zero.
KeyView BoundOf(KeyView bound) {
  static constexpr std::byte kZero{0};
  return bound.empty() ? KeyView(&kZero, 1) : bound;
}

std::string_view TextOf(KeyView key) { return {reinterpret_cast<const char*>(key.data()), key.size()}; }

uint64_t ShapeOf(const Batch& batch) {
  uint64_t shape = 14'695'981'039'346'656'037u;  // FNV-1a
  for (size_t i = 0; i < batch.size(); ++i) {
    for (const uint64_t part :
         {uint64_t{static_cast<uint8_t>(batch.operation(i).kind)}, uint64_t{batch.operation(i).table}})
      shape = (shape ^ part) * 1'099'511'628'211u;
  }
  return shape;
}

bool Writes(const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const OperationKind kind = batch.operation(i).kind;
    if (instance::IsWrite(kind) || kind == OperationKind::kReadForUpdate) return true;
  }
  return false;
}

}  // namespace

Trees::Trees(const storage::Catalog& catalog) {
  for (instance::TableId table = 0; table < catalog.size(); ++table) {
    first_.push_back(static_cast<uint32_t>(names_.size()));
    names_.push_back(catalog.table(table).name);
    for (const storage::IndexDefinition& index : catalog.table(table).indexes)
      names_.push_back(fmt::format("{}.{}", catalog.table(table).name, index.name));
  }
}

absl::Status StoreTransaction::Run(const instance::Workload& workload, const instance::Request& request) {
  absl::Status status = Attempt(workload, request);
  if (!must_write_) return status;
  writers_.insert(shape_);
  return Attempt(workload, request);
}

absl::Status StoreTransaction::Attempt(const instance::Workload& workload, const instance::Request& request) {
  ++id_.sequence;
  batch_.Clear();
  begun_ = must_write_ = false;
  runtime::Task<absl::Status> task = workload.Run(*this, request);
  task.Start();
  if (!task.done()) return absl::InternalError("the procedure waits for what is not there");
  absl::Status status = task.Take();
  if (status.ok() && begun_) status = store_.Commit();
  if (!status.ok()) store_.Rollback();
  return status;
}

absl::Status StoreTransaction::Begin(const Batch& first) {
  begun_ = true;
  shape_ = ShapeOf(first);
  writes_ = Writes(first) || writers_.contains(shape_);
  return store_.Begin(writes_);
}

runtime::Task<absl::Status> StoreTransaction::Execute(Batch& batch) {
  batch.ResetResults();
  batch.scanned().clear();
  if (!begun_) {
    if (absl::Status status = Begin(batch); !status.ok()) co_return status;
  }
  if (!writes_ && Writes(batch)) {
    must_write_ = true;
    co_return absl::AbortedError("it writes");
  }
  if (store_.WantsToExpect()) {
    if (absl::Status status = Expect(batch); !status.ok()) co_return status;
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (absl::Status status = One(batch, i); !status.ok()) co_return status;
  }
  co_return absl::OkStatus();
}

absl::Status StoreTransaction::Expect(const Batch& batch) {
  using Wanted = RowStore::Wanted;
  wanted_.clear();
  changed_.clear();
  bool scans = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    const OperationKind kind = operation.kind;
    if (kind == OperationKind::kIndexScan) return absl::OkStatus();  // what it reads then is not known
    const uint32_t tree = trees_.OfTable(operation.table);
    const KeyView key = batch.View(operation.key);
    if (instance::IsWrite(kind)) changed_.emplace_back(tree, TextOf(key));
    if (kind == OperationKind::kScan) {
      scans = true;
      wanted_.push_back({Wanted::kScan, tree, BoundOf(key), BoundOf(batch.View(operation.end_key)),
                         operation.reverse, operation.limit});
    } else if (kind == OperationKind::kInsert) {
      wanted_.push_back({Wanted::kInsert, tree, key, batch.View(operation.row)});
    } else if (kind == OperationKind::kRead) {
      wanted_.push_back({Wanted::kGet, tree, key});
    } else if (kind != OperationKind::kPut || !catalog_.table(operation.table).indexes.empty()) {
      wanted_.push_back({Wanted::kLock, tree, key});
    }
  }
  // Whoever reads what the batch changes has to wait for that.
  std::sort(changed_.begin(), changed_.end());
  bool meet =
      std::adjacent_find(changed_.begin(), changed_.end()) != changed_.end() || (scans && !changed_.empty());
  for (size_t i = 0; i < batch.size() && !meet && !changed_.empty(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    meet = !instance::IsWrite(operation.kind) &&
           std::binary_search(changed_.begin(), changed_.end(),
                              std::pair(trees_.OfTable(operation.table), TextOf(batch.View(operation.key))));
  }
  return meet ? absl::OkStatus() : store_.Expect(wanted_);
}

absl::Status StoreTransaction::One(Batch& batch, size_t i) {
  const OperationKind kind = batch.operation(i).kind;
  if (kind == OperationKind::kScan) return Scan(batch, i);
  if (kind == OperationKind::kIndexScan) return IndexScan(batch, i);
  if (instance::IsWrite(kind)) return Change(batch, i);
  const Batch::Operation& operation = batch.operation(i);
  const auto found = store_.Get(trees_.OfTable(operation.table), batch.View(operation.key),
                                kind == OperationKind::kReadForUpdate);
  if (!found.ok()) return found.status();
  batch.result(i).code = *found ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
  if (*found) batch.result(i).row = batch.Store(**found);
  return absl::OkStatus();
}

absl::Status StoreTransaction::Change(Batch& batch, size_t i) {
  const Batch::Operation& operation = batch.operation(i);
  const OperationKind kind = operation.kind;
  const storage::TableDefinition& table = catalog_.table(operation.table);
  const uint32_t tree = trees_.OfTable(operation.table);
  const KeyView key = batch.View(operation.key);
  const RowView given = batch.View(operation.row);
  Batch::Result& result = batch.result(i);
  result.code = absl::StatusCode::kOk;
  if (kind == OperationKind::kInsert) {
    const absl::StatusOr<bool> inserted = store_.Insert(tree, key, given);
    if (!inserted.ok()) return inserted.status();
    if (*inserted) return ChangeEntries(table, key, given, Entries::kAdd);
    result.code = absl::StatusCode::kAlreadyExists;
    return absl::OkStatus();
  }
  const bool is_put = kind == OperationKind::kPut;
  if (is_put && table.indexes.empty()) return store_.Put(tree, key, given);
  const auto found = store_.Get(tree, key, /*for_update=*/true);
  if (!found.ok()) return found.status();
  if (!*found && !is_put) {
    result.code = absl::StatusCode::kNotFound;
    return absl::OkStatus();
  }
  if (!*found) {
    if (absl::Status status = store_.Put(tree, key, given); !status.ok()) return status;
    return ChangeEntries(table, key, given, Entries::kAdd);
  }
  Copy(**found, &row_);
  const bool is_part =
      kind == OperationKind::kWrite || kind == OperationKind::kAdd || kind == OperationKind::kUpdate;
  const size_t bytes = kind == OperationKind::kWrite ? given.size() : sizeof(int64_t);
  if (is_part && operation.offset + bytes > row_.size())
    return absl::InternalError(
        fmt::format("table '{}': a row of {} bytes, changed beyond them", table.name, row_.size()));
  const bool indexed = !table.indexes.empty() && (!is_part || table.Indexes(operation.offset, bytes));
  if (indexed) {
    if (absl::Status status = ChangeEntries(table, key, row_, Entries::kTakeAway); !status.ok())
      return status;
  }
  if (kind == OperationKind::kDelete) return store_.Delete(tree, key);
  if (kind == OperationKind::kWrite) {
    std::copy(given.begin(), given.end(), row_.begin() + operation.offset);
  } else if (is_part) {
    int64_t number = 0;
    std::memcpy(&number, row_.data() + operation.offset, sizeof(number));
    number = static_cast<int64_t>(static_cast<uint64_t>(number) + static_cast<uint64_t>(operation.delta));
    std::memcpy(row_.data() + operation.offset, &number, sizeof(number));
    result.row = batch.Store(std::as_bytes(std::span(&number, 1)));
  } else {
    Copy(given, &row_);
  }
  // Storing a result may have moved the batch's bytes.
  const KeyView at = batch.View(batch.operation(i).key);
  if (absl::Status status = store_.Put(tree, at, row_); !status.ok()) return status;
  return indexed ? ChangeEntries(table, at, row_, Entries::kAdd) : absl::OkStatus();
}

absl::Status StoreTransaction::ChangeEntries(const storage::TableDefinition& table, KeyView key, RowView row,
                                             Entries change) {
  for (instance::IndexId index = 0; index < table.indexes.size(); ++index) {
    const absl::StatusOr<std::string> entry = storage::IndexEntry(table, table.indexes[index], key, row);
    if (!entry.ok()) return entry.status();
    const uint32_t tree = trees_.OfIndex(table.id, index);
    const auto at = std::as_bytes(std::span(*entry));
    absl::Status status = change == Entries::kAdd    ? store_.Put(tree, at, key)
                          : change == Entries::kLoad ? store_.Load(tree, at, key)
                                                     : store_.Delete(tree, at);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

Batch::Result& StoreTransaction::BeginScan(Batch& batch, size_t i) {
  Copy(BoundOf(batch.View(batch.operation(i).key)), &key_);
  Copy(BoundOf(batch.View(batch.operation(i).end_key)), &end_);
  Batch::Result& result = batch.result(i);
  result.code = absl::StatusCode::kOk;
  result.first_scanned = static_cast<uint32_t>(batch.scanned().size());
  return result;
}

absl::Status StoreTransaction::Scan(Batch& batch, size_t i) {
  const Batch::Operation operation = batch.operation(i);
  Batch::Result& result = BeginScan(batch, i);
  return store_.Scan(trees_.OfTable(operation.table), key_, end_, operation.reverse, operation.limit,
                     [&](KeyView key, RowView row) {
                       const Batch::Bytes key_at = batch.Store(key);
                       batch.scanned().push_back({key_at, batch.Store(row)});
                       return ++result.scanned != operation.limit;
                     });
}

absl::Status StoreTransaction::IndexScan(Batch& batch, size_t i) {
  const Batch::Operation operation = batch.operation(i);
  Batch::Result& result = BeginScan(batch, i);
  size_t count = 0;
  const auto visit = [&](KeyView, RowView primary) {
    if (count == found_.size()) found_.emplace_back();
    found_[count++].assign(reinterpret_cast<const char*>(primary.data()), primary.size());
    return count != operation.limit;
  };
  absl::Status status = store_.Scan(trees_.OfIndex(operation.table, operation.index), key_, end_,
                                    operation.reverse, operation.limit, visit);
  if (status.ok() && store_.WantsToExpect()) {
    wanted_.clear();
    for (size_t n = 0; n < count; ++n)
      wanted_.push_back(
          {RowStore::Wanted::kGet, trees_.OfTable(operation.table), std::as_bytes(std::span(found_[n]))});
    status = store_.Expect(wanted_);
  }
  for (size_t n = 0; n < count && status.ok(); ++n) {
    const auto key = std::as_bytes(std::span(found_[n]));
    const auto row = store_.Get(trees_.OfTable(operation.table), key, /*for_update=*/false);
    if (!row.ok()) return row.status();
    if (!*row) return absl::InternalError("an index has an entry of a row that is not there");
    const Batch::Bytes key_at = batch.Store(key);
    batch.scanned().push_back({key_at, batch.Store(**row)});
    ++result.scanned;
  }
  return status;
}

absl::Status StoreTransaction::Load(instance::TableId table, KeyView key, RowView row) {
  if (absl::Status status = store_.Load(trees_.OfTable(table), key, row); !status.ok()) return status;
  return ChangeEntries(catalog_.table(table), key, row, Entries::kLoad);
}

}  // namespace islands::experiments
