#include "deploy/top/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "deploy/top/columns.h"
#include "deploy/top/text.h"

namespace islands::deploy {
namespace {

constexpr size_t kHeadLines = 6;      // above the islands, without a gateway
constexpr size_t kTableColumns = 80;  // of --once, whatever the terminal
constexpr size_t kNamedIslands = 8;   // per state, in the line about states

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
      others[row.shown_state()].push_back(row.island);
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

// Two lines; one where there are no numbers and will be none; none without a gateway.
std::vector<TopLine> GatewayLines(const TopSample& sample) {
  if (!sample.gateway) return {};
  const TopGateway& gateway = *sample.gateway;
  const TopStyle style = gateway.well() ? TopStyle::kPlain : TopStyle::kTrouble;
  const std::string text = "gateway " + gateway.state;
  const std::string restarts = gateway.restarts == 0 ? ""
                                                     : fmt::format("; {} restart{}", gateway.restarts,
                                                                   gateway.restarts == 1 ? "" : "s");
  if (!gateway.has_metrics)
    return {{fmt::format("{}{}; its port for metrics is off (metrics.base_port)", text, restarts), style}};
  if (!gateway.answers) return {{fmt::format("{}; its metrics do not answer{}", text, restarts), style}, {}};
  const bool known = gateway.seconds > 0;
  const auto rate = [&](double per_s) { return known ? ShortNumber(per_s) : "-"; };
  return {{fmt::format("{}: calls/s {}, p99 {}, islands had {}, open {:.0f}{}", text,
                       rate(gateway.calls_per_s), known ? ShortTime(gateway.p99_us) : "-",
                       known ? Percent(gateway.islands_share) : "-", gateway.open, restarts),
           style},
          {fmt::format("  committed/s {}, aborted/s {}, unknown/s {}, rolled back/s {}",
                       rate(gateway.committed_per_s), rate(gateway.aborted_per_s),
                       rate(gateway.unknown_per_s), rate(gateway.rolled_back_per_s))}};
}

TopLine TitleLine(const TopSample& sample, const TopView& view, const TopScreen& screen) {
  const std::string keys = "  ? keys  q quits";
  const size_t width = screen.columns - 1;
  const std::string left =
      fmt::format("{} {}  {}  {}  by {}{}", sample.deployment, sample.layout, screen.clock,
                  view.paused ? "PAUSED" : fmt::format("every {:.3g} s", screen.interval_s),
                  NameOf(view.sort), view.reversed ? ", reversed" : "");
  if (width < 2 * keys.size()) return {left, TopStyle::kTitle};
  return {PadRight(left, width - keys.size()) + keys, TopStyle::kTitle};
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
        "hits: rows that were in memory when they were looked for, per cent; of paged pools",
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

size_t TopRoom(const TopSample& sample, const TopScreen& screen) {
  const size_t rows = sample.rows.size();
  const size_t head = kHeadLines + GatewayLines(sample).size();
  const size_t room = screen.lines > head ? screen.lines - head : 0;
  return rows <= room || room == 0 ? room : room - 1;  // the last line says how many more there are
}

std::vector<TopLine> RenderTop(const TopSample& sample, const TopView& view, const TopScreen& screen) {
  if (screen.columns == 0) return {};
  if (view.help) return Fit(HelpLines(), screen);
  std::vector<TopRow> rows = sample.rows;
  SortRows(&rows, view.sort, view.reversed);
  std::vector<TopLine> lines = {TitleLine(sample, view, screen)};
  for (TopLine& line : TotalLines(rows)) lines.push_back(std::move(line));
  for (TopLine& line : GatewayLines(sample)) lines.push_back(std::move(line));
  lines.push_back({screen.trouble, TopStyle::kTrouble});
  const std::vector<TopColumn> columns = LiveTopColumns(rows, screen.columns, screen.interval_s, screen.utf8);
  lines.push_back(
      {PadRight(TopHeaderLine(columns, view.sort, view.reversed, screen.utf8), screen.columns - 1),
       TopStyle::kHeader});

  const size_t room = TopRoom(sample, screen);
  const size_t shown = std::min(room, rows.size());
  const size_t first = std::min(view.first, rows.size() - shown);
  for (size_t i = first; i < first + shown; ++i)
    lines.push_back({TopRowLine(columns, rows[i]), rows[i].well() ? TopStyle::kPlain : TopStyle::kTrouble});
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
  const std::vector<TopColumn> columns = TopTableColumns(rows);
  std::vector<TopLine> lines = {{fmt::format("{} {}", sample.deployment, sample.layout)}};
  for (TopLine& line : TotalLines(rows)) lines.push_back(std::move(line));
  for (TopLine& line : GatewayLines(sample)) lines.push_back(std::move(line));
  lines.push_back({});
  lines.push_back({TopHeaderLine(columns, view.sort, view.reversed, utf8)});
  for (const TopRow& row : rows) lines.push_back({TopRowLine(columns, row)});
  std::string text;
  for (const TopLine& line : lines) text += Cut(line.text, kTableColumns - 1) + "\n";
  return text;
}

}  // namespace islands::deploy
