// Record insertion: parameters, whose records are whose, and the sum after runs.
#include "experiments/insert/insert.h"

#include <map>
#include <set>

#include "experiments/workload_testing.h"

namespace islands::experiments {
namespace {

using instance::Parameters;

constexpr uint32_t kSites = 4;

storage::Catalog::TableSpecs Tables(int64_t clients = 8, size_t row_bytes = 40) {
  return TestTables({TestTable("record", {"uint64", "uint64", "uint32", "uint32"}, 0, clients, row_bytes)});
}

std::string ErrorOf(const storage::Catalog::TableSpecs& tables, const Parameters& parameters) {
  const storage::Catalog catalog = TestCatalog(tables, kSites);
  const auto workload = InsertWorkload::Create(catalog, parameters);
  return workload.ok() ? "" : std::string(workload.status().message());
}

TEST(Insert, Create_SaysWhatIsWrong) {
  EXPECT_TRUE(instance::CheckDescription(InsertWorkload::Describe()).ok());
  EXPECT_EQ(ErrorOf(Tables(), {{"records", "10"}}), "");
  EXPECT_EQ(ErrorOf(Tables(8, 0), {}), "");
  EXPECT_EQ(ErrorOf(Tables(), {{"records", "0"}}),
            "--records: found '0', expected a whole number from 1 to 10000");
  EXPECT_NE(ErrorOf(Tables(8, 23), {}).find("rows of 24 bytes or more\n- {name: record, key: [uint64"),
            std::string::npos);
}

// Clients of an island with two workers that has sites 1 to 3 of 8 clients: 2 to 7.
TEST(Insert, MakeGenerator_EveryWorkerHasClientsOfItsOwn) {
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  const auto workload = *InsertWorkload::Create(catalog, {});
  std::map<uint64_t, std::set<uint32_t>> workers;
  for (const uint32_t worker : {0, 1}) {
    auto generator =
        workload->MakeGenerator({.catalog = catalog, .worker = worker, .sites = {1, 3}, .workers = 2});
    ASSERT_TRUE(generator.ok()) << generator.status();
    for (int slot = 0; slot < 4; ++slot) {
      const auto request = (*generator)->MakeRequest();
      workers[static_cast<const InsertRequest&>(*request).client].insert(worker);
    }
  }
  const std::map<uint64_t, std::set<uint32_t>> expected = {{2, {0}}, {3, {0}}, {4, {0}},
                                                           {5, {1}}, {6, {1}}, {7, {1}}};
  EXPECT_EQ(workers, expected);
  const auto refused = workload->MakeGenerator({.catalog = catalog, .sites = {1, 1}, .workers = 3});
  EXPECT_EQ(refused.status().message().find("insert: island 0 has 3 workers and 2 clients"), 0u);
}

TEST(Insert, Run_InsertsSoManyInBatches) {
  const storage::Catalog catalog = TestCatalog(Tables(), kSites);
  const auto workload = *InsertWorkload::Create(catalog, {});
  MapStore store(catalog);
  InsertGenerator generator({.begin = 3, .count = 1}, 250, 40);
  const auto request = generator.MakeRequest();
  ASSERT_TRUE(store.Run(*workload, *request).ok());
  ASSERT_TRUE(store.Run(*workload, *request).ok());
  EXPECT_EQ(store.executed, 6);
  EXPECT_EQ(store.rows.size(), 500u);
  EXPECT_EQ(store.AuditedSum(*workload), 2 * request->audit_delta);
  for (const auto& [key, row] : store.rows)
    ASSERT_EQ(*catalog.SiteOf(0, std::as_bytes(std::span(key.second))), 1u);
  store.rows.begin()->second[20] ^= std::byte{1};
  EXPECT_EQ(store.AuditedSum(*workload), 499) << "a record under another one's key is none";
}

class InsertClusters : public testing::TestWithParam<TestLayout> {};

TEST_P(InsertClusters, Run_AllThatWasCommittedIsThere) {
  TestLayout layout = GetParam();
  layout.parameters = {{"records", "130"}};
  instance::InProcessCluster cluster(TestCluster<InsertWorkload>(Tables(), layout));
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_NO_FATAL_FAILURE(RunSome(cluster, 100));
  ASSERT_NO_FATAL_FAILURE(RunSome(cluster, 100)) << "a second run finds none of the first in its way";
  const auto totals = cluster.Sum();
  EXPECT_EQ(totals.audit_sum, static_cast<int64_t>(130 * totals.committed));
  EXPECT_EQ(totals.audit_committed % 130, 0);
  EXPECT_EQ(totals.aborted + totals.unknown + totals.distributed, 0u);
  LoseRow(cluster, 0);
  EXPECT_NE(cluster.Sum().audit_sum, static_cast<int64_t>(130 * totals.committed)) << "a lost row shows";
}

INSTANTIATE_TEST_SUITE_P(Layouts, InsertClusters,
                         testing::Values(TestLayout{}, TestLayout{.workers = 2},
                                         TestLayout{.islands = 2, .workers = 2}),
                         [](const testing::TestParamInfo<TestLayout>& info) {
                           return std::to_string(info.param.islands) + "Islands" +
                                  std::to_string(info.param.workers) + "Workers";
                         });

}  // namespace
}  // namespace islands::experiments
