#include "experiments/payment/payment_generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "experiments/micro/count_allocations.h"
#include "experiments/payment/payment_testing.h"

namespace islands::experiments {
namespace {

// 24 warehouses on 24 sites; the island under test has sites 6..11.
struct Fixture {
  explicit Fixture(const PaymentOptions& options, uint32_t worker = 0, uint32_t workers = 1,
                   uint32_t warehouses = 24, partitioner::SiteRun sites = {.first = 6, .count = 6})
      : catalog(PaymentCatalog(0, warehouses, 24)) {
    auto created = PaymentGenerator::Create(
        options, *catalog.table(0).partition,
        {.catalog = catalog, .island = 1, .worker = worker, .sites = sites, .workers = workers});
    EXPECT_TRUE(created.ok()) << created.status();
    generator = *std::move(created);
    request = generator->MakeRequest();
  }
  const PaymentRequest& Next() {
    generator->Next(random, *request);
    return static_cast<const PaymentRequest&>(*request);
  }

  const storage::Catalog catalog;
  runtime::Random random{42};
  std::unique_ptr<PaymentGenerator> generator;
  std::unique_ptr<instance::Request> request;
};

void ExpectShare(int count, int draws, double share) {
  EXPECT_NEAR(count, draws * share, 5 * std::sqrt(draws * share * (1 - share))) << "share " << share;
}

TEST(ShareOf, OneEach) {
  for (uint32_t worker = 0; worker < 4; ++worker) {
    EXPECT_EQ(ShareOf({10, 14}, worker, 4), (WarehouseRange{10 + worker, 11 + worker}));
  }
}

TEST(ShareOf, MoreWarehousesThanWorkersSplitThem) {
  EXPECT_EQ(ShareOf({0, 7}, 0, 3), (WarehouseRange{0, 2}));
  EXPECT_EQ(ShareOf({0, 7}, 1, 3), (WarehouseRange{2, 4}));
  EXPECT_EQ(ShareOf({0, 7}, 2, 3), (WarehouseRange{4, 7}));
}

TEST(ShareOf, FewerWarehousesThanWorkersAreShared) {
  std::map<uint32_t, int> workers_of;
  for (uint32_t worker = 0; worker < 5; ++worker) {
    const WarehouseRange share = ShareOf({3, 5}, worker, 5);
    EXPECT_EQ(share.size(), 1u);
    ++workers_of[share.begin];
  }
  EXPECT_EQ(workers_of, (std::map<uint32_t, int>{{3, 3}, {4, 2}}));
}

TEST(PaymentGenerator, Next_WarehousesOfOwnSites) {
  Fixture fixture({});
  std::map<uint32_t, int> warehouses, districts;
  for (int i = 0; i < 12'000; ++i) {
    const PaymentRequest& request = fixture.Next();
    ++warehouses[request.warehouse];
    ++districts[request.district];
    ASSERT_EQ(request.customer_warehouse, request.warehouse);
    ASSERT_EQ(request.customer_district, request.district);
  }
  ASSERT_EQ(warehouses.size(), 6u);
  for (const auto& [warehouse, count] : warehouses) {
    EXPECT_TRUE(warehouse >= 6 && warehouse < 12) << warehouse;
    ExpectShare(count, 12'000, 1.0 / 6);
  }
  ASSERT_EQ(districts.size(), kDistricts);
  EXPECT_EQ(districts.begin()->first, 1u);
  for (const auto& [district, count] : districts) ExpectShare(count, 12'000, 0.1);
}

TEST(PaymentGenerator, Next_WorkersKeepToTheirOwn) {
  std::set<uint32_t> seen;
  for (uint32_t worker = 0; worker < 3; ++worker) {
    Fixture fixture({.own_warehouses = true}, worker, 3);
    for (int i = 0; i < 100; ++i) {
      const uint32_t warehouse = fixture.Next().warehouse;
      EXPECT_EQ((warehouse - 6) / 2, worker);
      seen.insert(warehouse);
    }
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(PaymentGenerator, Next_WorkersTakeAnyOfTheirIsland) {
  for (uint32_t worker = 0; worker < 3; ++worker) {
    std::set<uint32_t> seen;
    Fixture fixture({}, worker, 3);
    for (int i = 0; i < 200; ++i) seen.insert(fixture.Next().warehouse);
    EXPECT_EQ(seen, (std::set<uint32_t>{6, 7, 8, 9, 10, 11}));
  }
}

// Two warehouses for 24 sites: they lie in sites 11 and 23.
TEST(PaymentGenerator, Next_SitesWithoutWarehouses) {
  Fixture fixture({}, 1, 2, 2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(fixture.Next().warehouse, 0u);
  const storage::Catalog catalog = PaymentCatalog(0, 2, 24);
  const auto none = PaymentGenerator::Create({}, *catalog.table(0).partition,
                                             {.catalog = catalog, .sites = {.first = 0, .count = 6}});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PaymentGenerator, Next_SharesAreAsAsked) {
  for (double percent : {0.0, 15.0, 60.0, 100.0}) {
    Fixture fixture({.by_name_percent = percent, .remote_percent = 100 - percent});
    constexpr int kDraws = 20'000;
    int by_name = 0, remote = 0;
    for (int i = 0; i < kDraws; ++i) {
      const PaymentRequest& request = fixture.Next();
      by_name += request.customer == 0;
      remote += request.customer_warehouse != request.warehouse;
    }
    ExpectShare(by_name, kDraws, percent / 100);
    ExpectShare(remote, kDraws, 1 - percent / 100);
  }
}

TEST(PaymentGenerator, Next_RemoteCustomersComeFromAllOtherWarehouses) {
  Fixture fixture({.remote_percent = 100, .own_warehouses = true}, 0, 6);  // home: 6
  std::map<uint32_t, int> warehouses, districts;
  constexpr int kDraws = 46'000;
  for (int i = 0; i < kDraws; ++i) {
    const PaymentRequest& request = fixture.Next();
    ASSERT_EQ(request.warehouse, 6u);
    ++warehouses[request.customer_warehouse];
    ++districts[request.customer_district];
  }
  EXPECT_EQ(warehouses.size(), 23u);
  EXPECT_FALSE(warehouses.contains(6));
  EXPECT_EQ(warehouses.rbegin()->first, 23u);
  for (const auto& [warehouse, count] : warehouses) ExpectShare(count, kDraws, 1.0 / 23);
  EXPECT_EQ(districts.size(), kDistricts);
}

TEST(PaymentGenerator, Next_NumbersAndAmountsWithinBounds) {
  for (uint32_t customers : {10u, 30u, 1500u, 3000u}) {
    Fixture fixture({.customers = customers, .by_name_percent = 50});
    std::set<uint32_t> numbers, names;
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < 100'000; ++i) {
      const PaymentRequest& request = fixture.Next();
      if (request.customer == 0) names.insert(request.last_name);
      if (request.customer != 0) numbers.insert(request.customer);
      least = std::min(least, request.amount_cents);
      most = std::max(most, request.amount_cents);
      ASSERT_LT(request.history_slot, 10u * customers);
      ASSERT_EQ(request.audit_delta, PaymentAuditDelta(request.amount_cents));
    }
    EXPECT_EQ(*numbers.begin(), 1u);
    EXPECT_EQ(*numbers.rbegin(), customers);
    EXPECT_EQ(*names.begin(), 0u);
    EXPECT_EQ(*names.rbegin(), std::min(customers, 1000u) - 1);
    EXPECT_TRUE(least >= 100 && least < 200 && most > 499'000 && most <= 500'000) << least << " " << most;
  }
}

TEST(PaymentGenerator, Next_HistorySlotsGoRound) {
  Fixture fixture({.customers = 10}, 1, 2);
  for (uint64_t i = 0; i < 250; ++i) EXPECT_EQ(fixture.Next().history_slot, (50 + i) % 100);
}

TEST(PaymentGenerator, Next_AllocatesNothing) {
  Fixture fixture({.remote_percent = 15});
  const uint64_t before = AllocationsSoFar();
  for (int i = 0; i < 1000; ++i) fixture.Next();
  EXPECT_EQ(AllocationsSoFar(), before);
}

TEST(NonUniform, A_IsTheStandards) {
  EXPECT_EQ(NonUniform(0, 0, 999).a(), 255u);
  EXPECT_EQ(NonUniform(0, 1, 3000).a(), 1023u);
  EXPECT_EQ(NonUniform(0, 0, 0).a(), 0u);
  EXPECT_EQ(NonUniform(0, 1, 10).a(), 3u);
}

// The chance of `either` = (0..A) | (0..999) by counting all pairs.
TEST(NonUniform, Draw_FollowsTheLaw) {
  const NonUniform law(kLastNameRunC, 0, 999);
  std::map<uint32_t, double> share;
  for (uint32_t a = 0; a <= 255; ++a) {
    for (uint32_t x = 0; x <= 999; ++x) share[((a | x) + kLastNameRunC) % 1000] += 1.0 / (256 * 1000);
  }
  constexpr int kDraws = 1'000'000;
  std::map<uint32_t, int> drawn;
  runtime::Random random(3);
  for (int i = 0; i < kDraws; ++i) ++drawn[law.Draw(random)];
  for (const auto& [number, p] : share) {
    ASSERT_NEAR(drawn[number], kDraws * p, 6 * std::sqrt(kDraws * p) + 1) << number;
  }
}

TEST(LastName, ThreeSyllables) {
  EXPECT_EQ(LastName(0).view(), "BARBARBAR");
  EXPECT_EQ(LastName(371).view(), "PRICALLYOUGHT");  // the standard's example
  EXPECT_EQ(LastName(777).view(), "CALLYCALLYCALLY");
  EXPECT_EQ(LastName(999).view(), "EINGEINGEING");
}

}  // namespace
}  // namespace islands::experiments
