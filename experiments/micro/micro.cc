#include "experiments/micro/micro.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/numbers.h"
#include "experiments/micro/micro_generator.h"
#include "experiments/micro/micro_row.h"

namespace islands::experiments {
namespace {

static_assert(std::endian::native == std::endian::little, "the counter is read as it lies in the row");

absl::Status BadValue(const std::string& name, const std::string& value, const std::string& allowed) {
  return absl::InvalidArgumentError(fmt::format("micro: {}={}: expected {}", name, value, allowed));
}

absl::Status ParseNumber(const std::string& name, const std::string& value, double limit, double* number) {
  if (absl::SimpleAtod(value, number) && std::isfinite(*number) && *number >= 0 && *number <= limit) {
    return absl::OkStatus();
  }
  return BadValue(name, value, fmt::format("a number from 0 to {}", limit));
}

absl::Status ParseOne(const std::string& name, const std::string& value, MicroOptions* options) {
  if (name == "op") {
    const std::optional<MicroOp> op = MicroOpOf(value);
    options->op = op.value_or(MicroOp::kRead);
    options->mix = value == "mix";
    return op || options->mix ? absl::OkStatus() : BadValue(name, value, "read, update, add or mix");
  }
  if (name == "rows") {
    if (absl::SimpleAtoi(value, &options->rows) && options->rows >= 1 && options->rows <= kMicroMaxRows) {
      return absl::OkStatus();
    }
    return BadValue(name, value, fmt::format("a whole number from 1 to {}", kMicroMaxRows));
  }
  if (name == "update_percent") return ParseNumber(name, value, 100, &options->update_percent);
  if (name == "multisite") return ParseNumber(name, value, 100, &options->multisite_percent);
  // Beyond this the second key is never drawn: the law has degenerated.
  if (name == "zipf") return ParseNumber(name, value, 1000, &options->zipf);
  return absl::InvalidArgumentError(fmt::format(
      "micro: unknown parameter '{}'; there are op, update_percent, rows, multisite and zipf", name));
}

absl::StatusOr<const storage::TableDefinition*> FindTable(const storage::Catalog& catalog) {
  const storage::TableDefinition* table = catalog.Find(kMicroTable);
  const char* shape = "{name: micro, key: [uint64], range: [0, 240000], row_bytes: 250}";
  if (table == nullptr) {
    return absl::NotFoundError(
        fmt::format("micro: the deployment has no table 'micro'; add {} to its data.tables", shape));
  }
  const bool fits = table->key == partitioner::KeySchema{partitioner::KeyType::kUint64} &&
                    table->partition.has_value() && (table->row_bytes == 0 || table->row_bytes >= 8);
  if (fits) return table;
  return absl::InvalidArgumentError(fmt::format(
      "micro: table 'micro' must have one uint64 key, a range and rows of at least 8 bytes, like {}", shape));
}

absl::Status MissingRow(uint64_t key, absl::StatusCode code) {
  return absl::FailedPreconditionError(
      fmt::format("micro: row {} of table 'micro' is missing ({}); load the workload again", key,
                  std::string(absl::StatusCodeToString(code))));
}

}  // namespace

absl::StatusOr<MicroOptions> ParseMicroOptions(const instance::Parameters& parameters) {
  MicroOptions options;
  for (const auto& [name, value] : parameters) {
    if (absl::Status status = ParseOne(name, value, &options); !status.ok()) return status;
  }
  return options;
}

absl::StatusOr<std::unique_ptr<MicroWorkload>> MicroWorkload::Create(const storage::Catalog& catalog,
                                                                     const instance::Parameters& parameters) {
  absl::StatusOr<MicroOptions> options = ParseMicroOptions(parameters);
  if (!options.ok()) return options.status();
  absl::StatusOr<const storage::TableDefinition*> table = FindTable(catalog);
  if (!table.ok()) return table.status();
  return std::unique_ptr<MicroWorkload>(new MicroWorkload((*table)->id, *options));
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
  return MicroGenerator::Create(options_, *context.catalog.table(table_).partition, context.sites);
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
