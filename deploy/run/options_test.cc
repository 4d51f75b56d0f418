#include "deploy/run/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

namespace islands::deploy {
namespace {

using testing::HasSubstr;

using Kind = instance::Parameter::Kind;

RunOptions Good() {
  RunOptions options;
  options.file = "a.yaml";
  options.workload = "bank";
  return options;
}

DescribedWorkload Bank() {
  return {
      .name = "bank",
      .object = "/lib/bank.so",
      .description = {
          .parameters =
              {{.name = "remote", .kind = Kind::kPercent, .preset = "0"},
               {.name = "kept", .kind = Kind::kPercent, .preset = "0", .grows = true},
               {.name = "branches", .kind = Kind::kWhole, .min = 1, .max = 9, .preset = "5", .loads = true}},
          .tables = {"account", "branch"},
          .tables_yaml = "- account, and branch",
          .row_per_key = true,
          .rows_total_of = "account"}};
}

std::string Complaint(const RunOptions& options) {
  const absl::Status status = CheckRunOptions(options, Bank().description).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(CheckRunOptions, NotGiven_ArePreset) {
  const auto checked = CheckRunOptions(Good(), Bank().description);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->parameters, (instance::Parameters{{"remote", "0"}, {"kept", "0"}, {"branches", "5"}}));
}

TEST(CheckRunOptions, BadValues_NameTheOption) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto with = [](auto change) {
    RunOptions options = Good();
    change(options);
    return Complaint(options);
  };
  EXPECT_THAT(with([](auto& o) { o.parameters["remote"] = "101"; }), HasSubstr("--remote: found '101'"));
  EXPECT_THAT(with([](auto& o) { o.parameters["op"] = "read"; }),
              HasSubstr("--op: found an unknown parameter"));
  EXPECT_THAT(with([](auto& o) { o.mpl = 0; }), HasSubstr("--mpl: found 0"));
  EXPECT_THAT(with([](auto& o) { o.mpl = 1001; }), HasSubstr("--mpl: found 1001"));
  EXPECT_THAT(with([](auto& o) { o.duration_s = 0; }), HasSubstr("--duration: found 0"));
  EXPECT_THAT(with([&](auto& o) { o.duration_s = nan; }), HasSubstr("--duration"));
  EXPECT_THAT(with([](auto& o) { o.warmup_s = -1; }), HasSubstr("--warmup: found -1"));
  EXPECT_EQ(with([](auto& o) { o.p99_ms = 5; }), "--p99-ms: found 5, expected it only with --rate auto");
  for (bool find : {false, true}) {
    EXPECT_EQ(with([=](auto& o) { o.find_rate = find, o.p99_ms = 0; }),
              "--p99-ms: found 0, expected 0.001 to 60000 milliseconds");
  }
  EXPECT_THAT(with([&](auto& o) { o.find_rate = true, o.p99_ms = nan; }), HasSubstr("--p99-ms: found nan"));
  EXPECT_THAT(with([](auto& o) { o.rows_total = 0; }), HasSubstr("--rows-total: found 0"));
}

TEST(ReadRate, NumberOrAuto) {
  RunOptions options;
  EXPECT_TRUE(ReadRate("auto", &options).ok());
  EXPECT_TRUE(options.find_rate);
  EXPECT_TRUE(ReadRate("2.5e3", &options).ok());
  EXPECT_FALSE(options.find_rate);
  EXPECT_EQ(options.rate_per_s, 2'500);
  EXPECT_THAT(std::string(ReadRate("most", &options).message()), HasSubstr("--rate: found 'most'"));
}

class PlanRunTest : public testing::Test {
 protected:
  PlanRunTest() {
    AddTable("account", 240'000);
    AddTable("branch", 24);
  }
  void AddTable(const std::string& name, int64_t rows) {
    control::v1::TableSpec& table = *config_.add_tables();
    table.set_name(name);
    table.set_range_end(rows);
    table.set_row_bytes(250);
  }

  absl::StatusOr<RunPlan> Plan(RunOptions options, const DescribedWorkload& workload = Bank()) {
    const auto checked = CheckRunOptions(std::move(options), workload.description);
    return checked.ok() ? PlanRun(*checked, workload, config_) : checked.status();
  }

  control::v1::IslandConfig config_;
};

TEST_F(PlanRunTest, Defaults_UseTheFilesTables) {
  const auto plan = Plan(Good());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rows_total, 240'024);
  EXPECT_EQ(plan->load.object(), "/lib/bank.so");
  ASSERT_EQ(plan->load.tables_size(), 1);
  EXPECT_EQ(plan->load.tables(0).name(), "account");
  EXPECT_EQ(plan->load.tables(0).range_end(), 240'000);
  EXPECT_EQ(plan->load.tables(0).row_bytes(), 250u);
  EXPECT_EQ(StartRequest(*plan).start_run().parameters().at("branches"), "5");
  EXPECT_EQ(AuditRequestOf(*plan).audit().parameters().at("remote"), "0");
}

TEST_F(PlanRunTest, RowsTotal_ReplacesTheRangeOfItsTable) {
  config_.mutable_tables(0)->set_range_begin(1000);
  RunOptions options = Good();
  options.rows_total = 4'800;
  const auto plan = Plan(options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->load.tables(0).range_begin(), 0);
  EXPECT_EQ(plan->load.tables(0).range_end(), 4'800);
  EXPECT_EQ(plan->rows_total, 4'824);
  EXPECT_FALSE(SameLoad(plan->load, Plan(Good())->load, Bank().description, /*durable=*/true));
}

TEST_F(PlanRunTest, NoRowsTotalAndRowsThatComeAndGo_AreOfTheWorkload) {
  DescribedWorkload workload = Bank();
  workload.description.row_per_key = false;
  workload.description.rows_total_of = "";
  const auto plan = Plan(Good(), workload);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->rows_total.has_value());
  EXPECT_EQ(plan->load.tables_size(), 0);  // those of the deployment stay
}

TEST_F(PlanRunTest, Parameters_LoadAnewOnlyIfTheyShapeTheRows) {
  const auto same = [this](const char* name, const char* value, bool durable = true) {
    RunOptions options = Good();
    options.parameters[name] = value;
    return SameLoad(Plan(options)->load, Plan(Good())->load, Bank().description, durable);
  };
  EXPECT_TRUE(same("remote", "50"));
  EXPECT_TRUE(same("branches", "5"));
  EXPECT_FALSE(same("branches", "6"));
  EXPECT_FALSE(same("branches", "6", /*durable=*/false));
  EXPECT_TRUE(same("remote", "50", /*durable=*/false));
  EXPECT_TRUE(same("kept", "50"));
  EXPECT_FALSE(same("kept", "50", /*durable=*/false)) << "runs of a series would pile up";
  RunOptions options = Good();
  options.parameters["remote"] = "50";
  options.parameters["branches"] = "6";
  control::v1::LoadSpec there = Plan(Good())->load;
  const control::v1::LoadSpec wanted = Plan(options)->load;
  EXPECT_EQ(DifferenceOf(there, wanted, Bank().description), "'branches' is 5, this run has 6");
  there.set_workload("micro");
  EXPECT_EQ(DifferenceOf(there, wanted, Bank().description), "this run needs those of 'bank'");
}

TEST_F(PlanRunTest, MissingTable_SaysWhatToAdd) {
  config_.mutable_tables()->RemoveLast();
  const auto plan = Plan(Good());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(plan.status().message()),
      testing::AllOf(HasSubstr("a.yaml: the running deployment has no table 'branch', which workload bank"),
                     HasSubstr("`islands template NISL --workload bank`"),
                     HasSubstr("\n- account, and branch")));
}

}  // namespace
}  // namespace islands::deploy
