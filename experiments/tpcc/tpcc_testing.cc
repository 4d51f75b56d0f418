#include "experiments/tpcc/tpcc_testing.h"

namespace islands::experiments {

using absl::StatusCode;
using instance::Batch;
using instance::OperationKind;

absl::Status MapStore::Insert(instance::TableId table, instance::KeyView key, instance::RowView row) {
  EXPECT_TRUE(catalog_.SiteOf(table, key).ok());
  EXPECT_EQ(row.size(), catalog_.table(table).row_bytes);
  const bool fresh = tables[table].emplace(TextOfKey(key), std::vector(row.begin(), row.end())).second;
  return fresh ? absl::OkStatus() : absl::AlreadyExistsError("twice");
}

// Rows of a range of keys, or of index entries.
void MapStore::Scan(Batch& batch, size_t number) const {
  const Batch::Operation operation = batch.operation(number);
  const std::string first = TextOfKey(batch.View(operation.key)),
                    end = TextOfKey(batch.View(operation.end_key));
  const storage::TableDefinition& table = catalog_.table(operation.table);
  std::map<std::string, std::string> found;  // by what is scanned, keys
  for (const auto& [key, row] : tables[operation.table]) {
    const std::string at =
        operation.kind == OperationKind::kScan
            ? key
            : *storage::IndexEntry(table, table.indexes[operation.index], KeyOfText(key), row);
    if (at >= first && at < end) found[at] = key;
  }
  Batch::Result& result = batch.result(number);
  result.first_scanned = static_cast<uint32_t>(batch.scanned().size());
  for (const auto& [at, key] : found) {
    if (operation.limit != 0 && result.scanned == operation.limit) break;
    const Batch::Bytes stored = batch.Store(KeyOfText(key));
    batch.scanned().push_back({stored, batch.Store(tables[operation.table].at(key))});
    ++result.scanned;
  }
}

StatusCode MapStore::Apply(Batch& batch, size_t number) {
  const Batch::Operation operation = batch.operation(number);
  const std::string key = TextOfKey(batch.View(operation.key));
  const instance::RowView given = batch.View(operation.row);
  Rows& rows = tables[operation.table];
  const auto row = rows.find(key);
  switch (operation.kind) {
    case OperationKind::kScan:
    case OperationKind::kIndexScan:
      Scan(batch, number);
      return StatusCode::kOk;
    case OperationKind::kInsert:
      return rows.emplace(key, std::vector(given.begin(), given.end())).second ? StatusCode::kOk
                                                                               : StatusCode::kAlreadyExists;
    case OperationKind::kPut:
      rows[key].assign(given.begin(), given.end());
      return StatusCode::kOk;
    default:
      break;
  }
  if (row == rows.end()) return StatusCode::kNotFound;
  switch (operation.kind) {
    case OperationKind::kRead:
    case OperationKind::kReadForUpdate:
      batch.result(number).row = batch.Store(row->second);
      break;
    case OperationKind::kAdd: {
      int64_t value = 0;
      std::memcpy(&value, row->second.data() + operation.offset, sizeof(value));
      value += operation.delta;
      std::memcpy(row->second.data() + operation.offset, &value, sizeof(value));
      break;
    }
    case OperationKind::kWrite:
      EXPECT_LE(operation.offset + given.size(), row->second.size());
      std::memcpy(row->second.data() + operation.offset, given.data(), given.size());
      break;
    case OperationKind::kDelete:
      rows.erase(row);
      break;
    default:
      ADD_FAILURE() << "operation " << static_cast<int>(operation.kind);
  }
  return StatusCode::kOk;
}

runtime::Task<absl::Status> MapStore::Execute(Batch& batch) {
  ++batches;
  batch.ResetResults();
  for (size_t i = 0; i < batch.size(); ++i) batch.result(i).code = Apply(batch, i);
  co_return absl::OkStatus();
}

absl::Status MapStore::Run(const TpccWorkload& workload, const TpccRequest& request) {
  ++id_.sequence;
  batches = 0;
  batch_.Clear();
  runtime::Task<absl::Status> task = workload.Run(*this, request);
  task.Start();
  return task.Take();
}

absl::StatusOr<int64_t> MapStore::Audit(const TpccWorkload& workload, uint32_t begin, uint32_t end,
                                        bool whole) const {
  const partitioner::SiteRun sites = {.first = 0, .count = catalog_.sites() - (whole ? 0 : 1)};
  const std::unique_ptr<instance::RowAudit> audit = workload.BeginAudit(sites);
  for (const std::string& name : workload.tables()) {
    const storage::TableDefinition& table = *catalog_.Find(name);
    if (table.replicated()) continue;
    for (const auto& [key, row] : tables[table.id]) {
      const uint32_t warehouse = ComponentOf(KeyOfText(key), 0);
      if (warehouse >= begin && warehouse < end) audit->See(table.id, KeyOfText(key), row);
    }
  }
  return audit->Finish();
}

}  // namespace islands::experiments
