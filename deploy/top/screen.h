// `islands top` as text: what is known and how it is to be looked at become lines that fit a terminal.
//
//   test 2ISL  20:14:03  every 1 s  by island                     ? keys  q quits
//   2 islands: 1 ready, 1 lost (1); 1 restart
//   committed/s 203k: local 150k, multisite 0, distributed 53.0k (26%)
//   aborts/s 12 (0%)  messages/s 310k  in doubt 3  imbalance 4% (busy time 2%)
//   gateway ready: calls/s 12.3k, p99 1.20ms, islands had 83%, open 12
//     committed/s 12.1k, aborted/s 130, unknown/s 0, rolled back/s 20
//                                             <- here stands what is wrong with the whole
//   ▲island state    trans/s last 10 s  abort/s busy last 10 s  wait sent/s    p95
//         0 ready       101k ▇▇▇█▇▇▇▇▇▇     6.0  98% ██████████   2%   155k 1.20ms
//         1 lost           - ▇▇▇▇▇▇▇xxx       -    - ▇▇▇▇▇▇▇xxx    -      -      -
//
// Thread safety: pure functions.
//
// Invariants:
//  1. No line has `columns` characters or more: nothing wraps, on any terminal.
//  2. At most `lines` lines; the line of what is wrong and the table's header are never scrolled away.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "deploy/top/sample.h"

namespace islands::deploy {

// How the user wants to look at it.
struct TopView {
  TopSort sort = TopSort::kIsland;
  bool reversed = false;
  size_t first = 0;  // rows scrolled away
  bool paused = false;
  bool help = false;
};

// What it is shown on.
struct TopScreen {
  size_t columns = 80;
  size_t lines = 24;
  bool utf8 = true;
  std::string clock;      // of the sample
  double interval_s = 1;  // between looks
  std::string trouble;    // what is wrong with the cluster as a whole
};

enum class TopStyle { kPlain, kTitle, kHeader, kTrouble };
struct TopLine {
  std::string text;
  TopStyle style = TopStyle::kPlain;
  bool operator==(const TopLine&) const = default;
};

// The live screen. Rows come in the view's order.
std::vector<TopLine> RenderTop(const TopSample& sample, const TopView& view, const TopScreen& screen);
// For --once: no history, but transactions by scope. Ends with a newline.
std::string RenderTopTable(const TopSample& sample, const TopView& view, bool utf8);

// How many islands the live screen shows at once; the further ones can be scrolled to.
size_t TopRoom(const TopSample& sample, const TopScreen& screen);

}  // namespace islands::deploy
