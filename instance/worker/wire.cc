#include "instance/worker/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

namespace islands::instance {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are copied as they lie in memory");

// wire.h has the drawings.
struct OperationHeader {
  uint8_t kind = 0;
  uint8_t reverse = 0;
  uint16_t zero = 0;
  uint32_t table = 0;
  uint32_t site = 0;
  uint32_t key_bytes = 0;
  uint32_t tail_bytes = 0;
  uint32_t place = 0;   // offset or index
  uint64_t amount = 0;  // delta or limit
};
static_assert(sizeof(OperationHeader) == 32);

struct ResultHeader {
  uint32_t code = 0;
  uint32_t row_bytes = 0;
  uint32_t scanned = 0;
};
static_assert(sizeof(ResultHeader) == 12);

struct ScannedHeader {
  uint32_t key_bytes = 0;
  uint32_t row_bytes = 0;
};
static_assert(sizeof(ScannedHeader) == 8);

// Writes into a string that was sized before.
class Writer {
 public:
  Writer(size_t bytes, std::string* out) {
    out->resize(bytes);
    at_ = out->data();
  }
  template <typename Header>
  void Put(const Header& header) {
    std::memcpy(at_, &header, sizeof(header));
    at_ += sizeof(header);
  }
  void Put(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }

 private:
  char* at_;
};

// Takes from the front of bytes that anybody may have sent; false when there are not so many.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : rest_(std::as_bytes(std::span(bytes.data(), bytes.size()))) {}
  bool empty() const { return rest_.empty(); }
  template <typename Header>
  [[nodiscard]] bool Take(Header* header) {
    if (rest_.size() < sizeof(*header)) return false;
    std::memcpy(header, rest_.data(), sizeof(*header));
    rest_ = rest_.subspan(sizeof(*header));
    return true;
  }
  [[nodiscard]] bool Take(size_t bytes, std::span<const std::byte>* taken) {
    if (rest_.size() < bytes) return false;
    *taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }

 private:
  std::span<const std::byte> rest_;
};

// An operation as it was received.
struct ReceivedOperation {
  OperationHeader header;
  KeyView key;
  std::span<const std::byte> tail;
  KeyView site_key = {};  // of a client's index scan

  OperationKind kind() const { return static_cast<OperationKind>(header.kind); }
};

// Bounds of index scans are index components, which may be longer than a key by the primary key behind them.
constexpr size_t kMaxBoundBytes = 2 * partitioner::kMaxKeyBytes;

bool IsScan(OperationKind kind) { return kind == OperationKind::kScan || kind == OperationKind::kIndexScan; }

bool Holds(partitioner::SiteRun own, uint32_t site) {
  return site >= own.first && site - own.first < own.count;
}

absl::Status CheckShape(const ReceivedOperation& operation, const storage::Catalog& catalog) {
  const OperationHeader& header = operation.header;
  if (header.kind < static_cast<uint8_t>(OperationKind::kRead) ||
      header.kind > static_cast<uint8_t>(OperationKind::kPut)) {
    return absl::InvalidArgumentError(fmt::format("unknown operation kind {}", header.kind));
  }
  if (header.table >= catalog.size()) {
    return absl::InvalidArgumentError(fmt::format("unknown table number {}", header.table));
  }
  const bool scan = IsScan(operation.kind());
  if (header.key_bytes > kMaxBoundBytes || (scan && header.tail_bytes > kMaxBoundBytes)) {
    return absl::InvalidArgumentError("key too long");
  }
  if (!scan && header.tail_bytes > storage::kMaxRowBytes) {
    return absl::InvalidArgumentError(
        fmt::format("row of {} bytes, at most {}", header.tail_bytes, storage::kMaxRowBytes));
  }
  if (header.zero != 0 || header.reverse > (scan ? 1 : 0) || (scan && header.amount > UINT32_MAX)) {
    return absl::InvalidArgumentError("an operation with fields that its kind does not have");
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(const ReceivedOperation& operation, const storage::Catalog& catalog,
                        partitioner::SiteRun own) {
  const OperationHeader& header = operation.header;
  const storage::TableDefinition& table = catalog.table(header.table);
  if (table.replicated()) return absl::InvalidArgumentError("a replicated table is read where one is");
  if (!Holds(own, header.site)) {
    return absl::InvalidArgumentError(fmt::format("site {} is not on this island", header.site));
  }
  if (operation.kind() == OperationKind::kIndexScan && header.place >= table.indexes.size()) {
    return absl::InvalidArgumentError(
        fmt::format("table '{}' has no index number {}", table.name, header.place));
  }
  if (IsScan(operation.kind())) return absl::OkStatus();
  absl::StatusOr<uint32_t> site = catalog.SiteOf(header.table, operation.key);
  if (!site.ok()) return site.status();
  if (*site != header.site) return absl::InvalidArgumentError("the key belongs to another site");
  return absl::OkStatus();
}

void AddOperation(const ReceivedOperation& operation, Batch* batch) {
  const OperationHeader& header = operation.header;
  const TableId table = header.table;
  const KeyView key = operation.key;
  const bool reverse = header.reverse != 0;
  const auto limit = static_cast<uint32_t>(header.amount);
  switch (operation.kind()) {
    case OperationKind::kRead:
      batch->Read(table, key);
      break;
    case OperationKind::kReadForUpdate:
      batch->ReadForUpdate(table, key);
      break;
    case OperationKind::kAdd:
      batch->Add(table, key, header.place, static_cast<int64_t>(header.amount));
      break;
    case OperationKind::kUpdate:
      batch->Update(table, key, header.place, static_cast<int64_t>(header.amount));
      break;
    case OperationKind::kWrite:
      batch->Write(table, key, header.place, operation.tail);
      break;
    case OperationKind::kInsert:
      batch->Insert(table, key, operation.tail);
      break;
    case OperationKind::kReplace:
      batch->Replace(table, key, operation.tail);
      break;
    case OperationKind::kDelete:
      batch->Delete(table, key);
      break;
    case OperationKind::kPut:
      batch->Put(table, key, operation.tail);
      break;
    case OperationKind::kScan:
      batch->Scan(table, key, operation.tail, limit, reverse);
      break;
    case OperationKind::kIndexScan:
      batch->IndexScan(table, header.place, operation.site_key, key, operation.tail, limit, reverse);
      break;
  }
}

// The sites of a scan on this island: from the routed one to the end of the key range or of the island.
absl::StatusOr<uint32_t> LastSiteOfScan(const ReceivedOperation& operation, const storage::Catalog& catalog,
                                        partitioner::SiteRun own) {
  absl::StatusOr<SiteSpan> span =
      SitesOfRange(catalog.table(operation.header.table), catalog.sites(), operation.key, operation.tail);
  if (!span.ok()) return span.status();
  return std::max(operation.header.site, std::min(span->last, own.first + own.count - 1));
}

OperationHeader HeaderOf(const Batch::Operation& operation, uint32_t site) {
  OperationHeader header{.kind = static_cast<uint8_t>(operation.kind),
                         .table = operation.table,
                         .site = site,
                         .key_bytes = operation.key.size};
  if (IsScan(operation.kind)) {
    header.reverse = operation.reverse ? 1 : 0;
    header.tail_bytes = operation.end_key.size;
    header.place = operation.index;
    header.amount = operation.limit;
  } else {
    header.tail_bytes = operation.row.size;
    header.place = operation.offset;
    header.amount = static_cast<uint64_t>(operation.delta);
  }
  return header;
}

// Takes one from the front; false when these are not the bytes of an operation.
bool TakeOperation(Reader* reader, ReceivedOperation* operation) {
  return reader->Take(&operation->header) && reader->Take(operation->header.key_bytes, &operation->key) &&
         reader->Take(operation->header.tail_bytes, &operation->tail);
}

// Parts a client's index scan from its site key; other operations of clients have no site.
absl::Status TakeSiteKey(ReceivedOperation* operation) {
  OperationHeader& header = operation->header;
  const size_t bytes = std::exchange(header.site, 0);
  const bool fits = operation->kind() == OperationKind::kIndexScan
                        ? bytes <= std::min(partitioner::kMaxKeyBytes, operation->tail.size())
                        : bytes == 0;
  if (!fits) return absl::InvalidArgumentError("a client's operation that names a site");
  operation->site_key = operation->tail.last(bytes);
  operation->tail = operation->tail.first(operation->tail.size() - bytes);
  header.tail_bytes = static_cast<uint32_t>(operation->tail.size());
  return absl::OkStatus();
}

size_t ResultBytes(const Batch& batch, size_t i) {
  size_t bytes = sizeof(ResultHeader) + batch.row(i).size();
  for (size_t n = 0; n < batch.scanned_rows(i); ++n) {
    bytes += sizeof(ScannedHeader) + batch.scanned_key(i, n).size() + batch.scanned_row(i, n).size();
  }
  return bytes;
}

void PutResult(const Batch& batch, size_t i, Writer* writer) {
  const auto size = [](std::span<const std::byte> view) { return static_cast<uint32_t>(view.size()); };
  const auto scanned = static_cast<uint32_t>(batch.scanned_rows(i));
  writer->Put(ResultHeader{static_cast<uint32_t>(batch.code(i)), size(batch.row(i)), scanned});
  writer->Put(batch.row(i));
  for (uint32_t n = 0; n < scanned; ++n) {
    writer->Put(ScannedHeader{size(batch.scanned_key(i, n)), size(batch.scanned_row(i, n))});
    writer->Put(batch.scanned_key(i, n));
    writer->Put(batch.scanned_row(i, n));
  }
}

absl::Status NotResultsOf(uint32_t island) {
  return absl::InvalidArgumentError(
      fmt::format("island {} sent results that do not fit the operations it got", island));
}

// Whether an operation that did not fail can have this result.
bool Fits(const ResultHeader& header, OperationKind kind) {
  const auto code = static_cast<absl::StatusCode>(header.code);
  const bool known = code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound ||
                     code == absl::StatusCode::kAlreadyExists;
  return known && (IsScan(kind) ? header.row_bytes == 0 : header.scanned == 0);
}

// Takes one from the front and puts it into the batch; false when these are not the bytes of one.
bool TakeResult(Reader* reader, OperationKind kind, Batch* batch, Batch::Result* result) {
  ResultHeader header;
  RowView row;
  if (!reader->Take(&header) || !Fits(header, kind) || !reader->Take(header.row_bytes, &row)) return false;
  result->code = static_cast<absl::StatusCode>(header.code);
  if (!row.empty()) result->row = batch->Store(row);
  if (!IsScan(kind)) return true;
  result->first_scanned = static_cast<uint32_t>(batch->scanned().size());
  for (; result->scanned < header.scanned; ++result->scanned) {
    ScannedHeader lengths;
    KeyView key;
    if (!reader->Take(&lengths) || !reader->Take(lengths.key_bytes, &key) ||
        !reader->Take(lengths.row_bytes, &row)) {
      return false;
    }
    const Batch::Bytes key_at = batch->Store(key);
    batch->scanned().push_back({key_at, batch->Store(row)});
  }
  return true;
}

}  // namespace

void EncodeOperations(const Batch& batch, std::span<const RoutedOperation> share,
                      data::v1::ExecuteRequest* request) {
  size_t bytes = 0;
  for (const RoutedOperation& routed : share) {
    const Batch::Operation& operation = batch.operation(routed.operation);
    bytes += sizeof(OperationHeader) + operation.key.size + operation.end_key.size + operation.row.size;
  }
  Writer writer(bytes, request->mutable_operations());
  for (const RoutedOperation& routed : share) {
    const Batch::Operation& operation = batch.operation(routed.operation);
    writer.Put(HeaderOf(operation, routed.site));
    writer.Put(batch.View(operation.key));
    writer.Put(batch.View(IsScan(operation.kind) ? operation.end_key : operation.row));
  }
}

absl::Status DecodeOperations(const data::v1::ExecuteRequest& request, const storage::Catalog& catalog,
                              partitioner::SiteRun own, Batch* batch, std::vector<RoutedOperation>* routes) {
  batch->Clear();
  routes->clear();
  for (Reader reader(request.operations()); !reader.empty();) {
    ReceivedOperation operation;
    const OperationHeader& header = operation.header;
    if (!TakeOperation(&reader, &operation))
      return absl::InvalidArgumentError("bytes that are not operations");
    if (absl::Status status = CheckShape(operation, catalog); !status.ok()) return status;
    if (absl::Status status = CheckPlace(operation, catalog, own); !status.ok()) return status;
    uint32_t last_site = header.site;
    if (operation.kind() == OperationKind::kScan) {
      absl::StatusOr<uint32_t> last = LastSiteOfScan(operation, catalog, own);
      if (!last.ok()) return last.status();
      last_site = *last;
    }
    routes->push_back({static_cast<uint32_t>(batch->size()), header.site, last_site});
    AddOperation(operation, batch);
  }
  batch->ResetResults();
  return absl::OkStatus();
}

void EncodeResults(const Batch& batch, std::span<const RoutedOperation> routes, std::string* results) {
  size_t bytes = 0;
  for (const RoutedOperation& routed : routes) bytes += ResultBytes(batch, routed.operation);
  Writer writer(bytes, results);
  for (const RoutedOperation& routed : routes) PutResult(batch, routed.operation, &writer);
}

absl::Status DecodeResults(const data::v1::ExecuteReply& reply, uint32_t island,
                           std::span<const RoutedOperation> share, Batch* batch,
                           std::vector<ScanChunk>* chunks) {
  Reader reader(reply.results());
  for (const RoutedOperation& routed : share) {
    const OperationKind kind = batch->operation(routed.operation).kind;
    Batch::Result part;  // of a scan; the operation's own may be that of this island's part by now
    const bool scan = kind == OperationKind::kScan;
    if (!TakeResult(&reader, kind, batch, scan ? &part : &batch->result(routed.operation)))
      return NotResultsOf(island);
    if (scan) chunks->push_back({routed.operation, island, part.first_scanned, part.scanned});
  }
  return reader.empty() ? absl::OkStatus() : NotResultsOf(island);
}

void EncodeClientOperations(const Batch& batch, std::string* operations) {
  size_t bytes = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    bytes += sizeof(OperationHeader) + operation.key.size + operation.end_key.size + operation.row.size +
             operation.site_key.size;
  }
  Writer writer(bytes, operations);
  for (size_t i = 0; i < batch.size(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    OperationHeader header = HeaderOf(operation, operation.site_key.size);
    header.tail_bytes += operation.site_key.size;
    writer.Put(header);
    writer.Put(batch.View(operation.key));
    writer.Put(batch.View(IsScan(operation.kind) ? operation.end_key : operation.row));
    writer.Put(batch.View(operation.site_key));
  }
}

absl::Status DecodeClientOperations(const std::string& operations, const storage::Catalog& catalog,
                                    Batch* batch) {
  batch->Clear();
  for (Reader reader(operations); !reader.empty();) {
    ReceivedOperation operation;
    if (!TakeOperation(&reader, &operation))
      return absl::InvalidArgumentError("bytes that are not operations");
    if (absl::Status status = TakeSiteKey(&operation); !status.ok()) return status;
    if (absl::Status status = CheckShape(operation, catalog); !status.ok()) return status;
    AddOperation(operation, batch);
  }
  batch->ResetResults();
  return absl::OkStatus();
}

size_t ClientResultBytes(const Batch& batch) {
  size_t bytes = 0;
  for (size_t i = 0; i < batch.size(); ++i) bytes += ResultBytes(batch, i);
  return bytes;
}

void EncodeClientResults(const Batch& batch, std::string* results) {
  Writer writer(ClientResultBytes(batch), results);
  for (size_t i = 0; i < batch.size(); ++i) PutResult(batch, i, &writer);
}

absl::Status DecodeClientResults(const std::string& results, Batch* batch) {
  batch->ResetResults();
  Reader reader(results);
  for (size_t i = 0; i < batch->size(); ++i) {
    if (!TakeResult(&reader, batch->operation(i).kind, batch, &batch->result(i)))
      return absl::InternalError("an island sent results that do not fit the operations it got");
  }
  return reader.empty() ? absl::OkStatus() : absl::InternalError("an island sent results of more operations");
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
