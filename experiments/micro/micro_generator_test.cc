#include "experiments/micro/micro_generator.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <new>
#include <set>
#include <string>

namespace {
int64_t g_allocations = 0;  // this test has one thread
}  // namespace

// Not inlined: GCC would see free() meet memory from the library's operator new, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++g_allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace islands::experiments {
namespace {

using partitioner::RangePartition;
using partitioner::SiteRun;

// 24 sites of 10,000 rows; the island under test has sites 6..11.
constexpr int64_t kBegin = 1000;
constexpr int64_t kEnd = 241'000;
constexpr SiteRun kIsland{.first = 6, .count = 6};

RangePartition Partition(int64_t begin = kBegin, int64_t end = kEnd, uint32_t sites = 24) {
  return *RangePartition::Create(begin, end, sites);
}

constexpr int64_t kBeganNs = 1;  // where a ManualClock begins

struct Fixture {
  explicit Fixture(const MicroOptions& options, RangePartition table = Partition(), SiteRun run = kIsland)
      : partition(table), sites(run) {
    generator = std::make_unique<MicroGenerator>(options, partition, sites, &clock, kBeganNs);
    request = generator->MakeRequest();
  }

  const MicroRequest& Next() {
    generator->Next(random, *request);
    return static_cast<const MicroRequest&>(*request);
  }
  uint32_t SiteOf(uint64_t key) const { return *partition.SiteOf(static_cast<int64_t>(key)); }
  bool IsHome(uint64_t key) const {
    return SiteOf(key) >= sites.first && SiteOf(key) < sites.first + sites.count;
  }

  RangePartition partition;
  SiteRun sites;
  runtime::Random random{42};
  runtime::ManualClock clock;
  std::unique_ptr<MicroGenerator> generator;
  std::unique_ptr<instance::Request> request;
};

void ExpectDistinctAscending(const std::vector<uint64_t>& keys) {
  for (size_t i = 1; i < keys.size(); ++i) ASSERT_LT(keys[i - 1], keys[i]);
}

TEST(MicroGenerator, Next_LocalStaysInOneSiteOfItsIsland) {
  for (double zipf : {0.0, 0.99, 3.0}) {
    Fixture fixture({.rows = 10, .zipf = zipf});
    std::map<uint32_t, int> seen;
    for (int i = 0; i < 12'000; ++i) {
      const MicroRequest& request = fixture.Next();
      ASSERT_FALSE(request.multisite);
      ASSERT_EQ(request.keys.size(), 10u);
      ASSERT_NO_FATAL_FAILURE(ExpectDistinctAscending(request.keys));
      ASSERT_TRUE(fixture.IsHome(request.keys.front()));
      ASSERT_EQ(fixture.SiteOf(request.keys.front()), fixture.SiteOf(request.keys.back()));
      ++seen[fixture.SiteOf(request.keys.front())];
    }
    ASSERT_EQ(seen.size(), kIsland.count);
    for (auto [site, count] : seen) EXPECT_NEAR(count, 2000, 250) << "site " << site;
  }
}

TEST(MicroGenerator, Next_MultisiteFirstRowAtHomeOthersAnywhere) {
  Fixture fixture({.op = MicroOp::kUpdate, .rows = 10, .multisite_percent = 100});
  std::map<uint32_t, int> home;
  std::map<uint32_t, int> others;
  for (int i = 0; i < 12'000; ++i) {
    const MicroRequest& request = fixture.Next();
    ASSERT_TRUE(request.multisite);
    ASSERT_EQ(request.audit_delta, 10);
    ASSERT_NO_FATAL_FAILURE(ExpectDistinctAscending(request.keys));
    ASSERT_TRUE(fixture.IsHome(request.home_key));
    ++home[fixture.SiteOf(request.home_key)];
    for (uint64_t key : request.keys) {
      if (key != request.home_key) ++others[fixture.SiteOf(key)];
    }
  }
  ASSERT_EQ(home.size(), kIsland.count);
  for (auto [site, count] : home) EXPECT_NEAR(count, 2000, 250) << "site " << site;
  ASSERT_EQ(others.size(), 24u);
  for (auto [site, count] : others) EXPECT_NEAR(count, 12'000 * 9 / 24, 400) << "site " << site;
}

TEST(MicroGenerator, Next_MultisiteShareIsAsAsked) {
  for (double percent : {0.0, 0.5, 20.0, 50.0, 99.5, 100.0}) {
    Fixture fixture({.rows = 2, .multisite_percent = percent});
    constexpr int kDraws = 100'000;
    int multisite = 0;
    for (int i = 0; i < kDraws; ++i) multisite += fixture.Next().multisite;
    const double expected = kDraws * percent / 100;
    const double deviation = std::sqrt(expected * (1 - percent / 100));
    EXPECT_NEAR(multisite, expected, 5 * deviation) << percent << " %";
  }
}

// Section 7.3 of the paper: where a transaction begins, and which row that is, together follow the law of the
// whole table, whatever the layout; and so do the other rows of a multisite one.
TEST(MicroGenerator, TableSkew_FollowsTheLawOfTheWholeTable) {
  const MicroOptions options{.rows = 2, .multisite_percent = 50, .zipf = 1, .skew_of_table = true};
  constexpr SiteRun kIslands[] = {{0, 1}, {1, 5}, {6, 18}};
  std::deque<Fixture> islands;
  for (const SiteRun& run : kIslands) islands.emplace_back(options, Partition(), run);
  constexpr int kDraws = 200'000;
  std::map<uint64_t, int> first, other_multisite;
  int multisite = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t site = *islands[0].generator->DrawSite(islands[0].random);
    Fixture& island = islands[site < 1 ? 0 : site < 6 ? 1 : 2];
    const MicroRequest& request = island.Next();
    ASSERT_NO_FATAL_FAILURE(ExpectDistinctAscending(request.keys));
    ASSERT_TRUE(island.IsHome(request.home_key));
    ++first[request.home_key];
    const uint64_t other = request.keys[request.keys[0] == request.home_key ? 1 : 0];
    if (!request.multisite) {
      ASSERT_EQ(island.SiteOf(other), island.SiteOf(request.home_key));  // local: of one site
      continue;
    }
    ++multisite;
    ++other_multisite[other];
  }
  double harmonic = 0;
  for (int r = 1; r <= kEnd - kBegin; ++r) harmonic += 1.0 / r;
  for (uint64_t rank : {1, 2, 3, 10, 100}) {
    const double chance = 1 / (harmonic * static_cast<double>(rank));
    const double deviation = std::sqrt(kDraws * chance);
    EXPECT_NEAR(first[kBegin + rank - 1], kDraws * chance, 5 * deviation) << "rank " << rank;
  }
  // The second row is another one than the first: the hottest is it when the first was another.
  double hottest = 0;
  for (int r = 2; r <= kEnd - kBegin; ++r) hottest += 1 / (harmonic * r) / (harmonic - 1.0 / r);
  EXPECT_NEAR(other_multisite[kBegin], multisite * hottest, 5 * std::sqrt(multisite * hottest));
}

TEST(MicroGenerator, TableSkew_MakesOneIslandHot) {
  Fixture fixture({.rows = 2, .zipf = 1, .skew_of_table = true});
  std::vector<int> sites(24);
  for (int i = 0; i < 10'000; ++i) ++sites[*fixture.generator->DrawSite(fixture.random)];
  EXPECT_GT(sites[0], 7'000);  // H(10,000) / H(240,000) = 0.75
  EXPECT_LT(sites[23], 100);
}

// The law of the whole table, 70,000 rows further on: in the middle of the second island, in no site's
// beginning, and for one of the islands it wraps around.
TEST(MicroGenerator, Drift_MovesTheLawOfTheWholeTable) {
  const MicroOptions options{
      .rows = 2, .multisite_percent = 50, .zipf = 1, .skew_of_table = true, .drift_per_s = 1'000};
  constexpr SiteRun kIslands[] = {{0, 1}, {1, 8}, {9, 15}};
  std::deque<Fixture> islands;
  for (const SiteRun& run : kIslands)
    islands.emplace_back(options, Partition(), run).clock.AdvanceNs(70'000'000'000);
  constexpr int kDraws = 200'000;
  std::map<uint64_t, int> first, other;
  int multisite = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t site = *islands[0].generator->DrawSite(islands[0].random);
    Fixture& island = islands[site < 1 ? 0 : site < 9 ? 1 : 2];
    const MicroRequest& request = island.Next();
    ASSERT_TRUE(island.IsHome(request.home_key));
    ++first[request.home_key];
    if (!request.multisite) continue;
    ++multisite;
    ++other[request.keys[request.keys[0] == request.home_key ? 1 : 0]];
  }
  double harmonic = 0;
  for (int r = 1; r <= kEnd - kBegin; ++r) harmonic += 1.0 / r;
  for (uint64_t rank : {1, 2, 3, 10, 100}) {
    const double expected = kDraws / (harmonic * static_cast<double>(rank));
    EXPECT_NEAR(first[kBegin + 70'000 + rank - 1], expected, 5 * std::sqrt(expected)) << "rank " << rank;
  }
  EXPECT_LT(first[kBegin + 69'999], 20) << "the last rank of all";
  EXPECT_GT(other[kBegin + 70'000], multisite / 20);
}

TEST(MicroGenerator, Drift_GoesRoundTheTable) {
  Fixture fixture({.rows = 1, .zipf = 5, .skew_of_table = true, .drift_per_s = 10'000});
  std::vector<uint32_t> sites;
  for (int second = 0; second <= 24; ++second) {
    sites.push_back(*fixture.generator->DrawSite(fixture.random));
    fixture.clock.AdvanceNs(1'000'000'000);
  }
  for (uint32_t second = 0; second <= 24; ++second) EXPECT_EQ(sites[second], second % 24);
}

TEST(MicroGenerator, Drift_PerSiteStaysInEverySite) {
  Fixture fixture({.rows = 1, .zipf = 20, .drift_per_s = 1'000});
  for (const uint64_t hot : {0, 4'000, 8'000, 2'000}) {  // sites have 10,000
    std::set<uint32_t> sites;
    for (int i = 0; i < 100; ++i) {
      const uint64_t key = fixture.Next().keys.front();
      sites.insert(fixture.SiteOf(key));
      const auto begin = static_cast<uint64_t>(fixture.partition.SiteBegin(fixture.SiteOf(key)));
      ASSERT_EQ(key - begin, hot);
    }
    EXPECT_EQ(sites.size(), kIsland.count);
    fixture.clock.AdvanceNs(4'000'000'000);
  }
}

// Before the run has begun nothing has moved, and without drift nothing does.
TEST(MicroGenerator, Drift_CountsFromTheBeginningOfTheRun) {
  const MicroOptions drifting{.rows = 5, .zipf = 1, .skew_of_table = true, .drift_per_s = 100};
  MicroOptions still = drifting;
  still.drift_per_s = 0;
  Fixture a(drifting), b(still), c(still);
  c.clock.AdvanceNs(3'600'000'000'000);
  for (int i = 0; i < 100; ++i) {
    const std::vector<uint64_t> keys = a.Next().keys;
    EXPECT_EQ(b.Next().keys, keys);
    EXPECT_EQ(c.Next().keys, keys);
  }
}

TEST(MicroGenerator, SitesTouched_AreExactlySoMany) {
  for (const bool of_table : {false, true}) {
    for (const double zipf : {0.0, 1.0, 30.0}) {
      for (const uint32_t touched : {1u, 2u, 3u, 10u}) {
        Fixture fixture({.op = MicroOp::kUpdate,
                         .rows = 10,
                         .multisite_percent = 50,
                         .zipf = zipf,
                         .skew_of_table = of_table,
                         .sites_touched = touched});
        std::set<uint32_t> all;
        for (int i = 0; i < 500; ++i) {
          const MicroRequest& request = fixture.Next();
          ASSERT_EQ(request.keys.size(), 10u);
          ASSERT_NO_FATAL_FAILURE(ExpectDistinctAscending(request.keys));
          ASSERT_TRUE(fixture.IsHome(request.home_key));
          std::map<uint32_t, size_t> rows;
          for (const uint64_t key : request.keys) ++rows[fixture.SiteOf(key)];
          ASSERT_EQ(rows.size(), request.multisite ? touched : 1);
          if (!request.multisite) continue;
          for (const auto& [site, count] : rows) {
            all.insert(site);
            ASSERT_TRUE(count == 10 / touched || count == 10 / touched + 1) << count;
          }
        }
        if (touched > 1) {
          EXPECT_EQ(all.size(), 24u);
        }
      }
    }
  }
}

TEST(MicroGenerator, SitesTouched_OthersAreUniform) {
  Fixture fixture({.rows = 4, .multisite_percent = 100, .zipf = 1, .sites_touched = 4});
  constexpr int kDraws = 24'000;
  std::map<uint32_t, int> others;
  for (int i = 0; i < kDraws; ++i) {
    const MicroRequest& request = fixture.Next();
    for (const uint64_t key : request.keys) others[fixture.SiteOf(key)] += key != request.home_key;
  }
  // A home site is not among the others: of 6 homes each is one in 6.
  for (uint32_t site = 0; site < 24; ++site) {
    const double chance =
        fixture.IsHome(static_cast<uint64_t>(fixture.partition.SiteBegin(site))) ? 5.0 / 6 : 1;
    EXPECT_NEAR(others[site], kDraws * 3 / 23.0 * chance, 300) << site;
  }
}

TEST(CheckRowsFit, SitesTouched_NeedSitesAndRows) {
  const auto error = [](const MicroOptions& options, int64_t rows, uint32_t sites) {
    return std::string(CheckRowsFit(options, Partition(0, rows, sites), sites).message());
  };
  EXPECT_EQ(error({.rows = 4, .multisite_percent = 100, .sites_touched = 4}, 240, 24), "");
  EXPECT_EQ(error({.rows = 4, .multisite_percent = 100, .sites_touched = 5}, 240, 24),
            "--sites-touched: found 5, expected at most the 24 sites that there are, and the 4 rows of a "
            "transaction");
  EXPECT_NE(error({.rows = 4, .multisite_percent = 100, .sites_touched = 4}, 240, 3), "");
  EXPECT_EQ(error({.rows = 20, .multisite_percent = 100, .sites_touched = 2}, 240, 24), "");
  EXPECT_NE(error({.rows = 21, .multisite_percent = 100, .sites_touched = 2}, 240, 24), "") << "11 of 10";
}

TEST(MicroGenerator, LocalToIsland_TakesRowsOfSeveralSites) {
  for (const bool of_table : {false, true}) {
    Fixture fixture({.rows = 10, .skew_of_table = of_table, .local_to_island = true});
    int one_site = 0;
    for (int i = 0; i < 1'000; ++i) {
      const MicroRequest& request = fixture.Next();
      for (uint64_t key : request.keys) ASSERT_TRUE(fixture.IsHome(key));
      one_site += fixture.SiteOf(request.keys.front()) == fixture.SiteOf(request.keys.back());
    }
    EXPECT_LT(one_site, 5);
  }
}

TEST(MicroGenerator, LocalToIsland_NeedsRowsOnTheIslandOnly) {
  const MicroOptions options{.rows = 30, .local_to_island = true};
  const RangePartition ten_a_site = Partition(0, 240);
  EXPECT_TRUE(CheckRowsFit(options, ten_a_site, 24).ok());
  EXPECT_TRUE(CheckRowsFit(options, ten_a_site, SiteRun{0, 3}).ok());
  EXPECT_THAT(CheckRowsFit(options, ten_a_site, SiteRun{3, 2}).ToString(),
              testing::HasSubstr("--rows: found 30, expected at most the 20 rows of an island"));
}

TEST(MicroGenerator, Next_AuditsWhatItsOpAdds) {
  EXPECT_EQ(Fixture({.op = MicroOp::kRead, .rows = 3}).Next().audit_delta, 0);
  EXPECT_EQ(Fixture({.op = MicroOp::kUpdate, .rows = 3}).Next().audit_delta, 3);
  EXPECT_EQ(Fixture({.op = MicroOp::kAdd, .rows = 3}).Next().audit_delta, 3);
}

// What is measured of one op beside another is measured on the same rows.
TEST(MicroGenerator, Next_DrawsTheSameRowsForEveryOp) {
  Fixture read({.op = MicroOp::kRead}), update({.op = MicroOp::kUpdate}), add({.op = MicroOp::kAdd});
  for (int i = 0; i < 100; ++i) {
    const std::vector<uint64_t> keys = read.Next().keys;
    EXPECT_EQ(update.Next().keys, keys);
    EXPECT_EQ(add.Next().keys, keys);
  }
}

TEST(MicroGenerator, Next_MixHasAsManyUpdatesAsAsked) {
  for (double percent : {0.0, 20.0, 100.0}) {
    Fixture fixture({.mix = true, .update_percent = percent, .rows = 2});
    constexpr int kDraws = 10'000;
    int updates = 0;
    for (int i = 0; i < kDraws; ++i) {
      const MicroRequest& request = fixture.Next();
      const bool update = request.op == MicroOp::kUpdate;
      EXPECT_TRUE(update || request.op == MicroOp::kRead);
      EXPECT_EQ(request.audit_delta, update ? 2 : 0);
      updates += update;
    }
    const double expected = kDraws * percent / 100;
    EXPECT_NEAR(updates, expected, 5 * std::sqrt(expected * (1 - percent / 100))) << percent << " %";
  }
}

// Rank r of the whole table is its r-th key; s = 1 over 240,000 keys: P(r) = 1 / (r * H(240000)), H
// = 12.9656.
TEST(MicroGenerator, Next_MultisiteZipfRanksAreKeysInOrder) {
  Fixture fixture({.rows = 2, .multisite_percent = 100, .zipf = 1});
  constexpr int kDraws = 200'000;
  std::map<uint64_t, int> remote;
  for (int i = 0; i < kDraws; ++i) {
    const MicroRequest& request = fixture.Next();
    ++remote[request.keys[request.keys[0] == request.home_key ? 1 : 0]];
  }
  for (int rank : {1, 2, 3, 10}) {
    const double expected = kDraws / (rank * 12.9656);
    EXPECT_NEAR(remote[kBegin + rank - 1], expected, 5 * std::sqrt(expected)) << "rank " << rank;
  }
}

TEST(MicroGenerator, Next_LocalZipfIsSkewedWithinTheSite) {
  Fixture fixture({.rows = 1, .zipf = 1});
  constexpr int kDraws = 120'000;
  std::map<uint64_t, int> by_offset;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t key = fixture.Next().keys.front();
    ++by_offset[key - static_cast<uint64_t>(fixture.partition.SiteBegin(fixture.SiteOf(key)))];
  }
  for (int rank : {1, 2, 5}) {
    const double expected = kDraws / (rank * 9.7876);  // H(10000)
    EXPECT_NEAR(by_offset[rank - 1], expected, 5 * std::sqrt(expected)) << "rank " << rank;
  }
}

// Drawing without replacement: of three rows with weights 1, 1/4, 1/9 two are drawn; the chance that {1, 2}
// come is p1 p2 / (1 - p1) + p2 p1 / (1 - p2).
TEST(MicroGenerator, Next_ZipfWithoutReplacement) {
  Fixture fixture({.rows = 2, .zipf = 2}, Partition(0, 3, 1), {.first = 0, .count = 1});
  constexpr int kDraws = 200'000;
  int first_two = 0;
  for (int i = 0; i < kDraws; ++i) first_two += fixture.Next().keys == std::vector<uint64_t>{0, 1};
  const double total = 1 + 1.0 / 4 + 1.0 / 9;
  const double p1 = 1 / total;
  const double p2 = 0.25 / total;
  EXPECT_NEAR(first_two, kDraws * (p1 * p2 / (1 - p1) + p2 * p1 / (1 - p2)), 1000);
}

// Every row of a site, with a law so steep that plain repetition would never reach the last ones.
TEST(MicroGenerator, Next_AllRowsOfASite) {
  for (double zipf : {0.0, 1.0, 3.0, 50.0}) {
    Fixture fixture({.rows = 200, .multisite_percent = 50, .zipf = zipf}, Partition(0, 400, 2),
                    {.first = 1, .count = 1});
    for (int i = 0; i < 50; ++i) {
      const MicroRequest& request = fixture.Next();
      ASSERT_EQ(request.keys.size(), 200u);
      ASSERT_NO_FATAL_FAILURE(ExpectDistinctAscending(request.keys));
      if (request.multisite) continue;
      ASSERT_EQ(request.keys.front(), 200u);
      ASSERT_EQ(request.keys.back(), 399u);
    }
  }
}

TEST(MicroGenerator, Next_AllocatesNothing) {
  for (double zipf : {0.0, 1.0}) {
    for (uint32_t touched : {0u, 5u}) {
      Fixture fixture({.rows = 100,
                       .multisite_percent = 50,
                       .zipf = zipf,
                       .skew_of_table = true,
                       .sites_touched = touched,
                       .drift_per_s = 1e6});
      const int64_t before = g_allocations;
      for (int i = 0; i < 1000; ++i, fixture.clock.AdvanceNs(12'345)) fixture.Next();
      EXPECT_EQ(g_allocations, before);
    }
  }
}

TEST(MicroGenerator, Next_SameSeedSameTransactions) {
  Fixture one({.rows = 5, .multisite_percent = 50, .zipf = 0.5});
  Fixture two({.rows = 5, .multisite_percent = 50, .zipf = 0.5});
  for (int i = 0; i < 100; ++i) ASSERT_EQ(one.Next().keys, two.Next().keys);
}

TEST(MicroGenerator, Next_MultisiteOnlyNeedsOneRowPerSite) {
  const MicroOptions options = {.rows = 240, .multisite_percent = 100};
  EXPECT_TRUE(CheckRowsFit(options, Partition(0, 240), 24).ok());
  Fixture fixture(options, Partition(0, 240));
  EXPECT_EQ(fixture.Next().keys.size(), 240u);
}

TEST(CheckRowsFit, SmallestSite_IsTheLimitUnlessAllIsMultisite) {
  const auto error = [](const MicroOptions& options, int64_t rows) {
    return std::string(CheckRowsFit(options, Partition(0, rows), 24).message());
  };
  EXPECT_EQ(error({.rows = 10}, 240), "");
  EXPECT_EQ(
      error({.rows = 11}, 240),
      "--rows: found 11, expected at most the 10 rows of the smallest site (240 rows in 24 sites); a larger "
      "table makes room (--rows-total)");
  EXPECT_NE(error({.rows = 11}, 263), "") << "one site of 24 has only ten";
  EXPECT_EQ(error({.rows = 11}, 264), "");
  EXPECT_EQ(error({.rows = 11, .multisite_percent = 100}, 240), "");
  EXPECT_EQ(error({.rows = 241, .multisite_percent = 100}, 240),
            "--rows: found 241, expected at most all 240 rows");
}

}  // namespace
}  // namespace islands::experiments
