// SmallBank: parameters, who is drawn, what each transaction does, and the sum after runs.
#include "experiments/smallbank/smallbank.h"

#include <algorithm>

#include "experiments/workload_testing.h"

namespace islands::experiments {
namespace {

using instance::Parameters;
using Kind = SmallBankTransaction;

constexpr int64_t kCustomers = 400;
constexpr uint32_t kSites = 4;
enum : instance::TableId { kAccount, kSavings, kChecking };

storage::Catalog::TableSpecs Tables(int64_t customers = kCustomers, size_t balance_bytes = 24) {
  return TestTables({TestTable("account", {"uint64"}, 0, customers, 64),
                     TestTable("savings", {"uint64"}, 0, customers, balance_bytes),
                     TestTable("checking", {"uint64"}, 0, customers, 24)});
}

std::string ErrorOf(const storage::Catalog::TableSpecs& tables, const Parameters& parameters) {
  const storage::Catalog catalog = TestCatalog(tables, kSites);
  const auto workload = SmallBankWorkload::Create(catalog, parameters);
  return std::string((workload.ok() ? (*workload)->CheckRun(catalog) : workload.status()).message());
}

TEST(SmallBank, Create_SaysWhatIsWrong) {
  EXPECT_TRUE(instance::CheckDescription(SmallBankWorkload::Describe()).ok());
  EXPECT_EQ(ErrorOf(Tables(), {{"hotspot", "10"}, {"hot", "80"}, {"remote", "5"}}), "");
  EXPECT_EQ(ErrorOf(Tables(), {{"remote", "101"}}),
            "--remote: found '101', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(Tables(7), {}), "smallbank: found 7 customers in 4 sites, expected at least 2 in each");
  const std::string other = ErrorOf(Tables(kCustomers, 8), {});
  EXPECT_NE(other.find("table 'savings' has another key, row_bytes other than 24"), std::string::npos);
  EXPECT_NE(other.find("- {name: checking, key: [uint64]"), std::string::npos);
  storage::Catalog::TableSpecs tables = Tables();
  tables.at(2).set_range_end(kCustomers + 1);
  EXPECT_NE(ErrorOf(tables, {}).find("tables 'account' and 'checking' have different ranges"),
            std::string::npos);
}

TEST(SmallBank, Next_CustomersAreOfTheSiteAndTheHotspot) {
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  std::array<double, kSmallBankShares.size()> seen{};
  double hot = 0, first_two = 0, elsewhere = 0, of_two = 0;
  SmallBankGenerator generator({.hotspot = 2, .hot_percent = 60, .remote_percent = 50},
                               *catalog.table(0).partition, {1, 2});
  runtime::Random random(1);
  const auto request = generator.MakeRequest();
  const auto& bank = static_cast<const SmallBankRequest&>(*request);
  constexpr int kCount = 20'000;
  for (int i = 0; i < kCount; ++i) {
    generator.Next(random, *request);
    ++seen[static_cast<size_t>(bank.transaction)];
    ASSERT_TRUE(bank.customer >= 100 && bank.customer < 300);
    hot += bank.customer % 100 < 2;
    first_two += bank.customer % 100 < 1;
    ASSERT_TRUE(bank.cents > 0 || bank.transaction == Kind::kTransactSavings);
    if (bank.transaction != Kind::kAmalgamate && bank.transaction != Kind::kSendPayment) continue;
    ASSERT_NE(bank.other, bank.customer);
    ++of_two;
    elsewhere += bank.other / 100 != bank.customer / 100;
  }
  for (size_t kind = 0; kind < seen.size(); ++kind)
    EXPECT_NEAR(seen[kind] / kCount * 100, kSmallBankShares[kind], 1.5);
  EXPECT_NEAR(hot / kCount, 0.6, 0.02);
  EXPECT_NEAR(first_two / kCount, 0.3, 0.02);
  EXPECT_NEAR(elsewhere / of_two, 0.5 * 0.75, 0.03);
}

class SmallBankProcedure : public testing::Test {
 protected:
  void SetUp() override {
    workload_ = *SmallBankWorkload::Create(catalog_, {});
    ASSERT_TRUE(workload_->Load(store_).ok());
    sum_ = store_.AuditedSum(*workload_);
    Set(kSavings, 7, 30'00);
    Set(kChecking, 7, 20'00);
    Set(kChecking, 3, 5'00);
    before_ = store_.rows;
  }
  std::vector<std::byte>& Row(instance::TableId table, uint64_t customer) {
    return store_.rows.at({table, KeyText(partitioner::Uint64Key(customer))});
  }
  BalanceRow Get(instance::TableId table, uint64_t customer) {
    BalanceRow row{};
    std::memcpy(&row, Row(table, customer).data(), sizeof(row));
    return row;
  }
  void Set(instance::TableId table, uint64_t customer, int64_t cents) {
    std::memcpy(Row(table, customer).data(), &cents, sizeof(cents));
  }
  // Of customer 7, and 3 as the other.
  absl::Status Run(Kind kind, int64_t cents) {
    SmallBankRequest request;
    request.transaction = kind;
    request.customer = 7;
    request.other = 3;
    request.cents = cents;
    return store_.Run(*workload_, request);
  }
  size_t Changed() const {
    size_t changed = 0;
    for (const auto& [key, row] : store_.rows) changed += row != before_.at(key);
    return changed;
  }

  const storage::Catalog catalog_ = TestCatalog(Tables(), kSites);
  std::unique_ptr<SmallBankWorkload> workload_;
  MapStore store_{catalog_};
  MapRows before_;
  int64_t sum_ = 0;
};

TEST_F(SmallBankProcedure, Balance_ChangesNothing) {
  EXPECT_TRUE(Run(Kind::kBalance, 1'00).ok());
  EXPECT_EQ(store_.batch().size(), 3u);
  EXPECT_EQ(Changed(), 0u);
}

TEST_F(SmallBankProcedure, DepositAndSavings_ChangeOneBalance) {
  EXPECT_TRUE(Run(Kind::kDepositChecking, 1'00).ok());
  EXPECT_EQ(Get(kChecking, 7).cents, 21'00);
  EXPECT_TRUE(Run(Kind::kTransactSavings, -30'00).ok());
  EXPECT_EQ(Get(kSavings, 7).cents, 0);
  EXPECT_FALSE(Run(Kind::kTransactSavings, -1).ok());
  EXPECT_TRUE(Run(Kind::kTransactSavings, 2).ok());
  EXPECT_EQ(Get(kSavings, 7).cents, 2);
  EXPECT_EQ(Get(kSavings, 7).changes, 2);
  EXPECT_EQ(Changed(), 2u);
}

TEST_F(SmallBankProcedure, Amalgamate_LeavesNothingBehind) {
  EXPECT_TRUE(Run(Kind::kAmalgamate, 1).ok());
  EXPECT_EQ(Get(kSavings, 7).cents, 0);
  EXPECT_EQ(Get(kChecking, 7).cents, 0);
  EXPECT_EQ(Get(kChecking, 3).cents, 55'00);
  EXPECT_EQ(Changed(), 3u);
}

TEST_F(SmallBankProcedure, WriteCheck_CostsMoreWithoutCover) {
  EXPECT_TRUE(Run(Kind::kWriteCheck, 50'00).ok());
  EXPECT_EQ(Get(kChecking, 7).cents, -30'00);
  EXPECT_TRUE(Run(Kind::kWriteCheck, 1).ok());
  EXPECT_EQ(Get(kChecking, 7).cents, -30'00 - 1 - kPenaltyCents);
  EXPECT_EQ(Get(kChecking, 7).penalty_cents, kPenaltyCents);
  EXPECT_EQ(Changed(), 1u);
}

TEST_F(SmallBankProcedure, SendPayment_OnlyWhatIsThere) {
  EXPECT_FALSE(Run(Kind::kSendPayment, 20'01).ok());
  EXPECT_EQ(Changed(), 0u);
  EXPECT_TRUE(Run(Kind::kSendPayment, 20'00).ok());
  EXPECT_EQ(Get(kChecking, 7).cents, 0);
  EXPECT_EQ(Get(kChecking, 3).cents, 25'00);
  EXPECT_EQ(Changed(), 2u);
}

TEST_F(SmallBankProcedure, MissingRow_IsSaid) {
  store_.rows.erase({kChecking, KeyText(partitioner::Uint64Key(3))});
  EXPECT_NE(Run(Kind::kAmalgamate, 1).message().find("customer 7 or 3: a row is missing"), std::string::npos);
}

struct Case {
  const char* name;
  TestLayout layout;
};

class SmallBankClusters : public testing::TestWithParam<Case> {};

TEST_P(SmallBankClusters, Run_MoneyIsAsCommitted) {
  const TestLayout& layout = GetParam().layout;
  instance::InProcessCluster cluster(TestCluster<SmallBankWorkload>(Tables(), layout));
  ASSERT_TRUE(cluster.Start().ok());
  const int64_t loaded = cluster.Sum().audit_sum;
  EXPECT_GE(loaded, 2 * kCustomers * 100'00);
  ASSERT_NO_FATAL_FAILURE(RunSome(cluster, 3'000));
  const auto totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum - loaded, totals.audit_committed);
  EXPECT_GT(totals.aborted, 0u) << "there was always enough money";
  EXPECT_LT(totals.aborted, totals.committed);
  EXPECT_EQ(totals.unknown, 0u);
  EXPECT_EQ(totals.distributed > 0, layout.islands > 1 && layout.parameters.contains("remote"));
  LoseRow(cluster, kChecking);
  EXPECT_NE(cluster.Sum().audit_sum - loaded, totals.audit_committed) << "a lost row shows";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, SmallBankClusters,
    testing::Values(Case{"OneWorker", {}},
                    Case{"TwoWorkersHot", {.workers = 2, .parameters = {{"hotspot", "2"}}}},
                    Case{"TwoIslands", {.islands = 2, .parameters = {{"remote", "50"}}}},
                    Case{"TwoIslandsHot",
                         {.islands = 2, .workers = 2, .parameters = {{"remote", "50"}, {"hotspot", "5"}}}}),
    [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace islands::experiments
