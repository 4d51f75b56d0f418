#include "deploy/top/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "deploy/top/text.h"

namespace islands::deploy {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

TopRow RowOf(uint32_t island, uint64_t committed) {
  TopRow row{.island = island, .state = "ready", .answers = true, .seconds = 2};
  row.sums.scopes[0].committed = committed;
  row.sums.busy_seconds = 1;
  row.sums.idle_seconds = 1;
  row.sums.waiting_seconds = 0.5;
  for (int i = 0; i < 20; ++i) row.history.push_back({true, static_cast<double>(committed) / 2, 0.5});
  return row;
}

TopRow LostRow(uint32_t island) {
  TopRow row{.island = island, .state = "lost", .restarts = 1};
  row.history = {{true, 100, 1}, {}, {}};
  return row;
}

// The longest that any number can get.
TopRow HugeRow() {
  TopRow row = RowOf(123'456, 0);
  row.state = "given_up";
  for (ScopeSums& scope : row.sums.scopes)
    scope = {.committed = 1ull << 60, .aborted = 1ull << 60, .latency = std::vector<uint64_t>(464, 1)};
  row.sums.messages_sent = row.sums.messages_received = 1ull << 60;
  row.sums.idle_seconds = 0;
  row.sums.waiting_seconds = 1;
  row.in_doubt = 99'999'999;
  row.restarts = 4'000'000'000;
  row.history.assign(kTopHistory, {true, 1e18, 1});
  return row;
}

TopSample MakeSample(size_t islands) {
  TopSample sample{.deployment = "test", .layout = std::to_string(islands) + "ISL"};
  for (uint32_t i = 0; i < islands; ++i) sample.rows.push_back(RowOf(i, 1'000 * (i + 1)));
  return sample;
}

std::vector<std::string> Texts(const std::vector<TopLine>& lines) {
  std::vector<std::string> texts;
  for (const TopLine& line : lines) texts.push_back(line.text);
  return texts;
}

std::vector<std::string> TableLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t Longest(const std::vector<TopLine>& lines) {
  size_t longest = 0;
  for (const TopLine& line : lines) longest = std::max(longest, CharactersIn(line.text));
  return longest;
}

TEST(RenderTop, RatesAreDividedByTime) {
  TopSample sample{.deployment = "test", .layout = "2ISL", .rows = {RowOf(0, 200), RowOf(1, 2'000'000)}};
  const std::vector<TopLine> lines = RenderTop(sample, {}, {.clock = "20:14:03"});
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[0].text, "test 2ISL  20:14:03  every 1 s  by island                       ? keys  q quits");
  EXPECT_EQ(lines[1].text, "2 islands: 2 ready");
  EXPECT_EQ(lines[2].text, "committed/s 1.00M: local 1.00M, multisite 0, distributed 0 (0%)");
  EXPECT_EQ(lines[3].text, "aborts/s 0 (0%)  messages/s 0  in doubt 0  imbalance 200% (busy time 0%)");
  EXPECT_EQ(lines[4].text, "");
  EXPECT_EQ(lines[5].text, "▲island state    trans/s last 10 s  abort/s busy last 10 s  wait sent/s    p95 ");
  EXPECT_EQ(lines[6].text, "      0 ready        100 ▁▁▁▁▁▁▁▁▁▁       0  50% ▅▅▅▅▅▅▅▅▅▅  25%      0    0us");
  EXPECT_EQ(lines[7].text, "      1 ready      1.00M ██████████       0  50% ▅▅▅▅▅▅▅▅▅▅  25%      0    0us");
  EXPECT_EQ(lines[0].style, TopStyle::kTitle);
  EXPECT_EQ(lines[5].style, TopStyle::kHeader);
  EXPECT_EQ(lines[6].style, TopStyle::kPlain);
}

TEST(RenderTop, NothingWraps_WhateverTheTerminal) {
  TopSample sample = MakeSample(30);
  sample.deployment = std::string(32, 'd');
  for (TopRow& row : sample.rows) {
    const uint32_t island = row.island;
    row = island % 2 == 0 ? HugeRow() : LostRow(island);
  }
  for (size_t columns = 0; columns <= 300; ++columns) {
    for (size_t lines : {1, 5, 6, 7, 8, 24, 100}) {
      for (bool help : {false, true}) {
        const TopScreen screen{.columns = columns, .lines = lines, .trouble = std::string(400, 't')};
        const std::vector<TopLine> shown = RenderTop(sample, {.help = help}, screen);
        EXPECT_LE(shown.size(), lines);
        EXPECT_LT(Longest(shown), std::max<size_t>(columns, 1)) << columns;
      }
    }
  }
}

TEST(RenderTop, EightyColumns_NumbersDoNotRunTogether) {
  const std::vector<TopLine> lines =
      RenderTop({.deployment = "t", .layout = "1ISL", .rows = {HugeRow()}}, {}, {.utf8 = false});
  EXPECT_EQ(lines[6].text, " 123456 given_up   >999G ##########   >999G 100% ########## 100%  >999G  1644s");
}

TEST(RenderTop, WiderTerminals_ShowMore) {
  const TopSample sample = MakeSample(2);
  for (size_t columns : {100, 132, 200}) {
    const std::vector<TopLine> lines = RenderTop(sample, {}, {.columns = columns});
    EXPECT_THAT(lines[5].text, testing::AllOf(HasSubstr("recv/s"), HasSubstr("distr"), HasSubstr("doubt")));
    EXPECT_GE(Longest(lines), columns - 2);
  }
  EXPECT_THAT(RenderTop(sample, {}, {.columns = 200, .interval_s = 60})[5].text, HasSubstr("last 61 min"));
  EXPECT_THAT(RenderTop(sample, {}, {.columns = 80, .interval_s = 0.1})[5].text, HasSubstr("last 1 s"));
  EXPECT_THAT(RenderTop(sample, {}, {.columns = 60})[5].text, Not(HasSubstr("last")));
}

TEST(RenderTop, Hits_AreShownOfPagedPools) {
  TopSample sample = MakeSample(2);
  for (const size_t columns : {80, 120})
    EXPECT_THAT(RenderTop(sample, {}, {.columns = columns})[5].text, Not(HasSubstr("hits")));
  EXPECT_THAT(RenderTopTable(sample, {}, true), testing::AllOf(Not(HasSubstr("hits")), HasSubstr("recv/s")));
  for (TopRow& row : sample.rows) row.paged = true;
  sample.rows[0].sums.page_looks = 1'000;
  sample.rows[0].sums.page_misses = 17;
  for (const size_t columns : {80, 120}) {
    const std::vector<TopLine> lines = RenderTop(sample, {}, {.columns = columns});
    EXPECT_THAT(lines[5].text, HasSubstr("hits"));
    EXPECT_THAT(lines[6].text, HasSubstr(" 98.3"));
    EXPECT_THAT(lines[7].text, Not(HasSubstr("100.0"))) << "nobody has looked for anything";
  }
  const std::string table = RenderTopTable(sample, {}, true);
  EXPECT_THAT(table, testing::AllOf(HasSubstr("hits"), HasSubstr("98.3"), Not(HasSubstr("recv/s"))));
  std::istringstream text(table);
  for (std::string line; std::getline(text, line);) EXPECT_LT(CharactersIn(line), 80u) << line;
}

TEST(RenderTop, LostIsland_ShowsDashesAndIsNamed) {
  TopSample sample = MakeSample(3);
  sample.rows[1] = LostRow(1);
  sample.rows[2].answers = false;
  sample.rows[2].seconds = 0;
  const std::vector<TopLine> lines = RenderTop(sample, {}, {.utf8 = false});
  EXPECT_EQ(lines[1].text, "3 islands: 1 ready, 1 lost (1), 1 no reply (2); 1 restart");
  EXPECT_EQ(lines[1].style, TopStyle::kTrouble);
  EXPECT_EQ(lines[7].text, "      1 lost           -        _xx       -    -        #xx    -      -      -");
  EXPECT_EQ(lines[7].style, TopStyle::kTrouble);
  EXPECT_THAT(lines[8].text, HasSubstr("2 no reply       - "));
}

TEST(RenderTop, ManyLostIslands_AreNotAllNamed) {
  TopSample sample = MakeSample(20);
  for (TopRow& row : sample.rows) row = LostRow(row.island);
  EXPECT_EQ(RenderTop(sample, {}, {})[1].text,
            "20 islands: 0 ready, 20 lost (0, 1, 2, 3, 4, 5, 6, 7, ...); 20 restarts");
}

TEST(RenderTop, Trouble_HasItsLine) {
  const std::vector<TopLine> lines = RenderTop(MakeSample(2), {}, {.trouble = "no answer"});
  EXPECT_EQ(lines[4], (TopLine{"no answer", TopStyle::kTrouble}));
  EXPECT_EQ(lines.size(), 8u) << "the table stays where it is";
}

TEST(RenderTop, SortColumnIsMarked) {
  const TopSample sample = MakeSample(3);
  const auto header = [&](TopView view, bool utf8) {
    return RenderTop(sample, view, {.utf8 = utf8})[5].text;
  };
  EXPECT_THAT(header({.sort = TopSort::kTransactions}, true), HasSubstr(" ▼trans/s"));
  EXPECT_THAT(header({.sort = TopSort::kTransactions, .reversed = true}, true), HasSubstr(" ▲trans/s"));
  EXPECT_THAT(header({.sort = TopSort::kBusy}, false), HasSubstr("abort/s>busy"));
  EXPECT_THAT(header({.sort = TopSort::kIsland}, false), HasSubstr("<island"));
  EXPECT_THAT(header({.sort = TopSort::kState}, false), HasSubstr("island<state"));
  for (const TopSortName& each : kTopSorts) {
    const std::string text = header({.sort = each.sort}, false);
    EXPECT_EQ(std::count(text.begin(), text.end(), '<') + std::count(text.begin(), text.end(), '>'), 1)
        << text;
  }
}

TopGateway MakeGateway() {
  return {.state = "ready",
          .has_metrics = true,
          .answers = true,
          .open = 12,
          .seconds = 1,
          .calls_per_s = 12'345,
          .committed_per_s = 99,
          .aborted_per_s = 1,
          .p99_us = 1'234,
          .islands_share = 0.83};
}

TEST(RenderTop, GatewayHasTwoLinesOfItsOwn) {
  TopSample sample = MakeSample(24);
  sample.gateway = MakeGateway();
  std::vector<TopLine> lines = RenderTop(sample, {}, {.trouble = "trouble"});
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[4].text, "gateway ready: calls/s 12.3k, p99 1.23ms, islands had 83%, open 12");
  EXPECT_EQ(lines[5].text, "  committed/s 99, aborted/s 1.0, unknown/s 0, rolled back/s 0");
  EXPECT_EQ(lines[6].text, "trouble");
  EXPECT_THAT(lines[8].text, HasSubstr(" 0 ready"));
  EXPECT_EQ(lines[23].text, "  and 9 more islands; j and k scroll");
  EXPECT_EQ(TableLines(RenderTopTable(sample, {}, true))[4], lines[4].text);

  sample.gateway->seconds = 0;
  lines = RenderTop(sample, {}, {});
  EXPECT_EQ(lines[4].text, "gateway ready: calls/s -, p99 -, islands had -, open 12");
  EXPECT_EQ(lines[4].style, TopStyle::kPlain);
  sample.gateway->answers = false;
  sample.gateway->state = "lost";
  sample.gateway->restarts = 2;
  lines = RenderTop(sample, {}, {});
  EXPECT_EQ(lines[4].text, "gateway lost; its metrics do not answer; 2 restarts");
  EXPECT_EQ(lines[4].style, TopStyle::kTrouble);
  EXPECT_EQ(lines[5].text, "") << "what is below does not move";
}

TEST(RenderTop, GatewayWithoutMetrics_HasItsState) {
  TopSample sample = MakeSample(1);
  sample.gateway = {.state = "ready"};
  const std::vector<TopLine> lines = RenderTop(sample, {}, {});
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[4].text, "gateway ready; its port for metrics is off (metrics.base_port)");
  EXPECT_EQ(lines[4].style, TopStyle::kPlain);
}

TEST(RenderTop, GatewayWithHugeNumbers_FitsEightyColumns) {
  TopSample sample = MakeSample(1);
  sample.gateway = {.state = "ready",
                    .has_metrics = true,
                    .answers = true,
                    .open = 99'999,
                    .seconds = 1,
                    .calls_per_s = 1e18,
                    .committed_per_s = 1e18,
                    .aborted_per_s = 1e18,
                    .unknown_per_s = 1e18,
                    .rolled_back_per_s = 1e18,
                    .p99_us = 1e12,
                    .islands_share = 1};
  const std::vector<TopLine> lines = RenderTop(sample, {}, {.columns = 200});
  EXPECT_LT(CharactersIn(lines[4].text), 80u) << lines[4].text;
  EXPECT_LT(CharactersIn(lines[5].text), 80u) << lines[5].text;
}

TEST(RenderTop, SortedRows) {
  const TopSample sample = MakeSample(3);
  const std::vector<TopLine> lines = RenderTop(sample, {.sort = TopSort::kTransactions}, {});
  EXPECT_THAT(lines[0].text, HasSubstr("by transactions "));
  EXPECT_THAT(lines[6].text, HasSubstr("2 ready"));
  EXPECT_THAT(lines[8].text, HasSubstr("0 ready"));
  EXPECT_THAT(RenderTop(sample, {.sort = TopSort::kTransactions, .reversed = true}, {})[6].text,
              HasSubstr("0 ready"));
}

TEST(RenderTop, TwentyFourIslands_FitTwentyFourLinesByScrolling) {
  const TopSample sample = MakeSample(24);
  const TopScreen screen;
  EXPECT_EQ(TopRoom(sample, screen), 17u);
  std::vector<TopLine> lines = RenderTop(sample, {}, screen);
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_THAT(lines[6].text, HasSubstr(" 0 ready"));
  EXPECT_THAT(lines[22].text, HasSubstr(" 16 ready"));
  EXPECT_EQ(lines[23].text, "  and 7 more islands; j and k scroll");
  lines = RenderTop(sample, {.first = 3}, screen);
  EXPECT_THAT(lines[6].text, HasSubstr(" 3 ready"));
  EXPECT_EQ(lines[23].text, "  3 more islands above, 4 below; j and k scroll");
  lines = RenderTop(sample, {.first = 1'000}, screen);
  EXPECT_THAT(lines[22].text, HasSubstr(" 23 ready")) << "fewer islands than when it was scrolled";
  EXPECT_EQ(lines[23].text, "  7 more islands above, 0 below; j and k scroll");
}

TEST(RenderTop, AsManyIslandsAsLines_NeedNoScrolling) {
  const std::vector<TopLine> lines = RenderTop(MakeSample(18), {}, {});
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_THAT(lines[23].text, HasSubstr("17 ready"));
}

TEST(RenderTop, Ascii_HasNoOtherCharacters) {
  for (bool help : {false, true}) {
    for (const TopLine& line : RenderTop(MakeSample(24), {.help = help}, {.utf8 = false}))
      EXPECT_THAT(line.text, Each(testing::AllOf(testing::Ge(' '), testing::Le('~'))));
  }
}

TEST(RenderTop, PausedAndHelp) {
  EXPECT_THAT(RenderTop(MakeSample(1), {.paused = true}, {})[0].text, HasSubstr("PAUSED"));
  const std::vector<std::string> help = Texts(RenderTop(MakeSample(1), {.help = true}, {}));
  EXPECT_LE(help.size(), 24u);
  for (const TopSortName& each : kTopSorts)
    EXPECT_THAT(help, testing::Contains(HasSubstr(std::string("sort by ") + each.name)));
}

TEST(RenderTop, NothingIsKnownYet) {
  TopSample sample = MakeSample(1);
  sample.rows[0].seconds = 0;
  sample.rows[0].history.clear();
  const std::vector<TopLine> lines = RenderTop(sample, {}, {});
  EXPECT_EQ(lines[1].text, "1 island: 1 ready");
  EXPECT_THAT(lines[6].text, testing::ContainsRegex("0 ready +- +- +- +- +- +-$"));
  EXPECT_EQ(RenderTop({}, {}, {})[1].text, "0 islands: 0 ready");
}

TEST(RenderTopTable, HasScopesAndAllIslands) {
  TopSample sample = MakeSample(30);
  sample.rows[1].sums.scopes[2].committed = 500;
  const std::vector<std::string> lines = TableLines(RenderTopTable(sample, {}, true));
  ASSERT_EQ(lines.size(), 36u);
  EXPECT_EQ(lines[0], "test 30ISL");
  EXPECT_EQ(lines[5], "▲island state    local/s multi/s distr/s abort/s busy wait sent/s recv/s    p95");
  EXPECT_EQ(lines[7], "      1 ready      1.00k       0     250       0  50%  25%      0      0    0us");
  sample.rows = {HugeRow()};
  for (const std::string& line : TableLines(RenderTopTable(sample, {}, true)))
    EXPECT_LT(CharactersIn(line), 80u);
}

}  // namespace
}  // namespace islands::deploy
