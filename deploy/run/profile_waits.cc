#include "deploy/run/profile_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/run/counters.h"
#include "deploy/run/profile.h"
#include "instance/worker/stays.h"

namespace islands::deploy {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kMostShown = 10;

using Longest = std::vector<std::pair<Profile::Names, Profile::Waits>>;

Longest LongestOf(const Profile::WaitsByNames& waits) {
  Longest all(waits.begin(), waits.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  if (all.size() > kMostShown) all.resize(kMostShown);
  return all;
}

// What the names of waits are.
struct Titles {
  const char* json;
  const char* text;
};
constexpr std::array<Titles, 3> kOfLatches = {
    {{"wanted_at", "wanted at"}, {"taken_at", "taken at"}, {"latch", "latch"}}};
constexpr std::array<Titles, 2> kOfRows = {{{"table", "table"}, {"key", "key"}}};
constexpr std::array<Titles, 1> kOfQueues = {{{"queue", "queue"}}};

// Who has the lock, for how much of the waiting; the most first.
std::string HoldersText(const Profile::Waits& waits) {
  std::vector<std::pair<std::string, double>> parts(waits.holders.begin(), waits.holders.end());
  std::ranges::stable_sort(parts, std::greater(), &std::pair<std::string, double>::second);
  std::string text;
  for (const auto& [doing, seconds] : parts) {
    const double share = waits.seconds > 0 ? 100 * seconds / waits.seconds : 0;
    if (share < 0.5) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", doing, share);
  }
  return text.empty() ? "-" : text;
}

template <size_t kNames>
json ListJson(const Profile::WaitsByNames& waits, const std::array<Titles, kNames>& titles,
              uint64_t committed) {
  json list = json::array();
  for (const auto& [names, sum] : LongestOf(waits)) {
    json& entry = list.emplace_back(json::object());
    for (size_t i = 0; i < kNames; ++i) entry[titles[i].json] = names[i];
    const bool counted = sum.waits != 0;  // or they are estimated from those that were watched
    entry["waits"] = counted ? json(sum.waits) : json();
    entry["waits_per_transaction"] =
        counted ? json(Thousandths(Per(static_cast<double>(sum.waits), committed))) : json();
    entry["us_per_transaction"] = Thousandths(Per(sum.seconds * kUsPerSecond, committed));
    entry["us_per_wait"] = counted ? json(Thousandths(Per(sum.seconds * kUsPerSecond, sum.waits))) : json();
    for (const auto& [doing, seconds] : sum.holders)
      entry["holder_us_per_transaction"][doing] = Thousandths(Per(seconds * kUsPerSecond, committed));
  }
  return list;
}

template <size_t kNames>
std::string ListText(const std::string& title, const Profile::WaitsByNames& waits,
                     const std::array<Titles, kNames>& titles, uint64_t committed) {
  if (waits.empty()) return fmt::format("\n{}: none was waited for\n", title);
  TextTable table;
  table.AddColumn("us per transaction", TextTable::Align::kRight);
  table.AddColumn("waits per 1,000", TextTable::Align::kRight);
  table.AddColumn("us per wait", TextTable::Align::kRight);
  for (const Titles& name : titles) table.AddColumn(name.text);
  const bool has_holders =
      std::ranges::any_of(waits, [](const auto& entry) { return !entry.second.holders.empty(); });
  if (has_holders) table.AddColumn("the holder was");
  for (const auto& [names, sum] : LongestOf(waits)) {
    const bool counted = sum.waits != 0;
    std::vector<std::string> cells = {
        fmt::format("{:.3f}", Per(sum.seconds * kUsPerSecond, committed)),
        counted ? fmt::format("{:.2f}", Per(1000.0 * static_cast<double>(sum.waits), committed)) : "-",
        counted ? fmt::format("{:.2f}", Per(sum.seconds * kUsPerSecond, sum.waits)) : "-",
        names[0].empty() ? "(others)" : names[0]};
    for (size_t i = 1; i < kNames; ++i) cells.push_back(names[i].empty() ? "-" : names[i]);
    if (has_holders) cells.push_back(HoldersText(sum));
    table.AddRow(std::move(cells));
  }
  return fmt::format("\n{}:\n{}", title, table.Render());
}

// With what is estimated: of those that were watched it is known how long they have waited for a slot, and
// for their turn.
Profile::WaitsByNames QueuesOf(const Sums& sums) {
  Profile::WaitsByNames queues = sums.profile.queues;
  const auto add = [&](const char* queue, instance::Stay stay) {
    double seconds = 0;
    for (size_t s = 0; s < kScopes; ++s) {
      const Profile::Stays& watched = sums.profile.stays[s];
      const auto found = watched.seconds.find(instance::kStayNames[static_cast<size_t>(stay)]);
      if (found == watched.seconds.end()) continue;
      seconds += Per(found->second, watched.transactions) * static_cast<double>(sums.scopes[s].committed);
    }
    if (seconds > 0) queues[{queue}] = {.seconds = seconds};
  };
  add("run queue of a worker", instance::Stay::kTurn);
  add("transactions that are due", instance::Stay::kQueue);
  return queues;
}

}  // namespace

std::string LatchName(std::string_view site) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames = {{
      {"lock.graph", "graph_mutex of the lock table"},
      {"lock.memory", "memory of the lock table"},
      {"lock.", "lock table part"},
      {"log.order", "log: a page's change by another worker"},
      {"worker.mailbox", "mailbox of a worker"},
      {"worker.run_end", "end of a run"},
      {"island.store", "store of the island"},
      {"branches.stuck", "list of stuck branches"},
  }};
  for (const auto& [prefix, name] : kNames) {
    if (site.starts_with(prefix)) return std::string(name);
  }
  return "";
}

json WaitsJson(const Sums& sums) {
  return {{"latches", ListJson(sums.profile.latches, kOfLatches, sums.committed())},
          {"rows", ListJson(sums.profile.rows, kOfRows, sums.committed())},
          {"queues", ListJson(QueuesOf(sums), kOfQueues, sums.committed())}};
}

std::string WaitsText(const Sums& sums) {
  return ListText("latches that were waited for longest", sums.profile.latches, kOfLatches,
                  sums.committed()) +
         ListText("rows whose locks were waited for longest", sums.profile.rows, kOfRows, sums.committed()) +
         ListText("queues that were waited in longest", QueuesOf(sums), kOfQueues, sums.committed());
}

}  // namespace islands::deploy
