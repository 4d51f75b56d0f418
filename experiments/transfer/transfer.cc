// The example to copy: money moves between two accounts.
//
// Table `account`: key [uint64], rows of 8 bytes, the balance as a little-endian int64. The account that pays
// is always of this island; the parameter `remote` says how often the other may be anybody's.
//
// Whoever has too little does not pay; a transfer never makes or loses money. So the sum of all balances
// stays what it was, and `islands run` checks that after every run: sum_check. With `totals` some
// transactions check it in the middle: they read all accounts of all islands, and the run fails if money is
// missing.
//
// Programs outside call `transfer.pay`, which is the same transfer between accounts that they name.
//
// Thread safety: a workload is immutable; generators and requests belong to one worker.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "instance/workload/workload.h"

namespace islands::transfer {
namespace {

using instance::Batch;
using instance::TableId;
using partitioner::RangePartition;
using partitioner::Uint64Key;

constexpr const char* kTable = "account";
constexpr const char* kTableLine = "- {name: account, key: [uint64], range: [0, 100000], row_bytes: 8}";
constexpr int64_t kOpeningBalance = 1000;
constexpr int64_t kLargestAmount = 500;

// 1. What a transaction is told.
struct Transfer final : instance::Request {
  uint64_t from = 0;
  uint64_t to = 0;
  int64_t amount = 0;
  bool total = false;  // all accounts are read instead
  // Request::audit_delta stays 0: a transfer does not change the sum.
};

// 2. Who makes that up: one generator per worker. Next allocates nothing.
class Customers final : public instance::Generator {
 public:
  struct Accounts {
    uint64_t first = 0;
    uint64_t count = 0;
  };
  struct Shares {
    double remote_percent = 0;
    double totals_percent = 0;
  };
  Customers(Accounts own, Accounts all, Shares shares) : own_(own), all_(all), shares_(shares) {}

  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Transfer>(); }
  void Next(runtime::Random& random, instance::Request& request) override {
    auto& transfer = static_cast<Transfer&>(request);
    transfer.total = random.Unit() * 100 < shares_.totals_percent;
    const Accounts& payees = random.Unit() * 100 < shares_.remote_percent ? all_ : own_;
    transfer.from = own_.first + random.Below(own_.count);
    transfer.to = payees.first + random.Below(payees.count - 1);
    if (transfer.to >= transfer.from) ++transfer.to;  // any of them but `from`
    transfer.amount = static_cast<int64_t>(1 + random.Below(kLargestAmount));
  }

 private:
  const Accounts own_;
  const Accounts all_;
  const Shares shares_;
};

int64_t BalanceOf(instance::RowView row) {
  int64_t balance = 0;
  if (row.size() >= sizeof(balance)) std::memcpy(&balance, row.data(), sizeof(balance));
  return balance;
}

// 3. Initial rows, procedure and audit.
class TransferWorkload final : public instance::Workload {
 public:
  TransferWorkload(TableId account, Customers::Shares shares) : account_(account), shares_(shares) {}
  const char* name() const override { return "transfer"; }
  std::vector<std::string> tables() const override { return {kTable}; }

  absl::Status Load(instance::Loader& loader) const override {
    const RangePartition& accounts = *loader.catalog().table(account_).partition;
    for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
      if (!loader.Owns(site)) continue;
      for (int64_t number = accounts.SiteBegin(site); number < accounts.SiteBegin(site + 1); ++number) {
        const Uint64Key key(static_cast<uint64_t>(number));
        const instance::RowView row = std::as_bytes(std::span(&kOpeningBalance, 1));
        if (absl::Status status = loader.Insert(account_, key, row); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    const RangePartition& accounts = *context.catalog.table(account_).partition;
    const auto between = [](int64_t begin, int64_t end) -> Customers::Accounts {
      return {static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)};
    };
    const auto own = between(accounts.SiteBegin(context.sites.first),
                             accounts.SiteBegin(context.sites.first + context.sites.count));
    if (own.count < 2) return absl::InvalidArgumentError("transfer: every island needs at least 2 accounts");
    return std::make_unique<Customers>(own, between(accounts.begin(), accounts.end()), shares_);
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const auto& transfer = static_cast<const Transfer&>(request);
    return transfer.total ? CheckTotal(transaction) : Pay(transaction, transfer, /*outcome=*/nullptr);
  }

  // What programs outside may call, with its arguments and results by name.
  const std::vector<instance::Procedure>& procedures() const override {
    using enum instance::ValueType;
    static const std::vector<instance::Procedure> kProcedures = {
        {.name = "pay",
         .about = "moves money to another account, if there is enough",
         .arguments = {{"from", kInt64}, {"to", kInt64}, {"amount", kInt64}},
         .results = {{"paid", kInt64}, {"balance", kInt64}},  // 1 or 0; of `from`, afterwards
         .home_table = kTable,
         .repeatable = true}};  // by arguments and rows alone
    return kProcedures;
  }

  // The island has seen to number and types of the arguments; what their values mean is ours to check. An
  // error undoes all of it, and the program outside reads its text.
  runtime::Task<absl::Status> Call(instance::Transaction& transaction, const instance::Procedure&,
                                   std::span<const instance::Value> arguments,
                                   std::vector<instance::Value>* results) const override {
    const int64_t from = std::get<int64_t>(arguments[0]);
    const int64_t to = std::get<int64_t>(arguments[1]);
    const int64_t amount = std::get<int64_t>(arguments[2]);
    const RangePartition& accounts = *transaction.catalog().table(account_).partition;
    if (!accounts.Find(from) || !accounts.Find(to) || from == to || amount < 0) {
      co_return absl::InvalidArgumentError(
          absl::StrCat("transfer.pay: found ", from, ", ", to, ", ", amount, ", expected two accounts from ",
                       accounts.begin(), " to ", accounts.end() - 1, " and an amount that is not negative"));
    }
    Transfer transfer;
    transfer.from = static_cast<uint64_t>(from);
    transfer.to = static_cast<uint64_t>(to);
    transfer.amount = amount;
    Outcome outcome;
    runtime::Task<absl::Status> task = Pay(transaction, transfer, &outcome);
    absl::Status status = co_await task;
    if (!status.ok()) co_return status;
    results->push_back(int64_t{outcome.paid});
    results->push_back(outcome.balance);
    co_return absl::OkStatus();
  }

  int64_t AuditRow(TableId, instance::KeyView, instance::RowView row) const override {
    return BalanceOf(row);
  }

 private:
  struct Outcome {
    bool paid = false;
    int64_t balance = 0;  // of who pays, afterwards
  };

  // A coroutine: other transactions of this worker run while it waits at co_await. Both accounts are read in
  // one batch, under the locks that the updates need: locking for the update later would invite deadlocks.
  // What is written depends on what was read, so it is a second batch. `outcome` may be null.
  runtime::Task<absl::Status> Pay(instance::Transaction& transaction, const Transfer& transfer,
                                  Outcome* outcome) const {
    const Uint64Key from(transfer.from);
    const Uint64Key to(transfer.to);
    const bool ascending = transfer.from < transfer.to;  // always locked in the same order: fewer deadlocks
    Batch& batch = transaction.batch();
    batch.ReadForUpdate(account_, ascending ? from : to);
    batch.ReadForUpdate(account_, ascending ? to : from);
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;  // the island aborts, and tries again if that may help
    if (batch.code(0) != absl::StatusCode::kOk || batch.code(1) != absl::StatusCode::kOk) {
      co_return absl::FailedPreconditionError("transfer: an account is missing; load the workload again");
    }
    const int64_t balance = BalanceOf(batch.row(ascending ? 0 : 1));
    const bool enough = balance >= transfer.amount;
    if (outcome != nullptr) *outcome = {enough, enough ? balance - transfer.amount : balance};
    // Too little money is an answer, not an error: the transaction commits, and nothing has changed.
    if (!enough) co_return absl::OkStatus();
    batch.Clear();
    batch.Add(account_, from, 0, -transfer.amount);
    batch.Add(account_, to, 0, transfer.amount);
    batch.LastElsewhere();  // the other island, if there is one, votes with its answer
    status = co_await transaction.Execute(batch);
    co_return status;
  }

  // All accounts add up to what they began with, at every moment that a transaction can see. What was read
  // counts once nobody who has read it can have died: a killed island forgets its locks, and others may have
  // changed half of it before the rest was read. Another Execute fails then, as the commit would.
  runtime::Task<absl::Status> CheckTotal(instance::Transaction& transaction) const {
    const RangePartition& accounts = *transaction.catalog().table(account_).partition;
    const Uint64Key first(static_cast<uint64_t>(accounts.begin()));
    const Uint64Key end(static_cast<uint64_t>(accounts.end()));
    Batch& batch = transaction.batch();
    batch.Scan(account_, first, end);
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    int64_t total = 0;
    for (size_t i = 0; i < batch.scanned_rows(0); ++i) total += BalanceOf(batch.scanned_row(0, i));
    const int64_t expected = (accounts.end() - accounts.begin()) * kOpeningBalance;
    if (total == expected) co_return absl::OkStatus();
    status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    // DATA_LOSS: the island's log has the text, and the run fails.
    co_return absl::DataLossError(
        absl::StrCat("transfer: all accounts together have ", total, ", expected ", expected));
  }

  const TableId account_;
  const Customers::Shares shares_;
};

// 4. What it can be told, as data: `islands run FILE transfer --remote 20` and its --help come from here.
const instance::Description& Describe() {
  static const instance::Description description = {
      .parameters =
          {{.name = "remote",
            .kind = instance::Parameter::Kind::kPercent,
            .help = "transfers that pay into an account drawn from the whole table, the others pay into "
                    "one of this island",
            .preset = "0"},
           {.name = "totals",
            .kind = instance::Parameter::Kind::kPercent,
            .help =
                "transactions that read all accounts instead, and fail the run if the total is wrong; for "
                "tables of a few hundred",
            .preset = "0"}},
      .tables = {kTable},
      .tables_yaml = kTableLine,
      .row_per_key = true};
  return description;
}

// 5. How islandd gets it: complaints say what was found and what would be right.
absl::StatusOr<std::unique_ptr<instance::Workload>> Open(const storage::Catalog& catalog,
                                                         const instance::Parameters& parameters) {
  const auto read = instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const auto* table = catalog.Find(kTable);
  const partitioner::KeySchema schema = {partitioner::KeyType::kUint64};
  if (table != nullptr && table->key == schema && table->partition && table->row_bytes == 8) {
    return std::make_unique<TransferWorkload>(
        table->id, Customers::Shares{.remote_percent = instance::NumberOf(*read, "remote"),
                                     .totals_percent = instance::NumberOf(*read, "totals")});
  }
  return absl::InvalidArgumentError(
      absl::StrCat("transfer: the deployment's data.tables must hold\n", kTableLine));
}

}  // namespace
}  // namespace islands::transfer

ISLANDS_WORKLOAD(islands::transfer::Open, islands::transfer::Describe)
