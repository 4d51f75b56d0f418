// Payment on whole islands: the books agree afterwards, however the machine is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "experiments/payment/payment_testing.h"
#include "experiments/payment/tpcc_random.h"

namespace islands::experiments {
namespace {

using instance::InProcessCluster;

enum : storage::TableId { kWarehouse, kDistrict, kCustomer, kHistory };

std::vector<uint32_t> Numbers(instance::KeyView key, size_t count) {
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    uint32_t number = 0;
    std::memcpy(&number, key.data() + 4 * i, sizeof(number));
    numbers.push_back(__builtin_bswap32(number));
  }
  return numbers;
}

// Sums over the rows of a warehouse.
struct Books {
  int64_t warehouse_ytd = 0, district_ytd = 0, history = 0;
  uint64_t history_rows = 0;
  std::map<uint32_t, int64_t> ytd_of_district, history_of_district;
};

std::map<uint32_t, Books> BooksOf(const InProcessCluster& cluster) {
  std::map<uint32_t, Books> books;
  VisitRows<WarehouseRow>(cluster, kWarehouse, [&](instance::KeyView key, const WarehouseRow& row) {
    books[Numbers(key, 1)[0]].warehouse_ytd = row.ytd_cents;
  });
  VisitRows<DistrictRow>(cluster, kDistrict, [&](instance::KeyView key, const DistrictRow& row) {
    const std::vector<uint32_t> numbers = Numbers(key, 2);
    books[numbers[0]].district_ytd += row.ytd_cents;
    books[numbers[0]].ytd_of_district[numbers[1]] = row.ytd_cents;
  });
  VisitRows<HistoryRow>(cluster, kHistory, [&](instance::KeyView key, const HistoryRow& row) {
    Books& of_warehouse = books[Numbers(key, 1)[0]];
    of_warehouse.history += row.paid_cents;
    of_warehouse.history_of_district[row.district] += row.paid_cents;
    ++of_warehouse.history_rows;
  });
  return books;
}

// Clause 3.3.2, conditions 1, 8 and 9, and what payments keep of 10 to 12.
void ExpectConsistent(const InProcessCluster& cluster, bool history_is_whole) {
  int64_t all_ytd = 0, all_paid = 0;
  for (const auto& [warehouse, books] : BooksOf(cluster)) {
    EXPECT_EQ(books.warehouse_ytd, books.district_ytd) << "warehouse " << warehouse;
    EXPECT_EQ(books.warehouse_ytd, books.history) << "warehouse " << warehouse;
    EXPECT_EQ(books.ytd_of_district.size(), kDistricts);
    EXPECT_TRUE(!history_is_whole || books.ytd_of_district == books.history_of_district);
    all_ytd += books.warehouse_ytd;
  }
  VisitRows<CustomerRow>(cluster, kCustomer, [&](instance::KeyView key, const CustomerRow& row) {
    const CustomerAccount account = row.account;
    all_paid += account.ytd_payment_cents;
    EXPECT_EQ(int64_t{account.balance_cents}, -int64_t{account.ytd_payment_cents})
        << "customer " << testing::PrintToString(Numbers(key, 3));
  });
  EXPECT_EQ(all_ytd, all_paid);
}

struct Case {
  const char* name;
  TestLayout layout;
  uint32_t mpl;
};

class PaymentLayouts : public testing::TestWithParam<Case> {};

TEST_P(PaymentLayouts, Run_BooksAgree) {
  const Case& c = GetParam();
  InProcessCluster cluster(PaymentCluster(c.layout));
  ASSERT_TRUE(cluster.Start().ok());
  const bool overwrites = c.layout.parameters.contains("history");
  const int64_t loaded = cluster.Sum().audit_sum;
  ASSERT_NO_FATAL_FAILURE(ExpectConsistent(cluster, true));
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 2000, c.mpl));
  const InProcessCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum, loaded + totals.audit_committed);
  EXPECT_NE(totals.audit_committed, 0);
  ASSERT_NO_FATAL_FAILURE(ExpectConsistent(cluster, !overwrites));
  for (uint32_t i = 0; i < cluster.islands(); ++i) {
    const absl::Status check = cluster.island(i).store().Check();
    EXPECT_TRUE(check.ok()) << check;
  }

  uint64_t history_rows = 0;
  for (const auto& [warehouse, books] : BooksOf(cluster)) history_rows += books.history_rows;
  const uint64_t loaded_rows = uint64_t{c.layout.warehouses} * kDistricts * 30;
  EXPECT_EQ(history_rows, loaded_rows + (overwrites ? 0 : totals.committed));
  const bool remote = c.layout.parameters.contains("remote");
  EXPECT_EQ(totals.multisite + totals.distributed > 0, remote);
  EXPECT_TRUE(remote || totals.aborted + totals.unknown == 0) << totals.aborted;
}

TestLayout Layout(uint32_t islands, uint32_t workers, uint32_t sites, uint32_t warehouses,
                  instance::Parameters more = {}) {
  more["customers"] = "30";
  return {islands, workers, sites, warehouses, std::move(more)};
}

INSTANTIATE_TEST_SUITE_P(
    Payment, PaymentLayouts,
    testing::Values(Case{"OneWorkerOneWarehouse", Layout(1, 1, 1, 1), 8},
                    Case{"OneWorkerManyWarehouses", Layout(1, 1, 24, 7), 4},
                    Case{"TwoWorkersOneWarehouse", Layout(1, 2, 4, 1), 8},
                    Case{"TwoWorkersOneWarehouseByName", Layout(1, 2, 4, 1, {{"by_name", "100"}}), 1},
                    Case{"TwoWorkersTwoWarehouses", Layout(1, 2, 2, 2), 4},
                    Case{"TwoIslandsTwoWarehouses", Layout(2, 1, 2, 2), 4},
                    Case{"OverwrittenHistory", Layout(1, 2, 4, 1, {{"history", "overwrite"}}), 8},
                    Case{"RemoteCustomers", Layout(2, 1, 4, 4, {{"remote", "15"}}), 4},
                    Case{"RemoteCustomersOverwritten",
                         Layout(2, 2, 4, 2, {{"remote", "30"}, {"history", "overwrite"}}), 2}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// Every payment goes to the middle one of those that share the name, by first name.
TEST(PaymentCluster, Run_ByNamePaysForTheMiddleCustomer) {
  InProcessCluster cluster(PaymentCluster(
      {.sites = 1, .warehouses = 1, .parameters = {{"customers", "3000"}, {"by_name", "100"}}}));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 5000, 4));
  // district, last name -> (first name, number, payments)
  std::map<std::pair<uint32_t, std::string>, std::vector<std::tuple<std::string, uint32_t, uint32_t>>> shared;
  VisitRows<CustomerRow>(cluster, kCustomer, [&](instance::KeyView key, const CustomerRow& row) {
    const std::vector<uint32_t> numbers = Numbers(key, 3);
    shared[{numbers[1], std::string(TextOf(row.last))}].emplace_back(TextOf(row.first), numbers[2],
                                                                     row.account.payments);
  });
  EXPECT_EQ(shared.size(), kDistricts * kTpccLastNames);
  std::map<size_t, uint64_t> payments_by_size;
  for (auto& [name, customers] : shared) {
    std::sort(customers.begin(), customers.end());
    const size_t middle = (customers.size() + 1) / 2 - 1;  // ceil(n / 2), from 1
    for (size_t i = 0; i < customers.size(); ++i) {
      const uint32_t payments = std::get<2>(customers[i]) - 1;  // one was loaded
      EXPECT_TRUE(i == middle || payments == 0) << name.second << ", " << i << " of " << customers.size();
      payments_by_size[customers.size()] += payments;
    }
  }
  uint64_t payments = 0;
  for (const auto& [size, count] : payments_by_size) payments += count;
  EXPECT_EQ(payments, cluster.Committed());
  EXPECT_GT(payments_by_size[1], 0u);
  EXPECT_GT(payments_by_size[2], 0u);
  EXPECT_GT(payments_by_size[3], 0u);
}

// `warehouses: own`: each worker stays with its own, and its island's.
TEST(PaymentCluster, Run_EveryWarehouseIsPaidAtByItsOwnWorker) {
  InProcessCluster cluster(PaymentCluster(Layout(2, 2, 8, 8, {{"warehouses", "own"}})));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 4000, 2));
  EXPECT_EQ(cluster.Sum().multisite + cluster.Sum().distributed, 0u) << "not all payments are local";
  VisitRows<HistoryRow>(cluster, kHistory, [&](instance::KeyView key, const HistoryRow&) {
    const std::vector<uint32_t> numbers = Numbers(key, 2);
    const uint32_t island = numbers[0] / 4, worker = numbers[0] / 2 % 2;
    EXPECT_TRUE(numbers[1] == 0 || numbers[1] == ((island + 1) << 16 | worker)) << "warehouse " << numbers[0];
  });
}

// Both kinds of credit; what a payment writes into the data of a bad one is readable there.
TEST(PaymentCluster, Run_BadCreditNotesThePayment) {
  InProcessCluster cluster(PaymentCluster(Layout(1, 1, 1, 1, {{"by_name", "0"}})));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 2000, 1));
  uint64_t good = 0, bad = 0;
  VisitRows<CustomerRow>(cluster, kCustomer, [&](instance::KeyView key, const CustomerRow& row) {
    const std::vector<uint32_t> numbers = Numbers(key, 3);
    const std::string start = std::to_string(numbers[2]) + " " + std::to_string(numbers[1]) + " 0 " +
                              std::to_string(numbers[1]) + " 0 ";
    const bool noted = TextOf(row.data).substr(0, start.size()) == start;
    const bool paid = row.account.payments > 1;
    EXPECT_EQ(noted, paid && TextOf(row.credit) == "BC") << start << "/ " << TextOf(row.data);
    good += paid && !noted;
    bad += noted;
  });
  EXPECT_GT(good, bad);
  EXPECT_GT(bad, 0u);
}

TEST(PaymentCluster, Run_OverwrittenHistoryDoesNotGrow) {
  InProcessCluster cluster(PaymentCluster(Layout(1, 1, 1, 1, {{"history", "overwrite"}})));
  ASSERT_TRUE(cluster.Start().ok());
  const uint64_t pages = cluster.island(0).PoolUsage().resident_pages;
  ASSERT_NO_FATAL_FAILURE(RunPayments(cluster, 5000, 4));
  EXPECT_EQ(cluster.island(0).PoolUsage().resident_pages, pages);
  uint64_t rows = 0, overwritten = 0;
  VisitRows<HistoryRow>(cluster, kHistory, [&](instance::KeyView, const HistoryRow& row) {
    ++rows;
    overwritten += row.paid_cents > row.amount_cents;
  });
  EXPECT_EQ(rows, 300u);
  EXPECT_EQ(overwritten, 300u);
}

TEST(PaymentCluster, StartRun_IslandWithoutWarehouseIsAnError) {
  InProcessCluster cluster(PaymentCluster(Layout(2, 1, 4, 1)));
  ASSERT_TRUE(cluster.Start().ok());
  const absl::Status status = cluster.StartRun(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "payment: island 0 has no warehouse: its sites 0 to 1 of 4 hold none of the 1; give the tables a "
            "range of as many warehouses as there are sites, or make `sites` as many as the warehouses");
}

}  // namespace
}  // namespace islands::experiments
