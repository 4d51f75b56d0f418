// The workload on two islands that are simulated in this process: see instance/simulation/workload_trial.h.
#include <gtest/gtest.h>

#include <string>

#include "instance/simulation/workload_trial.h"

namespace {

using islands::simulation::Trial;
using islands::simulation::TrialOptions;

// Few rows, so that transactions meet.
TrialOptions Small(const islands::instance::Parameters& parameters) {
  TrialOptions options{.parameters = parameters};
  auto* table = options.tables.Add();
  table->set_name("newcomer");
  table->add_key("uint64");
  table->set_range_end(120);
  table->set_row_bytes(8);
  return options;
}

TEST(Newcomer, Description_IsWithoutContradiction) {
  const auto* description = IslandsDescribeWorkload(islands::instance::kWorkloadAbi);
  ASSERT_NE(description, nullptr);
  EXPECT_TRUE(islands::instance::CheckDescription(*description).ok());
}

TEST(Newcomer, Run_NoVisitIsLost) {
  for (const std::string remote : {"0", "50", "100"}) {
    const absl::StatusOr<Trial> trial = TryWorkload(IslandsOpenWorkload, Small({{"remote", remote}}));
    ASSERT_TRUE(trial.ok()) << trial.status();
    EXPECT_GT(trial->committed, 100u) << remote;
    EXPECT_EQ(trial->distributed > 0, remote != "0") << remote;
    EXPECT_TRUE(trial->SumHolds()) << trial->sum_before << " + " << trial->sum_committed
                                   << " != " << trial->sum_after;
    EXPECT_GT(trial->sum_committed, 0) << "the sum says nothing";
    EXPECT_EQ(trial->contradictions, 0u) << remote;
  }
}

TEST(Newcomer, Run_WhoOnlyReadsChangesNothing) {
  const absl::StatusOr<Trial> trial = TryWorkload(IslandsOpenWorkload, Small({{"changes", "0"}}));
  ASSERT_TRUE(trial.ok()) << trial.status();
  EXPECT_EQ(trial->sum_after, 0);
}

TEST(Newcomer, Open_SaysWhatIsWrong) {
  const auto complaint = [](const TrialOptions& options) {
    return std::string(TryWorkload(IslandsOpenWorkload, options).status().message());
  };
  EXPECT_NE(complaint(Small({{"rows", "0"}})).find("--rows: found '0'"), std::string::npos);
  EXPECT_NE(complaint(Small({{"rows", "100"}})).find("found --rows 100, expected fewer than"),
            std::string::npos);
  TrialOptions other = Small({});
  other.tables[0].set_row_bytes(16);
  EXPECT_NE(complaint(other).find("- {name: newcomer, key: [uint64]"), std::string::npos);
}

}  // namespace
