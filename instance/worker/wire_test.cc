#include "instance/worker/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "instance/execution/router.h"
#include "instance/worker/latency_histogram.h"

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
  batch.Update(0, Uint64Key(6), 4, -7);
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
  EXPECT_EQ(decoded.operation(6).kind, OperationKind::kUpdate);
  EXPECT_EQ(decoded.operation(6).delta, -7);
  EXPECT_EQ(decoded.operation(6).offset, 4u);
}

// One kRead of key 5 as the drawing in wire.h has it, to be changed by a test.
std::string ReadOfKey5() {
  std::string bytes(32, '\0');
  bytes[0] = static_cast<char>(OperationKind::kRead);
  bytes[12] = 8;
  const Uint64Key key(5);
  return bytes + std::string(reinterpret_cast<const char*>(key.bytes), 8);
}

template <typename Integer>
void Set(std::string* bytes, size_t offset, Integer value) {
  std::memcpy(bytes->data() + offset, &value, sizeof(value));
}

TEST(Wire, EncodeOperations_IsAsDrawn) {
  Batch batch;
  batch.Read(0, Uint64Key(5));
  const RoutedOperation routed{0, 0, 0};
  data::v1::ExecuteRequest request;
  EncodeOperations(batch, {&routed, 1}, &request);
  EXPECT_EQ(request.operations(), ReadOfKey5());
  batch.Clear();
  batch.Update(0, Uint64Key(5), 8, -2);
  EncodeOperations(batch, {&routed, 1}, &request);
  std::string update = ReadOfKey5();
  update[0] = 10;
  Set(&update, 20, uint32_t{8});
  Set(&update, 24, int64_t{-2});
  EXPECT_EQ(request.operations(), update);
}

TEST(Wire, DecodeOperations_RefusesWhatAPeerMustNotSend) {
  const storage::Catalog catalog = MakeCatalog();
  const auto refused = [&](auto change) {
    data::v1::ExecuteRequest request;
    *request.mutable_operations() = ReadOfKey5();
    change(request.mutable_operations());
    Batch batch;
    std::vector<RoutedOperation> routes;
    return !DecodeOperations(request, catalog, {0, 5}, &batch, &routes).ok();
  };
  EXPECT_FALSE(refused([](auto*) {}));
  EXPECT_FALSE(refused([](auto* o) { o->clear(); })) << "no operation";
  EXPECT_FALSE(refused([](auto* o) { *o += *o; })) << "two";
  for (size_t bytes = 1; bytes < 40; ++bytes) {
    EXPECT_TRUE(refused([&](auto* o) { o->resize(bytes); })) << bytes;
  }
  EXPECT_TRUE(refused([](auto* o) { *o += "?"; })) << "rest";
  EXPECT_TRUE(refused([](auto* o) { (*o)[0] = 0; }));
  EXPECT_FALSE(refused([](auto* o) { (*o)[0] = static_cast<char>(OperationKind::kUpdate); }));
  EXPECT_TRUE(refused([](auto* o) { (*o)[0] = static_cast<char>(OperationKind::kPut) + 1; }));
  EXPECT_TRUE(refused([](auto* o) { (*o)[0] = 99; }));
  EXPECT_TRUE(refused([](auto* o) { (*o)[1] = 1; })) << "a reverse read";
  EXPECT_TRUE(refused([](auto* o) { (*o)[2] = 1; })) << "zero";
  EXPECT_TRUE(refused([](auto* o) { (*o)[4] = 2; })) << "table";
  EXPECT_TRUE(refused([](auto* o) { (*o)[4] = 1; })) << "replicated";
  EXPECT_TRUE(refused([](auto* o) { (*o)[8] = 7; })) << "not ours";
  EXPECT_TRUE(refused([](auto* o) { (*o)[8] = 3; })) << "the key is of site 0";
  EXPECT_TRUE(refused([](auto* o) { (*o)[12] = 7; })) << "short key";
  for (const uint32_t bytes : {5000u, 0x80000000u, 0xffffffffu}) {
    EXPECT_TRUE(refused([&](auto* o) {
      Set(o, 12, bytes);
      *o += std::string(5000, 'k');
    })) << "key of "
        << bytes;
    EXPECT_TRUE(refused([&](auto* o) {
      Set(o, 16, bytes);
      *o += std::string(5000, 'r');
    })) << "row of "
        << bytes;
  }
  const auto to_scan = [](std::string* o) { (*o)[0] = static_cast<char>(OperationKind::kScan); };
  EXPECT_FALSE(refused([&](auto* o) { to_scan(o), (*o)[1] = 1; }));
  EXPECT_TRUE(refused([&](auto* o) { to_scan(o), (*o)[1] = 2; }));
  EXPECT_FALSE(refused([&](auto* o) { to_scan(o), Set(o, 24, uint64_t{0xffffffff}); }));
  EXPECT_TRUE(refused([&](auto* o) { to_scan(o), Set(o, 24, uint64_t{0x100000000}); })) << "limit";
  EXPECT_TRUE(refused([](auto* o) { (*o)[0] = static_cast<char>(OperationKind::kIndexScan); })) << "no index";
}

// A batch as its coordinator has it, with results of `other`, which is the same batch on another island.
struct Results {
  Results() {
    for (Batch* b : {&batch, &other}) {
      b->Read(0, Uint64Key(1));
      b->Delete(0, Uint64Key(2));
      b->Scan(0, Uint64Key(3), Uint64Key(9));
      b->ResetResults();
    }
    for (uint32_t i = 0; i < batch.size(); ++i) share.push_back({i, 0, 0});
    other.result(0) = {.code = absl::StatusCode::kOk, .row = other.Store(Bytes("row one"))};
    other.result(1).code = absl::StatusCode::kNotFound;
    other.scanned().resize(1);  // not the first
    for (const char* row : {"a", "bb"}) {
      const Batch::Bytes key = other.Store(Uint64Key(4));
      other.scanned().push_back({key, other.Store(Bytes(row))});
    }
    other.result(2) = {.code = absl::StatusCode::kOk, .first_scanned = 1, .scanned = 2};
    EncodeResults(other, share, reply.mutable_results());
  }
  absl::Status Decode() { return DecodeResults(reply, 3, share, &batch, &chunks); }
  Batch batch, other;
  std::vector<RoutedOperation> share;
  data::v1::ExecuteReply reply;
  std::vector<ScanChunk> chunks;
};

TEST(Wire, Results_SurviveTheRoundTrip) {
  Results results;
  ASSERT_TRUE(results.Decode().ok());
  const Batch& batch = results.batch;
  const auto text = [](RowView row) {
    return std::string(reinterpret_cast<const char*>(row.data()), row.size());
  };
  EXPECT_EQ(batch.code(0), absl::StatusCode::kOk);
  EXPECT_EQ(text(batch.row(0)), "row one");
  EXPECT_EQ(batch.code(1), absl::StatusCode::kNotFound);
  EXPECT_TRUE(batch.row(1).empty());
  ASSERT_EQ(results.chunks.size(), 1u);
  EXPECT_EQ(results.chunks[0].operation, 2u);
  EXPECT_EQ(results.chunks[0].island, 3u);
  ASSERT_EQ(results.chunks[0].count, 2u);
  JoinScans(&results.batch, &results.chunks);
  ASSERT_EQ(batch.scanned_rows(2), 2u);
  EXPECT_EQ(text(batch.scanned_row(2, 0)), "a");
  EXPECT_EQ(text(batch.scanned_row(2, 1)), "bb");
  EXPECT_EQ(std::memcmp(batch.scanned_key(2, 1).data(), Uint64Key(4).bytes, 8), 0);
}

TEST(Wire, DecodeResults_RefusesWhatDoesNotFitTheOperations) {
  const auto refused = [](auto change) {
    Results results;
    change(results);
    return !results.Decode().ok();
  };
  const auto bytes = [](Results& r) { return r.reply.mutable_results(); };
  const size_t all = Results().reply.results().size();
  EXPECT_FALSE(refused([](auto&) {}));
  for (size_t size = 0; size < all; ++size) {
    EXPECT_TRUE(refused([&](auto& r) { bytes(r)->resize(size); })) << size;
  }
  EXPECT_TRUE(refused([&](auto& r) { *bytes(r) += "?"; })) << "rest";
  EXPECT_TRUE(refused([](auto& r) { r.share.pop_back(); })) << "fewer operations";
  EXPECT_TRUE(refused([](auto& r) { r.share.push_back({0, 0, 0}); })) << "more operations";
  for (const uint32_t code : {1u, 10u, 0xffffffffu}) {
    EXPECT_TRUE(refused([&](auto& r) { Set(bytes(r), 0, code); })) << "code " << code;
  }
  EXPECT_TRUE(refused([&](auto& r) { Set(bytes(r), 4, 0xffffffffu); })) << "row";
  EXPECT_TRUE(refused([&](auto& r) { Set(bytes(r), 8, 1u); })) << "rows scanned by a read";
  const size_t scan = 12 + 7 + 12;
  EXPECT_TRUE(refused([&](auto& r) { Set(bytes(r), scan + 4, 1u); })) << "row of a scan";
  EXPECT_TRUE(refused([&](auto& r) { Set(bytes(r), scan + 8, 0xffffffffu); })) << "rows that are not there";
  EXPECT_TRUE(refused([&](auto& r) { Set(bytes(r), scan + 12, 0xffffffffu); })) << "key of a scanned row";
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
