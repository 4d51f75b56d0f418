#include "deploy/cluster/transactions_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "deploy/cli/output.h"
#include "deploy/cluster/report.h"

namespace islands::deploy {
namespace {

using control::v1::ClusterStatus;
using control::v1::IslandStatus;
using control::v1::TransactionWork;
using json = nlohmann::ordered_json;

struct Line {
  uint32_t island = 0;
  TransactionWork work;

  bool coordinates() const { return island == work.coordinator(); }
  bool in_doubt() const {
    return work.state() == control::v1::PREPARED || work.state() == control::v1::ORPHANED;
  }
};

std::vector<Line> Lines(const std::vector<IslandTransactions>& islands) {
  std::vector<Line> lines;
  std::map<std::string, int64_t> oldest;  // by transaction
  for (const IslandTransactions& island : islands) {
    if (!island.answer.ok()) continue;
    for (const TransactionWork& work : island.answer->work()) {
      lines.push_back({island.island, work});
      oldest[work.id()] = std::max(oldest[work.id()], work.age_us());
    }
  }
  std::sort(lines.begin(), lines.end(), [&](const Line& a, const Line& b) {
    if (a.work.id() != b.work.id()) {
      const int64_t age_a = oldest[a.work.id()], age_b = oldest[b.work.id()];
      return age_a != age_b ? age_a > age_b : a.work.id() < b.work.id();
    }
    if (a.coordinates() != b.coordinates()) return a.coordinates();
    return a.island < b.island;
  });
  return lines;
}

std::string_view NameOf(control::v1::TransactionState state) {
  switch (state) {
    case control::v1::RUNNING:
      return "running";
    case control::v1::VOTING:
      return "voting";
    case control::v1::PREPARED:
    case control::v1::ORPHANED:
      return "in doubt";
    case control::v1::COMMITTING:
      return "committing";
    case control::v1::DECIDER_ASKED:
      return "deciding";
    case control::v1::DECIDED:
      return "decided";
    default:
      return "unknown";
  }
}

std::string_view WaitName(control::v1::TransactionWait wait) {
  switch (wait) {
    case control::v1::NO_WAIT:
      return "turn";
    case control::v1::FOR_LOCK:
      return "lock";
    case control::v1::FOR_REPLIES:
      return "replies";
    case control::v1::FOR_NEXT_STEP:
      return "next_step";
    case control::v1::FOR_VOTES:
      return "votes";
    case control::v1::FOR_DECISION:
      return "decision";
    case control::v1::FOR_FELLOWS:
      return "fellows";
    case control::v1::FOR_ACKNOWLEDGEMENTS:
      return "acknowledgements";
    case control::v1::FOR_DECIDER:
      return "decider";
    case control::v1::FOR_CONFIRMATION:
      return "confirmation";
    default:
      return "unknown";
  }
}

double Seconds(int64_t us) { return static_cast<double>(us) / 1e6; }

// "14.2 s", "12 min", "3.4 h".
std::string Time(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

// How an island is, as its supervisor sees it.
struct Condition {
  std::string state;  // "up" instead of "ready"
  double seconds = 0;

  bool up() const { return state == "up"; }
  std::string text() const { return seconds == 0 ? state : fmt::format("{} for {}", state, Time(seconds)); }
};

Condition ConditionOf(const ClusterStatus& status, uint32_t island) {
  for (const IslandStatus& entry : status.islands()) {
    if (entry.island() != island) continue;
    std::string state(StateName(entry));
    std::replace(state.begin(), state.end(), '_', ' ');
    if (state == "ready") return {"up"};
    return {state, static_cast<double>(state == "hung" ? entry.hung_ms() : entry.down_ms()) / 1000};
  }
  return {"not in the deployment"};
}

std::string Islands(const google::protobuf::RepeatedField<uint32_t>& islands) {
  return fmt::format("island{} {}", islands.size() == 1 ? "" : "s", fmt::join(islands, ", "));
}

// How those are who are waited for, where that explains the wait.
std::string Obstacles(const ClusterStatus& status, const TransactionWork& work) {
  std::vector<std::string> parts;
  for (const uint32_t island : work.awaited()) {
    const Condition condition = ConditionOf(status, island);
    const auto& reach = work.out_of_reach();
    const bool cut = std::find(reach.begin(), reach.end(), island) != reach.end();
    if (condition.up() && !cut) continue;
    const std::string how = condition.up() ? std::string("up, but out of reach from here") : condition.text();
    parts.push_back(work.awaited_size() == 1 ? "which is " + how : fmt::format("{} is {}", island, how));
  }
  return parts.empty() ? "" : fmt::format(", {}: `islands status FILE`", fmt::join(parts, ", "));
}

std::string Waits(const ClusterStatus& status, const TransactionWork& work) {
  const std::string whom = Islands(work.awaited()) + Obstacles(status, work);
  switch (work.wait()) {
    case control::v1::FOR_LOCK:
      return fmt::format("a lock, for {}", Time(Seconds(work.wait_us())));
    case control::v1::FOR_REPLIES:
      return fmt::format("the answer of {}", whom);
    case control::v1::FOR_NEXT_STEP:
      return fmt::format("the next word of {}", whom);
    case control::v1::FOR_VOTES:
      return fmt::format("the vote of {}", whom);
    case control::v1::FOR_DECISION:
      return fmt::format("asks {}", whom);
    case control::v1::FOR_FELLOWS:
      if (work.awaited().empty()) return "the others, its coordinator being dead";
      return fmt::format("its coordinator is dead; asks {}", whom);
    case control::v1::FOR_ACKNOWLEDGEMENTS:
      return fmt::format("tells {}", whom);
    case control::v1::FOR_DECIDER:
      return fmt::format("the decision of {}", whom);
    case control::v1::FOR_CONFIRMATION:
      return fmt::format("that {} has heard", whom);
    default:
      return "its turn";
  }
}

std::string OrDash(std::string text) { return text.empty() ? "-" : std::move(text); }

std::string Table(const ClusterStatus& status, const std::vector<Line>& lines) {
  TextTable table;
  table.AddColumn("transaction");
  table.AddColumn("island", TextTable::Align::kRight);
  table.AddColumn("state");
  for (const char* title : {"age", "in doubt", "locks"}) table.AddColumn(title, TextTable::Align::kRight);
  for (const char* title : {"restored", "coordinator", "participants", "waits for"}) table.AddColumn(title);
  for (const Line& line : lines) {
    const TransactionWork& work = line.work;
    table.AddRow({work.id(), fmt::format("{}", line.island), std::string(NameOf(work.state())),
                  Time(Seconds(work.age_us())), line.in_doubt() ? Time(Seconds(work.in_doubt_us())) : "-",
                  fmt::format("{}", work.locks()), work.restored() ? "yes" : "-",
                  fmt::format("{}, {}", work.coordinator(), ConditionOf(status, work.coordinator()).text()),
                  OrDash(fmt::format("{}", fmt::join(work.participants(), " "))), Waits(status, work)});
  }
  return table.Render();
}

std::string Counted(size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// "5 lines of 2 transactions: 1 running, 4 in doubt, the oldest for 14.2 s".
std::string Summary(const std::vector<Line>& lines, bool in_doubt) {
  if (lines.empty()) return in_doubt ? "no branch is in doubt\n" : "no transaction is open\n";
  std::vector<std::string_view> transactions;  // lines of one stand together
  std::map<std::string_view, size_t> states;
  double oldest_s = 0;
  for (const Line& line : lines) {
    if (transactions.empty() || transactions.back() != line.work.id()) transactions.push_back(line.work.id());
    ++states[NameOf(line.work.state())];
    if (line.in_doubt()) oldest_s = std::max(oldest_s, Seconds(line.work.in_doubt_us()));
  }
  std::vector<std::string> parts;
  for (const auto& [state, count] : states) {
    parts.push_back(state == "in doubt" ? fmt::format("{} in doubt, {}{}", count,
                                                      count == 1 ? "for " : "the oldest for ", Time(oldest_s))
                                        : fmt::format("{} {}", count, state));
  }
  return fmt::format("{} of {}: {}\n", Counted(lines.size(), "line", "lines"),
                     Counted(transactions.size(), "transaction", "transactions"), fmt::join(parts, ", "));
}

std::string Why(const ClusterStatus& status, const IslandTransactions& island) {
  const Condition condition = ConditionOf(status, island.island);
  return condition.up() ? std::string(island.answer.status().message()) : "it is " + condition.text();
}

// What the table does not show.
std::string Missing(const ClusterStatus& status, const std::vector<IslandTransactions>& islands) {
  std::string text;
  for (const IslandTransactions& island : islands) {
    if (!island.answer.ok()) {
      text += fmt::format("warning: what island {} has is missing: {}\n", island.island, Why(status, island));
      continue;
    }
    const control::v1::Transactions& answer = *island.answer;
    if (answer.silent_workers_size() != 0) {
      text += fmt::format(
          "warning: what worker{} {} of island {} {} is missing: it stands still, or the island loads rows\n",
          answer.silent_workers_size() == 1 ? "" : "s", fmt::join(answer.silent_workers(), ", "),
          island.island, answer.silent_workers_size() == 1 ? "has" : "have");
    }
    const auto listed = static_cast<uint64_t>(answer.work_size());
    if (answer.total() > listed) {
      text += fmt::format("note: of {} on island {} the {} oldest are listed\n", answer.total(),
                          island.island, listed);
    }
  }
  return text;
}

json LineJson(const ClusterStatus& status, const Line& line) {
  const TransactionWork& work = line.work;
  const Condition coordinator = ConditionOf(status, work.coordinator());
  json entry = {
      {"transaction", work.id()},
      {"island", line.island},
      {"worker", work.worker()},
      {"state", NameOf(work.state())},
      {"age_s", Seconds(work.age_us())},
      {"in_doubt_s", line.in_doubt() ? json(Seconds(work.in_doubt_us())) : json()},
      {"locks", work.locks()},
      {"restored", work.restored()},
      {"coordinator",
       {{"island", work.coordinator()}, {"state", coordinator.state}, {"for_s", coordinator.seconds}}},
      {"participants", json::array()},
      {"waits_for",
       {{"what", WaitName(work.wait())},
        {"islands", json::array()},
        {"out_of_reach", json::array()},
        {"text", Waits(status, work)}}}};
  for (const uint32_t island : work.participants()) entry["participants"].push_back(island);
  for (const uint32_t island : work.awaited()) entry["waits_for"]["islands"].push_back(island);
  for (const uint32_t island : work.out_of_reach()) entry["waits_for"]["out_of_reach"].push_back(island);
  return entry;
}

}  // namespace

std::string TransactionsText(const ClusterStatus& status, const std::vector<IslandTransactions>& islands,
                             bool in_doubt) {
  const std::vector<Line> lines = Lines(islands);
  std::string text = lines.empty() ? "" : Table(status, lines) + "\n";
  text += Summary(lines, in_doubt) + Missing(status, islands);
  if (std::any_of(lines.begin(), lines.end(), [](const Line& line) { return line.in_doubt(); })) {
    text +=
        "What is in doubt keeps its locks until its coordinator has told it the outcome, which it does as "
        "soon "
        "as it can be asked.\nNothing has to be, or may be, decided by hand: bring the coordinator back.\n";
  }
  return text;
}

std::string TransactionsJson(const ClusterStatus& status, const std::vector<IslandTransactions>& islands,
                             bool in_doubt) {
  const std::vector<Line> lines = Lines(islands);
  json document = {{"deployment", status.deployment()},
                   {"only_in_doubt", in_doubt},
                   {"transactions", json::array()},
                   {"islands", json::array()}};
  for (const Line& line : lines) document["transactions"].push_back(LineJson(status, line));
  for (const IslandTransactions& island : islands) {
    json entry = {{"id", island.island}, {"state", ConditionOf(status, island.island).state}};
    if (island.answer.ok()) {
      entry["total"] = island.answer->total();
      entry["listed"] = island.answer->work_size();
      entry["silent_workers"] = json::array();
      for (const uint32_t worker : island.answer->silent_workers()) entry["silent_workers"].push_back(worker);
    } else {
      entry["missing"] = Why(status, island);
    }
    document["islands"].push_back(entry);
  }
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace islands::deploy
