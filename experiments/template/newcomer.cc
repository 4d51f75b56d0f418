// The workload `newcomer`: transactions that visit a few rows, and count their visits there. What it does is
// yours to replace; each part says what it has to keep to.
//
// Table `newcomer`: key [uint64], rows of 8 bytes, a count as a little-endian int64.
//
// A transaction that changes adds 1 to each of its rows, any other only reads them. So all counts together
// grow by the rows of the changes that have committed, no more and no less, and `islands run` checks that
// after every run: sum_check. And a count never goes back: a transaction that finds a smaller one than its
// worker has seen before fails the run.
//
// Programs outside call `newcomer.visit`, which counts a visit of one row.
//
// Thread safety: a workload is immutable; a generator and its requests belong to one worker.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "instance/workload/workload.h"

namespace {

using islands::instance::Batch;
using islands::instance::RowView;
using islands::instance::TableId;
using islands::partitioner::RangePartition;
using islands::partitioner::Uint64Key;

namespace instance = islands::instance;
namespace runtime = islands::runtime;

constexpr const char* kTable = "newcomer";
// What `islands template NISL --workload newcomer` writes into data.tables, and Open asks for.
constexpr const char* kTableLine = "- {name: newcomer, key: [uint64], range: [0, 100000], row_bytes: 8}";
constexpr uint32_t kMostRows = 100;
constexpr uint64_t kAgainPercent = 10;  // of reads: they begin where their worker has read before

int64_t CountIn(RowView row) {
  int64_t count = 0;
  if (row.size() >= sizeof(count)) std::memcpy(&count, row.data(), sizeof(count));
  return count;
}
RowView BytesOf(const int64_t& count) { return std::as_bytes(std::span(&count, 1)); }

// 1. What a transaction is told, by the generator, and what it leaves behind for it.
struct Visit final : instance::Request {
  std::vector<uint64_t> keys;  // ascending, each once: rows that are locked in one order make no deadlocks
  bool changes = false;
  uint64_t seen_key = 0;  // one of `keys`, which has been seen with so many visits
  int64_t seen_count = 0;
  // Run gets a constant request, since one that was aborted is run again as it is. What it finds out is
  // `mutable`; OnEnd reads it.
  mutable int64_t found = 0;  // in the row `seen_key`

  // With durability `command` the log has these, and what Run does with them is run again after a crash.
  void CodeInput(instance::InputCoder& coder) override {
    coder.CodeList(keys);
    coder.Code(changes);
    coder.Code(seen_key);
    coder.Code(seen_count);
  }
};

// 2. Parameters, as the workload uses them; Describe below says what they are.
struct Settings {
  uint32_t rows = 4;
  double changes_percent = 50;
  double remote_percent = 0;
};

// 3. Who makes up transactions: one generator for each worker. Next allocates nothing once all is warm.
class Visitors final : public instance::Generator {
 public:
  struct Keys {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  Visitors(Keys own, Keys all, const Settings& settings) : own_(own), all_(all), settings_(settings) {}

  std::unique_ptr<instance::Request> MakeRequest() override {
    auto visit = std::make_unique<Visit>();
    visit->keys.reserve(settings_.rows);
    return visit;
  }

  void Next(runtime::Random& random, instance::Request& request) override {
    auto& visit = static_cast<Visit&>(request);
    visit.changes = random.Unit() * 100 < settings_.changes_percent;
    visit.keys.clear();
    const bool again = !visit.changes && seen_count_ > 0 && random.Below(100) < kAgainPercent;
    if (again) visit.keys.push_back(seen_key_);
    // Of the whole table for some: such a transaction may be distributed, over several islands.
    const Keys& among = random.Unit() * 100 < settings_.remote_percent ? all_ : own_;
    while (visit.keys.size() < settings_.rows) {
      const uint64_t key = among.first + random.Below(among.count);
      const auto place = std::lower_bound(visit.keys.begin(), visit.keys.end(), key);
      if (place == visit.keys.end() || *place != key) visit.keys.insert(place, key);
    }
    visit.seen_key = again ? seen_key_ : visit.keys.front();
    visit.seen_count = again ? seen_count_ : 0;
    // What the transaction adds to the audited sum (AuditRow, below) if it commits.
    visit.audit_delta = visit.changes ? settings_.rows : 0;
  }

  // Once for every attempt, with every outcome. What an aborted or an unknown one has found may not be so.
  void OnEnd(const islands::coordinator::TransactionId&, const instance::Request& request,
             islands::coordinator::Outcome outcome) override {
    const auto& visit = static_cast<const Visit&>(request);
    if (outcome != islands::coordinator::Outcome::kCommitted || visit.changes) return;
    seen_key_ = visit.seen_key;
    seen_count_ = visit.found;
  }

 private:
  const Keys own_;
  const Keys all_;
  const Settings settings_;
  uint64_t seen_key_ = 0;
  int64_t seen_count_ = 0;
};

// 4. Initial rows, the transaction, the audit.
class NewcomerWorkload final : public instance::Workload {
 public:
  NewcomerWorkload(TableId table, const Settings& settings) : table_(table), settings_(settings) {}
  const char* name() const override { return "newcomer"; }
  std::vector<std::string> tables() const override { return {kTable}; }
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<Visit>(); }

  // The loader: every island calls it, and keeps the rows of its own sites. The rows must not depend on who
  // asks, so that every layout has the same ones.
  absl::Status Load(instance::Loader& loader) const override {
    const RangePartition& keys = *loader.catalog().table(table_).partition;
    constexpr int64_t kNone = 0;
    for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
      if (!loader.Owns(site)) continue;
      for (int64_t key = keys.SiteBegin(site); key < keys.SiteBegin(site + 1); ++key) {
        absl::Status status = loader.Insert(table_, Uint64Key(static_cast<uint64_t>(key)), BytesOf(kNone));
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    const RangePartition& keys = *context.catalog.table(table_).partition;
    const auto between = [](int64_t begin, int64_t end) -> Visitors::Keys {
      return {static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)};
    };
    const auto own = between(keys.SiteBegin(context.sites.first),
                             keys.SiteBegin(context.sites.first + context.sites.count));
    // One more, since a read may begin with a row of another island.
    if (own.count <= settings_.rows) {
      return absl::InvalidArgumentError(absl::StrCat("newcomer: found --rows ", settings_.rows,
                                                     ", expected fewer than the ", own.count,
                                                     " rows that an island has"));
    }
    return std::make_unique<Visitors>(own, between(keys.begin(), keys.end()), settings_);
  }

  // The transaction: OK commits it, an error aborts it. Errors of Execute are returned as they are, for the
  // island tries again where that may help. It may run more than once before it commits, so nothing but what
  // is `mutable` in the request is kept, and that is set anew.
  //
  // A coroutine: other transactions of this worker run while it waits at co_await.
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const auto& visit = static_cast<const Visit&>(request);
    std::vector<int64_t> counts(visit.keys.size());
    // Operations of one batch are independent of each other: those on this island's rows run here, those of
    // each other island are shipped in one message. Rows that are to be changed are read under the lock that
    // this needs.
    Batch& batch = transaction.batch();
    for (const uint64_t key : visit.keys) {
      if (visit.changes) {
        batch.ReadForUpdate(table_, Uint64Key(key));
      } else {
        batch.Read(table_, Uint64Key(key));
      }
    }
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < visit.keys.size(); ++i) {
      if (batch.code(i) != absl::StatusCode::kOk) {
        co_return absl::FailedPreconditionError("newcomer: a row is missing; load the workload again");
      }
      counts[i] = CountIn(batch.row(i));
      if (visit.keys[i] == visit.seen_key) visit.found = counts[i];
    }
    // DATA_LOSS is for what must never be seen: the island's log has the text, and `islands run` fails.
    if (visit.found < visit.seen_count) {
      co_return absl::DataLossError(absl::StrCat("newcomer: row ", visit.seen_key, " has ", visit.found,
                                                 " visits, and had ", visit.seen_count));
    }
    if (!visit.changes) co_return absl::OkStatus();
    // What is written depends on what was read: a second batch.
    batch.Clear();
    for (size_t i = 0; i < visit.keys.size(); ++i) {
      ++counts[i];
      batch.Write(table_, Uint64Key(visit.keys[i]), 0, BytesOf(counts[i]));
    }
    // Other islands vote with their answer, which saves the commit a round of messages.
    batch.LastElsewhere();
    status = co_await transaction.Execute(batch);
    co_return status;
  }

  // The audit: what a row adds to the sum that only audit_delta of committed transactions may change. Rows
  // are summed before and after every run, when all is quiet. A lost change, or half a transaction, shows.
  int64_t AuditRow(TableId, instance::KeyView, RowView row) const override { return CountIn(row); }

  // What programs outside may call, with its arguments and results by name:
  //   islands client FILE call newcomer.visit 17
  const std::vector<instance::Procedure>& procedures() const override {
    using enum instance::ValueType;
    static const std::vector<instance::Procedure> kProcedures = {{.name = "visit",
                                                                  .about = "counts a visit of a row",
                                                                  .arguments = {{"key", kInt64}},
                                                                  .results = {{"visits", kInt64}},
                                                                  .home_table = kTable,
                                                                  .repeatable = true}};  // by its key alone
    return kProcedures;
  }

  // The island has seen to number and types of the arguments; what their values mean is ours to check.
  runtime::Task<absl::Status> Call(instance::Transaction& transaction, const instance::Procedure&,
                                   std::span<const instance::Value> arguments,
                                   std::vector<instance::Value>* results) const override {
    const int64_t key = std::get<int64_t>(arguments[0]);
    const RangePartition& keys = *transaction.catalog().table(table_).partition;
    if (!keys.Find(key)) {
      co_return absl::InvalidArgumentError(
          absl::StrCat("newcomer.visit: found ", key, ", expected ", keys.begin(), " to ", keys.end() - 1));
    }
    Batch& batch = transaction.batch();
    batch.Add(table_, Uint64Key(static_cast<uint64_t>(key)), 0, 1);  // reads and writes at once
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    results->push_back(CountIn(batch.row(0)));
    co_return absl::OkStatus();
  }

 private:
  const TableId table_;
  const Settings settings_;
};

// 5. What it can be told, as data: the options of `islands run FILE newcomer`, its --help and what sweeps
// check are made of it. `.loads = true` for a parameter that shapes the initial rows,
// `.grows = true` for one that says how many rows runs leave behind.
const instance::Description& Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters = {{.name = "rows",
                      .kind = Kind::kWhole,
                      .help = "rows of a transaction",
                      .min = 1,
                      .max = kMostRows,
                      .preset = "4"},
                     {.name = "changes",
                      .kind = Kind::kPercent,
                      .help = "transactions that add a visit to each row; the others read",
                      .preset = "50"},
                     {.name = "remote",
                      .kind = Kind::kPercent,
                      .help =
                          "transactions whose rows are drawn from the whole table, not from this island's",
                      .preset = "0"}},
      .tables = {kTable},
      .tables_yaml = kTableLine,
      .row_per_key = true};
  return description;
}

// 6. How an island gets it. Complaints say what was found and what would be right.
absl::StatusOr<std::unique_ptr<instance::Workload>> Open(const islands::storage::Catalog& catalog,
                                                         const instance::Parameters& parameters) {
  const auto read = instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const auto* table = catalog.Find(kTable);
  const islands::partitioner::KeySchema schema = {islands::partitioner::KeyType::kUint64};
  if (table == nullptr || table->key != schema || !table->partition || table->row_bytes != 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("newcomer: the deployment's data.tables must hold\n", kTableLine));
  }
  return std::make_unique<NewcomerWorkload>(
      table->id, Settings{.rows = static_cast<uint32_t>(instance::NumberOf(*read, "rows")),
                          .changes_percent = instance::NumberOf(*read, "changes"),
                          .remote_percent = instance::NumberOf(*read, "remote")});
}

}  // namespace

ISLANDS_WORKLOAD(Open, Describe)
