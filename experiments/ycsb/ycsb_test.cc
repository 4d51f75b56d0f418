// YCSB: parameters, what is drawn, what the procedure does, and the sum after runs.
#include "experiments/ycsb/ycsb.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "experiments/micro/count_allocations.h"
#include "experiments/workload_testing.h"
#include "experiments/ycsb/ycsb_generator.h"

namespace islands::experiments {
namespace {

using instance::Parameters;

constexpr int64_t kRows = 400;
constexpr uint32_t kSites = 4;

storage::Catalog::TableSpecs Tables(int64_t rows = kRows, uint32_t row_bytes = 0) {
  return TestTables({TestTable("ycsb", {"uint64", "uint32", "uint64"}, 0, rows, row_bytes)});
}

std::string ErrorOf(const storage::Catalog& catalog, const Parameters& parameters) {
  const auto workload = YcsbWorkload::Create(catalog, parameters);
  return std::string((workload.ok() ? (*workload)->CheckRun(catalog) : workload.status()).message());
}

TEST(Ycsb, Create_SaysWhatIsWrong) {
  EXPECT_TRUE(instance::CheckDescription(YcsbWorkload::Describe()).ok());
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  EXPECT_EQ(ErrorOf(catalog, {}), "");
  EXPECT_EQ(ErrorOf(catalog, {{"mix", "E"}, {"rows", "10"}, {"multisite", "50"}}), "");
  EXPECT_EQ(ErrorOf(catalog, {{"mix", "a"}}), "--mix: found 'a', expected A | B | C | D | E | F");
  EXPECT_EQ(ErrorOf(catalog, {{"field_bytes", "153"}}),
            "--field-bytes: found 153 x 10 fields, expected rows of at most 1536 bytes, 8 of them a counter");
  EXPECT_EQ(ErrorOf(catalog, {{"rows", "101"}}).find("--rows: found 101, expected at most the 100 rows of"),
            0u);
  EXPECT_EQ(ErrorOf(catalog, {{"mix", "E"}, {"rows", "100"}}),
            "--scan-rows: found 100 in each of 100 scans of a transaction, 9 MiB, expected at most 8 MiB");
  EXPECT_EQ(ErrorOf(TestCatalog(Tables(kRows, 1008), kSites), {}), "");
  const std::string other = ErrorOf(TestCatalog(Tables(kRows, 1000), kSites), {});
  EXPECT_NE(other.find("row_bytes other than 1008"), std::string::npos) << other;
  EXPECT_NE(other.find("- {name: ycsb, key: [uint64, uint32, uint64]"), std::string::npos) << other;
}

// `count` requests of a generator that has sites 1 and 2.
class YcsbDraws : public testing::Test {
 protected:
  template <typename Look>
  void Draw(const YcsbOptions& options, int count, Look look) {
    const storage::Catalog catalog = TestCatalog(Tables(), kSites);
    YcsbGenerator generator(options, *catalog.table(0).partition, {1, 2});
    const auto request = generator.MakeRequest();
    auto& ycsb = static_cast<YcsbRequest&>(*request);
    runtime::Random random(3);
    coordinator::TransactionId id{.island = 1, .worker = 0, .boot_epoch = 1, .sequence = 0};
    for (int i = 0; i < count; ++i) {
      generator.Next(random, ycsb);
      look(ycsb);
      ++id.sequence;
      const auto outcome = i % 2 == 0 ? coordinator::Outcome::kCommitted : coordinator::Outcome::kAborted;
      generator.OnEnd(id, ycsb, outcome);
    }
  }
};

TEST_F(YcsbDraws, Next_KindsAreTheMix) {
  for (const char mix : {'A', 'B', 'C', 'D', 'E', 'F'}) {
    std::array<double, kYcsbKinds> seen{};
    Draw({.mix = mix, .rows = 10}, 2'000, [&](const YcsbRequest& request) {
      int64_t changes = 0;
      for (const YcsbOperation& operation : request.operations) {
        seen[static_cast<size_t>(operation.kind)] += 1;
        changes += operation.kind != YcsbKind::kRead && operation.kind != YcsbKind::kScan;
      }
      ASSERT_EQ(request.audit_delta, changes);
    });
    for (size_t kind = 0; kind < kYcsbKinds; ++kind)
      EXPECT_NEAR(seen[kind] / 200, YcsbShares(mix)[kind], YcsbShares(mix)[kind] % 100 == 0 ? 0 : 2) << mix;
  }
}

TEST_F(YcsbDraws, Next_PlacesAreDistinctAndWhereTheyBelong) {
  for (const YcsbLaw law : {YcsbLaw::kUniform, YcsbLaw::kZipf, YcsbLaw::kLatest}) {
    for (const double multisite : {0.0, 100.0}) {
      std::set<uint32_t> touched;
      Draw({.mix = 'D', .law = law, .rows = 40, .multisite_percent = multisite}, 300,
           [&](const YcsbRequest& request) {
             std::set<uint32_t> sites;
             bool own = false;
             for (size_t i = 0; i < request.operations.size(); ++i) {
               const YcsbOperation& operation = request.operations[i];
               ASSERT_EQ(operation.row.place / 100, operation.site);
               ASSERT_TRUE(i == 0 || request.operations[i - 1].row.place < operation.row.place);
               sites.insert(operation.site);
               own |= operation.site == 1 || operation.site == 2;
             }
             ASSERT_TRUE(own);
             ASSERT_TRUE(multisite > 0 || sites.size() == 1);
             touched.insert(sites.begin(), sites.end());
           });
      EXPECT_EQ(touched.size(), multisite == 0 ? 2u : kSites);
    }
  }
}

TEST_F(YcsbDraws, Next_HotRowsAreThoseOfTheLaw) {
  std::map<uint64_t, double> drawn;
  Draw({.mix = 'C', .zipf = 1}, 40'000,
       [&](const YcsbRequest& request) { drawn[request.operations[0].row.place] += 1; });
  for (const uint64_t site : {100u, 200u}) {
    EXPECT_NEAR(drawn[site], 20'000 / 5.187, 300);  // the sum of 1 / r up to 100
    EXPECT_NEAR(drawn[site] / drawn[site + 9], 10, 1.5);
  }
}

// Rows that were inserted and committed are read as they were inserted, the latest most of all; the others
// are never seen.
TEST_F(YcsbDraws, Next_LatestAreCommittedInserts) {
  std::map<uint64_t, int> of_age;  // by how many transactions ago it was inserted
  std::set<uint64_t> loaded;
  uint64_t sequence = 0;
  Draw({.mix = 'D', .law = YcsbLaw::kLatest, .rows = 4}, 20'000, [&](const YcsbRequest& request) {
    ++sequence;
    for (const YcsbOperation& operation : request.operations) {
      if (operation.kind != YcsbKind::kRead) continue;
      if (operation.row.writer == 0) {
        loaded.insert(operation.row.place % 100);
        continue;
      }
      ASSERT_EQ(operation.row.writer, 2u << 16);
      const uint64_t writer = operation.row.number - (uint64_t{1} << 40);
      ASSERT_EQ(writer % 2, 1u) << "of one that was aborted";
      ASSERT_LT(writer, sequence);
      ++of_age[(sequence - writer) / 64];
    }
  });
  EXPECT_TRUE(loaded.contains(99)) << "in the beginning the last of the loaded rows are the latest";
  EXPECT_GT(of_age[0], 1.5 * of_age[1]);
  EXPECT_GT(of_age[1], 1.1 * of_age[2]);
}

TEST_F(YcsbDraws, Next_AllocatesNothing) {
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  YcsbGenerator generator({.mix = 'D', .law = YcsbLaw::kLatest, .rows = 8, .multisite_percent = 50},
                          *catalog.table(0).partition, {1, 2});
  const auto request = generator.MakeRequest();
  runtime::Random random(3);
  const uint64_t before = AllocationsSoFar();
  for (uint64_t i = 1; i <= 5'000; ++i) {
    generator.Next(random, *request);
    generator.OnEnd({.island = 1, .worker = 0, .boot_epoch = 1, .sequence = i}, *request,
                    coordinator::Outcome::kCommitted);
  }
  EXPECT_EQ(AllocationsSoFar(), before);
}

struct OnMap {
  explicit OnMap(const Parameters& parameters, int64_t rows = kRows)
      : catalog(TestCatalog(Tables(rows), kSites)), store(catalog) {
    workload = *YcsbWorkload::Create(catalog, parameters);
    EXPECT_TRUE(workload->Load(store).ok());
  }
  const storage::Catalog catalog;
  std::unique_ptr<YcsbWorkload> workload;
  MapStore store;
};

YcsbRequest Make(YcsbKind kind, uint64_t place, size_t row_bytes = 28, std::byte fill = std::byte{'z'}) {
  YcsbRequest request;
  request.operations = {
      {.kind = kind, .row = {place}, .site = static_cast<uint32_t>(place / 100), .field = 1, .scan_rows = 7}};
  request.row.assign(row_bytes, fill);
  std::fill_n(request.row.begin(), kYcsbCounterBytes, std::byte{0});
  request.counters.resize(1);
  return request;
}

const Parameters kSmall = {{"fields", "2"}, {"field_bytes", "10"}};

TEST(YcsbProcedure, Run_ChangesOneFieldAndCounts) {
  for (const YcsbKind kind : {YcsbKind::kUpdate, YcsbKind::kModify}) {
    OnMap on(kSmall);
    const MapRows before = on.store.rows;
    ASSERT_EQ(on.store.AuditedSum(*on.workload), kRows);
    for (int64_t i = 1; i <= 3; ++i) {
      ASSERT_TRUE(on.store.Run(*on.workload, Make(kind, 150)).ok());
      ASSERT_EQ(on.store.AuditedSum(*on.workload), kRows + i);
    }
    ASSERT_EQ(on.store.executed, kind == YcsbKind::kUpdate ? 3 : 6);
    std::vector<std::byte> expected = before.at({0, KeyText(YcsbKey({150}))});
    ASSERT_EQ(expected.size(), 28u);
    expected[0] = std::byte{3};
    std::fill(expected.begin() + 18, expected.end(), std::byte{'z'});
    size_t changed = 0;
    for (const auto& [key, row] : on.store.rows) {
      if (row == before.at(key)) continue;
      ++changed;
      EXPECT_EQ(row, expected);
    }
    EXPECT_EQ(changed, 1u);
  }
}

TEST(YcsbProcedure, Run_InsertsARowBehindTheLoadedOne) {
  OnMap on(kSmall);
  ASSERT_TRUE(on.store.Run(*on.workload, Make(YcsbKind::kInsert, 399)).ok());
  ASSERT_TRUE(on.store.Run(*on.workload, Make(YcsbKind::kInsert, 399)).ok());
  EXPECT_EQ(on.store.AuditedSum(*on.workload), kRows + 2);
  EXPECT_EQ(*on.catalog.SiteOf(0, YcsbKey({399, 1u << 16, 7})), 3u);
  YcsbRequest read = Make(YcsbKind::kRead, 399);
  read.operations[0].row = {399, 1u << 16, (uint64_t{1} << 40) + 2};
  EXPECT_TRUE(on.store.Run(*on.workload, read).ok());
  read.operations[0].row.number += 10;
  EXPECT_NE(on.store.Run(*on.workload, read).message().find("row 399 of table 'ycsb' is missing"),
            std::string::npos);
}

TEST(YcsbProcedure, Run_ScansTakeSoManyRowsOfTheSite) {
  OnMap on(kSmall);
  const auto scanned = [&](uint64_t place) {
    on.store.scanned = 0;
    EXPECT_TRUE(on.store.Run(*on.workload, Make(YcsbKind::kScan, place)).ok());
    return on.store.scanned;
  };
  EXPECT_EQ(scanned(150), 7u);
  EXPECT_EQ(scanned(197), 3u) << "the site ends there";
  EXPECT_EQ(scanned(399), 1u);
  ASSERT_TRUE(on.store.Run(*on.workload, Make(YcsbKind::kInsert, 399)).ok());
  EXPECT_EQ(scanned(399), 2u);
}

struct Case {
  const char* name;
  TestLayout layout;
};

class YcsbClusters : public testing::TestWithParam<Case> {};

TEST_P(YcsbClusters, Run_SumIsAsCommitted) {
  TestLayout layout = GetParam().layout;
  layout.parameters.insert(kSmall.begin(), kSmall.end());
  const std::string mix = layout.parameters.at("mix");
  instance::InProcessCluster cluster(TestCluster<YcsbWorkload>(Tables(), layout));
  ASSERT_TRUE(cluster.Start().ok());
  const int64_t loaded = cluster.Sum().audit_sum;
  ASSERT_EQ(loaded, kRows);
  ASSERT_NO_FATAL_FAILURE(RunSome(cluster, 2'000));
  const auto totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum - loaded, totals.audit_committed);
  EXPECT_EQ(totals.audit_committed > 0, mix != "C");
  const bool multisite = layout.parameters.contains("multisite");
  EXPECT_EQ(totals.distributed > 0, layout.islands > 1 && multisite);
  EXPECT_EQ(totals.multisite + totals.distributed > 0, multisite) << "a scan ends with its site";
  EXPECT_EQ(totals.unknown, 0u);
  LoseRow(cluster, 0);
  EXPECT_NE(cluster.Sum().audit_sum - loaded, totals.audit_committed) << "a lost row shows";
}

INSTANTIATE_TEST_SUITE_P(
    Mixes, YcsbClusters,
    testing::Values(
        Case{"A", {.parameters = {{"mix", "A"}, {"rows", "4"}}}},
        Case{"ATwoIslands",
             {.islands = 2, .workers = 2, .parameters = {{"mix", "A"}, {"rows", "4"}, {"multisite", "50"}}}},
        Case{"C", {.islands = 2, .parameters = {{"mix", "C"}}}},
        Case{"D", {.islands = 2, .parameters = {{"mix", "D"}, {"rows", "4"}, {"multisite", "50"}}}},
        Case{"E",
             {.islands = 2,
              .workers = 2,
              .parameters = {{"mix", "E"}, {"rows", "2"}, {"multisite", "50"}, {"scan_rows", "10"}}}},
        Case{"ELocal", {.islands = 2, .parameters = {{"mix", "E"}, {"rows", "2"}}}},
        Case{"FTwoWorkers", {.workers = 2, .parameters = {{"mix", "F"}, {"rows", "4"}}}},
        Case{"FTwoIslands",
             {.islands = 2, .parameters = {{"mix", "F"}, {"rows", "4"}, {"multisite", "50"}}}}),
    [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace islands::experiments
