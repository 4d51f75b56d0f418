#include "deploy/top/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "deploy/top/text.h"

namespace islands::deploy {
namespace {

constexpr size_t kMoreColumns = 100;  // from here on there is room for columns that can be done without
constexpr size_t kLeastHistory = 3;   // narrower ones are left out

// A cell that is a dash as long as nothing is known.
TopColumn Known(std::string title, size_t width, std::optional<TopSort> sort,
                std::function<std::string(const TopRow&)> cell) {
  return {std::move(title), width, sort, [cell = std::move(cell)](const TopRow& row) {
            return row.seconds > 0 ? cell(row) : std::string("-");
          }};
}

TopColumn Rate(std::string title, size_t width, std::optional<TopSort> sort,
               std::function<uint64_t(const Sums&)> count) {
  return Known(std::move(title), width, sort, [count = std::move(count)](const TopRow& row) {
    return ShortNumber(row.PerSecond(count(row.sums)));
  });
}

TopColumn ScopeRate(std::string title, size_t scope) {
  return Rate(std::move(title), 7, std::nullopt,
              [scope](const Sums& sums) { return sums.scopes[scope].committed; });
}

std::vector<TopColumn> FirstColumns() {
  return {{"island", 7, TopSort::kIsland, [](const TopRow& row) { return fmt::format("{}", row.island); }},
          {"state", 8, TopSort::kState, [](const TopRow& row) { return row.shown_state(); }, true}};
}

TopColumn Transactions() {
  return Rate("trans/s", 7, TopSort::kTransactions, [](const Sums& sums) { return sums.committed(); });
}

TopColumn Aborts() {
  return Rate("abort/s", 7, TopSort::kAborts, [](const Sums& sums) { return sums.aborted(); });
}

TopColumn Busy() {
  return Known("busy", 4, TopSort::kBusy,
               [](const TopRow& row) { return Percent(row.sums.busy_fraction()); });
}

TopColumn Waiting() {
  return Known("wait", 4, TopSort::kWait,
               [](const TopRow& row) { return Percent(row.sums.waiting_fraction()); });
}

TopColumn Sent() {
  return Rate("sent/s", 6, TopSort::kMessages, [](const Sums& sums) { return sums.messages_sent; });
}

TopColumn Received() {
  return Rate("recv/s", 6, std::nullopt, [](const Sums& sums) { return sums.messages_received; });
}

TopColumn Latency() {
  return Known("p95", 6, TopSort::kLatency, [](const TopRow& row) {
    return row.sums.committed() > 0 ? ShortTime(row.p95_us()) : std::string("-");
  });
}

// Of rows looked for by key; all are in memory where the pool is not paged.
TopColumn Hits() {
  return Known("hits", 6, std::nullopt, [](const TopRow& row) {
    const std::optional<double> hits = row.sums.hit_fraction();
    return hits ? fmt::format("{:.1f}", 100 * *hits) : std::string("-");
  });
}

bool AnyPaged(const std::vector<TopRow>& rows) { return std::ranges::any_of(rows, &TopRow::paged); }

TopColumn Distributed() {
  return Known("distr", 5, std::nullopt, [](const TopRow& row) {
    const double committed = static_cast<double>(row.sums.committed());
    return committed > 0 ? Percent(static_cast<double>(row.sums.scopes[2].committed) / committed)
                         : std::string("-");
  });
}

TopColumn InDoubt() {
  return Known("doubt", 5, std::nullopt, [](const TopRow& row) { return fmt::format("{}", row.in_doubt); });
}

std::string HistoryTitle(size_t width, double interval_s) {
  const double seconds = static_cast<double>(width) * interval_s;
  return seconds < 600 ? fmt::format("last {:.3g} s", seconds) : fmt::format("last {:.0f} min", seconds / 60);
}

TopColumn History(double TopPoint::*value, double most, size_t width, double interval_s, bool utf8) {
  return {HistoryTitle(width, interval_s), width, std::nullopt,
          [=](const TopRow& row) { return Spark(row.history, value, most, width, utf8); }, true};
}

size_t WidthOf(const std::vector<TopColumn>& columns) {
  size_t width = 0;
  for (const TopColumn& column : columns) width += column.width + 1;
  return width - 1;
}

// Transactions have one scale for all islands, so that the hot ones stand out.
double MostCommitted(const std::vector<TopRow>& rows, size_t points) {
  double most = 0;
  for (const TopRow& row : rows) {
    const size_t shown = std::min(points, row.history.size());
    for (size_t i = row.history.size() - shown; i < row.history.size(); ++i)
      most = std::max(most, row.history[i].committed_per_s);
  }
  return most;
}

}  // namespace

std::vector<TopColumn> LiveTopColumns(const std::vector<TopRow>& rows, size_t terminal_columns,
                                      double interval_s, bool utf8) {
  const bool wide = terminal_columns >= kMoreColumns;
  std::vector<TopColumn> columns = FirstColumns();
  columns.push_back(Transactions());
  const auto after_transactions = static_cast<std::ptrdiff_t>(columns.size());
  if (wide) columns.push_back(Distributed());
  columns.push_back(Aborts());
  columns.push_back(Busy());
  const auto after_busy = static_cast<std::ptrdiff_t>(columns.size());
  columns.push_back(Waiting());
  columns.push_back(Sent());
  if (wide) columns.push_back(Received());
  columns.push_back(Latency());
  if (AnyPaged(rows)) columns.push_back(Hits());
  if (wide) columns.push_back(InDoubt());
  // Both histories share what is left of the line, the last column of the terminal and their blanks apart.
  const size_t used = WidthOf(columns) + 3;
  const size_t width = terminal_columns > used ? std::min((terminal_columns - used) / 2, kTopHistory) : 0;
  if (width >= kLeastHistory) {
    columns.insert(columns.begin() + after_busy,
                   History(&TopPoint::busy_fraction, 1, width, interval_s, utf8));
    columns.insert(columns.begin() + after_transactions,
                   History(&TopPoint::committed_per_s, MostCommitted(rows, width), width, interval_s, utf8));
  }
  return columns;
}

std::vector<TopColumn> TopTableColumns(const std::vector<TopRow>& rows) {
  std::vector<TopColumn> columns = FirstColumns();
  for (TopColumn& column : std::vector<TopColumn>{ScopeRate("local/s", 0), ScopeRate("multi/s", 1),
                                                  ScopeRate("distr/s", 2), Aborts(), Busy(), Waiting(),
                                                  Sent(), AnyPaged(rows) ? Hits() : Received(), Latency()}) {
    columns.push_back(std::move(column));
  }
  return columns;
}

// The blank before the sort column's title is its mark.
std::string TopHeaderLine(const std::vector<TopColumn>& columns, TopSort sort, bool reversed, bool utf8) {
  const bool down = LargestFirst(sort) != reversed;
  const std::string mark = utf8 ? (down ? "▼" : "▲") : (down ? ">" : "<");
  std::string line;
  for (const TopColumn& column : columns) {
    const std::string title = (column.sort == sort ? mark : " ") + column.title;
    line += column.left ? PadRight(title, column.width + 1) : PadLeft(title, column.width + 1);
  }
  return line.substr(1);  // of the first column, which is wide enough for its mark
}

std::string TopRowLine(const std::vector<TopColumn>& columns, const TopRow& row) {
  std::string line;
  for (const TopColumn& column : columns) {
    if (!line.empty()) line += ' ';
    line += column.left ? PadRight(column.cell(row), column.width) : PadLeft(column.cell(row), column.width);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace islands::deploy
