#include "experiments/append/append.h"

#include <fmt/format.h>

#include <utility>

#include "experiments/micro/micro_generator.h"

namespace islands::experiments {
namespace {

using instance::Batch;
using partitioner::Uint64Key;

constexpr double kConvertPercent = 12;  // of appends
constexpr double kGiveUpPercent = 1;    // of transactions that append

class AppendGenerator final : public instance::Generator {
 public:
  AppendGenerator(const AppendOptions& options, std::unique_ptr<MicroGenerator> rows,
                  std::unique_ptr<HistoryLog> log)
      : options_(options), rows_(std::move(rows)), log_(std::move(log)) {}

  std::unique_ptr<instance::Request> MakeRequest() override {
    auto request = std::make_unique<AppendRequest>();
    request->drawn = rows_->MakeRequest();
    request->acts.reserve(options_.draw.rows);
    request->log = log_.get();
    return request;
  }

  void Next(runtime::Random& random, instance::Request& asked) override {
    auto& request = static_cast<AppendRequest&>(asked);
    const auto chance = [&random](double percent) { return random.Unit() * 100 < percent; };
    rows_->Next(random, *request.drawn);
    request.acts.assign(request.keys().size(), AppendRequest::kRead);
    request.audit_delta = 0;
    request.gives_up = false;
    if (chance(options_.readers_percent)) return;
    const size_t surely = random.Below(request.acts.size());
    for (size_t i = 0; i < request.acts.size(); ++i) {
      if (i != surely && !chance(options_.appends_percent)) continue;
      request.acts[i] = chance(kConvertPercent) ? AppendRequest::kReadThenAppend : AppendRequest::kAppend;
      ++request.audit_delta;
    }
    request.gives_up = chance(kGiveUpPercent);
  }

  void OnEnd(const coordinator::TransactionId& id, const instance::Request&,
             coordinator::Outcome outcome) override {
    log_->End(id, outcome, clock_.NowNs());
  }

 private:
  const AppendOptions options_;
  const std::unique_ptr<MicroGenerator> rows_;
  const std::unique_ptr<HistoryLog> log_;
  const runtime::MonotonicClock clock_;
};

constexpr const char* kTableLine = "- {name: append, key: [uint64], range: [0, 24000], row_bytes: 120}";

absl::Status CheckTable(const storage::TableDefinition* table) {
  if (table == nullptr) {
    return absl::NotFoundError(
        fmt::format("append: the deployment has no table 'append'; its data.tables need\n{}", kTableLine));
  }
  if (table->key == partitioner::KeySchema{partitioner::KeyType::kUint64} && table->partition.has_value() &&
      table->row_bytes >= kAppendLeastRowBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("append: table 'append' must have one uint64 key, a range and rows of at least {} bytes, "
                  "like\n{}",
                  kAppendLeastRowBytes, kTableLine));
}

}  // namespace

const instance::Description& AppendWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters =
          {// A history begins with lists whose elements it knows.
           {.name = "history",
            .kind = Kind::kPath,
            .help = "directory in which each worker writes its history; another one loads anew",
            .loads = true},
           RowsParameter("4"),
           MultisiteParameter(),
           ZipfParameter(),
           {.name = "readers", .kind = Kind::kPercent, .help = "transactions that only read", .preset = "20"},
           {.name = "appends",
            .kind = Kind::kPercent,
            .help = "rows of the others that are appended to, one at least",
            .preset = "50"}},
      .tables = {kAppendTable},
      .tables_yaml = kTableLine,
      .row_per_key = true,
      .rows_total_of = kAppendTable};
  return description;
}

absl::StatusOr<std::unique_ptr<AppendWorkload>> AppendWorkload::Create(
    const storage::Catalog& catalog, const instance::Parameters& parameters) {
  using instance::NumberOf;
  const absl::StatusOr<instance::Parameters> read =
      instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const AppendOptions options = {.history = read->at("history"),
                                 .draw = {.rows = static_cast<uint32_t>(NumberOf(*read, "rows")),
                                          .multisite_percent = NumberOf(*read, "multisite"),
                                          .zipf = NumberOf(*read, "zipf")},
                                 .readers_percent = NumberOf(*read, "readers"),
                                 .appends_percent = NumberOf(*read, "appends")};
  const storage::TableDefinition* table = catalog.Find(kAppendTable);
  if (absl::Status fits = CheckTable(table); !fits.ok()) return fits;
  return std::unique_ptr<AppendWorkload>(new AppendWorkload(*table, options));
}

absl::Status AppendWorkload::CheckRun(const storage::Catalog& catalog) const {
  return CheckRowsFit(options_.draw, *catalog.table(table_).partition, catalog.sites());
}

absl::Status AppendWorkload::Load(instance::Loader& loader) const {
  const partitioner::RangePartition& range = *loader.catalog().table(table_).partition;
  std::vector<std::byte> row(row_bytes_);
  std::optional<uint64_t> life;
  for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
    if (!loader.Owns(site)) continue;
    if (!life) life = MakeLife(site, clock_.NowNs());
    FillAppendRow(*life, row);
    for (int64_t key = range.SiteBegin(site); key < range.SiteBegin(site + 1); ++key) {
      const Uint64Key encoded(static_cast<uint64_t>(key));
      if (absl::Status status = loader.Insert(table_, encoded, row); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> AppendWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  auto rows = std::make_unique<MicroGenerator>(options_.draw, *context.catalog.table(table_).partition,
                                               context.sites);
  absl::StatusOr<std::unique_ptr<HistoryLog>> log = HistoryLog::Create(
      options_.history, context.island, context.worker, context.sites.first, clock_.NowNs());
  if (!log.ok()) return log.status();
  return std::make_unique<AppendGenerator>(options_, std::move(rows), *std::move(log));
}

runtime::Task<absl::Status> AppendWorkload::Run(instance::Transaction& transaction,
                                                const instance::Request& asked) const {
  const auto& request = static_cast<const AppendRequest&>(asked);
  const std::vector<uint64_t>& keys = request.keys();
  RecordedAttempt attempt{.id = Element::Of(transaction.id()), .begun_ns = clock_.NowNs()};
  Batch& batch = transaction.batch();
  for (size_t i = 0; i < keys.size(); ++i) {
    const Uint64Key key(keys[i]);
    if (request.acts[i] == AppendRequest::kAppend) {
      batch.ReadForUpdate(table_, key);
    } else {
      batch.Read(table_, key);
    }
  }
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  std::vector<std::byte> rows;
  const absl::Status looked = Look(batch, request, &attempt, &rows);
  status = request.log->Begin(attempt);  // a torn row, too
  if (!looked.ok()) co_return looked;
  if (!status.ok() || rows.empty()) co_return status;
  batch.Clear();
  instance::RowView rest(rows);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (request.acts[i] == AppendRequest::kRead) continue;
    batch.Write(table_, Uint64Key(keys[i]), 0, rest.first(row_bytes_));
    rest = rest.subspan(row_bytes_);
  }
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch.code(i) != absl::StatusCode::kOk) co_return absl::InternalError("append: a locked row is gone");
  }
  co_return request.gives_up ? absl::AbortedError("append: gives up on purpose") : absl::OkStatus();
}

absl::Status AppendWorkload::Look(const Batch& batch, const AppendRequest& request, RecordedAttempt* attempt,
                                  std::vector<std::byte>* rows) const {
  absl::Status status;
  attempt->looks.reserve(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint64_t key = request.keys()[i];
    if (batch.code(i) != absl::StatusCode::kOk) {
      return absl::FailedPreconditionError(
          fmt::format("append: row {} of table 'append' is missing; load the workload again", key));
    }
    const std::optional<AppendRow> row = ReadAppendRow(batch.row(i));
    RecordedLook& look = attempt->looks.emplace_back();
    look.key = key;
    look.torn = !row.has_value();
    if (look.torn) {
      status = absl::DataLossError(fmt::format("append: row {} of table 'append' is torn", key));
      continue;
    }
    look.before = *row;
    look.appends = request.acts[i] != AppendRequest::kRead;
    if (!look.appends) continue;
    if (row->count >= kMostElements) {
      return absl::ResourceExhaustedError(
          fmt::format("append: row {} of table 'append' has {} elements, which is all that can be judged; "
                      "use a shorter run or more rows",
                      key, row->count));
    }
    const size_t at = rows->size();
    rows->insert(rows->end(), batch.row(i).begin(), batch.row(i).end());
    AppendToRow(attempt->id, std::span(*rows).subspan(at));
  }
  return status;
}

int64_t AppendWorkload::AuditRow(instance::TableId table, instance::KeyView key,
                                 instance::RowView row) const {
  (void)key;
  const std::optional<AppendRow> found = table == table_ ? ReadAppendRow(row) : std::nullopt;
  return found ? static_cast<int64_t>(found->count) : 0;
}

}  // namespace islands::experiments
