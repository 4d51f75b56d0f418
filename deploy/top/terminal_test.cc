#include "deploy/top/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace islands::deploy {
namespace {

TEST(ScreenUpdate, OnlyLinesThatChanged) {
  const std::vector<TopLine> before = {{"one"}, {"two"}, {"three"}};
  EXPECT_EQ(ScreenUpdate(before, before, 80, true), "");
  EXPECT_EQ(ScreenUpdate(before, {{"one"}, {"2"}, {"three"}}, 80, true), "\x1b[2;1H2\x1b[K");
  EXPECT_EQ(ScreenUpdate(before, {{"one"}, {"two"}}, 80, true), "\x1b[3;1H\x1b[K") << "lines that are gone";
  EXPECT_EQ(ScreenUpdate({}, {{"one"}}, 80, true), "\x1b[1;1Hone\x1b[K");
}

TEST(ScreenUpdate, StylesEndWithTheirLine) {
  const auto drawn = [](TopStyle style, bool colour) { return ScreenUpdate({}, {{"a", style}}, 80, colour); };
  EXPECT_EQ(drawn(TopStyle::kTitle, true), "\x1b[1;1H\x1b[1ma\x1b[0m\x1b[K");
  EXPECT_EQ(drawn(TopStyle::kHeader, true), "\x1b[1;1H\x1b[7ma\x1b[0m\x1b[K");
  EXPECT_EQ(drawn(TopStyle::kTrouble, true), "\x1b[1;1H\x1b[1;31ma\x1b[0m\x1b[K");
  EXPECT_EQ(drawn(TopStyle::kTrouble, false), "\x1b[1;1H\x1b[1ma\x1b[0m\x1b[K") << "NO_COLOR";
  EXPECT_EQ(ScreenUpdate({{"a"}}, {{"a", TopStyle::kTitle}}, 80, true), drawn(TopStyle::kTitle, true))
      << "another style is a change";
}

TEST(ScreenUpdate, FullLine_IsNotCutByErasing) {
  EXPECT_EQ(ScreenUpdate({}, {{"abc"}}, 3, true), "\x1b[1;1Habc");
  EXPECT_EQ(ScreenUpdate({}, {{"▁▂"}}, 3, true), "\x1b[1;1H▁▂\x1b[K") << "characters, not bytes";
}

TEST(Utf8Terminal, AsTheLocaleSays) {
  setenv("TERM", "xterm", 1);
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(Utf8Terminal());
  setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_TRUE(Utf8Terminal());
  setenv("LC_ALL", "xx_YY.nowhere", 1);
  EXPECT_FALSE(Utf8Terminal()) << "a locale that this machine lacks";
  setenv("LC_ALL", "C.UTF-8", 1);
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Utf8Terminal());
}

}  // namespace
}  // namespace islands::deploy
