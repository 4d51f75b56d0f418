#include "deploy/top/keys.h"

#include <gtest/gtest.h>

namespace islands::deploy {
namespace {

// 24 islands, of which 17 fit.
TopAction Press(TopView* view, char key) { return PressTopKey(key, 24, 17, view); }

TEST(TopKeyReader, ArrowsAndPages_BecomeCharacters) {
  TopKeyReader reader;
  EXPECT_EQ(reader.Feed("t\x1b[A\x1b[Bq"), "tkjq");
  EXPECT_EQ(reader.Feed("\x1bOA\x1bOB"), "kj");
  EXPECT_EQ(reader.Feed("\x1b[5~\x1b[6~"), std::string() + kTopPageUp + kTopPageDown);
}

TEST(TopKeyReader, KeysCutInTwo) {
  TopKeyReader reader;
  EXPECT_EQ(reader.Feed("\x1b"), "");
  EXPECT_EQ(reader.Feed("["), "");
  EXPECT_EQ(reader.Feed("B"), "j");
}

TEST(TopKeyReader, OtherKeys_AreLeftOutWhole) {
  TopKeyReader reader;
  EXPECT_EQ(reader.Feed("\x1b[1;5C\x1b[15~\x1b[H\x1b[3~i"), "i");
  EXPECT_EQ(reader.Feed("\x1bq"), "q") << "Escape, then q";
  EXPECT_EQ(reader.Feed("\x1b\x1b[A"), "k");
  EXPECT_EQ(reader.Feed("\x1b[" + std::string(1'000, '1') + "~b"), "b");
}

TEST(PressTopKey, SortKeys_TheSameAgainReverses) {
  TopView view;
  for (const TopSortName& each : kTopSorts) {
    view = {.sort = each.sort == TopSort::kIsland ? TopSort::kBusy : TopSort::kIsland, .first = 5};
    EXPECT_EQ(Press(&view, each.key), TopAction::kNone);
    EXPECT_EQ(view.sort, each.sort);
    EXPECT_FALSE(view.reversed);
    EXPECT_EQ(view.first, 0u) << "the new head is what is asked for";
    Press(&view, each.key);
    EXPECT_TRUE(view.reversed);
    Press(&view, each.key);
    EXPECT_FALSE(view.reversed);
  }
  view = {.sort = TopSort::kBusy, .reversed = true};
  Press(&view, 't');
  EXPECT_FALSE(view.reversed) << "another key begins in its own direction";
}

TEST(PressTopKey, Scrolling_StaysWithinTheIslands) {
  TopView view;
  Press(&view, 'k');
  EXPECT_EQ(view.first, 0u);
  for (int i = 0; i < 20; ++i) Press(&view, 'j');
  EXPECT_EQ(view.first, 7u);
  Press(&view, 'k');
  EXPECT_EQ(view.first, 6u) << "keys pressed in vain are forgotten";
  Press(&view, kTopPageUp);
  EXPECT_EQ(view.first, 0u);
  Press(&view, kTopPageDown);
  EXPECT_EQ(view.first, 7u);
  PressTopKey('j', 2, 17, &view);
  EXPECT_EQ(view.first, 0u) << "there are fewer islands now";
  PressTopKey('j', 2, 0, &view);
  EXPECT_EQ(view.first, 1u) << "a terminal without room";
}

TEST(PressTopKey, HelpAndPause) {
  TopView view;
  Press(&view, '?');
  EXPECT_TRUE(view.help);
  Press(&view, 't');
  EXPECT_FALSE(view.help);
  EXPECT_EQ(view.sort, TopSort::kIsland) << "the key only left the help";
  Press(&view, 'h');
  EXPECT_TRUE(view.help);
  EXPECT_EQ(Press(&view, 'q'), TopAction::kQuit) << "also from the help";
  Press(&view, 'p');
  EXPECT_TRUE(view.paused);
  Press(&view, ' ');
  EXPECT_FALSE(view.paused);
}

TEST(PressTopKey, Others) {
  TopView view;
  EXPECT_EQ(Press(&view, 'q'), TopAction::kQuit);
  EXPECT_EQ(Press(&view, 'Q'), TopAction::kQuit);
  EXPECT_EQ(Press(&view, '\x04'), TopAction::kQuit);
  EXPECT_EQ(Press(&view, kTopRedraw), TopAction::kRedraw);
  EXPECT_EQ(Press(&view, kTopSuspend), TopAction::kSuspend);
  EXPECT_EQ(Press(&view, 'z'), TopAction::kNone);
}

}  // namespace
}  // namespace islands::deploy
