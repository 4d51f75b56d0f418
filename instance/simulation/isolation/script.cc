#include "instance/simulation/isolation/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace islands::simulation::isolation {
namespace {

using Words = std::vector<std::string>;

constexpr uint32_t kMaxSessions = 6;  // the judge tries every serial order

Words Split(std::string_view line) {
  std::istringstream stream{std::string(line)};
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string Join(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> SplitAt(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(Join(Split(text.substr(at, end - at))));
    at = end + separator.size();
  }
  return parts;
}

std::optional<int64_t> ParseNumber(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<uint32_t> ParseRow(std::string_view word) {
  const auto found = std::find(kRowNames.begin(), kRowNames.end(), word);
  if (found == kRowNames.end()) return std::nullopt;
  return static_cast<uint32_t>(found - kRowNames.begin());
}

std::optional<uint32_t> ParseSession(std::string_view word) {
  if (word.size() != 2 || word[0] != 'T' || word[1] < '1' || word[1] > '0' + static_cast<char>(kMaxSessions))
    return std::nullopt;
  return static_cast<uint32_t>(word[1] - '1');
}

std::optional<Verb> ParseVerb(std::string_view word) {
  static constexpr std::pair<std::string_view, Verb> kVerbs[] = {
      {"begin", Verb::kBegin},   {"read", Verb::kRead},     {"lock", Verb::kLock},
      {"write", Verb::kWrite},   {"add", Verb::kAdd},       {"replace", Verb::kReplace},
      {"insert", Verb::kInsert}, {"delete", Verb::kDelete}, {"scan", Verb::kScan},
      {"find", Verb::kFind},     {"commit", Verb::kCommit}, {"abort", Verb::kAbort},
      {"update", Verb::kUpdate},
  };
  for (const auto& [name, verb] : kVerbs) {
    if (name == word) return verb;
  }
  return std::nullopt;
}

// "x" or "low..high".
bool ParseRows(const std::string& word, Step* step) {
  const size_t dots = word.find("..");
  const std::optional<uint32_t> first = ParseRow(word.substr(0, dots));
  const std::optional<uint32_t> last = dots == std::string::npos ? first : ParseRow(word.substr(dots + 2));
  if (!first || !last || *last < *first) return false;
  step->first = *first;
  step->last = *last;
  step->range = dots != std::string::npos;
  return true;
}

bool TakesValue(Verb verb) {
  return verb == Verb::kWrite || verb == Verb::kAdd || verb == Verb::kUpdate || verb == Verb::kReplace ||
         verb == Verb::kInsert;
}

bool ParseFind(const Words& words, Step* step) {
  if (words.size() != 5 || words[3] != "near") return false;
  const std::optional<int64_t> value = ParseNumber(words[2]);
  const std::optional<uint32_t> row = ParseRow(words[4]);
  if (!value || !row) return false;
  step->value = *value;
  step->first = step->last = *row;
  return true;
}

// Words after the rows: a value, or what narrows a range.
bool ParseOptions(const Words& words, Step* step) {
  size_t at = 3;
  if (TakesValue(step->verb)) {
    const std::optional<int64_t> value = at < words.size() ? ParseNumber(words[at++]) : std::nullopt;
    if (!value) return false;
    step->value = *value;
  }
  for (; at < words.size(); ++at) {
    if (words[at][0] == '=') {
      step->filter = ParseNumber(std::string_view(words[at]).substr(1));
      if (!step->filter) return false;
    } else if (words[at] == "reverse") {
      step->reverse = true;
    } else if (words[at] == "limit" && at + 1 < words.size()) {
      const std::optional<int64_t> limit = ParseNumber(words[++at]);
      if (!limit || *limit <= 0) return false;
      step->limit = static_cast<uint32_t>(*limit);
    } else {
      return false;
    }
  }
  const bool narrowed = step->filter || step->reverse || step->limit != 0;
  switch (step->verb) {
    case Verb::kScan:
      return step->range && !(step->filter && step->limit != 0);
    case Verb::kDelete:
      return step->range == step->filter.has_value() && !step->reverse && step->limit == 0;
    case Verb::kAdd:
      return !narrowed;
    default:
      return !step->range && !narrowed;
  }
}

bool ParseStep(const Words& words, Step* step) {
  step->text = Join(words);
  const std::optional<uint32_t> session = ParseSession(words[0]);
  const std::optional<Verb> verb = words.size() > 1 ? ParseVerb(words[1]) : std::nullopt;
  if (!session || !verb) return false;
  step->session = *session;
  step->verb = *verb;
  if (*verb == Verb::kBegin || *verb == Verb::kCommit || *verb == Verb::kAbort) return words.size() == 2;
  if (*verb == Verb::kFind) return ParseFind(words, step);
  return words.size() > 2 && ParseRows(words[2], step) && ParseOptions(words, step);
}

// "final x -> 11", "T1 commit", "T1 read x #2 -> 10".
bool ParseCondition(const Scenario& scenario, const std::string& text, Condition* condition) {
  const std::vector<std::string> sides = SplitAt(text, "->");
  Words words = Split(sides[0]);
  if (words.empty() || sides.size() > 2) return false;
  if (sides.size() == 1) {
    const std::optional<uint32_t> session = ParseSession(words[0]);
    condition->kind = Condition::kCommitted;
    condition->session = session.value_or(kMaxSessions);
    return condition->session < scenario.sessions && words.size() == 2 && words[1] == "commit";
  }
  condition->value = sides[1];
  if (words[0] == "final") {
    const std::optional<uint32_t> row = words.size() == 2 ? ParseRow(words[1]) : std::nullopt;
    condition->kind = Condition::kFinal;
    condition->row = row.value_or(0);
    return row.has_value();
  }
  int64_t occurrence = 1;
  if (words.back()[0] == '#') {
    occurrence = ParseNumber(std::string_view(words.back()).substr(1)).value_or(0);
    words.pop_back();
  }
  const std::string step = Join(words);
  for (size_t i = 0; i < scenario.steps.size(); ++i) {
    if (scenario.steps[i].text != step || --occurrence != 0) continue;
    condition->step = static_cast<uint32_t>(i);
    return true;
  }
  return false;
}

class Parser {
 public:
  explicit Parser(std::string_view file) : file_(file) {}

  absl::Status Line(const std::string& line, int number) {
    number_ = number;
    const Words words = Split(line);
    if (words.empty() || words[0][0] == '#') return absl::OkStatus();
    if (words[0] == "scenario") return Open(Join(Words(words.begin() + 1, words.end())));
    if (scenarios_.empty()) return Bad(line, "'scenario NAME' first");
    if (words[0] == "rows") return RowsLine(line, words);
    if (words[0] == "anomaly") return AnomalyLine(line.substr(line.find("anomaly") + 7));
    return StepLine(line);
  }

  absl::StatusOr<std::vector<Scenario>> Finish() {
    if (absl::Status status = Close(); !status.ok()) return status;
    return std::move(scenarios_);
  }

 private:
  absl::Status Bad(const std::string& found, const std::string& right) const {
    return absl::InvalidArgumentError(
        fmt::format("{}.txt:{}: found '{}'; expected {}", file_, number_, found, right));
  }

  absl::Status Open(const std::string& name) {
    if (absl::Status status = Close(); !status.ok()) return status;
    if (name.empty()) return Bad("scenario", "'scenario NAME'");
    scenarios_.push_back({.file = file_, .name = name});
    return absl::OkStatus();
  }

  // Every session must come to an end, and somebody must say what the anomaly is.
  absl::Status Close() const {
    if (scenarios_.empty()) return absl::OkStatus();
    const Scenario& scenario = scenarios_.back();
    for (uint32_t session = 0; session < scenario.sessions; ++session) {
      size_t ends = 0;
      const Step* last = nullptr;
      for (const Step& step : scenario.steps) {
        if (step.session != session) continue;
        last = &step;
        ends += step.verb == Verb::kCommit || step.verb == Verb::kAbort;
      }
      const bool ended = last != nullptr && (last->verb == Verb::kCommit || last->verb == Verb::kAbort);
      if (!ended || ends != 1)
        return Bad(scenario.name, fmt::format("one commit or abort as the last step of T{}", session + 1));
    }
    if (scenario.sessions == 0) return Bad(scenario.name, "steps");
    if (scenario.anomalies.empty()) return Bad(scenario.name, "an 'anomaly' line at its end");
    return absl::OkStatus();
  }

  absl::Status RowsLine(const std::string& line, const Words& words) {
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      const std::optional<uint32_t> row = ParseRow(words[i].substr(0, equals));
      const std::optional<int64_t> value = equals == std::string::npos
                                               ? std::nullopt
                                               : ParseNumber(std::string_view(words[i]).substr(equals + 1));
      if (!row || !value) return Bad(line, "rows NAME=NUMBER ...");
      scenarios_.back().rows[*row] = *value;
    }
    return absl::OkStatus();
  }

  absl::Status StepLine(const std::string& line) {
    const std::vector<std::string> sides = SplitAt(line, "->");
    Step step;
    if (sides.size() > 2 || !ParseStep(Split(sides[0]), &step))
      return Bad(line, "SESSION STEP [-> RESULT | RESULT]");
    if (sides.size() == 2) step.allowed = SplitAt(sides[1], "|");
    Scenario& scenario = scenarios_.back();
    scenario.sessions = std::max(scenario.sessions, step.session + 1);
    scenario.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::Status AnomalyLine(const std::string& text) {
    Anomaly anomaly{.text = Join(Split(text))};
    for (const std::string& part : SplitAt(text, ",")) {
      Condition condition;
      if (!ParseCondition(scenarios_.back(), part, &condition))
        return Bad(part, "a step above '-> RESULT', 'SESSION commit', or 'final NAME -> VALUE'");
      anomaly.all_of.push_back(condition);
    }
    scenarios_.back().anomalies.push_back(std::move(anomaly));
    return absl::OkStatus();
  }

  const std::string file_;
  int number_ = 0;
  std::vector<Scenario> scenarios_;
};

}  // namespace

std::string RowsText(const Rows& rows) {
  std::string text;
  for (const auto& [row, value] : rows)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", kRowNames[row], value);
  return text.empty() ? "nothing" : text;
}

bool Scenario::UsesIndex() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.verb == Verb::kFind; });
}

absl::StatusOr<std::vector<Scenario>> ParseScenarios(std::string_view file, std::string_view text) {
  Parser parser(file);
  std::istringstream stream{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    if (absl::Status status = parser.Line(line, ++number); !status.ok()) return status;
  }
  return parser.Finish();
}

absl::StatusOr<std::vector<Scenario>> LoadScenarios(const std::string& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  if (error) return absl::NotFoundError(fmt::format("{}: {}", directory, error.message()));
  std::sort(paths.begin(), paths.end());
  std::vector<Scenario> scenarios;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    absl::StatusOr<std::vector<Scenario>> more = ParseScenarios(path.stem().string(), text.str());
    if (!more.ok()) return more.status();
    scenarios.insert(scenarios.end(), more->begin(), more->end());
  }
  return scenarios;
}

}  // namespace islands::simulation::isolation
