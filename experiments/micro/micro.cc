#include "experiments/micro/micro.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "experiments/micro/micro_generator.h"
#include "experiments/micro/micro_row.h"

namespace islands::experiments {
namespace {

static_assert(std::endian::native == std::endian::little, "the counter is read as it lies in the row");

constexpr const char* kTableLine = "- {name: micro, key: [uint64], range: [0, 240000], row_bytes: 250}";

MicroOptions OptionsFrom(const instance::Parameters& read) {
  MicroOptions options;
  options.op = MicroOpOf(read.at("op")).value_or(MicroOp::kRead);
  options.mix = read.at("op") == "mix";
  if (options.mix) options.update_percent = instance::NumberOf(read, "update_percent");
  options.rows = static_cast<uint32_t>(instance::NumberOf(read, "rows"));
  options.multisite_percent = instance::NumberOf(read, "multisite");
  options.zipf = instance::NumberOf(read, "zipf");
  options.skew_of_table = read.at("skew") == "table";
  options.local_to_island = read.at("local") == "island";
  options.sites_touched = static_cast<uint32_t>(instance::NumberOf(read, "sites_touched"));
  options.drift_per_s = instance::NumberOf(read, "drift");
  return options;
}

absl::StatusOr<const storage::TableDefinition*> FindTable(const storage::Catalog& catalog) {
  const storage::TableDefinition* table = catalog.Find(kMicroTable);
  if (table == nullptr) {
    return absl::NotFoundError(
        fmt::format("micro: the deployment has no table 'micro'; its data.tables need\n{}", kTableLine));
  }
  const bool fits = table->key == partitioner::KeySchema{partitioner::KeyType::kUint64} &&
                    table->partition.has_value() && (table->row_bytes == 0 || table->row_bytes >= 8);
  if (fits) return table;
  return absl::InvalidArgumentError(fmt::format(
      "micro: table 'micro' must have one uint64 key, a range and rows of at least 8 bytes, like\n{}",
      kTableLine));
}

absl::Status MissingRow(uint64_t key, absl::StatusCode code) {
  return absl::FailedPreconditionError(
      fmt::format("micro: row {} of table 'micro' is missing ({}); load the workload again", key,
                  std::string(absl::StatusCodeToString(code))));
}

instance::Parameter SkewParameter() {
  return {
      .name = "skew",
      .kind = instance::Parameter::Kind::kChoice,
      .help =
          "what zipf is the law of: per_site (every site has hot rows of its own); table (hot rows share a "
          "site, and an island, as in section 7.3 of the paper)",
      .choices = {"per_site", "table"},
      .preset = "per_site"};
}

instance::Parameter LocalParameter() {
  return {.name = "local",
          .kind = instance::Parameter::Kind::kChoice,
          .help =
              "where a transaction that is not multisite has all its rows: in one site, whatever the layout; "
              "or anywhere on its island (section 5.2 of the paper)",
          .choices = {"site", "island"},
          .preset = "site"};
}

instance::Parameter SitesTouchedParameter() {
  return {.name = "sites_touched",
          .kind = instance::Parameter::Kind::kWhole,
          .help =
              "exactly so many sites have the rows of a multisite transaction, each as many as the others or "
              "one more; 0: as they fall",
          .max = kMicroMaxRows,
          .preset = "0",
          .idle_with = {{"multisite", "0"}}};
}

instance::Parameter DriftParameter() {
  return {
      .name = "drift",
      .kind = instance::Parameter::Kind::kNumber,
      .help =
          "rows per second that the hot ones move on by, through the table or, with skew per_site, through "
          "each site",
      .max = kMaxDrift,
      .preset = "0",
      .idle_with = {{"zipf", "0"}}};
}

}  // namespace

instance::Parameter RowsParameter(const char* preset) {
  return {.name = "rows",
          .kind = instance::Parameter::Kind::kWhole,
          .help = "distinct rows of a transaction",
          .min = 1,
          .max = kMicroMaxRows,
          .preset = preset};
}

instance::Parameter MultisiteParameter() {
  return {.name = "multisite",
          .kind = instance::Parameter::Kind::kPercent,
          .help =
              "transactions that take their first row from a site of their island, the others from the "
              "whole table",
          .preset = "0"};
}

instance::Parameter ZipfParameter() {
  return {.name = "zipf",
          .kind = instance::Parameter::Kind::kNumber,
          .help = "skew of the choice of rows; 0 = uniform",
          .max = kMaxZipf,
          .preset = "0"};
}

const instance::Description& MicroWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters = {{.name = "op",
                      .kind = Kind::kChoice,
                      .help =
                          "what a transaction does with its rows: read; update (copies each, adds 1 to its "
                          "counter and writes it back); add (adds 1 in place); mix (updates and reads)",
                      .choices = {"read", "update", "add", "mix"},
                      .preset = "read"},
                     {.name = "update_percent",
                      .kind = Kind::kPercent,
                      .help = "of a mix: transactions that update, the others read",
                      .only_with = {{"op", "mix"}}},
                     RowsParameter("10"),
                     MultisiteParameter(),
                     ZipfParameter(),
                     SkewParameter(),
                     LocalParameter(),
                     SitesTouchedParameter(),
                     DriftParameter()},
      .tables = {kMicroTable},
      .tables_yaml = kTableLine,
      .row_per_key = true,
      .rows_total_of = kMicroTable};
  return description;
}

absl::StatusOr<std::unique_ptr<MicroWorkload>> MicroWorkload::Create(const storage::Catalog& catalog,
                                                                     const instance::Parameters& parameters) {
  const absl::StatusOr<instance::Parameters> read =
      instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  absl::StatusOr<const storage::TableDefinition*> table = FindTable(catalog);
  if (!table.ok()) return table.status();
  return std::unique_ptr<MicroWorkload>(new MicroWorkload((*table)->id, OptionsFrom(*read)));
}

absl::Status MicroWorkload::CheckRun(const storage::Catalog& catalog) const {
  return CheckRowsFit(options_, *catalog.table(table_).partition, catalog.sites());
}

absl::Status MicroWorkload::Load(instance::Loader& loader) const {
  const storage::TableDefinition& table = loader.catalog().table(table_);
  std::vector<std::byte> row(table.row_bytes == 0 ? kMicroRowBytes : table.row_bytes);
  for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
    if (!loader.Owns(site)) continue;
    const int64_t end = table.partition->SiteBegin(site + 1);
    for (int64_t key = table.partition->SiteBegin(site); key < end; ++key) {
      FillMicroRow(static_cast<uint64_t>(key), row);
      const partitioner::Uint64Key encoded(static_cast<uint64_t>(key));
      if (absl::Status status = loader.Insert(table_, encoded, row); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> MicroWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  const partitioner::RangePartition& partition = *context.catalog.table(table_).partition;
  if (absl::Status fits = CheckRowsFit(options_, partition, context.sites); !fits.ok()) return fits;
  return std::make_unique<MicroGenerator>(options_, partition, context.sites, context.clock,
                                          context.began_ns);
}

runtime::Task<absl::Status> MicroWorkload::Run(instance::Transaction& transaction,
                                               const instance::Request& request) const {
  const auto& micro = static_cast<const MicroRequest&>(request);
  const std::vector<uint64_t>& keys = micro.keys;
  instance::Batch& batch = transaction.batch();
  for (uint64_t key : keys) {
    const partitioner::Uint64Key encoded(key);
    switch (micro.op) {
      case MicroOp::kRead:
        batch.Read(table_, encoded);
        break;
      case MicroOp::kUpdate:
        batch.Update(table_, encoded, 0, 1);
        break;
      case MicroOp::kAdd:
        batch.Add(table_, encoded, 0, 1);
        break;
    }
  }
  batch.LastElsewhere();
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (batch.code(i) != absl::StatusCode::kOk) co_return MissingRow(keys[i], batch.code(i));
  }
  co_return absl::OkStatus();
}

int64_t MicroWorkload::AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const {
  (void)key;
  int64_t counter = 0;
  if (table == table_ && row.size() >= sizeof(counter)) std::memcpy(&counter, row.data(), sizeof(counter));
  return counter;
}

}  // namespace islands::experiments
