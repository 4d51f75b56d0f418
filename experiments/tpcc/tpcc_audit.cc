#include "experiments/tpcc/tpcc_audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/tpcc/tpcc_keys.h"
#include "runtime/random.h"

namespace islands::experiments {
namespace {

using instance::KeyView;

// Odd, and the same on every island. `what` keeps the columns of one row apart.
uint64_t Weight(uint64_t what, uint64_t warehouse, uint64_t number) {
  return runtime::Random::Stream(what << 32 | warehouse, number)() | 1;
}
enum : uint64_t { kOfCustomer, kOfPieces, kOfOrders, kOfRemoteOrders };

uint64_t OfCustomer(uint32_t warehouse, uint32_t district, uint32_t customer) {
  return Weight(kOfCustomer, warehouse, uint64_t{district} << 32 | customer);
}

// In a list that is in order, the one of this number; null: there is none.
template <typename T>
T* Find(std::vector<T>& list, uint32_t number) {
  // Numbers begin at 1 and seldom leave one out.
  if (number - 1 < list.size() && list[number - 1].number == number) return &list[number - 1];
  const auto at = std::lower_bound(list.begin(), list.end(), number,
                                   [](const T& one, uint32_t wanted) { return one.number < wanted; });
  return at == list.end() || at->number != number ? nullptr : &*at;
}

}  // namespace

TpccAudit::District& TpccAudit::DistrictOf(KeyView key) {
  return warehouses_[ComponentOf(key, 0)].districts[ComponentOf(key, 1)];
}

void TpccAudit::See(instance::TableId table, KeyView key, instance::RowView row) {
  const uint32_t warehouse = ComponentOf(key, 0);
  if (table == tables_.payment.warehouse) {
    warehouses_[warehouse].ytd_cents = RowOf<WarehouseRow>(row).ytd_cents;
  } else if (table == tables_.payment.district) {
    District& district = DistrictOf(key);
    district.ytd_cents = RowOf<DistrictRow>(row).ytd_cents;
    district.next_order = RowOf<DistrictRow>(row).next_order;
  } else if (table == tables_.payment.customer) {
    SeeCustomer(key, RowOf<CustomerRow>(row));
  } else if (table == tables_.payment.history) {
    SeeHistory(key, RowOf<HistoryRow>(row));
  } else if (table == tables_.orders) {
    SeeOrder(key, RowOf<OrderRow>(row));
  } else if (table == tables_.new_order) {
    SeeNewOrder(key);
  } else if (table == tables_.order_line) {
    SeeLine(key, RowOf<OrderLineRow>(row));
  } else if (table == tables_.stock) {
    const StockAccount account = RowOf<StockRow>(row).account;
    const uint32_t item = ComponentOf(key, 1);
    stock_sum_ += Weight(kOfPieces, warehouse, item) * static_cast<uint64_t>(account.ytd) +
                  Weight(kOfOrders, warehouse, item) * account.orders +
                  Weight(kOfRemoteOrders, warehouse, item) * account.remote_orders;
  } else if (table == tables_.last_order) {
    SeeLastOrder(key, RowOf<LastOrderRow>(row));
  }
}

void TpccAudit::SeeCustomer(KeyView key, const CustomerRow& row) {
  const uint32_t number = ComponentOf(key, 2);
  DistrictOf(key).customers.push_back({.number = number,
                                       .deliveries = row.deliveries,
                                       .balance_cents = row.account.balance_cents,
                                       .ytd_payment_cents = row.account.ytd_payment_cents});
  paid_sum_ += OfCustomer(ComponentOf(key, 0), ComponentOf(key, 1), number) *
               static_cast<uint64_t>(row.account.balance_cents);
}

void TpccAudit::SeeHistory(KeyView key, const HistoryRow& row) {
  Warehouse& warehouse = warehouses_[ComponentOf(key, 0)];
  warehouse.paid_cents += row.amount_cents;
  warehouse.districts[row.district].paid_cents += row.amount_cents;
  paid_sum_ += OfCustomer(row.customer_warehouse, row.customer_district, row.customer) *
               static_cast<uint64_t>(row.amount_cents);
}

void TpccAudit::SeeOrder(KeyView key, const OrderRow& row) {
  District& district = DistrictOf(key);
  const uint32_t number = ComponentOf(key, 2);
  district.orders.push_back(
      {.number = number, .customer = row.customer, .carrier = row.carrier, .lines = row.lines});
  if (Customer* customer = Find(district.customers, row.customer)) customer->newest = number;
}

void TpccAudit::SeeNewOrder(KeyView key) {
  District& district = DistrictOf(key);
  district.last_waiting = ComponentOf(key, 2);
  if (district.waiting++ == 0) district.first_waiting = district.last_waiting;
  Order* order = Find(district.orders, district.last_waiting);
  if (order == nullptr) {
    ++district.waiting_nowhere;
  } else {
    order->waits = true;
  }
}

void TpccAudit::SeeLine(KeyView key, const OrderLineRow& row) {
  District& district = DistrictOf(key);
  ++district.lines;
  const uint32_t warehouse = ComponentOf(key, 0);
  const uint32_t number = ComponentOf(key, 2);
  if (number > loaded_orders_) {
    stock_sum_ -= Weight(kOfPieces, row.supply_warehouse, row.item) * row.quantity +
                  Weight(kOfOrders, row.supply_warehouse, row.item);
    if (row.supply_warehouse != warehouse) {
      stock_sum_ -= Weight(kOfRemoteOrders, row.supply_warehouse, row.item);
    }
  }
  Order* order = Find(district.orders, number);
  if (order == nullptr) return;  // condition 4 has counted it
  ++order->lines_seen;
  if (row.delivered == 0) return;
  ++order->lines_delivered;
  paid_sum_ -=
      OfCustomer(warehouse, ComponentOf(key, 1), order->customer) * static_cast<uint64_t>(row.amount_cents);
  if (Customer* customer = Find(district.customers, order->customer)) {
    customer->delivered_cents += row.amount_cents;
  }
}

void TpccAudit::SeeLastOrder(KeyView key, const LastOrderRow& row) {
  if (Customer* customer = Find(DistrictOf(key).customers, ComponentOf(key, 2))) {
    customer->last_order = row.order;
  }
}

void TpccAudit::Expect(bool holds, size_t condition, const std::string& where, int64_t found,
                       int64_t expected) {
  if (holds || !broken_[condition].empty()) return;
  broken_[condition] =
      fmt::format("condition {} at {} (found {}, expected {})", condition, where, found, expected);
}

void TpccAudit::CheckWarehouse(uint32_t number, const Warehouse& warehouse) {
  const std::string where = fmt::format("warehouse {}", number);
  int64_t of_districts = 0;
  for (const auto& [district, rows] : warehouse.districts) {
    of_districts += rows.ytd_cents;
    CheckDistrict(fmt::format("district {}/{}", number, district), rows);
  }
  Expect(warehouse.ytd_cents == of_districts, 1, where, warehouse.ytd_cents, of_districts);
  Expect(warehouse.ytd_cents == warehouse.paid_cents, 8, where, warehouse.ytd_cents, warehouse.paid_cents);
}

void TpccAudit::CheckDistrict(const std::string& where, const District& district) {
  const int64_t newest = district.orders.empty() ? 0 : district.orders.back().number;
  Expect(district.next_order == newest + 1, 2, where, district.next_order, newest + 1);
  if (district.waiting > 0) {
    Expect(district.last_waiting == newest, 2, where, district.last_waiting, newest);
    const int64_t span = int64_t{district.last_waiting} - district.first_waiting + 1;
    Expect(static_cast<int64_t>(district.waiting) == span, 3, where, static_cast<int64_t>(district.waiting),
           span);
  }
  Expect(district.waiting_nowhere == 0, 5, where, static_cast<int64_t>(district.waiting_nowhere), 0);
  Expect(district.ytd_cents == district.paid_cents, 9, where, district.ytd_cents, district.paid_cents);
  CheckOrders(where, district);
  CheckCustomers(where, district);
}

void TpccAudit::CheckOrders(const std::string& where, const District& district) {
  uint64_t lines = 0;
  for (const Order& order : district.orders) {
    lines += order.lines;
    const bool holds[] = {order.waits == (order.carrier == 0), order.lines_seen == order.lines,
                          order.lines_delivered == (order.carrier == 0 ? 0 : order.lines_seen)};
    if (holds[0] && holds[1] && holds[2]) continue;  // no text for the many that are sound
    const std::string which = fmt::format("{}, order {}", where, order.number);
    Expect(holds[0], 5, which, order.waits, order.carrier == 0);
    Expect(holds[1], 6, which, order.lines_seen, order.lines);
    Expect(holds[2], 7, which, order.lines_delivered, order.carrier == 0 ? 0 : order.lines_seen);
  }
  Expect(district.lines == lines, 4, where, static_cast<int64_t>(district.lines),
         static_cast<int64_t>(lines));
}

void TpccAudit::CheckCustomers(const std::string& where, const District& district) {
  int64_t delivered = loaded_delivered_;
  for (const Customer& customer : district.customers) {
    delivered += customer.deliveries;
    const int64_t books = customer.balance_cents + customer.ytd_payment_cents;
    if (books == customer.delivered_cents && customer.last_order == customer.newest) continue;
    const std::string which = fmt::format("{}, customer {}", where, customer.number);
    Expect(books == customer.delivered_cents, 12, which, books, customer.delivered_cents);
    Expect(customer.last_order == customer.newest, 14, which, customer.last_order, customer.newest);
  }
  const auto gone = static_cast<int64_t>(district.orders.size()) - static_cast<int64_t>(district.waiting);
  Expect(gone == delivered, 11, where, gone, delivered);
}

absl::StatusOr<int64_t> TpccAudit::Finish() {
  for (const auto& [number, warehouse] : warehouses_) CheckWarehouse(number, warehouse);
  if (whole_) {
    Expect(paid_sum_ == 0, 10, "some customer", static_cast<int64_t>(paid_sum_), 0);
    Expect(stock_sum_ == 0, 13, "some stock", static_cast<int64_t>(stock_sum_), 0);
  }
  std::string all;
  for (const std::string& one : broken_) {
    if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
  }
  if (!all.empty()) return absl::DataLossError("tpcc: the rows are not consistent: " + all);
  return static_cast<int64_t>(paid_sum_ + stock_sum_);
}

}  // namespace islands::experiments
