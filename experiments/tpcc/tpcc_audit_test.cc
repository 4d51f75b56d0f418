// Every condition is found broken when it is, and not otherwise.
#include "experiments/tpcc/tpcc_audit.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <set>

#include "experiments/tpcc/tpcc_generator.h"
#include "experiments/tpcc/tpcc_testing.h"

namespace islands::experiments {
namespace {

constexpr uint32_t kWarehouses = 2;

// Loaded, and some hundred transactions later.
struct Books {
  Books()
      : catalog(TpccCatalog(kWarehouses, 2)),
        workload(*TpccWorkload::Create(
            catalog, SmallTpcc({{"rollback", "0"}, {"remote_lines", "20"}, {"remote_payments", "30"}}))),
        store(catalog) {
    EXPECT_TRUE(workload->Load(store).ok());
    ids = workload->table_ids();
    const instance::GeneratorContext context{.catalog = catalog, .sites = {.first = 0, .count = 2}};
    const auto generator = *workload->MakeGenerator(context);
    runtime::Random random(7);
    TpccRequest request;
    for (int i = 0; i < 300; ++i) {
      generator->Next(random, request);
      const absl::Status status = store.Run(*workload, request);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // The conditions that the audit says are broken.
  std::set<int> Broken() const {
    const absl::StatusOr<int64_t> audit = store.Audit(*workload, 0, kWarehouses);
    if (audit.ok()) return {};
    EXPECT_EQ(audit.status().code(), absl::StatusCode::kDataLoss);
    const std::string text(audit.status().message());
    std::set<int> broken;
    const std::regex condition("condition ([0-9]+) at ");
    for (std::sregex_iterator at(text.begin(), text.end(), condition), end; at != end; ++at) {
      broken.insert(std::stoi((*at)[1]));
    }
    return broken;
  }
  template <typename Row>
  void Change(instance::TableId table, instance::KeyView key, const std::function<void(Row*)>& change) {
    auto row = store.Get<Row>(table, key);
    change(&row);
    store.Set(table, key, row);
  }
  // Of district 1/3, which orders wait.
  uint32_t Oldest() const {
    return ComponentOf(
        KeyOfText(store.tables[ids.new_order].lower_bound(TextOfKey(OrderKey(1, 3, 0)))->first), 2);
  }
  uint32_t Newest() const {
    return store.Get<DistrictRow>(ids.payment.district, DistrictKey(1, 3)).next_order - 1;
  }

  const storage::Catalog catalog;
  const std::unique_ptr<TpccWorkload> workload;
  MapStore store;
  TpccTables ids;
};

struct Plant {
  const char* name;
  std::set<int> broken;
  std::function<void(Books&)> plant;
};

const std::vector<Plant>& Plants() {
  static const std::vector<Plant> plants = {
      {"district_ytd",
       {1, 9},
       [](Books& b) {
         b.Change<DistrictRow>(b.ids.payment.district, DistrictKey(1, 3),
                               [](auto* row) { row->ytd_cents += 1; });
       }},
      {"next_order",
       {2},
       [](Books& b) {
         b.Change<DistrictRow>(b.ids.payment.district, DistrictKey(1, 3),
                               [](auto* row) { row->next_order += 1; });
       }},
      {"newest_does_not_wait",
       {2, 5, 11},
       [](Books& b) { b.store.tables[b.ids.new_order].erase(TextOfKey(OrderKey(1, 3, b.Newest()))); }},
      {"gap_among_those_that_wait",
       {3, 5, 11},
       [](Books& b) { b.store.tables[b.ids.new_order].erase(TextOfKey(OrderKey(1, 3, b.Oldest() + 1))); }},
      {"waits_without_an_order",
       {3, 5, 11},
       [](Books& b) { b.store.Set(b.ids.new_order, OrderKey(1, 3, 0), NewOrderRow{}); }},
      {"line_of_no_order",
       {4},
       [](Books& b) {
         const auto row = b.store.Get<OrderLineRow>(b.ids.order_line, LineKey(1, 3, 1, 1));
         b.store.Set(b.ids.order_line, LineKey(1, 3, 0, 1), row);
       }},
      {"carrier_of_one_that_waits",
       {5, 7},
       [](Books& b) {
         b.Change<OrderRow>(b.ids.orders, OrderKey(1, 3, b.Oldest()), [](auto* row) { row->carrier = 1; });
       }},
      {"lines_of_an_order",
       {4, 6},
       [](Books& b) {
         b.Change<OrderRow>(b.ids.orders, OrderKey(1, 3, 5), [](auto* row) { row->lines += 1; });
       }},
      {"lines_of_two_orders",
       {6},
       [](Books& b) {
         b.Change<OrderRow>(b.ids.orders, OrderKey(1, 3, 5), [](auto* row) { row->lines += 1; });
         b.Change<OrderRow>(b.ids.orders, OrderKey(1, 3, 6), [](auto* row) { row->lines -= 1; });
       }},
      {"line_not_delivered",
       {7},  // a loaded one, which costs nothing
       [](Books& b) {
         b.Change<OrderLineRow>(b.ids.order_line, LineKey(1, 3, 5, 1), [](auto* row) { row->delivered = 0; });
       }},
      {"warehouse_ytd",
       {1, 8},
       [](Books& b) {
         b.Change<WarehouseRow>(b.ids.payment.warehouse, WarehouseKey(1),
                                [](auto* row) { row->ytd_cents -= 1; });
       }},
      {"payment_lost",
       {8, 9, 10},
       [](Books& b) { b.store.tables[b.ids.payment.history].erase(TextOfKey(HistoryKey(1, 0, 7))); }},
      {"payment_of_another_district",
       {9},
       [](Books& b) {
         b.Change<HistoryRow>(b.ids.payment.history, HistoryKey(1, 0, 7),
                              [](auto* row) { row->district = 9; });
       }},
      {"payment_of_another_customer",
       {10},
       [](Books& b) {
         b.Change<HistoryRow>(b.ids.payment.history, HistoryKey(1, 0, 7),
                              [](auto* row) { row->customer = 9; });
       }},
      {"balance",
       {10, 12},
       [](Books& b) {
         b.Change<CustomerRow>(b.ids.payment.customer, CustomerKey(1, 3, 7),
                               [](auto* row) { row->account.balance_cents += 1; });
       }},
      {"delivery_not_counted",
       {11},
       [](Books& b) {
         b.Change<CustomerRow>(b.ids.payment.customer, CustomerKey(1, 3, 7),
                               [](auto* row) { row->deliveries += 1; });
       }},
      {"payments_of_a_customer",
       {12},
       [](Books& b) {
         b.Change<CustomerRow>(b.ids.payment.customer, CustomerKey(1, 3, 7),
                               [](auto* row) { row->account.ytd_payment_cents += 1; });
       }},
      {"pieces_of_a_stock",
       {13},
       [](Books& b) {
         b.Change<StockRow>(b.ids.stock, StockKey(1, 7), [](auto* row) { row->account.ytd += 1; });
       }},
      {"orders_of_a_stock",
       {13},
       [](Books& b) {
         b.Change<StockRow>(b.ids.stock, StockKey(1, 7), [](auto* row) { row->account.orders += 1; });
       }},
      {"remote_orders_of_a_stock",
       {13},
       [](Books& b) {
         b.Change<StockRow>(b.ids.stock, StockKey(1, 7), [](auto* row) { row->account.remote_orders += 1; });
       }},
      {"last_order",
       {14},
       [](Books& b) {
         b.Change<LastOrderRow>(b.ids.last_order, CustomerKey(1, 3, 7), [](auto* row) { row->order += 1; });
       }},
  };
  return plants;
}

class TpccConditions : public testing::TestWithParam<Plant> {};

TEST_P(TpccConditions, Finish_SaysWhatIsBroken) {
  Books books;
  ASSERT_EQ(books.Broken(), std::set<int>());
  GetParam().plant(books);
  EXPECT_EQ(books.Broken(), GetParam().broken);
}

INSTANTIATE_TEST_SUITE_P(Planted, TpccConditions, testing::ValuesIn(Plants()),
                         [](const testing::TestParamInfo<Plant>& info) { return info.param.name; });

TEST(TpccAudit, Finish_EveryConditionHasAPlant) {
  std::set<int> planted;
  for (const Plant& plant : Plants()) planted.insert(plant.broken.begin(), plant.broken.end());
  std::set<int> all;
  for (int condition = 1; condition <= 14; ++condition) all.insert(condition);
  EXPECT_EQ(planted, all);
}

TEST(TpccAudit, Finish_SaysWhere) {
  Books books;
  books.Change<LastOrderRow>(books.ids.last_order, CustomerKey(1, 3, 7),
                             [](auto* row) { row->order = 1000; });
  const std::string text(books.store.Audit(*books.workload, 0, kWarehouses).status().message());
  EXPECT_EQ(
      text.find("tpcc: the rows are not consistent: condition 14 at district 1/3, customer 7 (found 1000, "),
      0u)
      << text;
}

// What no island knows by itself is in the sum over all.
TEST(TpccAudit, Finish_IslandsSeeRemoteRowsInTheSum) {
  const auto sum = [](const Books& books) {
    uint64_t all = 0;
    for (uint32_t w = 0; w < kWarehouses; ++w) {
      const absl::StatusOr<int64_t> part = books.store.Audit(*books.workload, w, w + 1, /*whole=*/false);
      EXPECT_TRUE(part.ok()) << part.status();
      EXPECT_NE(part.value_or(0), 0) << "each island's part alone means nothing";
      all += static_cast<uint64_t>(part.value_or(0));
    }
    return all;
  };
  Books sound;
  EXPECT_EQ(sum(sound), 0u);
  for (const char* plant : {"payment_of_another_customer", "pieces_of_a_stock"}) {
    Books books;
    for (const Plant& one : Plants()) {
      if (one.name == std::string(plant)) one.plant(books);
    }
    EXPECT_NE(sum(books), 0u) << plant;
  }
}

}  // namespace
}  // namespace islands::experiments
