#include "experiments/tpcc/tpcc.h"

#include <fmt/format.h>

#include "experiments/tpcc/tpcc_audit.h"
#include "experiments/tpcc/tpcc_generator.h"
#include "experiments/tpcc/tpcc_population.h"

namespace islands::experiments {
namespace {

constexpr uint32_t kFewestCustomers = 10;
constexpr uint32_t kFewestItems = 100;

struct NamedMix {
  const char* name;
  TpccMix mix;
};
constexpr std::array<NamedMix, 6> kMixes = {{{"standard", kStandardMix},
                                             {"new_order", {1, 0, 0, 0, 0}},
                                             {"payment", {0, 1, 0, 0, 0}},
                                             {"order_status", {0, 0, 1, 0, 0}},
                                             {"delivery", {0, 0, 0, 1, 0}},
                                             {"stock_level", {0, 0, 0, 0, 1}}}};

std::vector<std::string> MixNames() {
  std::vector<std::string> names;
  for (const NamedMix& mix : kMixes) names.emplace_back(mix.name);
  return names;
}

TpccMix MixOf(const std::string& name) {
  size_t i = 0;
  while (name != kMixes[i].name) ++i;  // it is one of the parameter's choices
  return kMixes[i].mix;
}

std::vector<std::string> TableNames() {
  std::vector<std::string> names;
  for (const TableLine& table : TpccTableLines(kExampleWarehouses)) names.push_back(table.name);
  return names;
}

}  // namespace

const instance::Description& TpccWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters = {{.name = "mix",
                      .kind = Kind::kChoice,
                      .help = "all five transactions in TPC-C's shares, or one of them alone",
                      .choices = MixNames(),
                      .preset = "standard",
                      .grows = true},
                     {.name = "customers",
                      .kind = Kind::kWhole,
                      .help = "of a district, which has as many orders when it is loaded; fewer load faster",
                      .min = kFewestCustomers,
                      .max = kTpccCustomers,
                      .preset = fmt::format("{}", kTpccCustomers),
                      .loads = true},
                     {.name = "items",
                      .kind = Kind::kWhole,
                      .help = "in all, and of a warehouse's stock; fewer load faster",
                      .min = kFewestItems,
                      .max = kTpccItems,
                      .preset = fmt::format("{}", kTpccItems),
                      .loads = true},
                     {.name = "remote_lines",
                      .kind = Kind::kPercent,
                      .help =
                          "lines of an order that come from the stock of another warehouse, if there is one",
                      .preset = "1",
                      .grows = true},
                     {.name = "remote_payments",
                      .kind = Kind::kPercent,
                      .help = "payments by customers of another warehouse, if there is one",
                      .preset = "15",
                      .grows = true},
                     {.name = "rollback",
                      .kind = Kind::kPercent,
                      .help = "orders with an item that there is not: they are undone, and count as aborted",
                      .preset = "1",
                      .grows = true},
                     {.name = "think",
                      .kind = Kind::kPercent,
                      .help = "of TPC-C's keying and thinking times, before each transaction of a slot; 100: "
                              "with ten slots for each warehouse these are its terminals",
                      .preset = "0"},
                     {.name = "warehouses",
                      .kind = Kind::kChoice,
                      .help = "where a worker's transactions begin: at any of its island; or at its own, a "
                              "share of them",
                      .choices = {"any", "own"},
                      .preset = "any",
                      .grows = true}},
      .tables = TableNames(),
      .tables_yaml = TablesYaml(TpccTableLines(kExampleWarehouses))};
  return description;
}

absl::StatusOr<std::unique_ptr<TpccWorkload>> TpccWorkload::Create(const storage::Catalog& catalog,
                                                                   const instance::Parameters& parameters) {
  const absl::StatusOr<instance::Parameters> read =
      instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const absl::StatusOr<TpccTables> tables = FindTpccTables(catalog);
  if (!tables.ok()) return tables.status();
  const partitioner::RangePartition& warehouses = *catalog.table(tables->payment.warehouse).partition;
  const bool others = warehouses.end() - warehouses.begin() > 1;
  const std::string remote_payments = others ? read->at("remote_payments") : "0";
  absl::StatusOr<std::unique_ptr<PaymentWorkload>> payment =
      PaymentWorkload::Create(catalog, {{"customers", read->at("customers")},
                                        {"remote", remote_payments},
                                        {"warehouses", read->at("warehouses")}});
  if (!payment.ok()) return payment.status();
  const TpccOptions options = {.mix = MixOf(read->at("mix")),
                               .payment = (*payment)->options(),
                               .items = static_cast<uint32_t>(instance::NumberOf(*read, "items")),
                               .remote_lines_percent = others ? instance::NumberOf(*read, "remote_lines") : 0,
                               .rollback_percent = instance::NumberOf(*read, "rollback"),
                               .think_percent = instance::NumberOf(*read, "think")};
  const uint32_t sites = catalog.sites();
  return std::unique_ptr<TpccWorkload>(new TpccWorkload(*tables, options, sites, *std::move(payment)));
}

absl::Status TpccWorkload::Load(instance::Loader& loader) const {
  if (absl::Status items = LoadItems(tables_, options_, loader); !items.ok()) return items;
  const storage::Catalog& catalog = loader.catalog();
  const partitioner::RangePartition& warehouses = *catalog.table(tables_.payment.warehouse).partition;
  for (uint32_t site = 0; site < catalog.sites(); ++site) {
    if (!loader.Owns(site)) continue;
    for (int64_t w = warehouses.SiteBegin(site); w < warehouses.SiteBegin(site + 1); ++w) {
      absl::Status status = LoadTpccWarehouse(tables_, options_, static_cast<uint32_t>(w), loader);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> TpccWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  return TpccGenerator::Create(options_, *context.catalog.table(tables_.payment.warehouse).partition,
                               context);
}

// Only what the transaction reads: the others' inputs are left over.
void TpccRequest::CodeInput(instance::InputCoder& coder) {
  coder.Code(transaction);
  if (transaction == TpccTransaction::kPayment) return payment.CodeInput(coder);
  coder.Code(warehouse);
  coder.Code(district);
  coder.Code(carrier);
  coder.Code(threshold);
  for (uint32_t* field : {&customer.warehouse, &customer.district, &customer.customer, &customer.last_name})
    coder.Code(*field);
  coder.Code(lines);
  lines = std::min<uint32_t>(lines, kMostLines);
  for (uint32_t i = 0; i < lines; ++i) {
    coder.Code(line[i].item);
    coder.Code(line[i].supply_warehouse);
    coder.Code(line[i].quantity);
  }
}

runtime::Task<absl::Status> TpccWorkload::Run(instance::Transaction& transaction,
                                              const instance::Request& request) const {
  const auto& tpcc = static_cast<const TpccRequest&>(request);
  tpcc.result = 0;
  switch (tpcc.transaction) {
    case TpccTransaction::kNewOrder:
      return NewOrder(transaction, tpcc);
    case TpccTransaction::kPayment:
      return payment_->Run(transaction, tpcc.payment);
    case TpccTransaction::kOrderStatus:
      return OrderStatus(transaction, tpcc);
    case TpccTransaction::kDelivery:
      return Delivery(transaction, tpcc);
    case TpccTransaction::kStockLevel:
      break;
  }
  return StockLevel(transaction, tpcc);
}

std::unique_ptr<instance::RowAudit> TpccWorkload::BeginAudit(partitioner::SiteRun sites) const {
  return std::make_unique<TpccAudit>(tables_, options_.loaded_orders(), options_.loaded_delivered(),
                                     /*whole=*/sites.count == sites_);
}

}  // namespace islands::experiments
