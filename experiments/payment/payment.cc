#include "experiments/payment/payment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "experiments/payment/payment_customer.h"
#include "experiments/payment/payment_generator.h"
#include "experiments/payment/payment_keys.h"
#include "experiments/payment/payment_loader.h"

namespace islands::experiments {
namespace {

using instance::Batch;
using HistoryData = std::array<char, sizeof(HistoryRow::data)>;

constexpr uint32_t kFewestCustomers = 10;

// Of the audited sum. Primes, so that mistakes in two columns seldom cancel out.
constexpr int64_t kWarehouseWeight = 101;
constexpr int64_t kDistrictWeight = 103;
constexpr int64_t kCustomerYtdWeight = 107;
constexpr int64_t kBalanceWeight = 109;  // of the balance's negative
constexpr int64_t kHistoryWeight = 113;
constexpr int64_t kPaymentWeight = 127;  // of one payment counted

// Operations of the batch that pays at home: if the customer is there, too, it is looked for in between.
enum : size_t { kReadDistrict, kAddDistrict, kReadWarehouse, kAddWarehouse };
constexpr size_t kFindCustomer = kReadWarehouse;

// Of the last, where the customer is at home.
enum : size_t { kWriteCustomer, kEnterHistory };

absl::Status Missing(const std::string& row) {
  return absl::FailedPreconditionError(
      fmt::format("payment: {} is missing; load the workload again, with the same `customers`", row));
}

absl::Status CheckCustomer(absl::StatusCode code) {
  return code == absl::StatusCode::kOk ? absl::OkStatus() : Missing("the customer just read");
}

absl::Status CheckHistory(absl::StatusCode code) {
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  if (code == absl::StatusCode::kNotFound) return Missing("a history row");
  return absl::InternalError("payment: the history has a row of this transaction already");
}

// Bad credit: what was paid goes before the data, whose end falls off.
void PrependPayment(const PaymentRequest& request, uint32_t customer, std::span<char> data) {
  char paid[80];
  const auto written =
      fmt::format_to_n(paid, sizeof(paid), "{} {} {} {} {} {}.{:02} ", customer, request.customer_district,
                       request.customer_warehouse, request.district, request.warehouse,
                       request.amount_cents / 100, request.amount_cents % 100);
  std::memmove(data.data() + written.size, data.data(), data.size() - written.size);
  std::memcpy(data.data(), paid, written.size);
}

// What the last batch needs of the customer's row, which makes room for it.
struct Noted {
  uint32_t customer;
  size_t changed_bytes;  // of the customer's row
  struct [[gnu::packed]] {
    CustomerAccount account;
    char data[sizeof(CustomerRow::data)];  // if the credit is bad
  } changed;
};

void NoteCustomer(const PaymentRequest& request, const FoundCustomer& found, Noted* noted) {
  noted->customer = found.number();
  const bool bad_credit = std::memcmp(found.row.data() + offsetof(CustomerRow, credit), "BC", 2) == 0;
  noted->changed_bytes = bad_credit ? sizeof(noted->changed) : sizeof(noted->changed.account);
  std::memcpy(&noted->changed, found.row.data(), noted->changed_bytes);
  noted->changed.account.balance_cents -= request.amount_cents;
  noted->changed.account.ytd_payment_cents += request.amount_cents;
  noted->changed.account.payments += 1;
  if (bad_credit) PrependPayment(request, noted->customer, noted->changed.data);
}

// Clause 2.5.2.2: both names with four spaces between them.
void NoteNames(instance::RowView warehouse, instance::RowView district, HistoryData* data) {
  char names[2][sizeof(WarehouseRow::name)];
  std::memcpy(names[0], warehouse.data() + offsetof(WarehouseRow, name), sizeof(names[0]));
  std::memcpy(names[1], district.data() + offsetof(DistrictRow, name), sizeof(names[1]));
  data->fill('\0');
  char* at = data->data();
  at = std::copy_n(names[0], TextOf(names[0]).size(), at);
  at = std::fill_n(at, 4, ' ');
  std::copy_n(names[1], TextOf(names[1]).size(), at);
}

HistoryRow MakeHistory(const coordinator::TransactionId& id, const PaymentRequest& request, uint32_t customer,
                       const HistoryData& data) {
  HistoryRow row;
  row.paid_cents = row.amount_cents = request.amount_cents;
  row.date = static_cast<int64_t>(id.sequence);
  row.customer_warehouse = request.customer_warehouse;
  row.customer_district = request.customer_district;
  row.customer = customer;
  row.district = request.district;
  std::memcpy(row.data, data.data(), sizeof(row.data));
  return row;
}

}  // namespace

const instance::Description& PaymentWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters =
          {{.name = "customers",
            .kind = Kind::kWhole,
            .help = "of a district; fewer load faster, and below 1000 each has a last name of its own",
            .min = kFewestCustomers,
            .max = kTpccCustomers,
            .preset = fmt::format("{}", kTpccCustomers),
            .loads = true},
           {.name = "by_name",
            .kind = Kind::kPercent,
            .help = "customers that are looked for by their last name",
            .preset = "60",
            .grows = true},
           {.name = "remote",
            .kind = Kind::kPercent,
            .help = "customers of another warehouse: TPC-C has 15, the paper none",
            .preset = "0",
            .grows = true},
           {.name = "history",
            .kind = Kind::kChoice,
            .help = "insert: a row more per payment, 100 MB a million; overwrite: in place of rows that "
                    "were loaded, for runs of minutes",
            .choices = {"insert", "overwrite"},
            .preset = "insert",
            .loads = true},
           {.name = "warehouses",
            .kind = Kind::kChoice,
            .help = "where a worker's customers pay: at any of its island; or at its own, a share of them",
            .choices = {"any", "own"},
            .preset = "any",
            .grows = true}},
      .tables = {"warehouse", "district", "customer", "history"},
      .tables_yaml = TablesYaml(PaymentTableLines(kExampleWarehouses))};
  return description;
}

int64_t PaymentAuditDelta(int64_t amount_cents) {
  return amount_cents *
             (kWarehouseWeight + kDistrictWeight + kCustomerYtdWeight + kBalanceWeight + kHistoryWeight) +
         kPaymentWeight;
}

absl::StatusOr<std::unique_ptr<PaymentWorkload>> PaymentWorkload::Create(
    const storage::Catalog& catalog, const instance::Parameters& parameters) {
  const absl::StatusOr<instance::Parameters> read =
      instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const PaymentOptions options = {.customers = static_cast<uint32_t>(instance::NumberOf(*read, "customers")),
                                  .by_name_percent = instance::NumberOf(*read, "by_name"),
                                  .remote_percent = instance::NumberOf(*read, "remote"),
                                  .overwrite_history = read->at("history") == "overwrite",
                                  .own_warehouses = read->at("warehouses") == "own"};
  absl::StatusOr<PaymentTables> tables = FindPaymentTables(catalog);
  if (!tables.ok()) return tables.status();
  const partitioner::RangePartition& warehouses = *catalog.table(tables->warehouse).partition;
  if (options.remote_percent > 0 && warehouses.end() - warehouses.begin() < 2) {
    return absl::InvalidArgumentError(fmt::format(
        "--remote: found {}, expected 0, since there is only one warehouse", options.remote_percent));
  }
  return std::unique_ptr<PaymentWorkload>(new PaymentWorkload(*tables, options));
}

absl::Status PaymentWorkload::Load(instance::Loader& loader) const {
  const storage::Catalog& catalog = loader.catalog();
  const partitioner::RangePartition& warehouses = *catalog.table(tables_.warehouse).partition;
  for (uint32_t site = 0; site < catalog.sites(); ++site) {
    if (!loader.Owns(site)) continue;
    for (int64_t w = warehouses.SiteBegin(site); w < warehouses.SiteBegin(site + 1); ++w) {
      absl::Status status = LoadWarehouse(tables_, options_, static_cast<uint32_t>(w), loader);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> PaymentWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  return PaymentGenerator::Create(options_, *context.catalog.table(tables_.warehouse).partition, context);
}

void PaymentWorkload::AddAtHome(const PaymentRequest& request, Batch& batch) const {
  const auto district = DistrictKey(request.warehouse, request.district);
  batch.ReadForUpdate(tables_.district, district);
  batch.Add(tables_.district, district, offsetof(DistrictRow, ytd_cents), request.amount_cents);
  if (!request.remote()) FindCustomer(tables_, request.payer(), /*for_update=*/true, batch);
  const auto warehouse = WarehouseKey(request.warehouse);
  batch.ReadForUpdate(tables_.warehouse, warehouse);
  batch.Add(tables_.warehouse, warehouse, offsetof(WarehouseRow, ytd_cents), request.amount_cents);
}

absl::Status PaymentWorkload::NoteHome(const PaymentRequest& request, const Batch& batch,
                                       HistoryData* data) const {
  const size_t found = request.remote() ? 0 : 1;  // one more in front of the warehouse's
  if (batch.code(found + kAddWarehouse) != absl::StatusCode::kOk) {
    return Missing(fmt::format("warehouse {}", request.warehouse));
  }
  if (batch.code(kAddDistrict) != absl::StatusCode::kOk) {
    return Missing(fmt::format("district {}/{}", request.warehouse, request.district));
  }
  NoteNames(batch.row(found + kReadWarehouse), batch.row(kReadDistrict), data);
  return absl::OkStatus();
}

absl::Status PaymentWorkload::PayFor(const PaymentRequest& request, Batch& batch, uint32_t* customer) const {
  const FoundCustomer found = CustomerIn(request.payer(), batch, request.remote() ? 0 : kFindCustomer);
  if (found.row.empty()) return Missing(CustomerText(request.payer()));
  Noted noted;
  NoteCustomer(request, found, &noted);
  *customer = noted.customer;
  batch.Clear();
  batch.Write(tables_.customer,
              CustomerKey(request.customer_warehouse, request.customer_district, noted.customer), 0,
              BytesOf(noted.changed).first(noted.changed_bytes));
  return absl::OkStatus();
}

void PaymentWorkload::EnterHistory(const coordinator::TransactionId& id, const PaymentRequest& request,
                                   uint32_t customer, const HistoryData& data, Batch& batch) const {
  const HistoryRow row = MakeHistory(id, request, customer, data);
  if (!options_.overwrite_history) {
    batch.Insert(tables_.history, HistoryKey(request.warehouse, id), BytesOf(row));
    return;
  }
  const auto old = HistoryKey(request.warehouse, kLoaderWrote, request.history_slot);
  batch.Write(tables_.history, old, sizeof(row.paid_cents), BytesOf(row).subspan(sizeof(row.paid_cents)));
  batch.Add(tables_.history, old, offsetof(HistoryRow, paid_cents), request.amount_cents);
}

// The warehouse, which all want, is locked last: who waits for the customer does not have it. The district
// comes first: else two who pay at home for the same name would read its rows at once, and then wait for one
// another to write one. A customer of another warehouse, perhaps on another island, is done with before, to
// the change of its row and that island's vote.
runtime::Task<absl::Status> PaymentWorkload::Run(instance::Transaction& transaction,
                                                 const instance::Request& request) const {
  const auto& payment = static_cast<const PaymentRequest&>(request);
  const bool remote = payment.remote();
  Batch& batch = transaction.batch();
  uint32_t customer = 0;
  if (remote) {
    FindCustomer(tables_, payment.payer(), /*for_update=*/true, batch);
  } else {
    AddAtHome(payment, batch);
  }
  runtime::Task<absl::Status> found = transaction.Execute(batch);
  absl::Status status = co_await found;
  if (status.ok() && remote) {
    status = PayFor(payment, batch, &customer);
    if (!status.ok()) co_return status;
    batch.LastElsewhere();
    runtime::Task<absl::Status> paid = transaction.Execute(batch);
    status = co_await paid;
    if (status.ok()) status = CheckCustomer(batch.code(0));
    if (!status.ok()) co_return status;
    batch.Clear();
    AddAtHome(payment, batch);
    runtime::Task<absl::Status> added = transaction.Execute(batch);
    status = co_await added;
  }
  HistoryData data;
  if (status.ok()) status = NoteHome(payment, batch, &data);
  if (status.ok() && !remote) status = PayFor(payment, batch, &customer);
  if (!status.ok()) co_return status;
  if (remote) batch.Clear();
  EnterHistory(transaction.id(), payment, customer, data, batch);
  runtime::Task<absl::Status> entered = transaction.Execute(batch);
  status = co_await entered;
  if (status.ok() && !remote) status = CheckCustomer(batch.code(kWriteCustomer));
  co_return status.ok() ? CheckHistory(batch.code(remote ? 0 : size_t{kEnterHistory})) : status;
}

int64_t PaymentWorkload::AuditRow(instance::TableId table, instance::KeyView key,
                                  instance::RowView row) const {
  (void)key;
  if (table == tables_.warehouse) return kWarehouseWeight * RowOf<WarehouseRow>(row).ytd_cents;
  if (table == tables_.district) return kDistrictWeight * RowOf<DistrictRow>(row).ytd_cents;
  if (table == tables_.history) return kHistoryWeight * RowOf<HistoryRow>(row).paid_cents;
  if (table != tables_.customer) return 0;
  const CustomerAccount account = RowOf<CustomerRow>(row).account;
  return kCustomerYtdWeight * account.ytd_payment_cents - kBalanceWeight * account.balance_cents +
         kPaymentWeight * account.payments;
}

}  // namespace islands::experiments
