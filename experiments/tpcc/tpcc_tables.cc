#include "experiments/tpcc/tpcc_tables.h"

#include <fmt/format.h>

#include "experiments/tpcc/tpcc_rows.h"

namespace islands::experiments {

std::vector<TableLine> TpccTableLines(const KeyRange& warehouses) {
  std::vector<TableLine> lines = PaymentTableLines(warehouses);
  const auto add = [&](const char* name, const char* key, size_t row_bytes) {
    lines.push_back({name, fmt::format("{{name: {}, key: [{}], {}, row_bytes: {}}}", name, key,
                                       RangeText(warehouses), row_bytes)});
  };
  add("orders", "uint32, uint32, uint32", sizeof(OrderRow));
  add("new_order", "uint32, uint32, uint32", sizeof(NewOrderRow));
  add("order_line", "uint32, uint32, uint32, uint8", sizeof(OrderLineRow));
  add("stock", "uint32, uint32", sizeof(StockRow));
  add("last_order", "uint32, uint32, uint32", sizeof(LastOrderRow));
  lines.push_back({"item", fmt::format("{{name: item, key: [uint32], replicated: true, row_bytes: {}}}",
                                       sizeof(ItemRow))});
  return lines;
}

absl::StatusOr<TpccTables> FindTpccTables(const storage::Catalog& catalog) {
  const absl::Status found = CheckTables(catalog, "tpcc", TpccTableLines(WarehousesOf(catalog)),
                                         "the range counts the warehouses, the same for all that have one");
  if (!found.ok()) return found;
  const absl::StatusOr<PaymentTables> payment = FindPaymentTables(catalog);
  if (!payment.ok()) return payment.status();
  return TpccTables{.payment = *payment,
                    .orders = catalog.Find("orders")->id,
                    .new_order = catalog.Find("new_order")->id,
                    .order_line = catalog.Find("order_line")->id,
                    .stock = catalog.Find("stock")->id,
                    .last_order = catalog.Find("last_order")->id,
                    .item = catalog.Find("item")->id};
}

}  // namespace islands::experiments
