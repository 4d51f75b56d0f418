#include "deploy/processes/restart.h"

#include <gtest/gtest.h>

#include <vector>

namespace islands::deploy {
namespace {

TEST(RestartPolicy, OnLost_DelaysDoubleUpToTheLimit) {
  RestartPolicy policy({.budget = 8, .window_ms = 60'000, .first_delay_ms = 100, .max_delay_ms = 5'000});
  std::vector<int64_t> delays;
  for (int i = 0; i < 8; ++i) delays.push_back(policy.OnLost(i).value_or(-1));
  EXPECT_EQ(delays, (std::vector<int64_t>{100, 200, 400, 800, 1600, 3200, 5000, 5000}));
}

TEST(RestartPolicy, OnLost_BudgetSpent_GivesUp) {
  RestartPolicy policy({.budget = 2, .window_ms = 1'000});
  EXPECT_TRUE(policy.OnLost(0).has_value());
  EXPECT_TRUE(policy.OnLost(10).has_value());
  EXPECT_FALSE(policy.OnLost(20).has_value());
}

TEST(RestartPolicy, OnLost_AfterTheWindow_StartsAnew) {
  RestartPolicy policy({.budget = 2, .window_ms = 1'000, .first_delay_ms = 100});
  policy.OnLost(0);
  policy.OnLost(10);
  EXPECT_EQ(policy.OnLost(1'010), 100);
}

TEST(RestartPolicy, OnLost_NoBudget_GivesUpAtOnce) {
  RestartPolicy policy({.budget = 0});
  EXPECT_FALSE(policy.OnLost(0).has_value());
}

}  // namespace
}  // namespace islands::deploy
