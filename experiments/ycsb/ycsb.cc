#include "experiments/ycsb/ycsb.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "experiments/wanted_tables.h"
#include "experiments/written_keys.h"
#include "experiments/ycsb/ycsb_generator.h"

namespace islands::experiments {
namespace {

using absl::StatusCode;

static_assert(std::endian::native == std::endian::little, "the counter is read as it lies in the row");

constexpr const char* kTableLine = "- {name: ycsb, key: [uint64, uint32, uint64], range: [0, 100000]}";
constexpr double kMaxZipf = 1'000;

YcsbOptions OptionsFrom(const instance::Parameters& read) {
  YcsbOptions options;
  options.mix = read.at("mix")[0];
  const std::string& law = read.at("distribution");
  const bool latest = law == "latest" || (law == "standard" && options.mix == 'D');
  options.law = law == "uniform" ? YcsbLaw::kUniform : latest ? YcsbLaw::kLatest : YcsbLaw::kZipf;
  options.zipf = instance::NumberOf(read, "zipf");
  options.rows = static_cast<uint32_t>(instance::NumberOf(read, "rows"));
  options.multisite_percent = instance::NumberOf(read, "multisite");
  options.fields = static_cast<uint32_t>(instance::NumberOf(read, "fields"));
  options.field_bytes = static_cast<uint32_t>(instance::NumberOf(read, "field_bytes"));
  options.scan_rows = static_cast<uint32_t>(instance::NumberOf(read, "scan_rows"));
  return options;
}

absl::Status CheckSizes(const YcsbOptions& options) {
  if (options.row_bytes() > storage::kMaxRowBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "--field-bytes: found {} x {} fields, expected rows of at most {} bytes, {} of them a counter",
        options.field_bytes, options.fields, storage::kMaxRowBytes, kYcsbCounterBytes));
  }
  const size_t scanned = size_t{options.rows} * options.scan_rows * options.row_bytes();
  if (YcsbShares(options.mix)[static_cast<size_t>(YcsbKind::kScan)] == 0 || scanned <= kYcsbMaxScanned)
    return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "--scan-rows: found {} in each of {} scans of a transaction, {} MiB, expected at most {} MiB",
      options.scan_rows, options.rows, scanned >> 20, kYcsbMaxScanned >> 20));
}

int64_t CounterOf(instance::RowView row) {
  int64_t counter = 0;
  if (row.size() >= sizeof(counter)) std::memcpy(&counter, row.data(), sizeof(counter));
  return counter;
}

// Of the batch, for one of the request.
size_t OperationsOf(YcsbKind kind) { return kind == YcsbKind::kUpdate ? 2 : 1; }

}  // namespace

const instance::Description& YcsbWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description =
      {.parameters =
           {{.name = "mix",
             .kind = Kind::kChoice,
             .help =
                 "YCSB's workload: A half updates; B 5 % updates; C reads alone; D 5 % inserts, and reads "
                 "of the latest; E 5 % inserts, and scans; F half reads for update",
             .choices = {"A", "B", "C", "D", "E", "F"},
             .preset = "A",
             .grows = true},  // D and E leave rows behind
            {.name = "distribution",
             .kind = Kind::kChoice,
             .help = "of rows within a site: YCSB's own for the mix (latest for D, else zipf), or another",
             .choices = {"standard", "uniform", "zipf", "latest"},
             .preset = "standard"},
            {.name = "zipf",
             .kind = Kind::kNumber,
             .help = "skew of zipf and latest",
             .max = kMaxZipf,
             .preset = "0.99"},
            {.name = "rows",
             .kind = Kind::kWhole,
             .help = "operations of a transaction, each with a row of its own, or a scan from there",
             .min = 1,
             .max = kYcsbMaxRows,
             .preset = "1"},
            {.name = "multisite",
             .kind = Kind::kPercent,
             .help =
                 "transactions that take their first row from a site of their island, the others from the "
                 "whole table",
             .preset = "0"},
            {.name = "fields",
             .kind = Kind::kWhole,
             .help = "of a row",
             .min = 1,
             .max = static_cast<double>(storage::kMaxRowBytes),
             .preset = "10",
             .loads = true},
            {.name = "field_bytes",
             .kind = Kind::kWhole,
             .help = "of a field",
             .min = 1,
             .max = static_cast<double>(storage::kMaxRowBytes),
             .preset = "100",
             .loads = true},
            {.name = "scan_rows",
             .kind = Kind::kWhole,
             .help = "that a scan of E takes at most; how many is drawn, from 1 on",
             .min = 1,
             .max = 10'000,
             .preset = "100"}},
       .tables = {kYcsbTable},
       .tables_yaml = kTableLine,
       .rows_total_of = kYcsbTable};
  return description;
}

absl::StatusOr<std::unique_ptr<YcsbWorkload>> YcsbWorkload::Create(const storage::Catalog& catalog,
                                                                   const instance::Parameters& parameters) {
  using enum partitioner::KeyType;
  const auto read = instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const YcsbOptions options = OptionsFrom(*read);
  if (absl::Status sizes = CheckSizes(options); !sizes.ok()) return sizes;
  const auto tables = FindTables(
      catalog, "ycsb", {{kYcsbTable, {kUint64, kUint32, kUint64}, options.row_bytes()}}, kTableLine);
  if (!tables.ok()) return tables.status();
  return std::unique_ptr<YcsbWorkload>(new YcsbWorkload(tables->front()->id, options));
}

absl::Status YcsbWorkload::CheckRun(const storage::Catalog& catalog) const {
  const partitioner::RangePartition& partition = *catalog.table(table_).partition;
  const int64_t total = partition.end() - partition.begin();
  if (options_.rows <= total / catalog.sites()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "--rows: found {}, expected at most the {} rows of the smallest site ({} rows in {} sites); a larger "
      "table makes room (--rows-total)",
      options_.rows, total / catalog.sites(), total, catalog.sites()));
}

absl::Status YcsbWorkload::Load(instance::Loader& loader) const {
  const partitioner::RangePartition& partition = *loader.catalog().table(table_).partition;
  std::vector<std::byte> row(options_.row_bytes());
  for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
    if (!loader.Owns(site)) continue;
    for (int64_t place = partition.SiteBegin(site); place < partition.SiteBegin(site + 1); ++place) {
      const auto number = static_cast<uint64_t>(place);
      std::fill(row.begin() + kYcsbCounterBytes, row.end(), static_cast<std::byte>('a' + number % 26));
      absl::Status status = loader.Insert(table_, YcsbKey({.place = number}), row);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> YcsbWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  if (absl::Status fits = CheckRun(context.catalog); !fits.ok()) return fits;
  return std::make_unique<YcsbGenerator>(options_, *context.catalog.table(table_).partition, context.sites);
}

void YcsbWorkload::Add(const coordinator::TransactionId& id, const YcsbRequest& request,
                       const YcsbOperation& operation, uint64_t last_place, instance::Batch& batch) const {
  const auto key = YcsbKey(operation.row);
  switch (operation.kind) {
    case YcsbKind::kRead:
      batch.Read(table_, key);
      return;
    case YcsbKind::kUpdate: {
      const size_t offset = options_.offset_of(operation.field);
      batch.Write(table_, key, static_cast<uint32_t>(offset),
                  std::span(request.row).subspan(offset, options_.field_bytes));
      batch.Add(table_, key, 0, 1);
      return;
    }
    case YcsbKind::kInsert:
      batch.Insert(table_, YcsbKey({operation.row.place, WriterOf(id), WriterNumberOf(id)}), request.row);
      return;
    case YcsbKind::kScan:
      batch.Scan(table_, key, YcsbEnd(last_place), operation.scan_rows);
      return;
    case YcsbKind::kModify:
      batch.ReadForUpdate(table_, key);
      return;
  }
}

absl::Status YcsbWorkload::Check(const YcsbRequest& request, const instance::Batch& batch) const {
  size_t at = 0;
  for (size_t i = 0; i < request.operations.size(); ++i) {
    const YcsbOperation& operation = request.operations[i];
    const bool there =
        operation.kind == YcsbKind::kScan ? batch.scanned_rows(at) > 0 : batch.code(at) == StatusCode::kOk;
    if (!there && operation.kind == YcsbKind::kInsert) {
      return absl::InternalError("ycsb: there is a row of this transaction already");
    }
    if (!there) {
      return absl::FailedPreconditionError(fmt::format(
          "ycsb: row {} of table 'ycsb' is missing; load the workload again", operation.row.place));
    }
    if (operation.kind == YcsbKind::kModify) request.counters[i] = CounterOf(batch.row(at));
    at += OperationsOf(operation.kind);
  }
  return absl::OkStatus();
}

runtime::Task<absl::Status> YcsbWorkload::Run(instance::Transaction& transaction,
                                              const instance::Request& request) const {
  const auto& ycsb = static_cast<const YcsbRequest&>(request);
  const partitioner::RangePartition& partition = *transaction.catalog().table(table_).partition;
  instance::Batch& batch = transaction.batch();
  for (const YcsbOperation& operation : ycsb.operations) {
    const auto last_place = static_cast<uint64_t>(partition.SiteBegin(operation.site + 1) - 1);
    Add(transaction.id(), ycsb, operation, last_place, batch);
  }
  const bool modifies =
      std::any_of(ycsb.operations.begin(), ycsb.operations.end(),
                  [](const YcsbOperation& operation) { return operation.kind == YcsbKind::kModify; });
  if (!modifies) batch.LastElsewhere();
  absl::Status status = co_await transaction.Execute(batch);
  if (status.ok()) status = Check(ycsb, batch);
  if (!status.ok()) co_return status;
  batch.Clear();
  for (size_t i = 0; i < ycsb.operations.size(); ++i) {
    const YcsbOperation& operation = ycsb.operations[i];
    if (operation.kind != YcsbKind::kModify) continue;
    const auto key = YcsbKey(operation.row);
    const int64_t counter = ycsb.counters[i] + 1;
    const size_t offset = options_.offset_of(operation.field);
    batch.Write(table_, key, 0, std::as_bytes(std::span(&counter, 1)));
    batch.Write(table_, key, static_cast<uint32_t>(offset),
                std::span(ycsb.row).subspan(offset, options_.field_bytes));
  }
  if (batch.empty()) co_return absl::OkStatus();
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  co_return status;
}

int64_t YcsbWorkload::AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const {
  (void)key;
  return table == table_ ? 1 + CounterOf(row) : 0;
}

}  // namespace islands::experiments
