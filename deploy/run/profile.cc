#include "deploy/run/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/run/counters.h"
#include "deploy/run/profile_waits.h"
#include "instance/worker/stays.h"
#include "runtime/work_account.h"

namespace islands::deploy {
namespace {

using json = nlohmann::ordered_json;

constexpr double kSureEnough = 0.05;  // a relative error that text does not mention

void AddTo(std::map<std::string, double>* to, const std::map<std::string, double>& from) {
  for (const auto& [name, seconds] : from) (*to)[name] += seconds;
}

void AddTo(Profile::WaitsByNames* to, const Profile::WaitsByNames& from) {
  for (const auto& [names, waits] : from) {
    Profile::Waits& sum = (*to)[names];
    sum.waits += waits.waits;
    sum.seconds += waits.seconds;
    AddTo(&sum.holders, waits.holders);
  }
}

void Subtract(std::map<std::string, double>* from, const std::map<std::string, double>& what) {
  for (auto& [name, seconds] : *from) {
    if (const auto found = what.find(name); found != what.end())
      seconds = std::max(0.0, seconds - found->second);
  }
}

void Subtract(Profile::WaitsByNames* from, const Profile::WaitsByNames& what) {
  for (auto& [names, waits] : *from) {
    const auto found = what.find(names);
    if (found == what.end()) continue;
    waits.waits -= std::min(waits.waits, found->second.waits);
    waits.seconds = std::max(0.0, waits.seconds - found->second.seconds);
    Subtract(&waits.holders, found->second.holders);
  }
  std::erase_if(*from, [](const auto& entry) { return entry.second.waits == 0; });
}

// A part of the cores' time, or of a transaction's.
struct Part {
  std::string name;
  double seconds = 0;
};

// Every wait for a latch is counted, so that part need not be estimated from the rounds that are measured.
double LatchingSeconds(const Sums& sums) {
  double seconds = 0;
  for (const auto& [names, waits] : sums.profile.latches) seconds += waits.seconds;
  return std::min(seconds, sums.busy_seconds);
}

std::vector<Part> CoreParts(const Sums& sums) {
  constexpr std::string_view kLatching = runtime::kWorkNames[static_cast<size_t>(runtime::Work::kLatching)];
  std::vector<Part> parts;
  const auto seconds_of = [&](std::string_view name) {
    const auto found = sums.profile.work_seconds.find(std::string(name));
    return found == sums.profile.work_seconds.end() ? 0 : found->second;
  };
  const double measured = sums.profile.measured_seconds() - seconds_of(kLatching);
  const double latching = measured > 0 ? LatchingSeconds(sums) : 0;
  for (const char* name : runtime::kWorkNames) {
    const double share = measured > 0 ? seconds_of(name) / measured : 0;
    parts.push_back({name, name == kLatching ? latching : (sums.busy_seconds - latching) * share});
  }
  // Nothing was measured, in a short time without much to do.
  if (measured <= 0) parts.push_back({"busy", sums.busy_seconds});
  parts.push_back({"waiting", sums.waiting_seconds});
  parts.push_back({"idle", std::max(0.0, sums.idle_seconds - sums.waiting_seconds)});
  return parts;
}

std::string CoresText(const Sums& sums) {
  const uint64_t committed = sums.committed();
  const double whole = sums.busy_seconds + sums.idle_seconds;
  TextTable table;
  table.AddColumn("of a core");
  table.AddColumn("us per transaction", TextTable::Align::kRight);
  table.AddColumn("share", TextTable::Align::kRight);
  const auto add = [&](const Part& part) {
    table.AddRow({part.name,
                  committed == 0 ? "-" : fmt::format("{:.2f}", Per(part.seconds * kUsPerSecond, committed)),
                  fmt::format("{:.1f} %", whole > 0 ? 100 * part.seconds / whole : 0)});
  };
  for (const Part& part : CoreParts(sums)) add(part);
  add({"together", whole});
  return table.Render();
}

// "12.3", or "12.3 ± 8 %" where the mean is so unsure that it matters.
std::string StayText(const Profile::Stays& scope, const std::string& name) {
  if (scope.transactions == 0) return "-";
  const std::string mean = fmt::format("{:.1f}", Per(scope.of(name) * kUsPerSecond, scope.transactions));
  const std::optional<double> error = scope.relative_error(name);
  return error && *error > kSureEnough ? fmt::format("{} ± {:.0f} %", mean, 100 * *error) : mean;
}

std::string StaysText(const Sums& sums) {
  TextTable table;
  table.AddColumn("of a transaction");
  for (const char* scope : kScopeNames) table.AddColumn(scope, TextTable::Align::kRight);
  const auto row = [&](const std::string& name) {
    std::vector<std::string> cells = {name};
    for (const Profile::Stays& scope : sums.profile.stays) cells.push_back(StayText(scope, name));
    table.AddRow(std::move(cells));
  };
  for (const char* name : instance::kStayNames) row(name);
  row(instance::kStaysTogether);
  std::vector<std::string> counts = {"watched"};
  for (const Profile::Stays& scope : sums.profile.stays)
    counts.push_back(fmt::format("{}", scope.transactions));
  table.AddRow(std::move(counts));
  return table.Render();
}

// What the counters say, as far as they are there: of what is not there, nothing.
json HardwareJson(const Sums& sums) {
  const auto count = [&](const char* event) -> std::optional<double> {
    const auto found = sums.profile.hardware.find(event);
    return found == sums.profile.hardware.end() ? std::nullopt : std::optional(found->second);
  };
  json out = json::object();
  const std::optional<double> cycles = count("cycles");
  const auto add_share = [&](const char* name, const char* event) {
    if (const auto part = count(event); part && cycles && *cycles > 0)
      out[name] = Thousandths(*part / *cycles);
  };
  const auto add_per_transaction = [&](const char* name, const char* event) {
    const auto events = sums.committed() > 0 ? count(event) : std::nullopt;
    if (events) out[name] = Thousandths(Per(*events, sums.committed()));
  };
  add_share("instructions_per_cycle", "instructions");
  add_share("stalled_frontend_share", "stalled_frontend");
  add_share("stalled_backend_share", "stalled_backend");
  add_per_transaction("instructions_per_transaction", "instructions");
  add_per_transaction("cache_misses_per_transaction", "cache_misses");
  add_per_transaction("node_misses_per_transaction", "node_misses");
  if (out.empty()) out["problem"] = sums.profile.hardware_problem;
  return out;
}

std::string HardwareText(const Sums& sums) {
  const json found = HardwareJson(sums);
  if (found.contains("problem"))
    return fmt::format("hardware counters: none ({})\n", found["problem"].get<std::string>());
  TextTable table;
  table.AddColumn("hardware counters");
  table.AddColumn("", TextTable::Align::kRight);
  for (const auto& [name, value] : found.items()) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    table.AddRow({words, fmt::format("{:.3f}", value.get<double>())});
  }
  return table.Render();
}

}  // namespace

double Profile::measured_seconds() const {
  double sum = 0;
  for (const auto& [name, seconds] : work_seconds) sum += seconds;
  return sum;
}

double Profile::Stays::of(const std::string& name) const {
  double sum = 0;
  for (const auto& [stay, stayed] : seconds)
    sum += name == stay || name == instance::kStaysTogether ? stayed : 0;
  return sum;
}

std::optional<double> Profile::Stays::relative_error(const std::string& name) const {
  const auto squared = seconds_squared.find(name);
  const double sum = of(name), count = static_cast<double>(transactions);
  if (squared == seconds_squared.end() || transactions < 2 || sum <= 0) return std::nullopt;
  const double mean = sum / count;
  const double variance = std::max(0.0, squared->second - sum * mean) / (count - 1);
  return std::sqrt(variance / count) / mean;
}

void Profile::Add(const Profile& other) {
  AddTo(&work_seconds, other.work_seconds);
  for (size_t s = 0; s < kScopes; ++s) {
    stays[s].transactions += other.stays[s].transactions;
    AddTo(&stays[s].seconds, other.stays[s].seconds);
    AddTo(&stays[s].seconds_squared, other.stays[s].seconds_squared);
  }
  AddTo(&latches, other.latches);
  AddTo(&rows, other.rows);
  AddTo(&queues, other.queues);
  AddTo(&hardware, other.hardware);
  if (hardware_problem.empty()) hardware_problem = other.hardware_problem;
}

Profile ProfileOf(const control::v1::WorkerCounters& worker) {
  Profile profile;
  profile.work_seconds = {worker.work_seconds().begin(), worker.work_seconds().end()};
  const size_t scopes = std::min<size_t>(kScopes, static_cast<size_t>(worker.stays_size()));
  for (size_t s = 0; s < scopes; ++s) {
    const control::v1::StayCounters& from = worker.stays(static_cast<int>(s));
    profile.stays[s] = {from.transactions(),
                        {from.seconds().begin(), from.seconds().end()},
                        {from.seconds_squared().begin(), from.seconds_squared().end()}};
  }
  for (const control::v1::LatchWaits& latch : worker.latch_waits()) {
    Profile::Waits& sum = profile.latches[{latch.site(), latch.holder(),
                                           latch.what().empty() ? LatchName(latch.site()) : latch.what()}];
    sum.waits += latch.waits();
    sum.seconds += latch.seconds();
  }
  for (const control::v1::RowWaits& row : worker.row_waits()) {
    profile.rows[{row.table(), row.key()}] = {
        row.waits(), row.seconds(), {row.holder_seconds().begin(), row.holder_seconds().end()}};
  }
  for (const control::v1::QueueWaits& queue : worker.queue_waits())
    profile.queues[{queue.queue()}] = {queue.waits(), queue.seconds(), {}};
  for (const auto& [event, count] : worker.hardware()) profile.hardware[event] = static_cast<double>(count);
  profile.hardware_problem = worker.hardware_problem();
  return profile;
}

Profile Difference(const Profile& later, const Profile& earlier) {
  Profile out = later;
  Subtract(&out.work_seconds, earlier.work_seconds);
  for (size_t s = 0; s < kScopes; ++s) {
    out.stays[s].transactions -= std::min(out.stays[s].transactions, earlier.stays[s].transactions);
    Subtract(&out.stays[s].seconds, earlier.stays[s].seconds);
    Subtract(&out.stays[s].seconds_squared, earlier.stays[s].seconds_squared);
  }
  Subtract(&out.latches, earlier.latches);
  Subtract(&out.rows, earlier.rows);
  Subtract(&out.queues, earlier.queues);
  Subtract(&out.hardware, earlier.hardware);
  return out;
}

json ProfileJson(const Sums& sums) {
  const uint64_t committed = sums.committed();
  json cores = json::object();
  json shares = json::object();
  const double whole = sums.busy_seconds + sums.idle_seconds;
  for (const Part& part : CoreParts(sums)) {
    cores[part.name] =
        committed == 0 ? json() : json(Thousandths(Per(part.seconds * kUsPerSecond, committed)));
    shares[part.name] = whole > 0 ? Thousandths(part.seconds / whole) : 0;
  }
  cores["together"] = committed == 0 ? json() : json(Thousandths(Per(whole * kUsPerSecond, committed)));
  json stays = json::object();
  for (size_t s = 0; s < kScopes; ++s) {
    const Profile::Stays& scope = sums.profile.stays[s];
    if (scope.transactions == 0) continue;
    json& out = stays[kScopeNames[s]] = {{"watched", scope.transactions}};
    json errors = json::object();
    const auto add = [&](const char* name) {
      out[name] = Thousandths(Per(scope.of(name) * kUsPerSecond, scope.transactions));
      if (const auto error = scope.relative_error(name)) errors[name] = Thousandths(*error);
    };
    for (const char* name : instance::kStayNames) add(name);
    add(instance::kStaysTogether);
    out["relative_standard_error"] = std::move(errors);
  }
  json out = {{"core_us_per_transaction", cores},
              {"core_shares", shares},
              {"measured_share_of_busy",
               sums.busy_seconds > 0 ? Thousandths(sums.profile.measured_seconds() / sums.busy_seconds) : 0},
              {"transaction_us", stays},
              {"hardware", HardwareJson(sums)}};
  out.update(WaitsJson(sums));
  return out;
}

std::string ProfileText(const Sums& sums) {
  std::string text = CoresText(sums);
  text += fmt::format("(kinds of work: measured in {:.1f} % of the busy time)\n\n",
                      sums.busy_seconds > 0 ? 100 * sums.profile.measured_seconds() / sums.busy_seconds : 0);
  text += StaysText(sums);
  text +=
      "(us, mean of the committed ones that were watched, one in 61; with its standard error where that is "
      "more "
      "than 5 %)\n";
  text += "\n" + HardwareText(sums);
  text += WaitsText(sums);
  return text;
}

}  // namespace islands::deploy
