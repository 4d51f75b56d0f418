#include "partitioner/site_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace islands::partitioner {
namespace {

using testing::HasSubstr;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Invariant 2 of the header at one value, and order: SiteOf never falls.
void CheckValue(const RangePartition& partition, int64_t value) {
  const absl::StatusOr<uint32_t> site = partition.SiteOf(value);
  ASSERT_TRUE(site.ok()) << site.status();
  ASSERT_LE(partition.SiteBegin(*site), value);
  ASSERT_GT(partition.SiteBegin(*site + 1), value);
}

TEST(SiteMap, Create_Errors) {
  EXPECT_FALSE(SiteMap::Create(0, 0).ok());
  EXPECT_FALSE(SiteMap::Create(0, 1).ok());
  EXPECT_FALSE(SiteMap::Create(1, 0).ok());
  EXPECT_THAT(Message(SiteMap::Create(3, 4).status()), HasSubstr("at least 4 sites or at most 3 islands"));
}

TEST(SiteMap, SitesOf_EverySplitUpTo64) {
  for (uint32_t sites = 1; sites <= 64; ++sites) {
    for (uint32_t islands = 1; islands <= sites; ++islands) {
      const absl::StatusOr<SiteMap> map = SiteMap::Create(sites, islands);
      ASSERT_TRUE(map.ok());
      uint32_t next = 0, smallest = sites, largest = 0;
      for (uint32_t island = 0; island < islands; ++island) {
        const SiteRun run = map->SitesOf(island);
        ASSERT_EQ(run.first, next);
        next += run.count;
        smallest = std::min(smallest, run.count);
        largest = std::max(largest, run.count);
        for (uint32_t site = run.first; site < next; ++site) ASSERT_EQ(map->IslandOf(site), island);
      }
      ASSERT_EQ(next, sites);
      ASSERT_LE(largest - smallest, 1u);
      ASSERT_GE(smallest, 1u);
    }
  }
}

TEST(SiteMap, SitesOf_LargestCounts) {
  const uint32_t most = std::numeric_limits<uint32_t>::max();
  const absl::StatusOr<SiteMap> one_each = SiteMap::Create(most, most);
  ASSERT_TRUE(one_each.ok());
  EXPECT_EQ(one_each->IslandOf(most - 1), most - 1);
  EXPECT_EQ(one_each->SitesOf(most - 1), (SiteRun{most - 1, 1}));
}

TEST(RangePartition, Create_Errors) {
  EXPECT_THAT(Message(RangePartition::Create(5, 5, 1).status()), HasSubstr("[5, 5) is empty"));
  EXPECT_THAT(Message(RangePartition::Create(5, -5, 1).status()), HasSubstr("[5, -5) is reversed"));
  EXPECT_FALSE(RangePartition::Create(0, 5, 0).ok());
}

TEST(RangePartition, SiteOf_TheMicrobenchmarkTable) {
  const absl::StatusOr<RangePartition> partition = RangePartition::Create(0, 240000, 24);
  ASSERT_TRUE(partition.ok());
  EXPECT_EQ(*partition->SiteOf(0), 0u);
  EXPECT_EQ(*partition->SiteOf(9999), 0u);
  EXPECT_EQ(*partition->SiteOf(10000), 1u);
  EXPECT_EQ(*partition->SiteOf(239999), 23u);
  EXPECT_EQ(partition->SiteBegin(24), 240000);
}

TEST(RangePartition, SiteOf_OutsideNamesTheRange) {
  const absl::StatusOr<RangePartition> partition = RangePartition::Create(-10, 10, 3);
  ASSERT_TRUE(partition.ok());
  for (const int64_t value : {int64_t{-11}, int64_t{10}, kMin, kMax}) {
    const absl::Status status = partition->SiteOf(value).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(Message(status), HasSubstr("[-10, 10)"));
  }
}

TEST(RangePartition, SiteOf_ExhaustiveOnSmallRanges) {
  for (int64_t size = 1; size <= 40; ++size) {
    for (uint32_t sites = 1; sites <= 50; ++sites) {
      const absl::StatusOr<RangePartition> partition = RangePartition::Create(-7, -7 + size, sites);
      ASSERT_TRUE(partition.ok());
      ASSERT_EQ(partition->SiteBegin(0), -7);
      ASSERT_EQ(partition->SiteBegin(sites), -7 + size);
      for (int64_t value = -7; value < -7 + size; ++value) CheckValue(*partition, value);
    }
  }
}

TEST(RangePartition, SiteOf_WholeInt64Range) {
  const uint32_t most = std::numeric_limits<uint32_t>::max();
  for (const uint32_t sites : {1u, 2u, 3u, 24u, 65535u, most}) {
    const absl::StatusOr<RangePartition> partition = RangePartition::Create(kMin, kMax, sites);
    ASSERT_TRUE(partition.ok());
    EXPECT_EQ(partition->SiteBegin(0), kMin);
    EXPECT_EQ(partition->SiteBegin(sites), kMax);
    EXPECT_EQ(*partition->SiteOf(kMin), 0u);
    EXPECT_EQ(*partition->SiteOf(kMax - 1), sites - 1);
    for (const int64_t value : {kMin, kMin + 1, int64_t{-1}, int64_t{0}, int64_t{1}, kMax - 2, kMax - 1}) {
      CheckValue(*partition, value);
    }
    for (const uint32_t site : {1u, sites / 2, sites - 1}) {
      if (site == 0 || site >= sites) continue;
      CheckValue(*partition, partition->SiteBegin(site));
      CheckValue(*partition, partition->SiteBegin(site) - 1);
    }
  }
}

TEST(RangePartition, Property_RandomRanges) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    int64_t begin = static_cast<int64_t>(random());
    int64_t end = static_cast<int64_t>(random() >> random() % 64);
    if (begin > end) std::swap(begin, end);
    if (begin == end) continue;
    const uint32_t sites = 1 + static_cast<uint32_t>(random() % 1000);
    const absl::StatusOr<RangePartition> partition = RangePartition::Create(begin, end, sites);
    ASSERT_TRUE(partition.ok());
    const uint64_t size = static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
    const int64_t value = static_cast<int64_t>(static_cast<uint64_t>(begin) + random() % size);
    CheckValue(*partition, value);
    CheckValue(*partition, begin);
    CheckValue(*partition, end - 1);
    const uint32_t site = static_cast<uint32_t>(random() % sites);
    ASSERT_LE(partition->SiteBegin(site), partition->SiteBegin(site + 1));
  }
}

TEST(AutoSites, AtLeast24) {
  EXPECT_EQ(AutoSites(1), 24u);
  EXPECT_EQ(AutoSites(24), 24u);
  EXPECT_EQ(AutoSites(80), 80u);
}

}  // namespace
}  // namespace islands::partitioner
