// Whether the rows of an island are consistent as TPC-C wants them: the twelve conditions of clause 3.3.2.
//
//    1  a warehouse's year-to-date sum is that of its districts
//    2  a district's next order follows its newest, and the newest that waits for its delivery
//    3  the numbers of those that wait have no gap
//    4  a district has as many lines as its orders say together
//    5  an order waits if, and only if, it has no carrier
//    6  an order has as many lines as it says
//    7  a line is delivered if, and only if, its order has a carrier
//    8  a warehouse's year-to-date sum is that of the payments in its history
//    9  so is a district's
//   10  a customer's balance is the sum of delivered lines less that of payments
//   11  a district's orders that do not wait are those loaded as delivered (2100) and those delivered since,
//       which its customers count: the clause means a database that was just loaded, where none are
//   12  a customer's balance and payments together are the sum of delivered lines
//
// and two that are ours:
//
//   13  a stock counts the pieces, orders and remote orders of the lines that it supplied
//   14  each customer's newest order is the one that Order-Status would find
//
// Nearly all rows that a condition compares are of one warehouse, so on one island, which says DATA_LOSS.
// Only payments (10) and lines (13) may be with another warehouse: their difference, times a number drawn for
// each customer or stock, is what the island adds to the audited sum. Over all islands that is 0 exactly if
// the conditions hold, but for one chance in 2^64. An island that has all sites knows it by itself.
//
// Thread safety: none. An order takes 20 bytes meanwhile, a customer 40.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/tpcc/tpcc_rows.h"
#include "experiments/tpcc/tpcc_tables.h"
#include "instance/workload/audit.h"

namespace islands::experiments {

class TpccAudit final : public instance::RowAudit {
 public:
  // `whole`: it sees every row there is.
  TpccAudit(const TpccTables& tables, uint32_t loaded_orders, uint32_t loaded_delivered, bool whole)
      : tables_(tables), loaded_orders_(loaded_orders), loaded_delivered_(loaded_delivered), whole_(whole) {}

  void See(instance::TableId table, instance::KeyView key, instance::RowView row) override;
  absl::StatusOr<int64_t> Finish() override;

 private:
  static constexpr size_t kConditions = 14;

  struct Order {
    uint32_t number = 0;
    uint32_t customer = 0;
    uint8_t carrier = 0;
    uint8_t lines = 0;
    bool waits = false;
    uint32_t lines_seen = 0;
    uint32_t lines_delivered = 0;
  };
  struct Customer {
    uint32_t number = 0;
    uint32_t deliveries = 0;
    int64_t balance_cents = 0;
    int64_t ytd_payment_cents = 0;
    int64_t delivered_cents = 0;
    uint32_t newest = 0;
    uint32_t last_order = 0;
  };
  struct District {
    int64_t ytd_cents = 0;
    int64_t paid_cents = 0;
    uint32_t next_order = 0;
    std::vector<Order> orders;  // by number, as customers are
    std::vector<Customer> customers;
    uint64_t waiting = 0;
    uint32_t first_waiting = 0;
    uint32_t last_waiting = 0;
    uint64_t waiting_nowhere = 0;  // of no order
    uint64_t lines = 0;
  };
  struct Warehouse {
    int64_t ytd_cents = 0;
    int64_t paid_cents = 0;
    std::map<uint32_t, District> districts;
  };

  District& DistrictOf(instance::KeyView key);
  void SeeCustomer(instance::KeyView key, const CustomerRow& row);
  void SeeHistory(instance::KeyView key, const HistoryRow& row);
  void SeeOrder(instance::KeyView key, const OrderRow& row);
  void SeeNewOrder(instance::KeyView key);
  void SeeLine(instance::KeyView key, const OrderLineRow& row);
  void SeeLastOrder(instance::KeyView key, const LastOrderRow& row);

  void CheckWarehouse(uint32_t number, const Warehouse& warehouse);
  void CheckDistrict(const std::string& where, const District& district);
  void CheckOrders(const std::string& where, const District& district);
  void CheckCustomers(const std::string& where, const District& district);
  // Notes the first place where each condition is broken.
  void Expect(bool holds, size_t condition, const std::string& where, int64_t found, int64_t expected);

  const TpccTables tables_;
  const uint32_t loaded_orders_;
  const uint32_t loaded_delivered_;
  const bool whole_;
  std::map<uint32_t, Warehouse> warehouses_;
  uint64_t paid_sum_ = 0;   // of condition 10, weighted
  uint64_t stock_sum_ = 0;  // of condition 13
  std::array<std::string, kConditions + 1> broken_;
};

}  // namespace islands::experiments
