#include "experiments/tpcc/tpcc_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "experiments/micro/count_allocations.h"
#include "experiments/tpcc/tpcc_testing.h"

namespace islands::experiments {
namespace {

// 8 warehouses on 8 sites; the island under test has sites 2..5.
struct Fixture {
  explicit Fixture(const TpccOptions& options) : catalog(TpccCatalog(8, 8)) {
    auto created = TpccGenerator::Create(options, *catalog.table(0).partition,
                                         {.catalog = catalog, .sites = {.first = 2, .count = 4}});
    EXPECT_TRUE(created.ok()) << created.status();
    generator = *std::move(created);
  }
  const TpccRequest& Next() {
    generator->Next(random, request);
    return request;
  }

  const storage::Catalog catalog;
  runtime::Random random{42};
  std::unique_ptr<TpccGenerator> generator;
  TpccRequest request;
};

constexpr TpccMix Only(TpccTransaction transaction) {
  TpccMix mix{};
  mix[static_cast<size_t>(transaction)] = 1;
  return mix;
}

void ExpectShare(int count, int draws, double share) {
  EXPECT_NEAR(count, draws * share, 5 * std::sqrt(draws * share * (1 - share)) + 1e-9) << "share " << share;
}

TEST(TpccGenerator, Next_StandardMix) {
  Fixture fixture({});
  constexpr int kDraws = 20'000;
  std::array<int, kTpccTransactions> drawn{};
  for (int i = 0; i < kDraws; ++i) ++drawn[static_cast<size_t>(fixture.Next().transaction)];
  for (size_t i = 0; i < drawn.size(); ++i) ExpectShare(drawn[i], kDraws, kStandardMix[i] / 100.0);
}

TEST(TpccGenerator, Next_AtHome) {
  Fixture fixture({});
  std::map<uint32_t, int> warehouses, districts;
  for (int i = 0; i < 8'000; ++i) {
    const TpccRequest& request = fixture.Next();
    const bool payment = request.transaction == TpccTransaction::kPayment;
    ++warehouses[payment ? request.payment.warehouse : request.warehouse];
    ++districts[payment ? request.payment.district : request.district];
  }
  ASSERT_EQ(warehouses.size(), 4u);
  for (const auto& [warehouse, count] : warehouses) {
    EXPECT_TRUE(warehouse >= 2 && warehouse < 6) << warehouse;
    ExpectShare(count, 8'000, 0.25);
  }
  ASSERT_EQ(districts.size(), kDistricts);
  EXPECT_EQ(districts.begin()->first, 1u);
}

TEST(TpccGenerator, Next_NewOrder) {
  for (const auto& [remote_percent, rollback_percent] : {std::pair(1.0, 1.0), {30.0, 0.0}, {0.0, 100.0}}) {
    Fixture fixture({.mix = Only(TpccTransaction::kNewOrder),
                     .remote_lines_percent = remote_percent,
                     .rollback_percent = rollback_percent});
    constexpr int kDraws = 5'000;
    int lines = 0, remote = 0, unused = 0, hot = 0, quantity = 0;
    for (int i = 0; i < kDraws; ++i) {
      const TpccRequest& request = fixture.Next();
      ASSERT_TRUE(request.lines >= 5 && request.lines <= 15);
      ASSERT_EQ(request.customer.warehouse, request.warehouse);
      ASSERT_EQ(request.customer.district, request.district);
      ASSERT_TRUE(request.customer.customer >= 1 && request.customer.customer <= 3000);
      const auto begin = request.line.begin(), end = begin + request.lines;
      EXPECT_TRUE(std::is_sorted(begin, end, [](const RequestedLine& a, const RequestedLine& b) {
        return std::tie(a.supply_warehouse, a.item) < std::tie(b.supply_warehouse, b.item);
      }));
      for (auto line = begin; line != end; ++line) {
        ASSERT_TRUE(line->item >= 1 && line->item <= kTpccItems + 1 && line->supply_warehouse < 8);
        ASSERT_TRUE(line->quantity >= 1 && line->quantity <= 10);
        remote += line->supply_warehouse != request.warehouse;
        unused += line->item > kTpccItems;
        // A bit that NURand sets three times in four, instead of once in two.
        hot += ((line->item - 1 + kTpccItems - kItemC) % kTpccItems & 1024u) != 0;
        quantity += line->quantity;
      }
      lines += static_cast<int>(request.lines);
    }
    EXPECT_NEAR(lines, 10 * kDraws, kDraws / 5);
    EXPECT_NEAR(quantity, 5.5 * lines, lines / 10);
    ExpectShare(remote, lines, remote_percent / 100);
    ExpectShare(unused, kDraws, rollback_percent / 100);
    EXPECT_GT(hot, 0.65 * lines);
  }
}

TEST(TpccGenerator, Next_OthersAsTheClausesHaveThem) {
  Fixture status({.mix = Only(TpccTransaction::kOrderStatus)});
  int by_name = 0;
  for (int i = 0; i < 5'000; ++i) {
    const CustomerChoice& customer = status.Next().customer;
    by_name += customer.customer == 0;
    ASSERT_LT(customer.last_name, 1000u);
  }
  ExpectShare(by_name, 5'000, 0.6);
  Fixture delivery({.mix = Only(TpccTransaction::kDelivery)});
  Fixture level({.mix = Only(TpccTransaction::kStockLevel)});
  std::map<int, int> carriers, thresholds;
  for (int i = 0; i < 2'000; ++i) {
    ++carriers[delivery.Next().carrier];
    ++thresholds[level.Next().threshold];
  }
  EXPECT_EQ(carriers.size(), 10u);
  EXPECT_EQ(carriers.begin()->first, 1);
  EXPECT_EQ(thresholds.size(), 11u);
  EXPECT_EQ(thresholds.begin()->first, 10);
  Fixture payment({.mix = Only(TpccTransaction::kPayment)});
  int remote = 0;
  for (int i = 0; i < 5'000; ++i) remote += payment.Next().payment.remote();
  ExpectShare(remote, 5'000, 0.15);
}

// Means of keying and thinking together; no less than the keying, no more than ten means of thinking besides.
TEST(TpccGenerator, Next_PausesAsTheClausesHaveThem) {
  const std::array<std::pair<double, double>, kTpccTransactions> times = {
      {{18, 12}, {3, 12}, {2, 10}, {2, 5}, {2, 5}}};
  for (size_t i = 0; i < kTpccTransactions; ++i) {
    const TpccMix mix = Only(static_cast<TpccTransaction>(i));
    Fixture none({.mix = mix});
    EXPECT_EQ(none.Next().pause_ns, 0);
    Fixture fixture({.mix = mix, .think_percent = 50});
    double sum = 0;
    constexpr int kDraws = 20'000;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double seconds = 2 * static_cast<double>(fixture.Next().pause_ns) / runtime::kNsPerSecond;
      EXPECT_GE(seconds, times[i].first - 1e-6);
      EXPECT_LE(seconds, times[i].first + 10 * times[i].second);
      sum += seconds;
    }
    EXPECT_NEAR(sum / kDraws, times[i].first + times[i].second, 5 * times[i].second / std::sqrt(kDraws));
  }
}

TEST(TpccGenerator, Next_FirstPausesAreUnderWay) {
  Fixture fixture({.mix = Only(TpccTransaction::kNewOrder), .think_percent = 100});
  for (int slot = 0; slot < 1000; ++slot) (void)fixture.generator->MakeRequest();
  int short_ones = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    const bool is_short = fixture.Next().pause_ns < 18 * runtime::kNsPerSecond;
    EXPECT_FALSE(is_short && draw >= 1000);
    short_ones += is_short ? 1 : 0;
  }
  EXPECT_GT(short_ones, 500);
}

TEST(TpccGenerator, Create_IslandWithoutWarehouse) {
  const storage::Catalog catalog = TpccCatalog(2, 8);
  const auto none = TpccGenerator::Create({}, *catalog.table(0).partition,
                                          {.catalog = catalog, .sites = {.first = 0, .count = 2}});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TpccGenerator, Next_AllocatesNothing) {
  Fixture fixture({});
  const uint64_t before = AllocationsSoFar();
  for (int i = 0; i < 1'000; ++i) fixture.Next();
  EXPECT_EQ(AllocationsSoFar(), before);
}

TEST(NonUniform, A_IsTheStandards) {
  EXPECT_EQ(NonUniform(0, 0, 999).a(), 255u);
  EXPECT_EQ(NonUniform(0, 1, 3000).a(), 1023u);
  EXPECT_EQ(NonUniform(0, 1, 100'000, NonUniform::kSixteenth).a(), 8191u);
}

}  // namespace
}  // namespace islands::experiments
