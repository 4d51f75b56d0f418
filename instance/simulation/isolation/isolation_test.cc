// Every script in every arrangement, on the product. A failure prints what was observed; to see one again:
//
//   isolation_test --gtest_filter='*g2/two_islands_apart_2w'
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string>

#include "instance/simulation/isolation/runner.h"

namespace islands::simulation::isolation {
namespace {

// Message delays: those of this seed, or of ISLANDS_SEED.
uint64_t Seed() {
  const char* seed = std::getenv("ISLANDS_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

std::vector<Scenario> Scenarios() {
  absl::StatusOr<std::vector<Scenario>> scenarios = LoadScenarios(SCRIPT_DIRECTORY);
  EXPECT_TRUE(scenarios.ok()) << scenarios.status();
  return scenarios.ok() ? *scenarios : std::vector<Scenario>{};
}

std::vector<std::string> Files() {
  std::set<std::string> files;
  for (const Scenario& scenario : Scenarios()) files.insert(scenario.file);
  return {files.begin(), files.end()};
}

class Isolation : public testing::TestWithParam<std::tuple<std::string, Arrangement>> {};

TEST_P(Isolation, Anomaly_DoesNotHappen) {
  const auto& [file, arrangement] = GetParam();
  std::vector<Scenario> scenarios = Scenarios();
  std::erase_if(scenarios, [&file = file](const Scenario& scenario) { return scenario.file != file; });
  ASSERT_FALSE(scenarios.empty());
  for (const ScriptResult& result : RunAllScripts(scenarios, {arrangement})) {
    std::cout << result.Text() << "\n";
    EXPECT_TRUE(result.passed()) << result.Text();
  }
}

std::string TestName(const testing::TestParamInfo<Isolation::ParamType>& info) {
  const auto& [file, arrangement] = info.param;
  std::string name = file + "_" + std::string(Name(arrangement.placement)) + "_" +
                     std::string(Name(arrangement.homes)) + "_" + std::to_string(arrangement.workers) + "w";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Scripts, Isolation,
                         testing::Combine(testing::ValuesIn(Files()),
                                          testing::ValuesIn(AllArrangements(Seed()))),
                         TestName);

TEST(Runner, SameArrangement_SameObservation) {
  const std::vector<Scenario> scenarios = Scenarios();
  const Arrangement arrangement{Placement::kIslandBorder, Homes::kApart, 2, 7};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(RunScript(scenarios[i], arrangement).Text(), RunScript(scenarios[i], arrangement).Text());
  }
}

TEST(Runner, RunAllScripts_EndsWhenToldTo) {
  size_t told = 0;
  const auto once = [&told](const ScriptResult&) { return ++told < 2; };
  EXPECT_EQ(RunAllScripts(Scenarios(), AllArrangements(1), once).size(), 2u);
}

}  // namespace
}  // namespace islands::simulation::isolation
