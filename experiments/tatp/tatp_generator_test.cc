#include "experiments/tatp/tatp_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/micro/count_allocations.h"

namespace islands::experiments {
namespace {

using partitioner::RangePartition;
using partitioner::SiteRun;

// 24 sites of 1000 subscribers; the island under test has sites 6..11: s_id 6001 to 12000.
constexpr SiteRun kIsland{.first = 6, .count = 6};
constexpr uint64_t kOwnFirst = 6001;
constexpr uint64_t kOwnLast = 12'000;

struct Fixture {
  explicit Fixture(const TatpOptions& options, int64_t end = 24'001, uint32_t sites = 24,
                   SiteRun run = kIsland)
      : partition(*RangePartition::Create(1, end, sites)) {
    auto created = TatpGenerator::Create(options, partition, run);
    EXPECT_TRUE(created.ok()) << created.status();
    generator = *std::move(created);
    request = generator->MakeRequest();
  }
  const TatpRequest& Next() {
    generator->Next(random, *request);
    return static_cast<const TatpRequest&>(*request);
  }
  static bool ByNumber(const TatpRequest& request) {
    return request.transaction >= TatpTransaction::kUpdateLocation;
  }
  uint64_t NextSubscriber() {
    const TatpRequest& next = Next();
    return ByNumber(next) ? SubscriberOfNumber(next.sub_nbr) : next.s_id;
  }

  RangePartition partition;
  std::unique_ptr<TatpGenerator> generator;
  std::unique_ptr<instance::Request> request;
  runtime::Random random{42};
};

void ExpectShares(TatpMix mix, const std::array<double, kTatpTransactions>& percent) {
  Fixture fixture({.mix = mix});
  constexpr int kDraws = 100'000;
  std::array<int, kTatpTransactions> seen{};
  for (int i = 0; i < kDraws; ++i) ++seen[static_cast<size_t>(fixture.Next().transaction)];
  for (size_t i = 0; i < kTatpTransactions; ++i) {
    const double expected = kDraws * percent[i] / 100;
    EXPECT_NEAR(seen[i], expected, 5 * std::sqrt(expected)) << "transaction " << i;
  }
}

TEST(TatpGenerator, Next_SharesOfTheMixes) {
  ExpectShares(TatpMix::kStandard, {35, 10, 35, 2, 14, 2, 2});
  ExpectShares(TatpMix::kRead, {43.75, 12.5, 43.75, 0, 0, 0, 0});
  ExpectShares(TatpMix::kUpdate, {0, 0, 0, 10, 70, 10, 10});
  ExpectShares(TatpMix::kInPlace, {3500 / 96., 1000 / 96., 3500 / 96., 200 / 96., 1400 / 96., 0, 0});
}

TEST(TatpGenerator, Next_InputsAreInTheirRanges) {
  Fixture fixture({});
  std::set<int> types, starts, ends;
  for (int i = 0; i < 50'000; ++i) {
    const TatpRequest& next = fixture.Next();
    ASSERT_GE(next.type, 1);
    ASSERT_LE(next.type, 4);
    ASSERT_LE(next.bit_1, 1);
    ASSERT_EQ(next.audit_delta, next.transaction == TatpTransaction::kUpdateLocation ? 1 : 0);
    ASSERT_TRUE(next.transaction != TatpTransaction::kUpdateLocation || next.vlr_location > 0);
    if (next.transaction == TatpTransaction::kInsertCallForwarding) {
      types.insert(next.type);
      starts.insert(next.start_time);
      ends.insert(next.end_time);
      ASSERT_TRUE(std::all_of(next.numberx.begin(), next.numberx.end(),
                              [](char digit) { return digit >= '0' && digit <= '9'; }));
    }
  }
  EXPECT_EQ(types.size(), 4u);
  EXPECT_EQ(starts, (std::set<int>{0, 8, 16}));
  EXPECT_EQ(ends.size(), 24u);
  EXPECT_EQ(*ends.begin(), 1);
}

TEST(TatpGenerator, Next_LocalSubscribersAreThisIslands) {
  for (bool uniform : {false, true}) {
    Fixture fixture({.uniform = uniform});
    std::map<uint64_t, int> by_site;
    for (int i = 0; i < 60'000; ++i) {
      const uint64_t s_id = fixture.NextSubscriber();
      ASSERT_GE(s_id, kOwnFirst);
      ASSERT_LE(s_id, kOwnLast);
      ++by_site[(s_id - 1) / 1000];
    }
    ASSERT_EQ(by_site.size(), 6u);
    for (auto [site, count] : by_site) EXPECT_NEAR(count, 10'000, 500) << "site " << site;
  }
}

TEST(TatpGenerator, Next_RemoteSubscribersAreAnybodys) {
  for (double percent : {0.0, 20.0, 100.0}) {
    Fixture fixture({.uniform = true, .remote_percent = percent});
    constexpr int kDraws = 50'000;
    int abroad = 0;
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t s_id = fixture.NextSubscriber();
      ASSERT_GE(s_id, 1u);
      ASSERT_LE(s_id, 24'000u);
      abroad += s_id < kOwnFirst || s_id > kOwnLast;
    }
    const double expected = kDraws * percent / 100 * 0.75;  // a quarter of all is this island's
    EXPECT_NEAR(abroad, expected, 5 * std::sqrt(expected) + 0.1) << percent << " %";
  }
}

// (a | b) mod N with a below 65536, b from 1 to N: 200,000 subscribers, compared with the exact law.
TEST(TatpGenerator, Next_NonUniformDrawFollowsTatpsRule) {
  constexpr uint64_t kSubscribers = 200'000;
  constexpr int kDraws = 400'000;
  constexpr size_t kParts = 40;
  std::array<double, kParts> expected{};
  const auto part = [](uint64_t offset) { return offset * kParts / kSubscribers; };
  for (uint64_t b = 1; b <= kSubscribers; b += 7) {  // a sample of the sum over all pairs
    for (uint64_t a = 0; a < 65'536; a += 129) expected[part((a | b) % kSubscribers)] += 1;
  }
  double pairs = 0;
  for (double count : expected) pairs += count;
  Fixture fixture({}, kSubscribers + 1, 1, {.first = 0, .count = 1});
  std::array<int, kParts> seen{};
  for (int i = 0; i < kDraws; ++i) ++seen[part(fixture.NextSubscriber() - 1)];
  double most = 0;
  for (size_t i = 0; i < kParts; ++i) {
    const double wanted = kDraws * expected[i] / pairs;
    EXPECT_NEAR(seen[i], wanted, 6 * std::sqrt(wanted) + 0.02 * wanted) << "part " << i;
    most = std::max<double>(most, seen[i]);
  }
  EXPECT_GT(most, 1.5 * kDraws / kParts) << "as good as uniform";
}

// How often each subscriber is drawn, as a share of its site's, is the same whoever has the site: an island
// of all, of some or of one.
TEST(TatpGenerator, Next_SkewIsTheSameInEveryLayout) {
  constexpr int kDraws = 200'000;
  constexpr SiteRun kLayouts[] = {{0, 24}, {6, 6}, {7, 1}};
  std::vector<std::vector<double>> shares;
  for (const SiteRun& run : kLayouts) {
    Fixture fixture({}, 24'001, 24, run);
    std::vector<double> share(1000);
    for (int i = 0; i < kDraws; ++i) share[(fixture.NextSubscriber() - 1) % 1000] += 1.0 / kDraws;
    EXPECT_GT(*std::max_element(share.begin(), share.end()), 0.01) << "as good as uniform";
    shares.push_back(share);
  }
  for (size_t i = 0; i < 1000; ++i) {
    const double deviation = std::sqrt(shares[0][i] / kDraws) + 1e-5;
    EXPECT_NEAR(shares[1][i], shares[0][i], 8 * deviation) << i;
    EXPECT_NEAR(shares[2][i], shares[0][i], 8 * deviation) << i;
  }
}

TEST(TatpGenerator, DrawSite_IsAnyThatHasSubscribers) {
  Fixture fixture({});
  std::vector<int> seen(24);
  for (int i = 0; i < 24'000; ++i) ++seen[*fixture.generator->DrawSite(fixture.random)];
  for (const int count : seen) EXPECT_NEAR(count, 1'000, 160);
  Fixture few({}, 5, 24, {0, 24});
  for (int i = 0; i < 100; ++i) {
    const uint32_t site = *few.generator->DrawSite(few.random);
    EXPECT_LT(few.partition.SiteBegin(site), few.partition.SiteBegin(site + 1));
    EXPECT_LE(few.NextSubscriber(), 4u);
  }
}

TEST(TatpGenerator, Next_AllocatesNothing) {
  Fixture fixture({.remote_percent = 50});
  const uint64_t before = AllocationsSoFar();
  for (int i = 0; i < 10'000; ++i) fixture.Next();
  EXPECT_EQ(AllocationsSoFar(), before);
}

TEST(TatpGenerator, Create_IslandWithoutSubscribers) {
  const RangePartition partition = *RangePartition::Create(1, 5, 24);
  bool refused = false;
  for (uint32_t site = 0; site < 24; ++site) {
    const auto generator = TatpGenerator::Create({}, partition, {.first = site, .count = 1});
    if (generator.ok()) continue;
    refused = true;
    EXPECT_NE(std::string(generator.status().message()).find("have no subscriber"), std::string::npos);
  }
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace islands::experiments
