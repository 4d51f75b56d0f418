#include "deploy/top_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace islands::deploy {
namespace {

constexpr size_t kHeadLines = 6;      // above the islands
constexpr size_t kTableColumns = 80;  // of --once, whatever the terminal
constexpr size_t kMoreColumns = 100;  // from here on there is room for columns that can be done without
constexpr size_t kLeastHistory = 3;   // narrower ones are left out
constexpr size_t kNamedIslands = 8;   // per state, in the line about states

struct Column {
  std::string title;
  size_t width;  // without the blank before it
  std::optional<TopSort> sort;
  std::function<std::string(const TopRow&)> cell;
  bool left = false;
};

std::string Percent(double fraction) { return fmt::format("{:.0f}%", std::min(fraction, 99.99) * 100); }

std::string Pad(const std::string& text, size_t width, bool left) {
  const std::string cut = Cut(text, width);
  const std::string blanks(width - CharactersIn(cut), ' ');
  return left ? cut + blanks : blanks + cut;
}

std::string StateOf(const TopRow& row) {
  return !row.answers && row.state == "ready" ? "no reply" : row.state;
}

// A cell that is a dash as long as nothing is known.
Column Known(std::string title, size_t width, std::optional<TopSort> sort,
             std::function<std::string(const TopRow&)> cell) {
  return {std::move(title), width, sort, [cell = std::move(cell)](const TopRow& row) {
            return row.seconds > 0 ? cell(row) : std::string("-");
          }};
}

Column Rate(std::string title, size_t width, std::optional<TopSort> sort,
            std::function<uint64_t(const Sums&)> count) {
  return Known(std::move(title), width, sort, [count = std::move(count)](const TopRow& row) {
    return ShortNumber(row.PerSecond(count(row.sums)));
  });
}

Column ScopeRate(std::string title, size_t scope) {
  return Rate(std::move(title), 7, std::nullopt,
              [scope](const Sums& sums) { return sums.scopes[scope].committed; });
}

std::vector<Column> FirstColumns() {
  return {{"island", 7, TopSort::kIsland, [](const TopRow& row) { return fmt::format("{}", row.island); }},
          {"state", 8, TopSort::kState, StateOf, true}};
}

Column Transactions() {
  return Rate("trans/s", 7, TopSort::kTransactions, [](const Sums& sums) { return sums.committed(); });
}

Column Aborts() {
  return Rate("abort/s", 7, TopSort::kAborts, [](const Sums& sums) { return sums.aborted(); });
}

Column Busy() {
  return Known("busy", 4, TopSort::kBusy,
               [](const TopRow& row) { return Percent(row.sums.busy_fraction()); });
}

Column Waiting() {
  return Known("wait", 4, TopSort::kWait,
               [](const TopRow& row) { return Percent(row.sums.waiting_fraction()); });
}

Column Sent() {
  return Rate("sent/s", 6, TopSort::kMessages, [](const Sums& sums) { return sums.messages_sent; });
}

Column Received() {
  return Rate("recv/s", 6, std::nullopt, [](const Sums& sums) { return sums.messages_received; });
}

Column Latency() {
  return Known("p95", 6, TopSort::kLatency, [](const TopRow& row) {
    return row.sums.committed() > 0 ? ShortTime(row.p95_us()) : std::string("-");
  });
}

Column Distributed() {
  return Known("distr", 5, std::nullopt, [](const TopRow& row) {
    const double committed = static_cast<double>(row.sums.committed());
    return committed > 0 ? Percent(static_cast<double>(row.sums.scopes[2].committed) / committed)
                         : std::string("-");
  });
}

Column InDoubt() {
  return Known("doubt", 5, std::nullopt, [](const TopRow& row) { return fmt::format("{}", row.in_doubt); });
}

std::string HistoryTitle(size_t width, double interval_s) {
  const double seconds = static_cast<double>(width) * interval_s;
  return seconds < 600 ? fmt::format("last {:.3g} s", seconds) : fmt::format("last {:.0f} min", seconds / 60);
}

Column History(double TopPoint::*value, double most, size_t width, const TopScreen& screen) {
  return {HistoryTitle(width, screen.interval_s), width, std::nullopt,
          [=, utf8 = screen.utf8](const TopRow& row) { return Spark(row.history, value, most, width, utf8); },
          true};
}

size_t WidthOf(const std::vector<Column>& columns) {
  size_t width = 0;
  for (const Column& column : columns) width += column.width + 1;
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

std::vector<Column> LiveColumns(const std::vector<TopRow>& rows, const TopScreen& screen) {
  std::vector<Column> columns = FirstColumns();
  columns.push_back(Transactions());
  const size_t after_transactions = columns.size();
  if (screen.columns >= kMoreColumns) columns.push_back(Distributed());
  columns.push_back(Aborts());
  columns.push_back(Busy());
  const size_t after_busy = columns.size();
  columns.push_back(Waiting());
  columns.push_back(Sent());
  if (screen.columns >= kMoreColumns) columns.push_back(Received());
  columns.push_back(Latency());
  if (screen.columns >= kMoreColumns) columns.push_back(InDoubt());
  // Both histories share what is left of the line.
  const size_t used = WidthOf(columns) + 2;
  const size_t width = screen.columns > used ? std::min((screen.columns - 1 - used) / 2, kTopHistory) : 0;
  if (width >= kLeastHistory) {
    const auto at = [&](size_t index) { return columns.begin() + static_cast<std::ptrdiff_t>(index); };
    columns.insert(at(after_busy), History(&TopPoint::busy_fraction, 1, width, screen));
    columns.insert(at(after_transactions),
                   History(&TopPoint::committed_per_s, MostCommitted(rows, width), width, screen));
  }
  return columns;
}

std::vector<Column> TableColumns() {
  std::vector<Column> columns = FirstColumns();
  for (Column& column :
       std::vector<Column>{ScopeRate("local/s", 0), ScopeRate("multi/s", 1), ScopeRate("distr/s", 2),
                           Aborts(), Busy(), Waiting(), Sent(), Received(), Latency()}) {
    columns.push_back(std::move(column));
  }
  return columns;
}

// The blank before the sort column's title is its mark.
std::string HeaderLine(const std::vector<Column>& columns, const TopView& view, bool utf8) {
  const bool down = LargestFirst(view.sort) != view.reversed;
  const std::string mark = utf8 ? (down ? "▼" : "▲") : (down ? ">" : "<");
  std::string line;
  for (const Column& column : columns) {
    const std::string title = (column.sort == view.sort ? mark : " ") + column.title;
    line += Pad(title, column.width + 1, column.left);
  }
  return line.substr(1);  // of the first column, which is wide enough for its mark
}

std::string RowLine(const std::vector<Column>& columns, const TopRow& row) {
  std::string line;
  for (const Column& column : columns) {
    if (!line.empty()) line += ' ';
    line += Pad(column.cell(row), column.width, column.left);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string NumbersOf(const std::vector<uint32_t>& islands) {
  std::string text;
  for (size_t i = 0; i < std::min(islands.size(), kNamedIslands); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", islands[i]);
  return islands.size() > kNamedIslands ? text + ", ..." : text;
}

// "24 islands: 22 ready, 2 lost (7, 9); 3 restarts": who is not ready is named even where its row is hidden.
TopLine StatesLine(const std::vector<TopRow>& rows, const TopTotals& totals) {
  std::map<std::string, std::vector<uint32_t>> others;
  size_t well = 0;
  for (const TopRow& row : rows) {
    if (row.well()) {
      ++well;
    } else {
      others[StateOf(row)].push_back(row.island);
    }
  }
  std::string text = fmt::format("{} island{}: {} ready", rows.size(), rows.size() == 1 ? "" : "s", well);
  for (auto& [state, islands] : others) {
    std::sort(islands.begin(), islands.end());
    text += fmt::format(", {} {} ({})", islands.size(), state, NumbersOf(islands));
  }
  if (totals.restarts > 0)
    text += fmt::format("; {} restart{}", totals.restarts, totals.restarts == 1 ? "" : "s");
  return {text, others.empty() ? TopStyle::kPlain : TopStyle::kTrouble};
}

std::vector<TopLine> TotalLines(const std::vector<TopRow>& rows) {
  const TopTotals totals = TotalsOf(rows);
  return {StatesLine(rows, totals),
          {fmt::format("committed/s {}: local {}, multisite {}, distributed {} ({})",
                       ShortNumber(totals.committed()), ShortNumber(totals.committed_per_s[0]),
                       ShortNumber(totals.committed_per_s[1]), ShortNumber(totals.committed_per_s[2]),
                       Percent(totals.distributed_share()))},
          {fmt::format("aborts/s {} ({})  messages/s {}  in doubt {}  imbalance {} (busy time {})",
                       ShortNumber(totals.aborted_per_s), Percent(totals.aborted_share()),
                       ShortNumber(totals.messages_per_s), totals.in_doubt, Percent(totals.imbalance),
                       Percent(totals.busy_imbalance))}};
}

TopLine TitleLine(const TopSample& sample, const TopView& view, const TopScreen& screen) {
  const std::string keys = "  ? keys  q quits";
  const size_t width = screen.columns - 1;
  const std::string left =
      fmt::format("{} {}  {}  {}  by {}{}", sample.deployment, sample.layout, screen.clock,
                  view.paused ? "PAUSED" : fmt::format("every {:.3g} s", screen.interval_s),
                  NameOf(view.sort), view.reversed ? ", reversed" : "");
  if (width < 2 * keys.size()) return {left, TopStyle::kTitle};
  return {Pad(left, width - keys.size(), true) + keys, TopStyle::kTitle};
}

std::vector<TopLine> HelpLines() {
  std::vector<TopLine> lines = {{"What the keys do", TopStyle::kTitle}, {}};
  for (const TopSortName& each : kTopSorts)
    lines.push_back({fmt::format("  {}              sort by {}", each.key, each.name)});
  for (const char* line :
       {"                 the same key again reverses the order",
        "  j k  up down   scroll, where there are more islands", "  p  space       pause and go on",
        "  ^L             draw all of the screen again", "  ? h            these keys",
        "  q  ^C          quit", "", "wait: part of the time when workers wait for locks or other islands",
        "imbalance: (max - min) / avg of what islands commit, and of busy time",
        "x in a history: no answer, or restarted"}) {
    lines.push_back({line});
  }
  return lines;
}

std::vector<TopLine> Fit(std::vector<TopLine> lines, const TopScreen& screen) {
  if (lines.size() > screen.lines) lines.resize(screen.lines);
  for (TopLine& line : lines) line.text = Cut(line.text, screen.columns - 1);
  return lines;
}

}  // namespace

size_t CharactersIn(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Cut(std::string_view text, size_t most) {
  size_t end = 0;
  for (size_t characters = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && ++characters > most) break;
  }
  return std::string(text.substr(0, end));
}

std::string ShortNumber(double value) {
  if (value <= 0) return "0";
  if (value < 9.95) return fmt::format("{:.1f}", std::max(value, 0.1));
  if (value < 999.5) return fmt::format("{:.0f}", value);
  for (const char* unit : {"k", "M", "G"}) {
    value /= 1000;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    if (value < 999.5) return fmt::format("{:.{}f}{}", value, digits, unit);
  }
  return ">999G";
}

std::string ShortTime(double us) {
  for (const char* unit : {"us", "ms"}) {
    const int digits = unit[0] == 'u' || us >= 99.95 ? 0 : us >= 9.995 ? 1 : 2;
    if (us < 999.5) return fmt::format("{:.{}f}{}", us, digits, unit);
    us /= 1000;
  }
  return us < 9'999.5 ? fmt::format("{:.{}f}s", us, us >= 99.95 ? 0 : us >= 9.995 ? 1 : 2) : ">9999s";
}

std::string Spark(const std::vector<TopPoint>& history, double TopPoint::*value, double most, size_t width,
                  bool utf8) {
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 8> kLetters = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const size_t shown = std::min(width, history.size());
  std::string text(width - shown, ' ');
  for (size_t i = history.size() - shown; i < history.size(); ++i) {
    const double part = most > 0 ? std::clamp(history[i].*value / most, 0.0, 1.0) : 0;
    const size_t level = std::min<size_t>(static_cast<size_t>(part * 8), 7);
    text += !history[i].known ? "x" : utf8 ? kBlocks[level] : kLetters[level];
  }
  return text;
}

size_t TopRoom(size_t rows, const TopScreen& screen) {
  const size_t room = screen.lines > kHeadLines ? screen.lines - kHeadLines : 0;
  return rows <= room || room == 0 ? room : room - 1;  // the last line says how many more there are
}

std::vector<TopLine> RenderTop(const TopSample& sample, const TopView& view, const TopScreen& screen) {
  if (screen.columns == 0) return {};
  if (view.help) return Fit(HelpLines(), screen);
  std::vector<TopRow> rows = sample.rows;
  SortRows(&rows, view.sort, view.reversed);
  std::vector<TopLine> lines = {TitleLine(sample, view, screen)};
  for (TopLine& line : TotalLines(rows)) lines.push_back(std::move(line));
  lines.push_back({screen.trouble, TopStyle::kTrouble});
  const std::vector<Column> columns = LiveColumns(rows, screen);
  lines.push_back({Pad(HeaderLine(columns, view, screen.utf8), screen.columns - 1, true), TopStyle::kHeader});

  const size_t room = TopRoom(rows.size(), screen);
  const size_t shown = std::min(room, rows.size());
  const size_t first = std::min(view.first, rows.size() - shown);
  for (size_t i = first; i < first + shown; ++i)
    lines.push_back({RowLine(columns, rows[i]), rows[i].well() ? TopStyle::kPlain : TopStyle::kTrouble});
  if (shown < rows.size()) {
    const size_t below = rows.size() - first - shown;
    lines.push_back({first == 0
                         ? fmt::format("  and {} more islands; j and k scroll", below)
                         : fmt::format("  {} more islands above, {} below; j and k scroll", first, below)});
  }
  return Fit(std::move(lines), screen);
}

std::string RenderTopTable(const TopSample& sample, const TopView& view, bool utf8) {
  std::vector<TopRow> rows = sample.rows;
  SortRows(&rows, view.sort, view.reversed);
  const std::vector<Column> columns = TableColumns();
  std::vector<TopLine> lines = {{fmt::format("{} {}", sample.deployment, sample.layout)}};
  for (TopLine& line : TotalLines(rows)) lines.push_back(std::move(line));
  lines.push_back({});
  lines.push_back({HeaderLine(columns, view, utf8)});
  for (const TopRow& row : rows) lines.push_back({RowLine(columns, row)});
  std::string text;
  for (const TopLine& line : lines) text += Cut(line.text, kTableColumns - 1) + "\n";
  return text;
}

}  // namespace islands::deploy
