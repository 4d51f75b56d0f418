// Parameters, tables, initial rows, and what the procedure does without an island.
#include "experiments/payment/payment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/micro/count_allocations.h"
#include "experiments/payment/payment_keys.h"
#include "experiments/payment/payment_testing.h"
#include "experiments/payment/tpcc_random.h"

namespace islands::experiments {
namespace {

using instance::Batch;
using instance::OperationKind;
using instance::Parameters;

constexpr uint32_t kSites = 4;

std::string ErrorOf(const storage::Catalog& catalog, const Parameters& parameters = {}) {
  auto workload = PaymentWorkload::Create(catalog, parameters);
  return workload.ok() ? "" : std::string(workload.status().message());
}

storage::Catalog CatalogOf(const storage::Catalog::TableSpecs& tables) {
  auto catalog = storage::Catalog::Create(tables, kSites);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  return *std::move(catalog);
}

std::string Text(instance::KeyView key) {
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

using Rows = std::map<std::string, std::vector<std::byte>>;

class MapLoader final : public instance::Loader {
 public:
  MapLoader(const storage::Catalog& catalog, uint32_t only_site)
      : tables(catalog.size()), catalog_(catalog), only_site_(only_site) {}
  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t site) const override { return only_site_ == kSites || site == only_site_; }
  absl::Status Insert(instance::TableId table, instance::KeyView key, instance::RowView row) override {
    EXPECT_TRUE(Owns(*catalog_.SiteOf(table, key)));
    EXPECT_EQ(row.size(), catalog_.table(table).row_bytes);
    EXPECT_TRUE(tables[table].emplace(Text(key), std::vector<std::byte>(row.begin(), row.end())).second);
    return absl::OkStatus();
  }
  std::vector<Rows> tables;

 private:
  const storage::Catalog& catalog_;
  const uint32_t only_site_;
};

std::unique_ptr<PaymentWorkload> Open(const storage::Catalog& catalog, const Parameters& parameters) {
  auto workload = PaymentWorkload::Create(catalog, parameters);
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

TEST(PaymentWorkload, Create_BadParameters) {
  const storage::Catalog catalog = PaymentCatalog(0, 8, kSites);
  EXPECT_EQ(
      ErrorOf(catalog, {{"customers", "3000"}, {"by_name", "0.5"}, {"remote", "15"}, {"history", "insert"}}),
      "");
  EXPECT_TRUE(instance::CheckDescription(PaymentWorkload::Describe()).ok());
  EXPECT_EQ(ErrorOf(catalog, {{"customers", "10"}, {"history", "overwrite"}}), "");
  for (const char* customers : {"9", "3001", "-10", "", "many"}) {
    EXPECT_EQ(ErrorOf(catalog, {{"customers", customers}}),
              std::string("--customers: found '") + customers + "', expected a whole number from 10 to 3000");
  }
  EXPECT_EQ(ErrorOf(catalog, {{"by_name", "101"}}),
            "--by-name: found '101', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(catalog, {{"remote", "nan"}}),
            "--remote: found 'nan', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(catalog, {{"history", "none"}}), "--history: found 'none', expected insert | overwrite");
  EXPECT_EQ(
      ErrorOf(catalog, {{"multisite", "1"}}),
      "--multisite: found an unknown parameter, expected one of --customers, --by-name, --remote, --history, "
      "--warehouses");
  EXPECT_EQ(ErrorOf(PaymentCatalog(0, 1, kSites), {{"remote", "15"}}),
            "--remote: found 15, expected 0, since there is only one warehouse");
}

TEST(PaymentWorkload, Create_MissingTableShowsWhatToAdd) {
  storage::Catalog::TableSpecs tables = PaymentSpecs(2, 6);
  tables.RemoveLast();
  EXPECT_EQ(
      ErrorOf(CatalogOf(tables)),
      "payment: the deployment has no table 'history'; its data.tables need (the range counts the "
      "warehouses, "
      "all four the same):\n"
      "    - {name: warehouse, key: [uint32], range: [2, 6], row_bytes: 93}\n"
      "    - {name: district, key: [uint32, uint32], range: [2, 6], row_bytes: 97}\n"
      "    - {name: customer, key: [uint32, uint32, uint32], range: [2, 6], row_bytes: 667, indexes: [{name: "
      "by_name, key: ['key:0', 'key:1', 'row:564:string:16', 'row:546:string:16']}]}\n"
      "    - {name: history, key: [uint32, uint32, uint64], range: [2, 6], row_bytes: 64}");
  EXPECT_NE(ErrorOf(CatalogOf({})).find("no table 'warehouse'"), std::string::npos);
  EXPECT_NE(ErrorOf(CatalogOf({})).find("range: [0, 24]"), std::string::npos);
}

TEST(PaymentWorkload, Create_TableOfAnotherShape) {
  storage::Catalog::TableSpecs tables = PaymentSpecs(0, 6);
  tables[1].set_range_end(7);
  EXPECT_EQ(ErrorOf(CatalogOf(tables)),
            "payment: the deployment's table 'district' is\n"
            "- {name: district, key: [uint32, uint32], range: [0, 7], row_bytes: 97}\nbut has to be\n"
            "- {name: district, key: [uint32, uint32], range: [0, 6], row_bytes: 97}");
  tables = PaymentSpecs(0, 6);
  tables[3].set_row_bytes(0);
  EXPECT_NE(ErrorOf(CatalogOf(tables)).find("table 'history' is"), std::string::npos);
  tables = PaymentSpecs(0, 6);
  tables[2].mutable_indexes(0)->mutable_key()->RemoveLast();
  EXPECT_NE(ErrorOf(CatalogOf(tables)).find("'row:564:string:16']}]}\nbut has to be"), std::string::npos);
  tables = PaymentSpecs(0, 6);
  tables[2].clear_indexes();
  EXPECT_NE(ErrorOf(CatalogOf(tables)).find("row_bytes: 667}\nbut has to be"), std::string::npos);
  tables = PaymentSpecs(0, 6);
  tables[0].set_key(0, "int32");
  EXPECT_NE(ErrorOf(CatalogOf(tables)).find("key: [int32]"), std::string::npos);
  tables = PaymentSpecs(0, 6);
  tables[0].set_replicated(true);
  EXPECT_NE(ErrorOf(CatalogOf(tables)).find("replicated: true, row_bytes: 93"), std::string::npos);
}

TEST(PaymentWorkload, Load_OwnWarehousesOnly) {
  const storage::Catalog catalog = PaymentCatalog(0, 8, kSites);
  const auto workload = Open(catalog, {{"customers", "20"}});
  MapLoader one(catalog, 2), all(catalog, kSites);
  ASSERT_TRUE(workload->Load(one).ok());
  ASSERT_TRUE(workload->Load(all).ok());
  const std::vector<size_t> counts = {2, 20, 400, 400};
  for (size_t table = 0; table < counts.size(); ++table) {
    EXPECT_EQ(one.tables[table].size(), counts[table]);
    EXPECT_EQ(all.tables[table].size(), 4 * counts[table]);
    for (const auto& [key, row] : one.tables[table]) {
      ASSERT_EQ(all.tables[table].at(key), row) << "not the same rows everywhere";
    }
  }
}

TEST(PaymentWorkload, Load_AsTheStandardHasIt) {
  const storage::Catalog catalog = PaymentCatalog(0, 4, kSites);
  const auto workload = Open(catalog, {});
  MapLoader loader(catalog, 1);
  ASSERT_TRUE(workload->Load(loader).ok());
  ASSERT_EQ(loader.tables[2].size(), 30'000u);
  ASSERT_EQ(loader.tables[3].size(), 30'000u);
  const auto warehouse = RowOf<WarehouseRow>(loader.tables[0].begin()->second);
  EXPECT_EQ(int64_t{warehouse.ytd_cents}, 300'000'00);
  EXPECT_EQ(int64_t{RowOf<DistrictRow>(loader.tables[1].begin()->second).ytd_cents}, 30'000'00);
  int bad = 0;
  std::map<std::string, int> names;
  uint32_t number = 0;
  for (const auto& [key, bytes] : loader.tables[2]) {
    const auto row = RowOf<CustomerRow>(bytes);
    ASSERT_TRUE(number >= 1000 || TextOf(row.last) == LastName(number).view()) << number;
    number = (number + 1) % 3000;
    ++names[std::string(TextOf(row.last))];
    bad += TextOf(row.credit) == "BC";
    ASSERT_GE(TextOf(row.data).size(), 300u);
    ASSERT_GE(TextOf(row.first).size(), 8u);
    ASSERT_EQ(TextOf(row.address.zip).substr(4), "11111");
  }
  EXPECT_NEAR(bad, 3000, 300);
  EXPECT_EQ(names.size(), 1000u);
}

// What every payment changes has its own weight: no change of one column alone goes unseen.
TEST(PaymentWorkload, AuditRow_SeesEveryColumn) {
  const storage::Catalog catalog = PaymentCatalog(0, 4, kSites);
  const auto workload = Open(catalog, {});
  constexpr int64_t kAmount = 1234;
  WarehouseRow warehouse{};
  warehouse.ytd_cents = kAmount;
  DistrictRow district{};
  district.ytd_cents = kAmount;
  HistoryRow history{};
  history.paid_cents = kAmount;
  CustomerRow ytd{}, balance{}, count{};
  ytd.account.ytd_payment_cents = kAmount;
  balance.account.balance_cents = -kAmount;
  count.account.payments = 1;
  const std::vector<int64_t> parts = {
      workload->AuditRow(0, {}, BytesOf(warehouse)), workload->AuditRow(1, {}, BytesOf(district)),
      workload->AuditRow(2, {}, BytesOf(ytd)),       workload->AuditRow(2, {}, BytesOf(balance)),
      workload->AuditRow(2, {}, BytesOf(count)),     workload->AuditRow(3, {}, BytesOf(history))};
  EXPECT_EQ(std::set<int64_t>(parts.begin(), parts.end()).size(), parts.size());
  int64_t sum = 0;
  for (const int64_t part : parts) {
    EXPECT_GT(part, 0);
    sum += part;
  }
  EXPECT_EQ(sum, PaymentAuditDelta(kAmount));
}

// Answers the first batch with the rows it is given, by copying them; keeps nothing of the second.
class Script final : public instance::Transaction {
 public:
  explicit Script(const storage::Catalog& catalog) : catalog_(catalog) {}

  const coordinator::TransactionId& id() const override { return id_; }
  const storage::Catalog& catalog() const override { return catalog_; }
  Batch& batch() override { return batch_; }
  runtime::Random& random() override { return random_; }
  runtime::Task<absl::Status> Execute(Batch& batch) override {
    ++batches;
    if (batches_seen != nullptr) batches_seen->push_back(TablesOf(batch));
    batch.ResetResults();
    for (size_t i = 0; i < batch.size(); ++i) {
      const Batch::Operation operation = batch.operation(i);
      const bool missing = batches == missing_in_batch && i == missing_operation;
      batch.result(i).code = missing ? missing_code : absl::StatusCode::kOk;
      if (missing) continue;
      if (operation.kind == OperationKind::kReadForUpdate) {
        batch.result(i).row = batch.Store(operation.table == 0   ? BytesOf(warehouse)
                                          : operation.table == 1 ? BytesOf(district)
                                                                 : BytesOf(customers[0]));
      }
      if (operation.kind == OperationKind::kIndexScan) StoreCustomers(batch, i);
    }
    co_return absl::OkStatus();
  }

  coordinator::TransactionId id_{.island = 1, .worker = 2, .boot_epoch = 3, .sequence = 4};
  WarehouseRow warehouse{};
  DistrictRow district{};
  std::vector<CustomerRow> customers{1};  // numbered 101, 102, ...
  int batches = 0;
  std::vector<std::string>* batches_seen = nullptr;  // the tables of each one's operations
  int missing_in_batch = 0;
  size_t missing_operation = 0;
  absl::StatusCode missing_code = absl::StatusCode::kNotFound;

 private:
  std::string TablesOf(const Batch& batch) const {
    std::string tables;
    for (size_t i = 0; i < batch.size(); ++i) {
      tables += (i == 0 ? "" : " ") + catalog_.table(batch.operation(i).table).name;
    }
    return tables;
  }
  void StoreCustomers(Batch& batch, size_t i) {
    batch.result(i).first_scanned = static_cast<uint32_t>(batch.scanned().size());
    for (uint32_t n = 0; n < customers.size(); ++n) {
      const Batch::Bytes key = batch.Store(CustomerKey(5, 6, 101 + n));
      batch.scanned().push_back({key, batch.Store(BytesOf(customers[n]))});
      ++batch.result(i).scanned;
    }
  }

  const storage::Catalog& catalog_;
  Batch batch_;
  runtime::Random random_{1};
};

struct Procedure {
  explicit Procedure(const char* history = "insert")
      : catalog(PaymentCatalog(0, 8, kSites)),
        workload(Open(catalog, {{"history", history}})),
        script(catalog) {
    request.warehouse = request.customer_warehouse = 5;
    request.district = request.customer_district = 6;
    request.customer = 77;
    request.amount_cents = 12'34;
    std::memcpy(script.warehouse.name, "wwwwwww", 7);
    std::memcpy(script.district.name, "dddddddddd", 10);
    std::memcpy(script.customers[0].credit, "GC", 2);
  }
  absl::Status Run() {
    script.batches = 0;
    script.batch().Clear();
    runtime::Task<absl::Status> task = workload->Run(script, request);
    task.Start();
    return task.Take();
  }

  const storage::Catalog catalog;
  const std::unique_ptr<PaymentWorkload> workload;
  PaymentRequest request;
  Script script;
};

TEST(PaymentProcedure, Run_GoodCreditChangesTheAccountAlone) {
  Procedure procedure;
  procedure.script.customers[0].account = {.balance_cents = 1000, .ytd_payment_cents = 20, .payments = 3};
  ASSERT_TRUE(procedure.Run().ok());
  EXPECT_EQ(procedure.script.batches, 2);
  const Batch& batch = procedure.script.batch();
  ASSERT_EQ(batch.size(), 2u);
  ASSERT_EQ(batch.operation(0).row.size, sizeof(CustomerAccount));
  EXPECT_EQ(Text(batch.View(batch.operation(0).key)), Text(CustomerKey(5, 6, 77)));
  const auto account = RowOf<CustomerAccount>(batch.View(batch.operation(0).row));
  EXPECT_EQ(int64_t{account.balance_cents}, 1000 - 1234);
  EXPECT_EQ(int64_t{account.ytd_payment_cents}, 20 + 1234);
  EXPECT_EQ(uint32_t{account.payments}, 4u);
  EXPECT_EQ(batch.operation(1).kind, OperationKind::kInsert);
  EXPECT_EQ(Text(batch.View(batch.operation(1).key)),
            Text(HistoryKey(5, 2 << 16 | 2, uint64_t{3} << 40 | 4)));
  const auto history = RowOf<HistoryRow>(batch.View(batch.operation(1).row));
  EXPECT_EQ(TextOf(history.data), "wwwwwww    dddddddddd");
  EXPECT_EQ(int64_t{history.amount_cents}, 1234);
  EXPECT_EQ(int64_t{history.paid_cents}, 1234);
  EXPECT_EQ(uint32_t{history.customer}, 77u);
}

TEST(PaymentProcedure, Run_BadCreditPushesTheEndOfTheDataOut) {
  Procedure procedure;
  std::memcpy(procedure.script.customers[0].credit, "BC", 2);
  std::string data(500, 'x');
  data[499] = 'z';
  std::memcpy(procedure.script.customers[0].data, data.data(), data.size());
  ASSERT_TRUE(procedure.Run().ok());
  const Batch& batch = procedure.script.batch();
  const instance::RowView changed = batch.View(batch.operation(0).row);
  ASSERT_EQ(changed.size(), sizeof(CustomerAccount) + 500);
  const std::string written = Text(changed.subspan(sizeof(CustomerAccount)));
  const std::string paid = "77 6 5 6 5 12.34 ";
  EXPECT_EQ(written, paid + std::string(500 - paid.size(), 'x'));
}

TEST(PaymentProcedure, Run_ByNameTakesTheMiddleOne) {
  for (const auto& [count, middle] :
       std::map<uint32_t, uint32_t>{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 4}}) {
    Procedure procedure;
    procedure.request.customer = 0;
    procedure.request.last_name = 371;
    procedure.script.customers.assign(count, procedure.script.customers[0]);
    ASSERT_TRUE(procedure.Run().ok());
    const Batch& batch = procedure.script.batch();
    EXPECT_EQ(Text(batch.View(batch.operation(0).key)), Text(CustomerKey(5, 6, 100 + middle))) << count;
  }
}

// Before anything is locked at home.
TEST(PaymentProcedure, Run_CustomerElsewhereIsLookedForFirst) {
  for (const uint32_t customer : {0u, 77u}) {
    for (const char* history : {"insert", "overwrite"}) {
      Procedure procedure(history);
      procedure.request.customer = customer;
      procedure.request.customer_warehouse = 3;
      procedure.script.customers.assign(customer == 0 ? 3 : 1, procedure.script.customers[0]);
      std::vector<std::string> batches;
      procedure.script.batches_seen = &batches;
      ASSERT_TRUE(procedure.Run().ok());
      EXPECT_THAT(batches,
                  testing::ElementsAre("customer", "customer", "district district warehouse warehouse",
                                       history == std::string("insert") ? "history" : "history history"));
      const Batch& batch = procedure.script.batch();
      if (history != std::string("insert")) continue;
      EXPECT_EQ(batch.operation(0).kind, OperationKind::kInsert);
      EXPECT_EQ(uint32_t{RowOf<HistoryRow>(batch.View(batch.operation(0).row)).customer},
                customer == 0 ? 102u : 77u)
          << "the middle one of three";
    }
  }
}

TEST(PaymentProcedure, Run_MissingRowsOfACustomerElsewhereAreErrors) {
  const auto error = [](int batch, size_t operation) {
    Procedure procedure;
    procedure.request.customer_warehouse = 3;
    procedure.script.missing_in_batch = batch;
    procedure.script.missing_operation = operation;
    return std::string(procedure.Run().message());
  };
  const std::string again = " is missing; load the workload again, with the same `customers`";
  EXPECT_EQ(error(1, 0), "payment: customer 3/6 77" + again);
  EXPECT_EQ(error(2, 0), "payment: the customer just read" + again);
  EXPECT_EQ(error(3, 3), "payment: warehouse 5" + again);
  EXPECT_EQ(error(4, 0), "payment: a history row" + again);
}

TEST(PaymentProcedure, Run_OverwritesHistoryAndKeepsWhatWasPaid) {
  Procedure procedure("overwrite");
  procedure.request.history_slot = 9;
  ASSERT_TRUE(procedure.Run().ok());
  const Batch& batch = procedure.script.batch();
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_EQ(batch.operation(1).kind, OperationKind::kWrite);
  EXPECT_EQ(batch.operation(1).offset, 8u);
  EXPECT_EQ(batch.operation(1).row.size, 56u);
  EXPECT_EQ(batch.operation(2).kind, OperationKind::kAdd);
  EXPECT_EQ(batch.operation(2).offset, 0u);
  EXPECT_EQ(batch.operation(2).delta, 1234);
  for (size_t i : {1, 2}) EXPECT_EQ(Text(batch.View(batch.operation(i).key)), Text(HistoryKey(5, 0, 9)));
}

TEST(PaymentProcedure, Run_MissingRowsAreErrors) {
  const auto error = [](int batch, size_t operation, uint32_t customer = 77, const char* history = "insert",
                        absl::StatusCode code = absl::StatusCode::kNotFound) {
    Procedure procedure(history);
    procedure.request.customer = customer;
    procedure.script.missing_in_batch = batch;
    procedure.script.missing_operation = operation;
    procedure.script.missing_code = code;
    return std::string(procedure.Run().message());
  };
  const std::string again = " is missing; load the workload again, with the same `customers`";
  EXPECT_EQ(error(1, 4), "payment: warehouse 5" + again);
  EXPECT_EQ(error(1, 1), "payment: district 5/6" + again);
  EXPECT_EQ(error(1, 2), "payment: customer 5/6 77" + again);
  EXPECT_EQ(error(1, 2, 0), "payment: customer 5/6 called BARBARBAR" + again);
  EXPECT_EQ(error(2, 0), "payment: the customer just read" + again);
  EXPECT_EQ(error(2, 1, 77, "overwrite"), "payment: a history row" + again);
  EXPECT_EQ(error(2, 1, 77, "insert", absl::StatusCode::kAlreadyExists),
            "payment: the history has a row of this transaction already");
}

TEST(PaymentProcedure, Run_AllocatesNothingAfterWarmUp) {
  for (const char* history : {"insert", "overwrite"}) {
    for (const char* credit : {"GC", "BC"}) {
      for (uint32_t customer : {0u, 77u}) {
        Procedure procedure(history);
        procedure.request.customer = customer;
        procedure.request.customer_warehouse = customer == 0 ? 3 : 5;
        std::memcpy(procedure.script.customers[0].credit, credit, 2);
        procedure.script.customers.resize(3, procedure.script.customers[0]);
        bool ok = true;
        for (int i = 0; i < 10; ++i) ok &= procedure.Run().ok();
        const uint64_t before = AllocationsSoFar();
        for (int i = 0; i < 100; ++i) ok &= procedure.Run().ok();
        EXPECT_EQ(AllocationsSoFar(), before) << history << " " << credit << " " << customer;
        EXPECT_TRUE(ok);
      }
    }
  }
}

}  // namespace
}  // namespace islands::experiments
