// The example workload as islandd sees it: through the one function it exports.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "instance/simulation/sim_cluster.h"
#include "instance/workload/procedures.h"

extern "C" islands::instance::Workload* IslandsOpenWorkload(uint32_t abi,
                                                            const islands::storage::Catalog* catalog,
                                                            const islands::instance::Parameters* parameters,
                                                            std::string* error);
extern "C" const islands::instance::Description* IslandsDescribeWorkload(uint32_t abi);

namespace islands::experiments {
namespace {

using instance::Parameters;

constexpr int64_t kAccounts = 400;
constexpr int64_t kOpeningBalance = 1000;
constexpr uint32_t kSites = 6;

control::v1::TableSpec Table(const std::string& name = "account", uint32_t row_bytes = 8,
                             int64_t accounts = kAccounts) {
  control::v1::TableSpec table;
  table.set_name(name);
  table.add_key("uint64");
  table.set_range_end(accounts);
  table.set_row_bytes(row_bytes);
  return table;
}

storage::Catalog CatalogOf(const control::v1::TableSpec& table) {
  storage::Catalog::TableSpecs tables;
  *tables.Add() = table;
  return *storage::Catalog::Create(tables, kSites);
}

std::shared_ptr<const instance::Workload> Open(const storage::Catalog& catalog, const Parameters& parameters,
                                               std::string* error) {
  return std::shared_ptr<const instance::Workload>(
      IslandsOpenWorkload(instance::kWorkloadAbi, &catalog, &parameters, error));
}

std::string ErrorOf(const control::v1::TableSpec& table, const Parameters& parameters) {
  const storage::Catalog catalog = CatalogOf(table);
  std::string error;
  const bool opened = Open(catalog, parameters, &error) != nullptr;
  EXPECT_EQ(opened, error.empty());
  return error;
}

TEST(Transfer, Open_SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf(Table(), {}), "");
  EXPECT_EQ(ErrorOf(Table(), {{"remote", "12.5"}}), "");
  EXPECT_EQ(ErrorOf(Table(), {{"remote", "101"}}),
            "--remote: found '101', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(Table(), {{"rows", "2"}}),
            "--rows: found an unknown parameter, expected one of --remote, --totals");
  const std::string line = "- {name: account, key: [uint64], range: [0, 100000], row_bytes: 8}";
  EXPECT_NE(ErrorOf(Table("accounts"), {}).find(line), std::string::npos);
  EXPECT_NE(ErrorOf(Table("account", 16), {}).find(line), std::string::npos);
}

TEST(Transfer, Open_OtherAbiIsRefused) {
  const storage::Catalog catalog = CatalogOf(Table());
  const Parameters none;
  std::string error;
  EXPECT_EQ(IslandsOpenWorkload(instance::kWorkloadAbi + 1, &catalog, &none, &error), nullptr);
  EXPECT_NE(error, "");
  EXPECT_EQ(IslandsDescribeWorkload(instance::kWorkloadAbi + 1), nullptr);
}

TEST(Transfer, Describe_IsWithoutContradiction) {
  const instance::Description* description = IslandsDescribeWorkload(instance::kWorkloadAbi);
  ASSERT_NE(description, nullptr);
  EXPECT_TRUE(instance::CheckDescription(*description).ok());
}

TEST(Transfer, MakeGenerator_NeedsTwoAccountsPerIsland) {
  const storage::Catalog catalog = CatalogOf(Table("account", 8, kSites));
  std::string error;
  const auto workload = Open(catalog, {}, &error);
  ASSERT_NE(workload, nullptr) << error;
  EXPECT_FALSE(workload->MakeGenerator({.catalog = catalog, .sites = {.first = 5, .count = 1}}).ok());
  EXPECT_TRUE(workload->MakeGenerator({.catalog = catalog, .sites = {.first = 4, .count = 2}}).ok());
}

// Balances of two islands after a while, on simulated time; every one of them counted where it lies.
struct Ended {
  simulation::SimCluster::Totals totals;
  uint64_t contradictions = 0;
  int64_t smallest = kOpeningBalance;
  std::set<int64_t> balances;
};

// `stolen`: from one account, as soon as all have money.
Ended RunOnTwoIslands(const std::string& remote, const std::string& totals = "0", bool stolen = false) {
  simulation::SimOptions options;
  options.islands = 2;
  options.workers = 2;
  options.sites = kSites;
  *options.config.add_tables() = Table();
  options.open = [remote, totals](const storage::Catalog& catalog) {
    std::string error;
    auto workload = Open(catalog, {{"remote", remote}, {"totals", totals}}, &error);
    EXPECT_NE(workload, nullptr) << error;
    return workload;
  };
  simulation::SimCluster cluster(options);
  EXPECT_TRUE(cluster.Start().ok());
  if (stolen) {
    const partitioner::Uint64Key key(7);
    const int64_t left = kOpeningBalance - 1;
    cluster.island(0).store().At(0, 0)->Replace(key, std::as_bytes(std::span(&left, 1)));
  }
  EXPECT_TRUE(cluster.StartRun(/*mpl=*/4).ok());
  cluster.RunFor(50 * runtime::kNsPerMs);
  EXPECT_TRUE(cluster.Drain(10 * runtime::kNsPerSecond));
  Ended ended;
  ended.totals = cluster.Sum();
  for (const uint32_t island : {0, 1}) {
    for (const auto& worker : cluster.island(island).workers()) {
      ended.contradictions +=
          worker->counters().aborts[static_cast<uint8_t>(instance::AbortReason::kContradiction)].Get();
    }
  }
  for (uint32_t site = 0; site < kSites; ++site) {
    cluster.island(site < kSites / 2 ? 0 : 1)
        .store()
        .At(0, site)
        ->Scan({}, {}, false, [&](instance::KeyView, instance::RowView row) {
          int64_t balance = 0;
          std::memcpy(&balance, row.data(), sizeof(balance));
          ended.smallest = std::min(ended.smallest, balance);
          ended.balances.insert(balance);
          return true;
        });
  }
  return ended;
}

TEST(Transfer, Procedures_AreFitToBeCalled) {
  const storage::Catalog catalog = CatalogOf(Table());
  std::string error;
  const auto workload = Open(catalog, {}, &error);
  ASSERT_NE(workload, nullptr) << error;
  instance::ProcedureTable table;
  ASSERT_TRUE(table.Add("transfer", workload, catalog).ok());
  const instance::ProcedureTable::Entry* pay = table.Find("transfer.pay");
  ASSERT_NE(pay, nullptr);
  EXPECT_EQ(pay->procedure->arguments.size(), 3u);
  EXPECT_EQ(pay->procedure->home_table, "account");
}

TEST(Transfer, Run_TotalsSeeAllTheMoney) {
  const Ended ended = RunOnTwoIslands("50", "5");
  EXPECT_GT(ended.totals.committed, 50u);  // 90 to 350, as the seed has it
  EXPECT_EQ(ended.contradictions, 0u);
  EXPECT_EQ(ended.totals.audit_sum, kAccounts * kOpeningBalance);
}

TEST(Transfer, Run_TotalsSeeThatMoneyIsMissing) {
  const Ended ended = RunOnTwoIslands("50", "20", /*stolen=*/true);
  EXPECT_GT(ended.contradictions, 10u);
  EXPECT_EQ(ended.totals.audit_sum, kAccounts * kOpeningBalance - 1);
}

TEST(Transfer, Run_SumStaysAndNobodyOverdraws) {
  for (const char* remote : {"0", "30", "100"}) {
    const Ended ended = RunOnTwoIslands(remote);
    EXPECT_GT(ended.totals.committed, 1000u) << remote;
    EXPECT_EQ(ended.totals.distributed > 0, std::string(remote) != "0") << remote;
    EXPECT_EQ(ended.totals.audit_sum, kAccounts * kOpeningBalance) << remote;
    EXPECT_EQ(ended.totals.audit_committed, 0) << remote;
    EXPECT_GE(ended.smallest, 0) << remote;
    EXPECT_LT(ended.smallest, 500) << "nobody ever ran out of money";
    EXPECT_GT(ended.balances.size(), 100u) << "little has moved";
  }
}

}  // namespace
}  // namespace islands::experiments
