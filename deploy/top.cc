#include "deploy/top.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "deploy/cluster_client.h"
#include "deploy/deployment.h"
#include "deploy/lifecycle_report.h"
#include "instance/latency_histogram.h"

namespace islands::deploy {
namespace {

constexpr int64_t kStatusTimeoutMs = 5'000;
constexpr int64_t kSnapshotTimeoutMs = 900;  // within one refresh
constexpr int64_t kRefreshMs = 1'000;
constexpr size_t kWidth = 79;

constexpr const char* kHeader = "island  state     local/s multi/s distr/s  abort/s   busy   msgs/s   p95 us";

std::string Line(const std::string& name, const std::string& state, double seconds, const Sums& sums) {
  const auto rate = [&](uint64_t count) {
    return seconds > 0 ? ShortNumber(static_cast<double>(count) / seconds) : std::string("-");
  };
  const std::string busy = seconds > 0 ? fmt::format("{:.0f}%", sums.busy_fraction() * 100) : "-";
  const std::string p95 = seconds > 0 ? ShortNumber(instance::PercentileUs(sums.latency(), 0.95)) : "-";
  return fmt::format("{:>6}  {:<9} {:>6}  {:>6}  {:>6}   {:>6}  {:>5}   {:>6}   {:>6}", name, state,
                     rate(sums.scopes[0].committed), rate(sums.scopes[1].committed),
                     rate(sums.scopes[2].committed), rate(sums.aborted()), busy, rate(sums.messages_sent),
                     p95);
}

std::string TotalLine(const std::vector<TopRow>& rows) {
  Sums total;
  double seconds = 0;
  for (const TopRow& row : rows) {
    if (row.seconds <= 0) continue;
    total.Add(row.sums);
    seconds = std::max(seconds, row.seconds);
  }
  return Line("all", "", seconds, total);
}

// The terminal, as it was, when it goes: characters arrive without Enter and without echo, on a screen of
// their own.
class RawTerminal {
 public:
  RawTerminal() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      changed_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    fmt::print("\x1b[?1049h\x1b[?25l");
  }
  ~RawTerminal() {
    fmt::print("\x1b[?25h\x1b[?1049l");
    std::fflush(stdout);
    if (changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  // Something was typed: whether it means to quit. Also true when nobody can type any more.
  bool ReadQuit() const {
    char c = 0;
    return read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q';
  }
  // -1: nothing to read from.
  int input() const { return changed_ ? STDIN_FILENO : -1; }
  static size_t Lines() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
  }

 private:
  termios before_{};
  bool changed_ = false;
};

// Follows all islands from look to look.
class Watcher {
 public:
  explicit Watcher(const ClusterClient& client) : client_(client) {}

  absl::Status Look() {
    absl::StatusOr<control::v1::ClusterStatus> status = client_.Status(kStatusTimeoutMs);
    if (!status.ok()) return status.status();
    std::vector<uint32_t> all(static_cast<size_t>(status->islands_size()));
    std::iota(all.begin(), all.end(), 0u);
    meters_.resize(all.size());
    control::v1::Request request;
    request.mutable_snapshot();
    const std::vector<ClusterClient::Reply> replies = client_.CallIslands(all, request, kSnapshotTimeoutMs);
    rows_.clear();
    for (uint32_t i : all) {
      TopRow row{.island = i, .state = std::string(StateName(status->islands(static_cast<int>(i)).state()))};
      if (replies[i].ok()) {
        IslandMeter::Step step = meters_[i].Observe(replies[i]->snapshot());
        row.seconds = step.seconds;
        row.sums = std::move(step.sums);
      }
      rows_.push_back(std::move(row));
    }
    title_ = fmt::format("{} {}", status->deployment(), status->layout());
    return absl::OkStatus();
  }

  const std::vector<TopRow>& rows() const { return rows_; }
  const std::string& title() const { return title_; }

 private:
  const ClusterClient& client_;
  std::vector<IslandMeter> meters_;
  std::vector<TopRow> rows_;
  std::string title_;
};

nlohmann::ordered_json RowsJson(const std::vector<TopRow>& rows) {
  nlohmann::ordered_json islands = nlohmann::ordered_json::array();
  for (const TopRow& row : rows) {
    const auto rate = [&](uint64_t count) {
      return row.seconds > 0 ? std::round(static_cast<double>(count) / row.seconds) : 0;
    };
    islands.push_back({{"id", row.island},
                       {"state", row.state},
                       {"local_per_s", rate(row.sums.scopes[0].committed)},
                       {"multisite_per_s", rate(row.sums.scopes[1].committed)},
                       {"distributed_per_s", rate(row.sums.scopes[2].committed)},
                       {"aborted_per_s", rate(row.sums.aborted())},
                       {"busy_fraction", row.sums.busy_fraction()},
                       {"messages_per_s", rate(row.sums.messages_sent)},
                       {"p95_us", instance::PercentileUs(row.sums.latency(), 0.95)}});
  }
  return {{"islands", islands}};
}

int Once(const CommandContext& context, Watcher& watcher) {
  Interrupts interrupts;
  absl::Status looked = watcher.Look();
  if (!looked.ok()) return Fail(context, looked);
  if (interrupts.Sleep(kRefreshMs) == Interrupts::Wake::kInterrupted) return kExitInterrupted;
  looked = watcher.Look();
  if (!looked.ok()) return Fail(context, looked);
  if (context.json()) {
    fmt::print("{}\n", RowsJson(watcher.rows()).dump(2));
  } else {
    fmt::print("{}", RenderTop(watcher.title(), watcher.rows(), std::numeric_limits<size_t>::max()));
  }
  return kExitOk;
}

// Until q, Ctrl-C, or the cluster is gone.
absl::Status Live(Watcher& watcher) {
  Interrupts interrupts;
  RawTerminal terminal;
  for (;;) {
    absl::Status looked = watcher.Look();
    if (!looked.ok()) return looked;
    fmt::print("\x1b[H\x1b[2J{}",
               RenderTop(watcher.title() + ", q quits", watcher.rows(), RawTerminal::Lines() - 1));
    std::fflush(stdout);
    const int64_t next_ms = MonotonicMs() + kRefreshMs;
    for (;;) {
      const Interrupts::Wake wake = interrupts.Sleep(next_ms - MonotonicMs(), terminal.input());
      if (wake == Interrupts::Wake::kInterrupted) return absl::OkStatus();
      if (wake == Interrupts::Wake::kTimeout) break;
      if (terminal.ReadQuit()) return absl::OkStatus();
    }
  }
}

}  // namespace

std::string ShortNumber(double value) {
  if (value < 999.5) return fmt::format("{:.0f}", value);
  const char* units[] = {"k", "M", "G"};
  for (const char* unit : units) {
    value /= 1000;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    if (value < 999.5) return fmt::format("{:.{}f}{}", value, digits, unit);
  }
  return ">999G";
}

std::string RenderTop(const std::string& title, const std::vector<TopRow>& rows, size_t max_lines) {
  std::vector<std::string> lines = {title, "", kHeader, TotalLine(rows)};
  for (const TopRow& row : rows) {
    lines.push_back(Line(fmt::format("{}", row.island), row.state, row.seconds, row.sums));
  }
  if (lines.size() > max_lines && max_lines > 0) {
    const size_t hidden = lines.size() - max_lines + 1;
    lines.resize(max_lines - 1);
    lines.push_back(fmt::format("  and {} more islands", hidden));
  }
  std::string text;
  for (const std::string& line : lines) text += line.substr(0, kWidth) + "\n";
  return text;
}

int Top(const CommandContext& context, const TopOptions& options) {
  absl::StatusOr<Deployment> deployment = LoadDeployment(options.file);
  if (!deployment.ok()) return Fail(context, deployment.status());
  const ClusterClient client(ControlFilesOf(*deployment));
  Watcher watcher(client);
  if (options.once || context.json() || isatty(STDOUT_FILENO) != 1) return Once(context, watcher);
  absl::Status watched = Live(watcher);
  return watched.ok() ? kExitOk : Fail(context, watched);
}

}  // namespace islands::deploy
