// `islands logs`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "deploy/cli/output.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/down_target.h"
#include "deploy/cluster/lifecycle.h"
#include "deploy/cluster/log_lines.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/interrupts.h"

namespace islands::deploy {
namespace {

constexpr int64_t kLookMs = 100;            // between looks whether there is more
constexpr uint64_t kLinesToBeginWith = 10;  // of --follow

// The logs there can be in a control directory, in the order of lines of one time.
class Sources {
 public:
  Sources(ControlFiles files, std::string wanted) : files_(std::move(files)), wanted_(std::move(wanted)) {}

  // Adds what has come since the last call: islands, if the deployment is up again with another layout. Of
  // each, reading begins `lines` before its end; none: at its beginning.
  absl::Status Find(std::optional<uint64_t> lines, std::vector<LogFile>& logs) {
    std::vector<std::pair<std::string, std::string>> all = {{"supervisor", files_.SupervisorLog()},
                                                            {"logger", files_.LoggerLog()},
                                                            {"gateway", files_.GatewayLog()}};
    for (const uint32_t island : files_.IslandsWithLogs())
      all.emplace_back(fmt::format("island {}", island), files_.IslandLog(island));
    for (const auto& [source, path] : all) {
      const auto known = [&, &name = source](const LogFile& log) { return log.source() == name; };
      if (!Wanted(source) || access(path.c_str(), F_OK) != 0 || std::any_of(logs.begin(), logs.end(), known))
        continue;
      logs.emplace_back(source, path);
      if (!lines) continue;
      if (absl::Status skipped = logs.back().SkipTo(*lines); !skipped.ok()) return skipped;
    }
    return absl::OkStatus();
  }

 private:
  bool Wanted(const std::string& source) const {
    return wanted_.empty() || source == wanted_ || source == "island " + wanted_;
  }

  const ControlFiles files_;
  const std::string wanted_;
};

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

class Printer {
 public:
  explicit Printer(bool json)
      : json_(json), colour_(!json && isatty(STDOUT_FILENO) == 1 && Variable("NO_COLOR").empty()) {}

  void Print(const LogLine& line) const { json_ ? PrintObject(line) : PrintText(line); }

 private:
  static void PrintObject(const LogLine& line) {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    const nlohmann::ordered_json object = {{"source", line.source},
                                           {"time", or_null(line.time)},
                                           {"level", or_null(line.level)},
                                           {"text", line.text}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }

  void PrintText(const LogLine& line) const {
    std::string text = OneLine(line.text);
    if (!line.time.empty()) text = fmt::format("{} {} {}", line.time, line.level, text);
    if (!colour_) {
      fmt::print("{:<10} | {}\n", line.source, text);
      return;
    }
    const bool error = line.level == "error" || line.level == "critical";
    const char* const code = error ? "31" : line.level == "warning" ? "33" : "0";
    fmt::print("\x1b[{}m{:<10} |\x1b[{}m {}\x1b[0m\n", CodeOf(line.source), line.source, code, text);
  }

  // The same of a source in every run.
  static std::string_view CodeOf(const std::string& source) {
    static constexpr std::array<std::string_view, 6> kCodes = {"36", "32", "35", "34", "96", "92"};
    uint32_t island = 0;
    const bool numbered = absl::SimpleAtoi(source.substr(source.find(' ') + 1), &island);
    return numbered ? kCodes[island % kCodes.size()] : "1";
  }

  const bool json_;
  const bool colour_;
};

// A deployment that is coming up has its supervisor's lock, too.
bool IsUp(const DownTarget& target) {
  return std::any_of(target.locks.begin(), target.locks.end(), [](const std::string& lock) {
    const auto holder = LockHolder(lock);
    return holder.ok() && holder->has_value();
  });
}

absl::Status NoLog(const DownTarget& target, const std::string& wanted) {
  std::vector<LogFile> logs;
  (void)Sources(target.files, "").Find(std::nullopt, logs);
  std::string names;
  for (const LogFile& log : logs) names += (names.empty() ? "" : ", ") + log.source();
  if (names.empty()) {
    return absl::NotFoundError(
        fmt::format("there are no logs in {}: the deployment has not been up yet", target.files.directory));
  }
  return absl::NotFoundError(
      fmt::format("there is no log of '{}' in {}; there are: {}", wanted, target.files.directory, names));
}

std::string Ended(const DownTarget& target, std::string_view what) {
  const std::string why = ClusterClient(target.files).WhyEnded();
  return fmt::format("'{}' {}{}\n", target.files.deployment, what,
                     why.empty() ? "" : ". It has ended by itself: " + why);
}

// What is there now.
absl::Status Show(std::vector<LogFile>& logs, std::optional<uint64_t> lines, bool last,
                  const Printer& printer) {
  if (!lines) return Drain(logs, last, [&](const LogLine& line) { printer.Print(line); });
  std::deque<LogLine> kept;
  const absl::Status drained = Drain(logs, last, [&](LogLine line) {
    kept.push_back(std::move(line));
    if (kept.size() > *lines) kept.pop_front();
  });
  for (const LogLine& line : kept) printer.Print(line);
  return drained;
}

// What comes, until the deployment has ended, or Ctrl-C, or nobody reads it.
absl::Status Follow(const DownTarget& target, Sources& sources, std::vector<LogFile>& logs,
                    const Printer& printer) {
  Interrupts interrupts;
  for (bool up = true; up && std::fflush(stdout) == 0;) {
    if (interrupts.Sleep(kLookMs) == Interrupts::Wake::kInterrupted)
      return absl::CancelledError("interrupted");
    up = IsUp(target);  // before the last look
    absl::Status shown = sources.Find(std::nullopt, logs);
    if (shown.ok()) shown = Show(logs, std::nullopt, !up, printer);
    if (!shown.ok()) return shown;
  }
  fmt::print(stderr, "{}", Ended(target, "has ended"));
  return absl::OkStatus();
}

}  // namespace

int Logs(const CommandContext& context, const LogsOptions& options) {
  std::string note;
  const absl::StatusOr<DownTarget> target = FindDownTarget(options.deployment, &note);
  if (!note.empty()) fmt::print(stderr, "{}\n", note);
  if (!target.ok()) return Fail(context, target.status());
  if (!target->has_directory) {
    return Fail(context, absl::FailedPreconditionError(fmt::format(
                             "the control directory {} was removed, and the logs with it; the deployment is "
                             "up: `islands ps`",
                             target->files.directory)));
  }
  std::optional<uint64_t> lines = options.lines;
  if (!lines && options.follow) lines = kLinesToBeginWith;
  const bool up = IsUp(*target);
  Sources sources(target->files, options.source);
  std::vector<LogFile> logs;
  absl::Status done = sources.Find(lines, logs);
  if (done.ok() && logs.empty()) done = NoLog(*target, options.source);
  if (done.ok() && !up)
    fmt::print(stderr, "{}", Ended(*target, "is not up; this is what it has logged last"));
  const Printer printer(context.json());
  if (done.ok()) done = Show(logs, lines, !up, printer);
  if (done.ok() && up && options.follow) done = Follow(*target, sources, logs, printer);
  std::fflush(stdout);
  if (absl::IsCancelled(done)) return kExitInterrupted;
  return done.ok() ? kExitOk : Fail(context, done);
}

}  // namespace islands::deploy
