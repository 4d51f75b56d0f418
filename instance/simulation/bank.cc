#include "instance/simulation/bank.h"

#include <cstring>

namespace islands::simulation {
namespace {

using instance::Batch;
using instance::KeyView;
using instance::RowView;
using instance::TableId;
using partitioner::Uint64Key;

int64_t BalanceOf(RowView row) {
  int64_t balance = 0;
  std::memcpy(&balance, row.data(), sizeof(balance));
  return balance;
}

struct Transfer final : instance::Request {
  void CodeInput(instance::InputCoder& coder) override {
    coder.Code(from);
    coder.Code(to);
    coder.Code(amount);
  }

  uint64_t from = 0;  // == to: a deposit
  uint64_t to = 0;
  int64_t amount = 0;
};

class Tellers final : public instance::Generator {
 public:
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Transfer>(); }
  void Next(runtime::Random& random, instance::Request& request) override {
    auto& transfer = static_cast<Transfer&>(request);
    // A tenth of the accounts gets half of the traffic, so that transactions meet.
    const auto account = [&] { return random.Below(random.Below(2) == 0 ? kAccounts / 10 : kAccounts); };
    transfer.from = account() * 7 % kAccounts;
    transfer.to = account();
    transfer.amount = static_cast<int64_t>(1 + random.Below(30));
    transfer.audit_delta = transfer.from == transfer.to ? transfer.amount : 0;
  }
};

class Bank final : public instance::Workload {
 public:
  explicit Bank(TableId accounts) : accounts_(accounts) {}
  const char* name() const override { return "bank"; }
  std::vector<std::string> tables() const override { return {"accounts"}; }
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<Transfer>(); }

  absl::Status Load(instance::Loader& loader) const override {
    int64_t row[2] = {kOpeningBalance, 0};
    for (uint64_t account = 0; account < kAccounts; ++account) {
      const Uint64Key key(account);
      if (absl::Status status = loader.Insert(accounts_, key, std::as_bytes(std::span(row))); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext&) const override {
    return std::make_unique<Tellers>();
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const auto& transfer = static_cast<const Transfer&>(request);
    Batch& batch = transaction.batch();
    const Uint64Key from(transfer.from);
    const Uint64Key to(transfer.to);
    if (transfer.from == transfer.to) {
      batch.Add(accounts_, to, 0, transfer.amount);
      runtime::Task<absl::Status> deposit = transaction.Execute(batch);
      co_return co_await deposit;
    }
    batch.ReadForUpdate(accounts_, from);
    batch.ReadForUpdate(accounts_, to);
    runtime::Task<absl::Status> look = transaction.Execute(batch);
    absl::Status status = co_await look;
    if (!status.ok()) co_return status;
    const int64_t have = BalanceOf(batch.row(0));
    if (have < 0) co_return absl::InternalError("a balance fell below zero");
    if (have < transfer.amount) co_return absl::OkStatus();
    batch.Clear();
    batch.Add(accounts_, from, 0, -transfer.amount);
    batch.Add(accounts_, to, 0, transfer.amount);
    if (transfer.amount % 2 == 0) batch.LastElsewhere();
    runtime::Task<absl::Status> move = transaction.Execute(batch);
    co_return co_await move;
  }

  int64_t AuditRow(TableId, KeyView, RowView row) const override { return BalanceOf(row); }

 private:
  const TableId accounts_;
};

}  // namespace

control::v1::TableSpec BankTable() {
  control::v1::TableSpec table;
  table.set_name("accounts");
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(kAccounts);
  table.set_row_bytes(16);
  return table;
}

std::shared_ptr<const instance::Workload> OpenBank(const storage::Catalog& catalog) {
  return std::make_shared<Bank>(catalog.Find("accounts")->id);
}

}  // namespace islands::simulation
