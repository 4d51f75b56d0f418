#include "instance/simulation/isolation/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace islands::simulation::isolation {
namespace {

std::string ApplyToRow(const Step& step, Rows* rows) {
  const auto row = rows->find(step.first);
  if (step.verb == Verb::kInsert) {
    return rows->emplace(step.first, step.value).second ? "done" : "exists";
  }
  if (row == rows->end()) return "absent";
  switch (step.verb) {
    case Verb::kWrite:
    case Verb::kReplace:
      row->second = step.value;
      return "done";
    case Verb::kAdd:
    case Verb::kUpdate:
      row->second += step.value;
      return fmt::format("{}", row->second);
    case Verb::kDelete:
      rows->erase(row);
      return "done";
    default:
      return fmt::format("{}", row->second);
  }
}

std::string ApplyToRange(const Step& step, Rows* rows) {
  std::vector<std::pair<uint32_t, int64_t>> found;
  for (const auto& [row, value] : *rows) {
    if (row < step.first || row > step.last || (step.filter && *step.filter != value)) continue;
    found.emplace_back(row, value);
  }
  if (step.reverse) std::reverse(found.begin(), found.end());
  if (step.limit != 0 && found.size() > step.limit) found.resize(step.limit);
  for (auto& [row, value] : found) {
    if (step.verb == Verb::kDelete) rows->erase(row);
    if (step.verb == Verb::kAdd) value = (*rows)[row] += step.value;
  }
  std::string text;
  for (const auto& [row, value] : found)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", kRowNames[row], value);
  return text.empty() ? "nothing" : text;
}

bool Holds(const Condition& condition, const Observation& seen) {
  switch (condition.kind) {
    case Condition::kReturned:
      return seen.steps[condition.step].done && seen.steps[condition.step].result == condition.value;
    case Condition::kCommitted:
      return seen.sessions[condition.session].end == End::kCommitted;
    case Condition::kFinal: {
      const auto row = seen.final_rows.find(condition.row);
      return condition.value == (row == seen.final_rows.end() ? "absent" : fmt::format("{}", row->second));
    }
  }
  return false;
}

uint32_t FirstStep(const Scenario& scenario, uint32_t session) {
  uint32_t first = 0;
  while (scenario.steps[first].session != session) ++first;
  return first;
}

// `later` is put behind `earlier` although it had ended before the other began.
bool AgainstTime(const Scenario& scenario, const Observation& seen, uint32_t earlier, uint32_t later) {
  return seen.sessions[later].over_by < FirstStep(scenario, earlier);
}

bool Explains(const Scenario& scenario, Placement placement, const Observation& seen,
              const std::vector<uint32_t>& order) {
  for (size_t a = 0; a < order.size(); ++a) {
    for (size_t b = a + 1; b < order.size(); ++b) {
      if (AgainstTime(scenario, seen, order[a], order[b])) return false;
    }
  }
  Rows rows = scenario.rows;
  for (uint32_t session : order) {
    for (size_t i = 0; i < scenario.steps.size(); ++i) {
      const Step& step = scenario.steps[i];
      if (step.session != session) continue;
      if (!seen.steps[i].done || Apply(step, placement, &rows) != seen.steps[i].result) return false;
    }
  }
  return rows == seen.final_rows;
}

// What a run owes apart from isolation: an end for everybody, nothing left, somebody's success.
std::string Unfinished(const Scenario& scenario, const Observation& seen) {
  bool wanted = false, committed = false;
  for (uint32_t session = 0; session < scenario.sessions; ++session) {
    const End end = seen.sessions[session].end;
    if (end == End::kNever) return fmt::format("T{} never ended", session + 1);
    if (end == End::kUnknown)
      return fmt::format("T{}'s outcome is unknown although nothing failed", session + 1);
    committed |= end == End::kCommitted;
  }
  for (const Step& step : scenario.steps) wanted |= step.verb == Verb::kCommit;
  if (wanted && !committed) return "everybody aborted";
  return seen.amiss;
}

std::string ForbiddenResult(const Scenario& scenario, const Observation& seen) {
  for (size_t i = 0; i < scenario.steps.size(); ++i) {
    const Step& step = scenario.steps[i];
    if (!seen.steps[i].done || step.allowed.empty()) continue;
    if (std::find(step.allowed.begin(), step.allowed.end(), seen.steps[i].result) != step.allowed.end())
      continue;
    return fmt::format("'{}' returned '{}'", step.text, seen.steps[i].result);
  }
  return "";
}

// Everything that was observed, for a failure.
std::string Story(const Scenario& scenario, const Observation& seen) {
  std::string story;
  for (size_t i = 0; i < scenario.steps.size(); ++i) {
    const Observation::StepSeen& step = seen.steps[i];
    story += fmt::format("\n    {}{} -> {}", scenario.steps[i].text, step.blocked ? " (blocked)" : "",
                         step.done ? step.result : "not done");
  }
  static constexpr std::array kEnds = {"never ended", "committed", "aborted", "unknown"};
  for (uint32_t session = 0; session < scenario.sessions; ++session) {
    const Observation::SessionSeen& end = seen.sessions[session];
    story += fmt::format("\n    T{} {} {}", session + 1, kEnds[static_cast<size_t>(end.end)], end.why);
  }
  return story + "\n    final " + RowsText(seen.final_rows);
}

}  // namespace

std::string_view Name(Verdict verdict) {
  static constexpr std::array<std::string_view, 5> kNames = {"serial", "blocking", "aborting", "ANOMALY",
                                                             "FAILED"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string Apply(const Step& step, Placement placement, Rows* rows) {
  switch (step.verb) {
    case Verb::kBegin:
    case Verb::kCommit:
    case Verb::kAbort:
      return "done";
    case Verb::kFind: {
      Rows found;
      for (const auto& [row, value] : *rows) {
        if (value == step.value && SiteOf(placement, row) == SiteOf(placement, step.first))
          found[row] = value;
      }
      return RowsText(found);
    }
    default:
      return step.range ? ApplyToRange(step, rows) : ApplyToRow(step, rows);
  }
}

const Anomaly* FindAnomaly(const Scenario& scenario, const Observation& seen) {
  for (const Anomaly& anomaly : scenario.anomalies) {
    if (std::all_of(anomaly.all_of.begin(), anomaly.all_of.end(),
                    [&seen](const Condition& condition) { return Holds(condition, seen); })) {
      return &anomaly;
    }
  }
  return nullptr;
}

bool IsStrictlySerializable(const Scenario& scenario, Placement placement, const Observation& seen) {
  std::vector<uint32_t> order;
  for (uint32_t session = 0; session < scenario.sessions; ++session) {
    if (seen.sessions[session].end == End::kCommitted) order.push_back(session);
  }
  do {
    if (Explains(scenario, placement, seen, order)) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

Judgement Judge(const Scenario& scenario, Placement placement, const Observation& seen) {
  if (const Anomaly* anomaly = FindAnomaly(scenario, seen))
    return {Verdict::kAnomaly, anomaly->text + Story(scenario, seen)};
  if (const std::string result = ForbiddenResult(scenario, seen); !result.empty())
    return {Verdict::kAnomaly, result + Story(scenario, seen)};
  if (const std::string lack = Unfinished(scenario, seen); !lack.empty())
    return {Verdict::kFailed, lack + Story(scenario, seen)};
  if (!IsStrictlySerializable(scenario, placement, seen))
    return {Verdict::kAnomaly, "no serial order explains it" + Story(scenario, seen)};
  Judgement judgement;
  for (size_t i = 0; i < scenario.steps.size(); ++i) {
    if (!seen.steps[i].blocked) continue;
    judgement.verdict = Verdict::kBlocked;
    judgement.detail += (judgement.detail.empty() ? "" : ", ") + scenario.steps[i].text;
  }
  for (uint32_t session = 0; session < scenario.sessions; ++session) {
    if (seen.sessions[session].why.empty()) continue;
    if (judgement.verdict != Verdict::kAborted) judgement.detail.clear();
    judgement.verdict = Verdict::kAborted;
    judgement.detail += fmt::format("{}T{}: {}", judgement.detail.empty() ? "" : ", ", session + 1,
                                    seen.sessions[session].why);
  }
  return judgement;
}

}  // namespace islands::simulation::isolation
