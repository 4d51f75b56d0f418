#include "experiments/payment/payment_tables.h"

#include <fmt/format.h>

#include <cstddef>

#include "experiments/payment/payment_rows.h"

namespace islands::experiments {

KeyRange WarehousesOf(const storage::Catalog& catalog) {
  const storage::TableDefinition* warehouse = catalog.Find("warehouse");
  if (warehouse == nullptr || !warehouse->partition.has_value()) return kExampleWarehouses;
  return {warehouse->partition->begin(), warehouse->partition->end()};
}

std::vector<TableLine> PaymentTableLines(const KeyRange& warehouses) {
  const std::string range = RangeText(warehouses);
  return {
      {"warehouse",
       fmt::format("{{name: warehouse, key: [uint32], {}, row_bytes: {}}}", range, sizeof(WarehouseRow))},
      {"district", fmt::format("{{name: district, key: [uint32, uint32], {}, row_bytes: {}}}", range,
                               sizeof(DistrictRow))},
      {"customer",
       fmt::format("{{name: customer, key: [uint32, uint32, uint32], {}, row_bytes: {}, indexes: [{{name: "
                   "by_name, key: ['key:0', 'key:1', 'row:{}:string:16', 'row:{}:string:16']}}]}}",
                   range, sizeof(CustomerRow), offsetof(CustomerRow, last), offsetof(CustomerRow, first))},
      {"history", fmt::format("{{name: history, key: [uint32, uint32, uint64], {}, row_bytes: {}}}", range,
                              sizeof(HistoryRow))}};
}

absl::StatusOr<PaymentTables> FindPaymentTables(const storage::Catalog& catalog) {
  const absl::Status found = CheckTables(catalog, "payment", PaymentTableLines(WarehousesOf(catalog)),
                                         "the range counts the warehouses, all four the same");
  if (!found.ok()) return found;
  return PaymentTables{.warehouse = catalog.Find("warehouse")->id,
                       .district = catalog.Find("district")->id,
                       .customer = catalog.Find("customer")->id,
                       .history = catalog.Find("history")->id};
}

}  // namespace islands::experiments
