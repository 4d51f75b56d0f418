// `islands top`: what every island does right now, once a second, in 80 columns.
//
// Thread safety: main thread only; RenderTop is a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "deploy/commands.h"
#include "deploy/run_counters.h"

namespace islands::deploy {

struct TopOptions {
  std::string file;
  bool once = false;  // one table, over one second; also when stdout is not a terminal
};
int Top(const CommandContext& context, const TopOptions& options);

// One line of the table: what an island did within `seconds`.
struct TopRow {
  uint32_t island = 0;
  std::string state;
  double seconds = 0;  // 0: nothing known
  Sums sums;
};

// `title` is the first line, then totals and one line per island, at most `max_lines` lines in all, each at
// most 79 wide.
std::string RenderTop(const std::string& title, const std::vector<TopRow>& rows, size_t max_lines);

// At most six characters: 999, 12.3k, 123k, 1.23M.
std::string ShortNumber(double value);

}  // namespace islands::deploy
