// Parameters, tables, initial rows, and what each procedure does to a small store.
#include "experiments/tpcc/tpcc.h"

#include <gtest/gtest.h>

#include <set>

#include "experiments/tpcc/tpcc_testing.h"

namespace islands::experiments {
namespace {

using instance::Parameters;

constexpr uint32_t kSites = 4;

std::string ErrorOf(const storage::Catalog::TableSpecs& tables, const Parameters& parameters = {}) {
  const auto catalog = storage::Catalog::Create(tables, kSites);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  auto workload = TpccWorkload::Create(*catalog, parameters);
  return workload.ok() ? "" : std::string(workload.status().message());
}

std::unique_ptr<TpccWorkload> Open(const storage::Catalog& catalog, const Parameters& parameters) {
  auto workload = TpccWorkload::Create(catalog, parameters);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

TEST(TpccWorkload, Create_BadParameters) {
  const auto tables = TpccSpecs(8);
  EXPECT_TRUE(instance::CheckDescription(TpccWorkload::Describe()).ok());
  EXPECT_EQ(ErrorOf(tables, {{"mix", "new_order"}, {"remote_lines", "0.5"}, {"warehouses", "own"}}), "");
  EXPECT_EQ(
      ErrorOf(tables, {{"mix", "all"}}),
      "--mix: found 'all', expected standard | new_order | payment | order_status | delivery | stock_level");
  EXPECT_EQ(ErrorOf(tables, {{"customers", "9"}}),
            "--customers: found '9', expected a whole number from 10 to 3000");
  EXPECT_EQ(ErrorOf(tables, {{"items", "100001"}}),
            "--items: found '100001', expected a whole number from 100 to 100000");
  EXPECT_EQ(ErrorOf(tables, {{"rollback", "101"}}),
            "--rollback: found '101', expected a percentage from 0 to 100");
}

TEST(TpccWorkload, Create_OneWarehouseHasNoOther) {
  const storage::Catalog one = TpccCatalog(1, 1), two = TpccCatalog(2, 1);
  EXPECT_EQ(Open(one, {})->options().remote_lines_percent, 0);
  EXPECT_EQ(Open(one, {})->options().payment.remote_percent, 0);
  EXPECT_EQ(Open(two, {})->options().remote_lines_percent, 1);
  EXPECT_EQ(Open(two, {})->options().payment.remote_percent, 15);
}

TEST(TpccWorkload, Create_WrongTablesAreToldWithTheLinesToAdd) {
  auto tables = TpccSpecs(6);
  tables.RemoveLast();
  EXPECT_EQ(
      ErrorOf(tables),
      "tpcc: the deployment has no table 'item'; its data.tables need (the range counts the warehouses, the "
      "same for all that have one):\n" +
          TablesYaml(TpccTableLines({0, 6})));
  tables = TpccSpecs(6);
  tables[8].set_row_bytes(8);
  EXPECT_NE(ErrorOf(tables).find("table 'last_order' is"), std::string::npos);
  tables = TpccSpecs(6);
  tables[9].set_replicated(false);
  tables[9].set_range_begin(1);
  tables[9].set_range_end(100);
  EXPECT_NE(ErrorOf(tables).find("- {name: item, key: [uint32], replicated: true, row_bytes: 86}"),
            std::string::npos);
}

// A small load, and what to ask of it.
struct Shop {
  explicit Shop(const Parameters& parameters = {}, uint32_t warehouses = 2)
      : catalog(TpccCatalog(warehouses, kSites)),
        workload(Open(catalog, SmallTpcc(parameters))),
        store(catalog) {
    EXPECT_TRUE(workload->Load(store).ok());
    ids = workload->table_ids();
    request.warehouse = 1;
    request.district = 3;
  }
  absl::Status Run() { return store.Run(*workload, request); }
  size_t rows(instance::TableId table) const { return store.tables[table].size(); }

  const storage::Catalog catalog;
  const std::unique_ptr<TpccWorkload> workload;
  MapStore store;
  TpccTables ids;
  TpccRequest request;
};

TEST(TpccWorkload, Load_AsTheStandardHasIt) {
  const Shop shop;
  EXPECT_EQ(shop.rows(shop.ids.item), 100u);
  EXPECT_EQ(shop.rows(shop.ids.stock), 200u);
  EXPECT_EQ(shop.rows(shop.ids.orders), 600u);
  EXPECT_EQ(shop.rows(shop.ids.last_order), 600u);
  EXPECT_EQ(shop.rows(shop.ids.new_order), 180u);
  size_t lines = 0;
  std::set<std::string> customers;
  for (const auto& [key, bytes] : shop.store.tables[shop.ids.orders]) {
    const auto order = RowOf<OrderRow>(bytes);
    lines += order.lines;
    EXPECT_TRUE(order.lines >= 5 && order.lines <= 15);
    EXPECT_EQ(order.carrier == 0, shop.store.tables[shop.ids.new_order].contains(key));
    EXPECT_EQ(order.carrier == 0, ComponentOf(KeyOfText(key), 2) > 21);
    customers.insert(key.substr(0, 8) + std::to_string(order.customer));
  }
  EXPECT_EQ(customers.size(), 600u) << "an order of each";
  EXPECT_EQ(shop.rows(shop.ids.order_line), lines);
  size_t original = 0;
  for (const auto& [key, bytes] : shop.store.tables[shop.ids.stock]) {
    const auto stock = RowOf<StockRow>(bytes);
    EXPECT_TRUE(stock.account.quantity >= 10 && stock.account.quantity <= 100);
    EXPECT_GE(TextOf(stock.data).size(), 26u);
    original += TextOf(stock.data).find("ORIGINAL") != std::string_view::npos;
  }
  EXPECT_TRUE(original > 5 && original < 45) << original << " of 200, where a tenth is due";
  EXPECT_TRUE(shop.store.Audit(*shop.workload, 0, 2).ok());
}

// The standard's sizes, of one warehouse.
TEST(TpccWorkload, Load_FullSize) {
  const storage::Catalog catalog = TpccCatalog(1, 1);
  const auto workload = Open(catalog, {});
  MapStore store(catalog);
  ASSERT_TRUE(workload->Load(store).ok());
  const TpccTables& ids = workload->table_ids();
  EXPECT_EQ(store.tables[ids.item].size(), 100'000u);
  EXPECT_EQ(store.tables[ids.stock].size(), 100'000u);
  EXPECT_EQ(store.tables[ids.orders].size(), 30'000u);
  EXPECT_EQ(store.tables[ids.new_order].size(), 9'000u);
  EXPECT_NEAR(static_cast<double>(store.tables[ids.order_line].size()), 300'000, 3'000);
  EXPECT_EQ(store.Get<OrderRow>(ids.orders, OrderKey(0, 7, 2101)).carrier, 0);
  EXPECT_NE(store.Get<OrderRow>(ids.orders, OrderKey(0, 7, 2100)).carrier, 0);
  const absl::StatusOr<int64_t> audit = store.Audit(*workload, 0, 1);
  ASSERT_TRUE(audit.ok()) << audit.status();
  EXPECT_EQ(*audit, 0);
}

TEST(TpccProcedure, NewOrder_TakesStockAndEntersTheOrder) {
  Shop shop;
  shop.request.customer = {.warehouse = 1, .district = 3, .customer = 7};
  shop.request.lines = 3;
  shop.request.line = {{{.item = 8, .supply_warehouse = 0, .quantity = 4},
                        {.item = 9, .supply_warehouse = 1, .quantity = 10},
                        {.item = 9, .supply_warehouse = 1, .quantity = 1}}};
  auto stock = shop.store.Get<StockRow>(shop.ids.stock, StockKey(1, 9));
  stock.account.quantity = 20;
  shop.store.Set(shop.ids.stock, StockKey(1, 9), stock);
  stock = shop.store.Get<StockRow>(shop.ids.stock, StockKey(0, 8));
  stock.account.quantity = 13;
  shop.store.Set(shop.ids.stock, StockKey(0, 8), stock);
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.store.batches, 4)
      << "the stock that is elsewhere, and its changes; what is at home; the order";
  EXPECT_EQ(shop.store.Get<DistrictRow>(shop.ids.payment.district, DistrictKey(1, 3)).next_order, 32u);
  const auto order = shop.store.Get<OrderRow>(shop.ids.orders, OrderKey(1, 3, 31));
  EXPECT_EQ(order.carrier, 0);
  EXPECT_EQ(order.lines, 3);
  EXPECT_EQ(order.all_local, 0);
  EXPECT_EQ(uint32_t{order.customer}, 7u);
  EXPECT_TRUE(shop.store.tables[shop.ids.new_order].contains(TextOfKey(OrderKey(1, 3, 31))));
  EXPECT_EQ(shop.store.Get<LastOrderRow>(shop.ids.last_order, CustomerKey(1, 3, 7)).order, 31u);
  const auto near = shop.store.Get<StockRow>(shop.ids.stock, StockKey(1, 9)).account;
  EXPECT_EQ(int32_t{near.quantity}, 10 + 91 - 1) << "10 of 20 leave 10, and one more would leave 9";
  EXPECT_EQ(int64_t{near.ytd}, 11);
  EXPECT_EQ(uint32_t{near.orders}, 2u);
  EXPECT_EQ(uint32_t{near.remote_orders}, 0u);
  const auto far = shop.store.Get<StockRow>(shop.ids.stock, StockKey(0, 8));
  EXPECT_EQ(int32_t{far.account.quantity}, 13 + 91 - 4) << "filled up: it would fall to 9";
  EXPECT_EQ(uint32_t{far.account.remote_orders}, 1u);
  const auto line = shop.store.Get<OrderLineRow>(shop.ids.order_line, LineKey(1, 3, 31, 1));
  EXPECT_EQ(int64_t{line.delivered}, 0);
  EXPECT_EQ(uint32_t{line.supply_warehouse}, 0u);
  EXPECT_EQ(std::string_view(line.district_info, 24), std::string_view(far.districts[2], 24));
  const int64_t eight = shop.store.Get<ItemRow>(shop.ids.item, ItemKey(8)).price_cents;
  const int64_t nine = shop.store.Get<ItemRow>(shop.ids.item, ItemKey(9)).price_cents;
  EXPECT_EQ(int64_t{line.amount_cents}, 4 * eight);
  const int64_t sum = 4 * eight + 11 * nine;
  EXPECT_TRUE(shop.request.result >= sum / 2 && shop.request.result <= sum * 14 / 10) << shop.request.result;
  const absl::StatusOr<int64_t> audit = shop.store.Audit(*shop.workload, 0, 2);
  EXPECT_TRUE(audit.ok()) << audit.status();
  for (RequestedLine& each : shop.request.line) each.supply_warehouse = 1;
  shop.store.batches = 0;
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.store.batches, 2);
  EXPECT_EQ(shop.store.Get<OrderRow>(shop.ids.orders, OrderKey(1, 3, 32)).all_local, 1);
}

// All that can be done is done before it is undone, as the clause wants it.
TEST(TpccProcedure, NewOrder_OfAnUnusedItemIsRefusedAtItsEnd) {
  Shop shop;
  shop.request.customer = {.warehouse = 1, .district = 3, .customer = 7};
  shop.request.lines = 2;
  shop.request.line = {{{.item = 8, .supply_warehouse = 1, .quantity = 4},
                        {.item = 101, .supply_warehouse = 1, .quantity = 1}}};
  EXPECT_EQ(shop.Run().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(shop.store.tables[shop.ids.order_line].contains(TextOfKey(LineKey(1, 3, 31, 1))));
  EXPECT_FALSE(shop.store.tables[shop.ids.order_line].contains(TextOfKey(LineKey(1, 3, 31, 2))));
}

// Of another warehouse, whose island has nothing to change then.
TEST(TpccProcedure, NewOrder_OfAnUnusedItemElsewhere) {
  Shop shop;
  shop.request.customer = {.warehouse = 1, .district = 3, .customer = 7};
  shop.request.lines = 2;
  shop.request.line = {{{.item = 101, .supply_warehouse = 0, .quantity = 1},
                        {.item = 8, .supply_warehouse = 1, .quantity = 4}}};
  EXPECT_EQ(shop.Run().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(shop.store.tables[shop.ids.order_line].contains(TextOfKey(LineKey(1, 3, 31, 1))));
  EXPECT_TRUE(shop.store.tables[shop.ids.order_line].contains(TextOfKey(LineKey(1, 3, 31, 2))));
}

TEST(TpccProcedure, OrderStatus_FindsTheNewestOrder) {
  Shop shop;
  shop.request.transaction = TpccTransaction::kOrderStatus;
  shop.request.customer = {.warehouse = 1, .district = 3, .customer = 7};
  ASSERT_TRUE(shop.Run().ok());
  const auto loaded = static_cast<uint32_t>(shop.request.result);
  EXPECT_EQ(uint32_t{shop.store.Get<OrderRow>(shop.ids.orders, OrderKey(1, 3, loaded)).customer}, 7u);
  shop.request.customer = {
      .warehouse = 1, .district = 3, .customer = 0, .last_name = 6};  // the 7th has it alone
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.request.result, loaded);
  shop.request.customer.last_name = 999;
  EXPECT_EQ(
      shop.Run().message(),
      "tpcc: customer 1/3 called EINGEINGEING is missing; load the workload again, with the same parameters");

  shop.store.tables[shop.ids.order_line].erase(TextOfKey(LineKey(1, 3, loaded, 1)));
  shop.request.customer = {.warehouse = 1, .district = 3, .customer = 7};
  EXPECT_EQ(shop.Run().code(), absl::StatusCode::kDataLoss);
}

TEST(TpccProcedure, Delivery_DeliversTheOldestOfEveryDistrict) {
  Shop shop;
  shop.request.transaction = TpccTransaction::kDelivery;
  shop.request.carrier = 5;
  std::erase_if(shop.store.tables[shop.ids.new_order],
                [](const auto& row) { return row.first.substr(0, 8) == TextOfKey(DistrictKey(1, 4)); });
  const uint32_t customer = shop.store.Get<OrderRow>(shop.ids.orders, OrderKey(1, 3, 22)).customer;
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.request.result, 9) << "nothing waits in district 4";
  EXPECT_EQ(shop.rows(shop.ids.new_order), 180u - 9 - 9);
  EXPECT_FALSE(shop.store.tables[shop.ids.new_order].contains(TextOfKey(OrderKey(1, 3, 22))));
  EXPECT_TRUE(shop.store.tables[shop.ids.new_order].contains(TextOfKey(OrderKey(0, 3, 22))));
  const auto order = shop.store.Get<OrderRow>(shop.ids.orders, OrderKey(1, 3, 22));
  EXPECT_EQ(order.carrier, 5);
  int64_t amounts = 0;
  for (uint8_t line = 1; line <= order.lines; ++line) {
    const auto row = shop.store.Get<OrderLineRow>(shop.ids.order_line, LineKey(1, 3, 22, line));
    EXPECT_NE(int64_t{row.delivered}, 0);
    amounts += row.amount_cents;
  }
  const auto row = shop.store.Get<CustomerRow>(shop.ids.payment.customer, CustomerKey(1, 3, customer));
  EXPECT_EQ(int64_t{row.account.balance_cents}, amounts - 10'00);
  EXPECT_EQ(uint32_t{row.deliveries}, 1u);
  EXPECT_GE(int32_t{row.discount}, 0);
  EXPECT_LE(int32_t{row.discount}, 5000) << "nothing was carried into it";

  shop.store.tables[shop.ids.new_order].clear();
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.request.result, 0);
  shop.store.Set(shop.ids.new_order, OrderKey(1, 3, 99), NewOrderRow{});
  EXPECT_EQ(shop.Run().message(), "tpcc: order 1/3 99 waits for its delivery, and is not there");
}

TEST(TpccProcedure, StockLevel_CountsWhatTheLastOrdersTook) {
  Shop shop;
  shop.request.transaction = TpccTransaction::kStockLevel;
  shop.request.threshold = 1000;
  std::set<uint32_t> items;
  for (const auto& [key, bytes] : shop.store.tables[shop.ids.order_line]) {
    const instance::KeyView view = KeyOfText(key);
    if (ComponentOf(view, 0) == 1 && ComponentOf(view, 1) == 3 && ComponentOf(view, 2) > 10) {
      items.insert(RowOf<OrderLineRow>(bytes).item);
    }
  }
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.request.result, static_cast<int64_t>(items.size()));
  shop.request.threshold = 0;
  ASSERT_TRUE(shop.Run().ok());
  EXPECT_EQ(shop.request.result, 0);
}

TEST(TpccProcedure, Payment_IsThatOfPayment) {
  Shop shop;
  shop.request.transaction = TpccTransaction::kPayment;
  shop.request.payment.warehouse = 1;
  shop.request.payment.district = 3;
  shop.request.payment.customer_warehouse = 0;
  shop.request.payment.customer_district = 2;
  shop.request.payment.customer = 7;
  shop.request.payment.amount_cents = 12'34;
  ASSERT_TRUE(shop.Run().ok());
  const auto row = shop.store.Get<CustomerRow>(shop.ids.payment.customer, CustomerKey(0, 2, 7));
  EXPECT_EQ(int64_t{row.account.balance_cents}, -10'00 - 12'34);
  EXPECT_TRUE(shop.store.Audit(*shop.workload, 0, 2).ok());
}

}  // namespace
}  // namespace islands::experiments
