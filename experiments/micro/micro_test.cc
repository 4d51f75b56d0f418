#include "experiments/micro/micro.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace islands::experiments {
namespace {

using instance::Batch;
using instance::Parameters;

constexpr uint32_t kSites = 4;

storage::Catalog MakeCatalog(const std::string& key_type = "uint64", uint32_t row_bytes = 250,
                             const std::string& name = kMicroTable) {
  storage::Catalog::TableSpecs tables;
  control::v1::TableSpec& table = *tables.Add();
  table.set_name(name);
  table.add_key(key_type);
  table.set_range_begin(100);
  table.set_range_end(300);
  table.set_row_bytes(row_bytes);
  auto catalog = storage::Catalog::Create(tables, kSites);
  EXPECT_TRUE(catalog.ok()) << catalog.status();
  return *std::move(catalog);
}

std::string ErrorOf(const storage::Catalog& catalog, const Parameters& parameters) {
  auto workload = MicroWorkload::Create(catalog, parameters);
  return workload.ok() ? "" : std::string(workload.status().message());
}

using Rows = std::map<std::string, std::vector<std::byte>>;

std::string Text(instance::KeyView key) {
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

class MapLoader final : public instance::Loader {
 public:
  MapLoader(const storage::Catalog& catalog, uint32_t only_site) : catalog_(catalog), only_site_(only_site) {}

  const storage::Catalog& catalog() const override { return catalog_; }
  bool Owns(uint32_t site) const override { return only_site_ == kSites || site == only_site_; }
  absl::Status Insert(instance::TableId table, instance::KeyView key, instance::RowView row) override {
    EXPECT_TRUE(Owns(*catalog_.SiteOf(table, key)));
    EXPECT_TRUE(rows.emplace(Text(key), std::vector<std::byte>(row.begin(), row.end())).second);
    return absl::OkStatus();
  }

  Rows rows;

 private:
  const storage::Catalog& catalog_;
  uint32_t only_site_;
};

// Carries out reads, updates and additions on a map.
class MapTransaction final : public instance::Transaction {
 public:
  MapTransaction(const storage::Catalog& catalog, Rows* rows) : catalog_(catalog), rows_(*rows) {}

  const coordinator::TransactionId& id() const override { return id_; }
  const storage::Catalog& catalog() const override { return catalog_; }
  Batch& batch() override { return batch_; }
  runtime::Random& random() override { return random_; }
  runtime::Task<absl::Status> Execute(Batch& batch) override {
    batch.ResetResults();
    for (size_t i = 0; i < batch.size(); ++i) ExecuteOne(batch, i);
    co_return absl::OkStatus();
  }

  std::set<instance::OperationKind> kinds;

 private:
  void ExecuteOne(Batch& batch, size_t i) {
    const Batch::Operation& operation = batch.operation(i);
    auto found = rows_.find(Text(batch.View(operation.key)));
    batch.result(i).code = found == rows_.end() ? absl::StatusCode::kNotFound : absl::StatusCode::kOk;
    kinds.insert(operation.kind);
    if (found == rows_.end() || !instance::IsWrite(operation.kind)) return;
    int64_t value = 0;
    std::memcpy(&value, found->second.data() + operation.offset, sizeof(value));
    value += operation.delta;
    std::memcpy(found->second.data() + operation.offset, &value, sizeof(value));
  }

  const storage::Catalog& catalog_;
  Rows& rows_;
  coordinator::TransactionId id_{};
  Batch batch_;
  runtime::Random random_{1};
};

// Loads everything, runs `count` transactions and returns (sum of the rows, sum of the audit deltas).
std::pair<int64_t, int64_t> RunMany(const Parameters& parameters, int count, absl::Status* last,
                                    bool lose_rows = false,
                                    std::set<instance::OperationKind>* kinds = nullptr) {
  const storage::Catalog catalog = MakeCatalog();
  auto workload = MicroWorkload::Create(catalog, parameters);
  EXPECT_TRUE(workload.ok()) << workload.status();
  MapLoader loader(catalog, kSites);
  EXPECT_TRUE((*workload)->Load(loader).ok());
  if (lose_rows) loader.rows.clear();
  auto generator = (*workload)->MakeGenerator(
      {.catalog = catalog, .island = 0, .worker = 0, .sites = {.first = 0, .count = kSites}});
  EXPECT_TRUE(generator.ok()) << generator.status();
  auto request = (*generator)->MakeRequest();
  runtime::Random random(5);
  int64_t expected = 0;
  for (int i = 0; i < count; ++i) {
    (*generator)->Next(random, *request);
    MapTransaction transaction(catalog, &loader.rows);
    runtime::Task<absl::Status> task = (*workload)->Run(transaction, *request);
    task.Start();
    *last = task.Take();
    expected += request->audit_delta;
    if (kinds != nullptr) kinds->merge(transaction.kinds);
  }
  int64_t sum = 0;
  for (const auto& [key, row] : loader.rows) {
    sum += (*workload)->AuditRow(0, std::as_bytes(std::span(key.data(), key.size())), row);
  }
  return {sum, expected};
}

TEST(MicroWorkload, Run_UpdatesAndAddsAddUpToTheAuditedSum) {
  for (const auto& [op, kind] : {std::pair("update", instance::OperationKind::kUpdate),
                                 std::pair("add", instance::OperationKind::kAdd)}) {
    absl::Status status;
    std::set<instance::OperationKind> kinds;
    const auto [sum, expected] =
        RunMany({{"op", op}, {"rows", "7"}, {"multisite", "50"}}, 500, &status, false, &kinds);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(sum, 3500);
    EXPECT_EQ(expected, 3500);
    EXPECT_EQ(kinds, std::set{kind}) << op;
  }
}

TEST(MicroWorkload, Run_MixAddsUpToTheAuditedSum) {
  absl::Status status;
  std::set<instance::OperationKind> kinds;
  const auto [sum, expected] =
      RunMany({{"op", "mix"}, {"update_percent", "20"}, {"rows", "7"}}, 500, &status, false, &kinds);
  EXPECT_EQ(kinds, (std::set{instance::OperationKind::kRead, instance::OperationKind::kUpdate}));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sum, expected);
  EXPECT_GT(sum, 0);
  EXPECT_LT(sum, 3500);
}

TEST(MicroWorkload, Run_ReadsChangeNothing) {
  absl::Status status;
  const auto [sum, expected] = RunMany({{"op", "read"}, {"zipf", "0.99"}}, 100, &status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(expected, 0);
}

TEST(MicroWorkload, Run_MissingRowIsAnError) {
  absl::Status status;
  RunMany({{"op", "update"}}, 1, &status, /*lose_rows=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("is missing (NOT_FOUND)"), std::string::npos) << status;
}

TEST(MicroWorkload, Load_OwnSitesOnly) {
  const storage::Catalog catalog = MakeCatalog();
  auto workload = MicroWorkload::Create(catalog, {});
  ASSERT_TRUE(workload.ok()) << workload.status();
  MapLoader loader(catalog, 2);
  ASSERT_TRUE((*workload)->Load(loader).ok());
  EXPECT_EQ(loader.rows.size(), 50u);
  for (const auto& [key, row] : loader.rows) EXPECT_EQ(row.size(), 250u);
}

TEST(MicroWorkload, Create_BadParameters) {
  const storage::Catalog catalog = MakeCatalog();
  EXPECT_EQ(ErrorOf(catalog, {{"op", "update"}, {"rows", "50"}, {"multisite", "12.5"}, {"zipf", "1"}}), "");
  EXPECT_EQ(ErrorOf(catalog, {{"op", "write"}}), "--op: found 'write', expected read | update | add | mix");
  EXPECT_EQ(ErrorOf(catalog, {{"op", "add"}}), "");
  EXPECT_EQ(ErrorOf(catalog, {{"op", "mix"}, {"update_percent", "20"}}), "");
  EXPECT_EQ(ErrorOf(catalog, {{"op", "mix"}}),
            "--update-percent: found none, expected a percentage from 0 to 100 with --op mix");
  EXPECT_EQ(ErrorOf(catalog, {{"update_percent", "20"}}),
            "--update-percent: found '20', expected it only with --op mix");
  EXPECT_EQ(ErrorOf(catalog, {{"rows", "0"}}), "--rows: found '0', expected a whole number from 1 to 10000");
  EXPECT_EQ(ErrorOf(catalog, {{"multisite", "nan"}}),
            "--multisite: found 'nan', expected a percentage from 0 to 100");
  EXPECT_EQ(ErrorOf(catalog, {{"zipf", "1001"}}), "--zipf: found '1001', expected a number from 0 to 1000");
}

// A site has 50 rows: rows of a run before, of more in a transaction, may be loaded again nevertheless.
TEST(MicroWorkload, CheckRun_RowsOfTheSmallestSite) {
  const storage::Catalog catalog = MakeCatalog();
  const auto complaint = [&](const char* rows) {
    auto workload = MicroWorkload::Create(catalog, {{"rows", rows}});
    EXPECT_TRUE(workload.ok()) << workload.status();
    return std::string((*workload)->CheckRun(catalog).message());
  };
  EXPECT_EQ(complaint("50"), "");
  EXPECT_EQ(complaint("51").find("--rows: found 51, expected at most the 50 rows of the smallest site"), 0u);
}

TEST(MicroWorkload, Create_WrongTable) {
  EXPECT_NE(ErrorOf(MakeCatalog("uint64", 250, "other"), {}).find("no table 'micro'"), std::string::npos);
  EXPECT_NE(ErrorOf(MakeCatalog("uint32"), {}).find("must have one uint64 key"), std::string::npos);
  EXPECT_NE(ErrorOf(MakeCatalog("uint64", 7), {}).find("at least 8 bytes"), std::string::npos);
  EXPECT_EQ(ErrorOf(MakeCatalog("uint64", 0), {}), "");
}

}  // namespace
}  // namespace islands::experiments
