#include "instance/simulation/one_transaction.h"

#include <cstring>
#include <utility>

namespace islands::simulation {
namespace {

using coordinator::Outcome;
using instance::RowView;
using partitioner::Uint64Key;

constexpr uint64_t kKeysPerIsland = 8;

class Client final : public instance::Generator {
 public:
  explicit Client(std::shared_ptr<OneTransaction> transaction) : transaction_(std::move(transaction)) {}
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<instance::Request>(); }
  void Next(runtime::Random&, instance::Request&) override {}
  void OnEnd(const coordinator::TransactionId& id, const instance::Request&, Outcome outcome) override {
    if (id == transaction_->id && outcome != Outcome::kUnknown) transaction_->answer = outcome;
  }

 private:
  const std::shared_ptr<OneTransaction> transaction_;
};

class Workload final : public instance::Workload {
 public:
  Workload(const storage::TableDefinition& table, std::shared_ptr<OneTransaction> transaction)
      : table_(table.id), transaction_(std::move(transaction)) {}
  const char* name() const override { return "one-transaction"; }
  std::vector<std::string> tables() const override { return {"rows"}; }

  absl::Status Load(instance::Loader& loader) const override {
    const int64_t row[2] = {0, 0};
    absl::Status status;
    for (uint64_t island = 0; island < transaction_->roles.size(); ++island)
      status.Update(loader.Insert(table_, Uint64Key(island * kKeysPerIsland), std::as_bytes(std::span(row))));
    return status;
  }

  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext&) const override {
    return std::make_unique<Client>(transaction_);
  }

  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request&) const override {
    if (transaction_->id) co_return absl::FailedPreconditionError("there is one transaction only");
    transaction_->id = transaction.id();
    instance::Batch& batch = transaction.batch();
    for (uint64_t island = 0; island < transaction_->roles.size(); ++island) {
      const Uint64Key key(island * kKeysPerIsland);
      if (transaction_->roles[island] == Role::kReads) batch.Read(table_, key);
      if (transaction_->roles[island] == Role::kWrites) batch.Add(table_, key, 0, 1);
    }
    runtime::Task<absl::Status> all = transaction.Execute(batch);
    co_return co_await all;
  }

  int64_t AuditRow(instance::TableId, instance::KeyView, RowView row) const override {
    int64_t added = 0;
    std::memcpy(&added, row.data(), sizeof(added));
    return added;
  }

 private:
  const instance::TableId table_;
  const std::shared_ptr<OneTransaction> transaction_;
};

}  // namespace

control::v1::TableSpec OneTransaction::Table(uint32_t islands) {
  control::v1::TableSpec table;
  table.set_name("rows");
  table.add_key("uint64");
  table.set_range_begin(0);
  table.set_range_end(static_cast<int64_t>(islands * kKeysPerIsland));
  table.set_row_bytes(16);
  return table;
}

std::shared_ptr<const instance::Workload> OneTransaction::Open(const storage::Catalog& catalog,
                                                               std::shared_ptr<OneTransaction> transaction) {
  return std::make_shared<Workload>(*catalog.Find("rows"), std::move(transaction));
}

}  // namespace islands::simulation
