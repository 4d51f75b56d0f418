#include "instance/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "instance/latency_histogram.h"
#include "instance/router.h"

namespace islands::instance {
namespace {

using partitioner::SiteMap;
using partitioner::Uint64Key;

storage::Catalog MakeCatalog() {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* rows = specs.Add();
  rows->set_name("rows");
  rows->add_key("uint64");
  rows->set_range_end(100);
  rows->set_row_bytes(16);
  control::v1::TableSpec* codes = specs.Add();
  codes->set_name("codes");
  codes->add_key("string");
  codes->set_replicated(true);
  return *storage::Catalog::Create(specs, 10);
}

RowView Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

TEST(Router, Route_SplitsByIslandAndKeepsOrder) {
  const storage::Catalog catalog = MakeCatalog();
  const SiteMap sites = *SiteMap::Create(10, 3);  // sites 0-2, 3-5, 6-9 or so
  const Router router(catalog, sites, 1);
  Batch batch;
  for (uint64_t key : {95, 35, 5, 99, 45}) batch.Read(0, Uint64Key(key));
  RoutePlan plan;
  TouchedSites touched;
  ASSERT_TRUE(router.Route(batch, &plan, &touched).ok());
  EXPECT_TRUE(touched.several);
  ASSERT_EQ(plan.local().size(), 2u);
  EXPECT_EQ(plan.local()[0].operation, 1u);
  EXPECT_EQ(plan.local()[1].operation, 4u);
  ASSERT_EQ(plan.remote().size(), 2u);
  EXPECT_EQ(plan.remote()[0].island, sites.IslandOf(9));
  ASSERT_EQ(plan.remote()[0].operations.size(), 2u);
  EXPECT_EQ(plan.remote()[0].operations[1].operation, 3u);
  EXPECT_EQ(plan.remote()[1].island, 0u);
}

TEST(Router, Route_OneSiteIsLocalScope) {
  const storage::Catalog catalog = MakeCatalog();
  const SiteMap sites = *SiteMap::Create(10, 1);
  const Router router(catalog, sites, 0);
  Batch batch;
  batch.Read(0, Uint64Key(31));
  batch.Read(0, Uint64Key(39));
  RoutePlan plan;
  TouchedSites touched;
  ASSERT_TRUE(router.Route(batch, &plan, &touched).ok());
  EXPECT_FALSE(touched.several);
}

TEST(Router, Route_RefusesWhatCannotBe) {
  const storage::Catalog catalog = MakeCatalog();
  const SiteMap sites = *SiteMap::Create(10, 2);
  const Router router(catalog, sites, 0);
  RoutePlan plan;
  TouchedSites touched;
  const auto refused = [&](auto fill) {
    Batch batch;
    fill(batch);
    return router.Route(batch, &plan, &touched).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](Batch& b) { b.Read(7, Uint64Key(1)); }));
  EXPECT_TRUE(refused([](Batch& b) { b.IndexScan(0, 0, Uint64Key(1), {}, {}); }));
  EXPECT_TRUE(refused([](Batch& b) { b.Insert(1, Bytes("x"), Bytes("y")); }));
  Batch outside;
  outside.Read(0, Uint64Key(100));
  EXPECT_FALSE(router.Route(outside, &plan, &touched).ok());
}

TEST(Router, RouteScan_GivesEachIslandItsSites) {
  const storage::Catalog catalog = MakeCatalog();
  const SiteMap sites = *SiteMap::Create(10, 5);
  const Router router(catalog, sites, 0);
  Batch batch;
  batch.Scan(0, Uint64Key(15), Uint64Key(62));
  RoutePlan plan;
  TouchedSites touched;
  ASSERT_TRUE(router.Route(batch, &plan, &touched).ok());
  ASSERT_EQ(plan.local().size(), 1u);
  EXPECT_EQ(plan.local()[0].site, 1u);
  EXPECT_EQ(plan.local()[0].last_site, 1u);
  ASSERT_EQ(plan.remote().size(), 3u);
  EXPECT_EQ(plan.remote()[0].operations[0].site, 2u);
  EXPECT_EQ(plan.remote()[0].operations[0].last_site, 3u);
  EXPECT_EQ(plan.remote()[2].operations[0].last_site, 6u);
}

TEST(Router, SitesOfRange_TakesAnyBytesAsBounds) {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("composite");
  table->add_key("uint64");
  table->add_key("string");
  table->set_range_begin(0);
  table->set_range_end(100);
  const storage::Catalog catalog = *storage::Catalog::Create(specs, 10);
  const auto sites = [&](KeyView first, KeyView end) {
    const SiteSpan span = *SitesOfRange(catalog.table(0), 10, first, end);
    return std::pair(span.first, span.last);
  };
  EXPECT_EQ(sites(Uint64Key(25), Uint64Key(26)), (std::pair<uint32_t, uint32_t>(2, 2))) << "prefixes of keys";
  EXPECT_EQ(sites(Uint64Key(25), Bytes(std::string(8, '\xff'))), (std::pair<uint32_t, uint32_t>(2, 9)));
  EXPECT_EQ(sites(Bytes(std::string(1, '\0')), {}), (std::pair<uint32_t, uint32_t>(0, 9)));
  EXPECT_EQ(sites(Bytes(std::string(300, '\xff')), {}), (std::pair<uint32_t, uint32_t>(9, 9)));
}

TEST(Wire, Operations_SurviveTheRoundTrip) {
  const storage::Catalog catalog = MakeCatalog();
  Batch batch;
  const std::string row(16, 'r');
  batch.Read(0, Uint64Key(1));
  batch.Add(0, Uint64Key(2), 8, -5);
  batch.Write(0, Uint64Key(3), 4, Bytes("abc"));
  batch.Insert(0, Uint64Key(4), Bytes(row));
  batch.Delete(0, Uint64Key(5));
  batch.Scan(0, Uint64Key(0), Uint64Key(9), 3, true);
  std::vector<RoutedOperation> share;
  for (uint32_t i = 0; i < batch.size(); ++i) share.push_back({i, 0, 0});
  data::v1::ExecuteRequest request;
  EncodeOperations(batch, share, &request);
  Batch decoded;
  std::vector<RoutedOperation> routes;
  ASSERT_TRUE(DecodeOperations(request, catalog, {0, 10}, &decoded, &routes).ok());
  ASSERT_EQ(decoded.size(), batch.size());
  EXPECT_EQ(decoded.operation(1).delta, -5);
  EXPECT_EQ(decoded.operation(1).offset, 8u);
  EXPECT_EQ(decoded.View(decoded.operation(2).row).size(), 3u);
  EXPECT_EQ(decoded.View(decoded.operation(3).row).size(), 16u);
  EXPECT_TRUE(decoded.operation(5).reverse);
  EXPECT_EQ(decoded.operation(5).limit, 3u);
}

TEST(Wire, DecodeOperations_RefusesWhatAPeerMustNotSend) {
  const storage::Catalog catalog = MakeCatalog();
  const auto refused = [&](auto change) {
    data::v1::ExecuteRequest request;
    data::v1::Operation* operation = request.add_operations();
    operation->set_kind(static_cast<uint32_t>(OperationKind::kRead));
    const Uint64Key key(5);
    operation->set_key(std::string(reinterpret_cast<const char*>(key.bytes), 8));
    change(*operation);
    Batch batch;
    std::vector<RoutedOperation> routes;
    return !DecodeOperations(request, catalog, {0, 5}, &batch, &routes).ok();
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& o) { o.set_kind(0); }));
  EXPECT_TRUE(refused([](auto& o) { o.set_kind(99); }));
  EXPECT_TRUE(refused([](auto& o) { o.set_table(2); }));
  EXPECT_TRUE(refused([](auto& o) { o.set_table(1); })) << "replicated";
  EXPECT_TRUE(refused([](auto& o) { o.set_site(7); })) << "not ours";
  EXPECT_TRUE(refused([](auto& o) { o.set_site(3); })) << "the key is of site 0";
  EXPECT_TRUE(refused([](auto& o) { o.set_key("short"); }));
  EXPECT_TRUE(refused([](auto& o) { o.set_key(std::string(5000, 'k')); }));
  EXPECT_TRUE(refused([](auto& o) { o.set_row(std::string(5000, 'r')); }));
}

TEST(Wire, JoinScans_PutsIslandsInKeyOrderUpToTheLimit) {
  for (const bool reverse : {false, true}) {
    Batch batch;
    batch.Scan(0, Uint64Key(0), Uint64Key(90), 3, reverse);
    batch.ResetResults();
    std::vector<ScanChunk> chunks;
    for (uint32_t island : {2u, 0u, 1u}) {  // answers come in any order
      chunks.push_back({0, island, static_cast<uint32_t>(batch.scanned().size()), 2});
      for (uint64_t n = 0; n < 2; ++n) {
        const Uint64Key key(island * 10 + (reverse ? 1 - n : n));
        const Batch::Bytes at = batch.Store(key);
        batch.scanned().push_back({at, at});
      }
    }
    JoinScans(&batch, &chunks);
    ASSERT_EQ(batch.scanned_rows(0), 3u);
    const std::vector<uint64_t> expected =
        reverse ? std::vector<uint64_t>{21, 20, 11} : std::vector<uint64_t>{0, 1, 10};
    for (size_t n = 0; n < 3; ++n) {
      const Uint64Key key(expected[n]);
      EXPECT_EQ(std::memcmp(batch.scanned_key(0, n).data(), key.bytes, 8), 0) << n;
    }
  }
}

TEST(LatencyHistogram, Buckets_CoverAllLatenciesWithoutGaps) {
  for (uint32_t bucket = 0; bucket + 1 < kLatencyBuckets; ++bucket) {
    EXPECT_EQ(BucketOf(BucketUpperUs(bucket) - 1), bucket);
    EXPECT_EQ(BucketOf(BucketUpperUs(bucket)), bucket + 1);
  }
  EXPECT_EQ(BucketOf(~0ull), kLatencyBuckets - 1);
  EXPECT_GT(BucketUpperUs(kLatencyBuckets - 1), 3'600'000'000ull);
}

TEST(LatencyHistogram, PercentileUs_IsWithinASixteenth) {
  std::vector<uint64_t> buckets(kLatencyBuckets);
  EXPECT_EQ(PercentileUs(buckets, 0.5), 0);
  for (uint64_t us = 1; us <= 10'000; ++us) ++buckets[BucketOf(us)];
  EXPECT_NEAR(PercentileUs(buckets, 0.50), 5'000, 5'000 / 16);
  EXPECT_NEAR(PercentileUs(buckets, 0.99), 9'900, 9'900 / 16);
}

}  // namespace
}  // namespace islands::instance
