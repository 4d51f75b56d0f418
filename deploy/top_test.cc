#include "deploy/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace islands::deploy {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TopRow MakeRow(uint32_t island, uint64_t committed) {
  TopRow row{.island = island, .state = "ready", .seconds = 2};
  row.sums.scopes[0].committed = committed;
  row.sums.busy_seconds = 1;
  row.sums.idle_seconds = 1;
  return row;
}

TEST(ShortNumber, FitsSixCharacters) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(999), "999");
  EXPECT_EQ(ShortNumber(999.6), "1.00k");
  EXPECT_EQ(ShortNumber(12'345), "12.3k");
  EXPECT_EQ(ShortNumber(999'600), "1.00M");
  EXPECT_EQ(ShortNumber(123'456'789), "123M");
  EXPECT_EQ(ShortNumber(1e15), ">999G");
}

TEST(RenderTop, RatesAreDividedByTime) {
  const std::vector<std::string> lines =
      Lines(RenderTop("test 2ISL", {MakeRow(0, 200), MakeRow(1, 2'000'000)}, 99));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "test 2ISL");
  EXPECT_THAT(lines[3], testing::AllOf(testing::HasSubstr("all"), testing::HasSubstr("1.00M")));
  EXPECT_THAT(lines[4], testing::AllOf(testing::HasSubstr("ready"), testing::HasSubstr(" 100 ")));
  EXPECT_THAT(lines[4], testing::HasSubstr("50%"));
}

TEST(RenderTop, EveryLineFitsEightyColumns) {
  TopRow row = MakeRow(123'456, 999'999'999'999);
  row.state = "given_up";
  for (ScopeSums& scope : row.sums.scopes) scope = {.committed = 1ull << 60, .aborted = 1ull << 60};
  row.sums.messages_sent = 1ull << 60;
  for (const std::string& line : Lines(RenderTop(std::string(200, 'x'), {row}, 99)))
    EXPECT_LT(line.size(), 80u);
}

TEST(RenderTop, UnreachedIsland_ShowsDashes) {
  TopRow row{.island = 3, .state = "lost"};
  EXPECT_THAT(Lines(RenderTop("t", {row}, 99)).back(), testing::ContainsRegex("3  lost +-"));
}

TEST(RenderTop, SmallTerminal_SaysWhatIsHidden) {
  std::vector<TopRow> rows;
  for (uint32_t i = 0; i < 24; ++i) rows.push_back(MakeRow(i, 1));
  const std::vector<std::string> lines = Lines(RenderTop("t", rows, 10));
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines.back(), "  and 19 more islands");
}

}  // namespace
}  // namespace islands::deploy
