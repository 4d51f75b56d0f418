#include "instance/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace islands::instance {
namespace {

void AssignBytes(std::span<const std::byte> from, std::string* to) {
  to->assign(reinterpret_cast<const char*>(from.data()), from.size());
}

KeyView Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

bool IsScan(OperationKind kind) { return kind == OperationKind::kScan || kind == OperationKind::kIndexScan; }

bool Holds(partitioner::SiteRun own, uint32_t site) {
  return site >= own.first && site - own.first < own.count;
}

absl::Status CheckShape(const data::v1::Operation& operation, const storage::Catalog& catalog) {
  if (operation.kind() < static_cast<uint32_t>(OperationKind::kRead) ||
      operation.kind() > static_cast<uint32_t>(OperationKind::kIndexScan)) {
    return absl::InvalidArgumentError(fmt::format("unknown operation kind {}", operation.kind()));
  }
  if (operation.table() >= catalog.size()) {
    return absl::InvalidArgumentError(fmt::format("unknown table number {}", operation.table()));
  }
  if (operation.row().size() > storage::kMaxRowBytes) {
    return absl::InvalidArgumentError(
        fmt::format("row of {} bytes, at most {}", operation.row().size(), storage::kMaxRowBytes));
  }
  // Bounds of index scans are index components, which may be longer than a key by the primary key behind
  // them.
  if (operation.key().size() > 2 * partitioner::kMaxKeyBytes ||
      operation.end_key().size() > 2 * partitioner::kMaxKeyBytes) {
    return absl::InvalidArgumentError("key too long");
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(const data::v1::Operation& operation, const storage::Catalog& catalog,
                        partitioner::SiteRun own) {
  const auto kind = static_cast<OperationKind>(operation.kind());
  const storage::TableDefinition& table = catalog.table(operation.table());
  if (table.replicated()) return absl::InvalidArgumentError("a replicated table is read where one is");
  if (!Holds(own, operation.site())) {
    return absl::InvalidArgumentError(fmt::format("site {} is not on this island", operation.site()));
  }
  if (kind == OperationKind::kIndexScan && operation.index() >= table.indexes.size()) {
    return absl::InvalidArgumentError(
        fmt::format("table '{}' has no index number {}", table.name, operation.index()));
  }
  if (IsScan(kind)) return absl::OkStatus();
  absl::StatusOr<uint32_t> site = catalog.SiteOf(operation.table(), Bytes(operation.key()));
  if (!site.ok()) return site.status();
  if (*site != operation.site()) return absl::InvalidArgumentError("the key belongs to another site");
  return absl::OkStatus();
}

void AddOperation(const data::v1::Operation& operation, Batch* batch) {
  const KeyView key = Bytes(operation.key());
  const RowView row = Bytes(operation.row());
  const TableId table = operation.table();
  switch (static_cast<OperationKind>(operation.kind())) {
    case OperationKind::kRead:
      batch->Read(table, key);
      break;
    case OperationKind::kReadForUpdate:
      batch->ReadForUpdate(table, key);
      break;
    case OperationKind::kAdd:
      batch->Add(table, key, operation.offset(), operation.delta());
      break;
    case OperationKind::kWrite:
      batch->Write(table, key, operation.offset(), row);
      break;
    case OperationKind::kInsert:
      batch->Insert(table, key, row);
      break;
    case OperationKind::kReplace:
      batch->Replace(table, key, row);
      break;
    case OperationKind::kDelete:
      batch->Delete(table, key);
      break;
    case OperationKind::kScan:
      batch->Scan(table, key, Bytes(operation.end_key()), operation.limit(), operation.reverse());
      break;
    case OperationKind::kIndexScan:
      batch->IndexScan(table, operation.index(), {}, key, Bytes(operation.end_key()), operation.limit(),
                       operation.reverse());
      break;
  }
}

// The sites of a scan on this island: from the routed one to the end of the key range or of the island.
absl::StatusOr<uint32_t> LastSiteOfScan(const data::v1::Operation& operation, const storage::Catalog& catalog,
                                        partitioner::SiteRun own) {
  if (static_cast<OperationKind>(operation.kind()) != OperationKind::kScan) return operation.site();
  absl::StatusOr<SiteSpan> span = SitesOfRange(catalog.table(operation.table()), catalog.sites(),
                                               Bytes(operation.key()), Bytes(operation.end_key()));
  if (!span.ok()) return span.status();
  return std::max(operation.site(), std::min(span->last, own.first + own.count - 1));
}

}  // namespace

void EncodeId(const coordinator::TransactionId& id, data::v1::TransactionId* out) {
  out->set_island(id.island);
  out->set_worker(id.worker);
  out->set_boot_epoch(id.boot_epoch);
  out->set_sequence(id.sequence);
}

coordinator::TransactionId DecodeId(const data::v1::TransactionId& id) {
  return {id.island(), id.worker(), id.boot_epoch(), id.sequence()};
}

void EncodeOperations(const Batch& batch, std::span<const RoutedOperation> share,
                      data::v1::ExecuteRequest* request) {
  for (const RoutedOperation& routed : share) {
    const Batch::Operation& operation = batch.operation(routed.operation);
    data::v1::Operation* out = request->add_operations();
    out->set_kind(static_cast<uint32_t>(operation.kind));
    out->set_table(operation.table);
    out->set_site(routed.site);
    AssignBytes(batch.View(operation.key), out->mutable_key());
    if (operation.row.size != 0) AssignBytes(batch.View(operation.row), out->mutable_row());
    if (operation.kind == OperationKind::kAdd) out->set_delta(operation.delta);
    if (operation.offset != 0) out->set_offset(operation.offset);
    if (IsScan(operation.kind)) {
      out->set_index(operation.index);
      AssignBytes(batch.View(operation.end_key), out->mutable_end_key());
      out->set_limit(operation.limit);
      out->set_reverse(operation.reverse);
    }
  }
}

absl::Status DecodeOperations(const data::v1::ExecuteRequest& request, const storage::Catalog& catalog,
                              partitioner::SiteRun own, Batch* batch, std::vector<RoutedOperation>* routes) {
  batch->Clear();
  routes->clear();
  for (const data::v1::Operation& operation : request.operations()) {
    if (absl::Status status = CheckShape(operation, catalog); !status.ok()) return status;
    if (absl::Status status = CheckPlace(operation, catalog, own); !status.ok()) return status;
    absl::StatusOr<uint32_t> last_site = LastSiteOfScan(operation, catalog, own);
    if (!last_site.ok()) return last_site.status();
    routes->push_back({static_cast<uint32_t>(batch->size()), operation.site(), *last_site});
    AddOperation(operation, batch);
  }
  batch->ResetResults();
  return absl::OkStatus();
}

void EncodeResults(const Batch& batch, std::span<const RoutedOperation> routes,
                   data::v1::ExecuteReply* reply) {
  for (const RoutedOperation& routed : routes) {
    const uint32_t i = routed.operation;
    data::v1::OperationResult* out = reply->add_results();
    out->set_code(static_cast<uint32_t>(batch.code(i)));
    if (!batch.row(i).empty()) AssignBytes(batch.row(i), out->mutable_row());
    for (size_t n = 0; n < batch.scanned_rows(i); ++n) {
      data::v1::Row* row = out->add_rows();
      AssignBytes(batch.scanned_key(i, n), row->mutable_key());
      AssignBytes(batch.scanned_row(i, n), row->mutable_row());
    }
  }
}

absl::Status DecodeResults(const data::v1::ExecuteReply& reply, uint32_t island,
                           std::span<const RoutedOperation> share, Batch* batch,
                           std::vector<ScanChunk>* chunks) {
  if (static_cast<size_t>(reply.results_size()) != share.size()) {
    return absl::InvalidArgumentError(
        fmt::format("island {} answered {} of {} operations", island, reply.results_size(), share.size()));
  }
  for (size_t i = 0; i < share.size(); ++i) {
    const data::v1::OperationResult& in = reply.results(static_cast<int>(i));
    Batch::Result& result = batch->result(share[i].operation);
    result.code = static_cast<absl::StatusCode>(in.code());
    if (!in.row().empty()) result.row = batch->Store(Bytes(in.row()));
    if (batch->operation(share[i].operation).kind == OperationKind::kScan) {
      chunks->push_back({share[i].operation, island, static_cast<uint32_t>(batch->scanned().size()),
                         static_cast<uint32_t>(in.rows_size())});
    } else {
      result.first_scanned = static_cast<uint32_t>(batch->scanned().size());
      result.scanned = static_cast<uint32_t>(in.rows_size());
    }
    for (const data::v1::Row& row : in.rows()) {
      const Batch::Bytes key_at = batch->Store(Bytes(row.key()));
      batch->scanned().push_back({key_at, batch->Store(Bytes(row.row()))});
    }
  }
  return absl::OkStatus();
}

void JoinScans(Batch* batch, std::vector<ScanChunk>* chunks) {
  std::sort(chunks->begin(), chunks->end(), [&](const ScanChunk& a, const ScanChunk& b) {
    if (a.operation != b.operation) return a.operation < b.operation;
    return batch->operation(a.operation).reverse ? a.island > b.island : a.island < b.island;
  });
  std::vector<Batch::ScannedRow>& rows = batch->scanned();
  for (size_t at = 0; at < chunks->size();) {
    const uint32_t operation = (*chunks)[at].operation;
    const uint32_t limit = batch->operation(operation).limit;
    Batch::Result& result = batch->result(operation);
    const auto first = static_cast<uint32_t>(rows.size());
    for (; at < chunks->size() && (*chunks)[at].operation == operation; ++at) {
      const ScanChunk chunk = (*chunks)[at];
      for (uint32_t n = 0; n < chunk.count && (limit == 0 || rows.size() - first < limit); ++n) {
        rows.push_back(Batch::ScannedRow(rows[chunk.first + n]));
      }
    }
    result.code = absl::StatusCode::kOk;
    result.first_scanned = first;
    result.scanned = static_cast<uint32_t>(rows.size()) - first;
  }
  chunks->clear();
}

}  // namespace islands::instance
