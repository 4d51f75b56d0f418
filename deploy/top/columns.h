// The columns of `islands top`: which there are on a terminal of some width, their titles and cells.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deploy/top/sample.h"

namespace islands::deploy {

struct TopColumn {
  std::string title;
  size_t width;  // without the blank before it
  std::optional<TopSort> sort;
  std::function<std::string(const TopRow&)> cell;
  bool left = false;
};

// Of the live screen: narrower than the terminal, if that has room for the figures at all (57 columns); what
// is left over goes to the histories.
std::vector<TopColumn> LiveTopColumns(const std::vector<TopRow>& rows, size_t terminal_columns,
                                      double interval_s, bool utf8);
// Of --once: no histories, but transactions by scope; 79 characters. With a paged pool hits, instead of what
// was received.
std::vector<TopColumn> TopTableColumns(const std::vector<TopRow>& rows);

// Titles; the sort column's has a mark before it that says which end comes first.
std::string TopHeaderLine(const std::vector<TopColumn>& columns, TopSort sort, bool reversed, bool utf8);
std::string TopRowLine(const std::vector<TopColumn>& columns, const TopRow& row);

}  // namespace islands::deploy
