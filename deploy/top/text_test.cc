#include "deploy/top/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace islands::deploy {
namespace {

TEST(ShortNumber, FitsSixCharacters) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(0.01), "0.1") << "a little is not nothing";
  EXPECT_EQ(ShortNumber(9.94), "9.9");
  EXPECT_EQ(ShortNumber(9.96), "10");
  EXPECT_EQ(ShortNumber(999), "999");
  EXPECT_EQ(ShortNumber(999.6), "1.00k");
  EXPECT_EQ(ShortNumber(12'345), "12.3k");
  EXPECT_EQ(ShortNumber(999'600), "1.00M");
  EXPECT_EQ(ShortNumber(123'456'789), "123M");
  EXPECT_EQ(ShortNumber(1e15), ">999G");
}

TEST(ShortTime, FitsSixCharacters) {
  EXPECT_EQ(ShortTime(0), "0us");
  EXPECT_EQ(ShortTime(999), "999us");
  EXPECT_EQ(ShortTime(999.6), "1.00ms");
  EXPECT_EQ(ShortTime(12'345), "12.3ms");
  EXPECT_EQ(ShortTime(123'456), "123ms");
  EXPECT_EQ(ShortTime(1'234'567), "1.23s");
  EXPECT_EQ(ShortTime(3.6e9), "3600s");
  EXPECT_EQ(ShortTime(1e12), ">9999s");
}

TEST(Cut, CountsCharactersNotBytes) {
  EXPECT_EQ(CharactersIn("a▲é"), 3u);
  EXPECT_EQ(Cut("a▲é", 2), "a▲");
  EXPECT_EQ(Cut("a▲é", 9), "a▲é");
  EXPECT_EQ(Cut("a▲é", 0), "");
  EXPECT_EQ(PadLeft("▲é", 4), "  ▲é");
  EXPECT_EQ(PadRight("▲é", 4), "▲é  ");
  EXPECT_EQ(PadRight("▲é", 1), "▲");
}

TEST(Percent, OfFractions) {
  EXPECT_EQ(Percent(0), "0%");
  EXPECT_EQ(Percent(0.126), "13%");
  EXPECT_EQ(Percent(2), "200%");
}

TEST(Spark, HasEightLevels) {
  std::vector<TopPoint> history;
  for (double value : {0, 10, 20, 30, 40, 50, 60, 70, 80}) history.push_back({true, value, 0});
  EXPECT_EQ(Spark(history, &TopPoint::committed_per_s, 80, 9, true), "▁▂▃▄▅▆▇██");
  EXPECT_EQ(Spark(history, &TopPoint::committed_per_s, 80, 9, false), "_.:-=+*##");
  EXPECT_EQ(Spark(history, &TopPoint::committed_per_s, 80, 2, true), "██") << "the newest";
  EXPECT_EQ(Spark(history, &TopPoint::busy_fraction, 1, 9, false), "_________");
  EXPECT_EQ(Spark(history, &TopPoint::committed_per_s, 8, 9, false), "_########") << "more than the most";
}

TEST(Spark, GapsAndBeginnings) {
  const std::vector<TopPoint> history = {{true, 1, 0}, {}, {true, 0, 0}};
  EXPECT_EQ(Spark(history, &TopPoint::committed_per_s, 1, 5, false), "  #x_");
  EXPECT_EQ(Spark(history, &TopPoint::committed_per_s, 0, 3, false), "_x_") << "nobody does anything";
  EXPECT_EQ(Spark({}, &TopPoint::committed_per_s, 1, 3, true), "   ");
}

}  // namespace
}  // namespace islands::deploy
