#include "deploy/run/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace islands::deploy {
namespace {

using testing::HasSubstr;

RunOptions Good() {
  RunOptions options;
  options.file = "a.yaml";
  options.workload = "micro";
  return options;
}

std::string Complaint(const RunOptions& options) {
  const absl::Status status = CheckRunOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(CheckRunOptions, Defaults_AreFine) { EXPECT_TRUE(CheckRunOptions(Good()).ok()); }

TEST(CheckRunOptions, BadValues_NameTheOption) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto with = [](auto change) {
    RunOptions options = Good();
    change(options);
    return Complaint(options);
  };
  EXPECT_THAT(with([](auto& o) { o.workload = "../tpcc"; }),
              HasSubstr("WORKLOAD: found '../tpcc', expected the name of a workload"));
  EXPECT_THAT(with([](auto& o) { o.workload = "tpcc", o.micro_options = {"--op"}; }),
              HasSubstr("--op: found workload tpcc, expected micro"));
  EXPECT_THAT(with([](auto& o) { o.parameters["op"] = "read"; }),
              HasSubstr("--set: found 'op' for micro, expected its own options"));
  EXPECT_THAT(with([](auto& o) { o.op = "write"; }),
              HasSubstr("--op: found 'write', expected read, update, add or mix"));
  EXPECT_THAT(with([](auto& o) { o.op = "mix"; }), HasSubstr("--update-percent together"));
  EXPECT_THAT(with([](auto& o) { o.update_percent = 20; }), HasSubstr("--update-percent together"));
  EXPECT_THAT(with([](auto& o) { o.op = "mix", o.update_percent = 101; }),
              HasSubstr("--update-percent: found 101"));
  EXPECT_THAT(with([](auto& o) { o.rows = 0; }), HasSubstr("--rows: found 0"));
  EXPECT_THAT(with([](auto& o) { o.multisite = 100.5; }), HasSubstr("--multisite: found 100.5"));
  EXPECT_THAT(with([](auto& o) { o.multisite = -1; }), HasSubstr("--multisite: found -1"));
  EXPECT_THAT(with([&](auto& o) { o.multisite = nan; }), HasSubstr("--multisite: found nan"));
  EXPECT_THAT(with([](auto& o) { o.zipf = -0.1; }), HasSubstr("--zipf"));
  EXPECT_THAT(with([&](auto& o) { o.zipf = infinity; }), HasSubstr("--zipf: found inf"));
  EXPECT_THAT(with([](auto& o) { o.mpl = 0; }), HasSubstr("--mpl: found 0"));
  EXPECT_THAT(with([](auto& o) { o.duration_s = 0; }), HasSubstr("--duration: found 0"));
  EXPECT_THAT(with([&](auto& o) { o.duration_s = nan; }), HasSubstr("--duration"));
  EXPECT_THAT(with([](auto& o) { o.warmup_s = -1; }), HasSubstr("--warmup: found -1"));
  EXPECT_THAT(with([](auto& o) { o.rows_total = 0; }), HasSubstr("--rows-total: found 0"));
}

TEST(AddParameter, NamesAndValues) {
  std::map<std::string, std::string> parameters;
  EXPECT_TRUE(AddParameter("a=1", &parameters).ok());
  EXPECT_TRUE(AddParameter("b=x=y", &parameters).ok());
  EXPECT_TRUE(AddParameter("c=", &parameters).ok());
  EXPECT_EQ(parameters, (std::map<std::string, std::string>{{"a", "1"}, {"b", "x=y"}, {"c", ""}}));
  EXPECT_THAT(std::string(AddParameter("=1", &parameters).message()), HasSubstr("expected NAME=VALUE"));
  EXPECT_THAT(std::string(AddParameter("d", &parameters).message()), HasSubstr("found 'd'"));
  EXPECT_THAT(std::string(AddParameter("a=2", &parameters).message()), HasSubstr("'a' twice"));
}

class PlanRunTest : public testing::Test {
 protected:
  PlanRunTest() {
    config_.set_site_count(24);
    control::v1::TableSpec& table = *config_.add_tables();
    table.set_name("micro");
    table.set_range_begin(0);
    table.set_range_end(240'000);
    table.set_row_bytes(250);
    root_ = std::filesystem::path(testing::TempDir()) / "plan_run";
    std::filesystem::create_directories(root_ / "lib/islands");
    std::filesystem::create_directories(root_ / "bin");
    std::ofstream(root_ / "lib/islands/micro.so") << "x";
  }
  ~PlanRunTest() override { std::filesystem::remove_all(root_); }

  absl::StatusOr<RunPlan> Plan(const RunOptions& options) { return PlanRun(options, config_, root_ / "bin"); }

  control::v1::IslandConfig config_;
  std::filesystem::path root_;
};

TEST_F(PlanRunTest, Defaults_UseTheFilesTable) {
  const auto plan = Plan(Good());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows_total, 240'000);
  EXPECT_EQ(plan->object, (root_ / "lib/islands/micro.so").string());
  ASSERT_EQ(plan->load.tables_size(), 1);
  EXPECT_EQ(plan->load.tables(0).range_end(), 240'000);
  EXPECT_EQ(plan->load.tables(0).row_bytes(), 250u);
  EXPECT_EQ(plan->parameters.at("op"), "read");
  EXPECT_EQ(plan->parameters.at("multisite"), "0");
  EXPECT_FALSE(plan->parameters.contains("update_percent"));
}

TEST_F(PlanRunTest, Mix_TellsTheWorkload) {
  RunOptions options = Good();
  options.op = "mix";
  options.update_percent = 20;
  const auto plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->parameters.at("op"), "mix");
  EXPECT_EQ(plan->parameters.at("update_percent"), "20");
}

TEST_F(PlanRunTest, RowsTotal_ReplacesTheRange) {
  config_.mutable_tables(0)->set_range_begin(1000);
  RunOptions options = Good();
  options.rows_total = 4'800;
  const auto plan = Plan(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->load.tables(0).range_begin(), 0);
  EXPECT_EQ(plan->load.tables(0).range_end(), 4'800);
  EXPECT_FALSE(SameLoad(plan->load, Plan(Good())->load));
  EXPECT_TRUE(SameLoad(plan->load, Plan(options)->load));
}

TEST_F(PlanRunTest, MoreRowsThanASiteHas_AreRefusedUnlessAllIsMultisite) {
  RunOptions options = Good();
  options.rows_total = 120;  // 5 per site
  options.rows = 6;
  EXPECT_THAT(std::string(Plan(options).status().message()),
              HasSubstr("--rows: found 6, expected at most the 5 rows"));
  options.multisite = 100;
  EXPECT_TRUE(Plan(options).ok());
  options.rows = 121;
  EXPECT_EQ(Plan(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlanRunTest, OtherWorkload_GetsItsParametersAndLoadsAgainWhenTheyChange) {
  std::ofstream(root_ / "lib/islands/payment.so") << "x";
  RunOptions options = Good();
  options.workload = "payment";
  options.parameters = {{"customers", "30"}};
  const auto plan = Plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->parameters, options.parameters);
  EXPECT_FALSE(plan->rows_total.has_value());
  EXPECT_EQ(plan->load.tables_size(), 0);  // those of the deployment stay
  EXPECT_TRUE(SameLoad(plan->load, Plan(options)->load));
  options.parameters = {{"customers", "60"}};
  EXPECT_FALSE(SameLoad(plan->load, Plan(options)->load));
}

TEST_F(PlanRunTest, UnknownWorkload_NamesThoseThereAre) {
  RunOptions options = Good();
  options.workload = "tpcc";
  EXPECT_THAT(std::string(Plan(options).status().message()),
              testing::AllOf(HasSubstr("no workload 'tpcc'"), HasSubstr("built are: micro")));
}

TEST_F(PlanRunTest, NoMicroTable_SaysWhatToDo) {
  config_.clear_tables();
  const auto plan = Plan(Good());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("no table 'micro'"));
}

TEST_F(PlanRunTest, WorkloadNotBuilt_NamesThePath) {
  std::filesystem::remove(root_ / "lib/islands/micro.so");
  EXPECT_EQ(Plan(Good()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace islands::deploy
