// Workloads of islands on other engines: their audits hold, and notice an engine that loses something.
#include "experiments/peers/workload_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/micro/micro.h"
#include "experiments/peers/server_store_testing.h"
#include "experiments/peers/temporary_directory.h"
#include "experiments/tpcc/tpcc_testing.h"

namespace islands::experiments {
namespace {

using testing::HasSubstr;

class WorkloadDriverTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const absl::Status status = PeerIsInstalled(GetParam()); !status.ok())
      GTEST_SKIP() << status.message();
  }
  absl::StatusOr<std::unique_ptr<WorkloadDriver>> Tpcc(const instance::Parameters& parameters,
                                                       WorkloadDriver::Opener open = OpenTestedStore) {
    auto workload = TpccWorkload::Create(catalog_, SmallTpcc(parameters));
    EXPECT_TRUE(workload.ok()) << workload.status();
    return WorkloadDriver::Create(
        {.engines = {GetParam()}, .directory = directory_.path, .cache_bytes = 64 << 20, .warmup_s = 0},
        catalog_, *std::move(workload), open);
  }

  TemporaryDirectory directory_;
  storage::Catalog catalog_ = TpccCatalog(2, 2);
};

INSTANTIATE_TEST_SUITE_P(All, WorkloadDriverTest, testing::ValuesIn(TestedStoreNames()),
                         [](const auto& engine) { return engine.param; });

TEST_P(WorkloadDriverTest, Tpcc_IsConsistentAfterwards) {
  const auto driver = Tpcc({{"rollback", "10"}});
  ASSERT_TRUE(driver.ok()) << driver.status();
  for (uint64_t stream = 0; stream < 2; ++stream) {
    const auto measured = (*driver)->Measure(GetParam(), 0.2, stream);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_GT(measured->committed, 0u);
    EXPECT_EQ(measured->conflicts, 0u) << "there is one thread";
  }
}

// Every thousandth row that is written is not.
class Forgetful final : public RowStore {
 public:
  explicit Forgetful(std::unique_ptr<RowStore> store) : store_(std::move(store)) {}
  PeerFacts Facts() const override { return store_->Facts(); }
  absl::StatusOr<std::unique_ptr<RowStore>> Session() override {
    auto session = store_->Session();
    if (!session.ok()) return session.status();
    auto forgetful = std::make_unique<Forgetful>(*std::move(session));
    forgetful->forgets_ = true;
    return forgetful;
  }
  absl::Status Begin(bool writes) override { return store_->Begin(writes); }
  absl::Status Commit() override { return store_->Commit(); }
  void Rollback() override { store_->Rollback(); }
  absl::StatusOr<std::optional<RowView>> Get(uint32_t tree, KeyView key, bool for_update) override {
    return store_->Get(tree, key, for_update);
  }
  absl::Status Put(uint32_t tree, KeyView key, RowView row) override {
    if (forgets_ && ++puts_ % 1000 == 0) return absl::OkStatus();
    return store_->Put(tree, key, row);
  }
  absl::StatusOr<bool> Insert(uint32_t tree, KeyView key, RowView row) override {
    return store_->Insert(tree, key, row);
  }
  absl::Status Delete(uint32_t tree, KeyView key) override { return store_->Delete(tree, key); }
  absl::Status Scan(uint32_t tree, KeyView first, KeyView end, bool reverse, uint64_t limit,
                    Visit visit) override {
    return store_->Scan(tree, first, end, reverse, limit, visit);
  }

 private:
  const std::unique_ptr<RowStore> store_;
  bool forgets_ = false;  // while it is loaded it does not
  uint64_t puts_ = 0;
};

TEST_P(WorkloadDriverTest, LostUpdate_IsNoticed) {
  const auto open = [](std::string_view engine,
                       const StoreOptions& options) -> absl::StatusOr<std::unique_ptr<RowStore>> {
    auto store = OpenTestedStore(engine, options);
    if (!store.ok()) return store.status();
    return std::make_unique<Forgetful>(*std::move(store));
  };
  const auto driver = Tpcc({{"mix", "payment"}}, open);
  ASSERT_TRUE(driver.ok()) << driver.status();
  absl::Status status;
  for (uint64_t stream = 0; stream < 100 && status.ok(); ++stream)
    status = (*driver)->Measure(GetParam(), 0.1, stream).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not consistent: condition"));
}

// Four sessions at once, where an engine has them: conflicts are tried again, and no sum is wrong.
TEST_P(WorkloadDriverTest, Micro_WithManySessionsAddsUp) {
  storage::Catalog::TableSpecs tables;
  control::v1::TableSpec& table = *tables.Add();
  table.set_name(kMicroTable);
  table.add_key("uint64");
  table.set_range_end(50);
  table.set_row_bytes(250);
  const auto catalog = storage::Catalog::Create(tables, 1);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  auto workload = MicroWorkload::Create(*catalog, {{"op", "update"}, {"rows", "4"}});
  ASSERT_TRUE(workload.ok()) << workload.status();
  const bool one = GetParam() == "sqlite";
  const auto driver = WorkloadDriver::Create({.engines = {GetParam()},
                                              .directory = directory_.path,
                                              .cache_bytes = 64 << 20,
                                              .durability = PeerDurability::kLazy,
                                              .threads = one ? 1u : 4u,
                                              .warmup_s = 0},
                                             *catalog, *std::move(workload), OpenTestedStore);
  ASSERT_TRUE(driver.ok()) << driver.status();
  const auto measured = (*driver)->Measure(GetParam(), 0.3, 1);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_GT(measured->committed, 0u);
}

}  // namespace
}  // namespace islands::experiments
