#include "experiments/insert/insert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "experiments/written_keys.h"

namespace islands::experiments {
namespace {

constexpr const char* kTableLine =
    "- {name: record, key: [uint64, uint64, uint32, uint32], range: [0, 24], row_bytes: 100}";

absl::StatusOr<const storage::TableDefinition*> FindTable(const storage::Catalog& catalog) {
  using enum partitioner::KeyType;
  const storage::TableDefinition* table = catalog.Find(kInsertTable);
  const bool fits = table != nullptr &&
                    table->key == partitioner::KeySchema{kUint64, kUint64, kUint32, kUint32} &&
                    table->partition.has_value() && table->partition->begin() >= 0 &&
                    (table->row_bytes == 0 || table->row_bytes >= kInsertKeyBytes);
  if (fits) return table;
  return absl::InvalidArgumentError(
      fmt::format("insert: data.tables of the deployment must hold this, with as many clients as its range "
                  "says, and rows "
                  "of {} bytes or more\n{}",
                  kInsertKeyBytes, kTableLine));
}

}  // namespace

std::unique_ptr<instance::Request> InsertGenerator::MakeRequest() {
  auto request = std::make_unique<InsertRequest>();
  request->client = clients_.begin + made_++ % clients_.count;
  request->records = records_;
  request->audit_delta = records_;
  request->row.assign(row_bytes_, std::byte{'r'});
  return request;
}

// The next transaction of the same client is like the one before.
void InsertGenerator::Next(runtime::Random& random, instance::Request& request) {
  (void)random, (void)request;
}

const instance::Description& InsertWorkload::Describe() {
  static const instance::Description description = {
      .parameters = {{.name = "records",
                      .kind = instance::Parameter::Kind::kWhole,
                      .help = "that a transaction inserts before it commits",
                      .min = 1,
                      .max = 10'000,
                      .preset = "1000",
                      .grows = true}},
      .tables = {kInsertTable},
      .tables_yaml = kTableLine};
  return description;
}

absl::StatusOr<std::unique_ptr<InsertWorkload>> InsertWorkload::Create(
    const storage::Catalog& catalog, const instance::Parameters& parameters) {
  const auto read = instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const auto table = FindTable(catalog);
  if (!table.ok()) return table.status();
  const size_t row_bytes = (*table)->row_bytes == 0 ? kInsertRowBytes : (*table)->row_bytes;
  return std::unique_ptr<InsertWorkload>(new InsertWorkload(
      (*table)->id, row_bytes, static_cast<uint32_t>(instance::NumberOf(*read, "records"))));
}

absl::StatusOr<std::unique_ptr<instance::Generator>> InsertWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  const partitioner::RangePartition& partition = *context.catalog.table(table_).partition;
  const auto begin = static_cast<uint64_t>(partition.SiteBegin(context.sites.first));
  const auto end = static_cast<uint64_t>(partition.SiteBegin(context.sites.first + context.sites.count));
  if (end - begin < context.workers) {
    return absl::InvalidArgumentError(
        fmt::format("insert: island {} has {} workers and {} clients, expected one for each at least; the "
                    "range of table '{}' says how many there are",
                    context.island, context.workers, end - begin, kInsertTable));
  }
  const uint64_t first = (end - begin) * context.worker / context.workers;
  const uint64_t last = (end - begin) * (context.worker + 1) / context.workers;
  return std::make_unique<InsertGenerator>(InsertGenerator::Clients{begin + first, last - first}, records_,
                                           row_bytes_);
}

runtime::Task<absl::Status> InsertWorkload::Run(instance::Transaction& transaction,
                                                const instance::Request& request) const {
  const auto& insert = static_cast<const InsertRequest&>(request);
  const coordinator::TransactionId id = transaction.id();
  instance::Batch& batch = transaction.batch();
  for (uint32_t record = 0; record < insert.records;) {
    batch.Clear();
    for (; record < insert.records && batch.size() < kInsertBatch; ++record) {
      const auto key = PackedKey<kInsertKeyBytes>()
                           .Number(insert.client)
                           .Number(WriterNumberOf(id))
                           .Number(WriterOf(id))
                           .Number(record);
      std::memcpy(insert.row.data(), instance::KeyView(key).data(), kInsertKeyBytes);
      batch.Insert(table_, key, insert.row);
    }
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch.code(i) != absl::StatusCode::kOk)
        co_return absl::InternalError("insert: there is a record of this transaction already");
    }
  }
  co_return absl::OkStatus();
}

int64_t InsertWorkload::AuditRow(instance::TableId table, instance::KeyView key,
                                 instance::RowView row) const {
  if (table != table_ || row.size() != row_bytes_) return 0;
  return std::ranges::equal(key, row.first(kInsertKeyBytes)) ? 1 : 0;
}

}  // namespace islands::experiments
