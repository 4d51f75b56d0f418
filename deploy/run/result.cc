#include "deploy/run/result.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "deploy/cli/output.h"
#include "deploy/run/rate_search.h"
#include "instance/worker/latency_histogram.h"

namespace islands::deploy {
namespace {

using instance::Parameter;
using json = nlohmann::ordered_json;

// More digits than a measurement has only hide what matters.
json Rate(double per_s) { return std::round(per_s * 10) / 10; }

double Ratio(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

json LatencyJson(const std::vector<uint64_t>& buckets) {
  return {{"p50", instance::PercentileUs(buckets, 0.50)},
          {"p95", instance::PercentileUs(buckets, 0.95)},
          {"p99", instance::PercentileUs(buckets, 0.99)},
          {"p999", instance::PercentileUs(buckets, 0.999)}};
}

double ScopePerSecond(const RunResult& result, size_t scope) {
  double rate = 0;
  for (const IslandResult& island : result.islands)
    rate += island.PerSecond(island.sums.scopes[scope].committed);
  return rate;
}

json ScopesJson(const RunResult& result, const Sums& total) {
  json scopes = json::object();
  for (size_t s = 0; s < kScopes; ++s) {
    const ScopeSums& scope = total.scopes[s];
    scopes[kScopeNames[s]] = {{"committed", scope.committed},
                              {"committed_per_s", Rate(ScopePerSecond(result, s))},
                              {"aborted", scope.aborted},
                              {"unknown", scope.unknown},
                              {"latency_us", LatencyJson(scope.latency)}};
  }
  return scopes;
}

std::optional<double> OfWorkersTime(const IslandResult& island, uint64_t CoreTime::*part) {
  if (!island.core_time) return std::nullopt;
  return island.OfWorkersTime((*island.core_time).*part);
}

// Of all workers, each island by its own clock.
std::optional<double> OfWorkersTime(const std::vector<IslandResult>& islands, uint64_t CoreTime::*part) {
  double sum = 0;
  double workers = 0;
  for (const IslandResult& island : islands) {
    const std::optional<double> fraction = OfWorkersTime(island, part);
    if (!fraction) return std::nullopt;
    sum += *fraction * island.workers;
    workers += island.workers;
  }
  return workers > 0 ? std::optional(sum / workers) : std::nullopt;
}

json OrNull(const std::optional<double>& value) { return value ? json(Thousandths(*value)) : json(); }

// Less than that of the workers' time is what the kernel needs on any machine.
constexpr double kQuietWait = 0.03;
constexpr double kQuietStolen = 0.01;

json TrafficJson(const RunResult& result, uint64_t committed) {
  json out = json::object();
  const auto add = [&](const char* name, const std::optional<double>& bytes) {
    if (bytes && committed > 0) out[name] = Thousandths(*bytes / static_cast<double>(committed));
  };
  add("memory_bytes_per_transaction", result.traffic.memory);
  add("link_bytes_per_transaction", result.traffic.links);
  if (!result.traffic_problem.empty()) out["problem"] = result.traffic_problem;
  return out;
}

std::string TrafficText(const RunResult& result, uint64_t committed) {
  if (!result.traffic.memory || committed == 0) return "";
  const double transactions = static_cast<double>(committed);
  const std::string links = result.traffic.links ? fmt::format(", {:.0f} of links between sockets",
                                                               *result.traffic.links / transactions)
                                                 : "";
  return fmt::format("traffic      {:.0f} bytes of memory{} per transaction, of the whole machine\n",
                     *result.traffic.memory / transactions, links);
}

// How far from a quiet machine it was.
std::string CoresText(const RunResult& result) {
  const std::optional<double> others = result.OthersFraction();
  std::string text;
  if (others && *others > kQuietWait) {
    text +=
        fmt::format("workers waited {:.0f}% of their time for a core that other programs had", *others * 100);
  }
  if (result.stolen_fraction > kQuietStolen) {
    text += fmt::format("{}another virtual machine had {:.0f}% of all cores' time", text.empty() ? "" : "; ",
                        result.stolen_fraction * 100);
  }
  return text.empty() ? text : fmt::format("cores        {}\n", text);
}

json PoolJson(const IslandResult& island) {
  if (!island.pool) return {};
  return {{"bytes", island.pool->bytes},
          {"data_bytes", island.pool->data_bytes},
          {"paged", island.pool->paged},
          {"hit_fraction", OrNull(island.sums.hit_fraction())}};
}

json IslandJson(const IslandResult& island) {
  return {{"id", island.island},
          {"workers", island.workers},
          {"lost", island.lost},
          {"unresponsive", island.silent},
          {"committed", island.sums.committed()},
          {"committed_per_s", Rate(island.PerSecond(island.sums.committed()))},
          {"local_per_s", Rate(island.PerSecond(island.sums.scopes[0].committed))},
          {"multisite_per_s", Rate(island.PerSecond(island.sums.scopes[1].committed))},
          {"distributed_per_s", Rate(island.PerSecond(island.sums.scopes[2].committed))},
          {"aborted", island.sums.aborted()},
          {"unknown", island.sums.unknown()},
          {"messages_sent", island.sums.messages_sent},
          {"busy_fraction", Thousandths(island.sums.busy_fraction())},
          {"cpu_fraction", OrNull(OfWorkersTime(island, &CoreTime::ran_ns))},
          {"core_wait_fraction", OrNull(OfWorkersTime(island, &CoreTime::waited_ns))},
          {"pool", PoolJson(island)},
          {"latency_us", LatencyJson(island.sums.latency())}};
}

std::string Microseconds(double us) {
  return us < 10'000 ? fmt::format("{:.0f} us", us) : fmt::format("{:.1f} ms", us / 1000);
}

std::string LatencyText(const std::vector<uint64_t>& buckets) {
  return fmt::format("p50 {}, p95 {}, p99 {}, p99.9 {}", Microseconds(instance::PercentileUs(buckets, 0.50)),
                     Microseconds(instance::PercentileUs(buckets, 0.95)),
                     Microseconds(instance::PercentileUs(buckets, 0.99)),
                     Microseconds(instance::PercentileUs(buckets, 0.999)));
}

std::string PerSecond(double rate) { return Grouped(static_cast<uint64_t>(std::llround(rate))); }

std::string ReasonsText(const Sums& total) {
  std::vector<std::string> parts;
  for (const auto& [reason, count] : total.aborts_by_reason) {
    parts.push_back(fmt::format("{} {}", Grouped(count), reason));
  }
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

std::string ScopesText(const RunResult& result, const Sums& total) {
  TextTable table;
  table.AddColumn("scope");
  for (const char* title : {"committed", "per second", "aborted", "unknown", "p50 us", "p95 us", "p99 us"}) {
    table.AddColumn(title, TextTable::Align::kRight);
  }
  for (size_t s = 0; s < kScopes; ++s) {
    const ScopeSums& scope = total.scopes[s];
    table.AddRow({kScopeNames[s], Grouped(scope.committed), PerSecond(ScopePerSecond(result, s)),
                  Grouped(scope.aborted), Grouped(scope.unknown),
                  fmt::format("{:.0f}", instance::PercentileUs(scope.latency, 0.50)),
                  fmt::format("{:.0f}", instance::PercentileUs(scope.latency, 0.95)),
                  fmt::format("{:.0f}", instance::PercentileUs(scope.latency, 0.99))});
  }
  return table.Render() +
         "local: on one site; multisite: on several of one island; distributed: of several islands\n";
}

std::string IslandsText(const RunResult& result) {
  TextTable table;
  for (const char* title :
       {"island", "committed/s", "local/s", "multisite/s", "distributed/s", "aborted", "busy"}) {
    table.AddColumn(title, TextTable::Align::kRight);
  }
  table.AddColumn("");
  for (const IslandResult& island : result.islands) {
    table.AddRow({fmt::format("{}", island.island), PerSecond(island.PerSecond(island.sums.committed())),
                  PerSecond(island.PerSecond(island.sums.scopes[0].committed)),
                  PerSecond(island.PerSecond(island.sums.scopes[1].committed)),
                  PerSecond(island.PerSecond(island.sums.scopes[2].committed)),
                  Grouped(island.sums.aborted()), fmt::format("{:.0f}%", island.sums.busy_fraction() * 100),
                  island.lost     ? "lost meanwhile"
                  : island.silent ? "did not answer for a while"
                                  : ""});
  }
  return table.Render();
}

bool IsText(const Parameter& parameter) {
  return parameter.kind == Parameter::Kind::kChoice || parameter.kind == Parameter::Kind::kPath;
}

// The workload's parameters, numbers as numbers; the names of percentages say so.
json ParametersJson(const RunPlan& plan) {
  json values = json::object();
  for (const Parameter& parameter : plan.workload.description.parameters) {
    const auto found = plan.options.parameters.find(parameter.name);
    if (found == plan.options.parameters.end()) continue;
    const bool suffix = parameter.kind == Parameter::Kind::kPercent && !parameter.name.ends_with("percent");
    values[parameter.name + (suffix ? "_percent" : "")] =
        IsText(parameter) ? json(found->second) : json::parse(found->second);
  }
  if (plan.rows_total) values["rows_total"] = *plan.rows_total;
  return values;
}

std::string ClientsText(const RunOptions& options) {
  std::string text = options.clients == kClientsOfDeployment ? ", clients of the deployment" : "";
  if (options.rate_per_s > 0)
    text += fmt::format(", {}{}/s due", options.even ? "evenly " : "", PerSecond(options.rate_per_s));
  return text;
}

// Without those that clients went in: they are shown apart.
double MessagesPerTransaction(const Sums& total) {
  return Ratio(total.messages_sent - std::min(total.client_messages, total.messages_sent), total.committed());
}

std::string WorkloadText(const RunPlan& plan) {
  std::string text = plan.workload.name;
  for (const Parameter& parameter : plan.workload.description.parameters) {
    const auto found = plan.options.parameters.find(parameter.name);
    if (found != plan.options.parameters.end()) text += fmt::format(", {} {}", parameter.name, found->second);
  }
  return text;
}

}  // namespace

std::string SumCheck::Verdict() const {
  if (island_lost) return kSumSkipped;
  if (!broken.empty()) return kSumFailed;
  const int64_t difference = after - before - committed;
  return (!rows_total || rows == *rows_total) && std::llabs(difference) <= unknown ? kSumOk : kSumFailed;
}

std::string SumCheck::Explain() const {
  if (island_lost)
    return "an island was lost or did not answer, and with it the count of what it had committed; with "
           "durability "
           "none its rows began anew too. So there is nothing to compare";
  if (!broken.empty()) return broken;
  return fmt::format(
      "sum over all rows before {}, after {}: changed by {}; committed transactions changed it by {}, those "
      "of unknown outcome by at most {}; {}{} rows found",
      before, after, after - before, committed, unknown, rows,
      rows_total ? fmt::format(" of {}", *rows_total) : "");
}

std::string LatencyFrom(const RunOptions& options) {
  if (options.rate_per_s > 0)
    return "from the moment a transaction was due, the wait for a slot and retries included";
  if (options.clients == kClientsOfDeployment)
    return "from the client's last answer, its way, the wait for a slot and retries included";
  return "from the moment a slot of the island has drawn the request, retries included; there is no client";
}

Sums RunResult::Total() const {
  Sums total;
  for (const IslandResult& island : islands) total.Add(island.sums);
  return total;
}

double IslandResult::OfWorkersTime(uint64_t ns) const {
  return seconds > 0 && workers > 0 ? static_cast<double>(ns) / 1e9 / seconds / workers : 0;
}

std::optional<double> RunResult::CpuFraction() const { return OfWorkersTime(islands, &CoreTime::ran_ns); }
std::optional<double> RunResult::CoreWaitFraction() const {
  return OfWorkersTime(islands, &CoreTime::waited_ns);
}

std::optional<double> RunResult::OthersFraction() const {
  const std::optional<double> waited = CoreWaitFraction();
  double workers = 0;
  for (const IslandResult& island : islands) workers += island.workers;
  if (!waited || measured_s <= 0 || workers <= 0) return waited;
  return std::max(0.0, *waited - static_cast<double>(logger_ran_ns) / 1e9 / measured_s / workers);
}

double RunResult::CommittedPerSecond() const {
  double rate = 0;
  for (const IslandResult& island : islands) rate += island.PerSecond(island.sums.committed());
  return rate;
}

std::string Grouped(uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

json ResultJson(const RunResult& result) {
  const RunOptions& options = result.plan.options;
  const Sums total = result.Total();
  json document = {{"deployment", result.deployment},
                   {"layout", result.layout},
                   {"islands", result.islands.size()},
                   {"placement", result.placement},
                   {"transport", result.transport},
                   {"durability", result.durability},
                   {"votes", result.votes},
                   {"workload", result.plan.workload.name},
                   {"parameters", options.parameters}};
  // What every run has goes before a parameter of the same name.
  const json parameters = ParametersJson(result.plan);
  for (const auto& [name, value] : parameters.items()) {
    if (!document.contains(name)) document[name] = value;
  }
  document.update(
      {{"mpl", options.mpl},
       {"clients", options.clients},
       {"rate_per_s", options.rate_per_s},
       {"even", options.even},
       {"seed", options.seed},
       {"warmup_s", options.warmup_s},
       {"duration_s", options.duration_s},
       {"measured_s", Thousandths(result.measured_s)},
       {"started", result.started_utc},
       {"doctor", result.doctor},
       {"committed", total.committed()},
       {"committed_per_s", Rate(result.CommittedPerSecond())},
       {"aborted", total.aborted()},
       {"unknown", total.unknown()},
       {"aborts_by_reason", json::object()},
       {"latency_us", LatencyJson(total.latency())},
       {"latency_from", LatencyFrom(options)},
       {"messages_per_transaction", Thousandths(MessagesPerTransaction(total))},
       {"client_messages_per_transaction", Thousandths(Ratio(total.client_messages, total.committed()))},
       {"clients_moved_per_transaction", Thousandths(Ratio(total.clients_moved, total.committed()))},
       {"arrivals_refused", total.arrivals_refused},
       {"log_bytes_per_transaction", Thousandths(Ratio(total.log_bytes, total.committed()))},
       {"pool_hit_fraction", OrNull(total.hit_fraction())},
       {"cpu_fraction", OrNull(result.CpuFraction())},
       {"core_wait_fraction", OrNull(result.CoreWaitFraction())},
       {"others_fraction", OrNull(result.OthersFraction())},
       {"traffic", TrafficJson(result, total.committed())},
       {"stolen_fraction", Thousandths(result.stolen_fraction)},
       {"sum_check", result.sum.Verdict()},
       {"sum_check_detail", result.sum.Explain()},
       {"sum_before", result.sum.before},
       {"sum_after", result.sum.after},
       {"per_scope", ScopesJson(result, total)},
       {"profile", ProfileJson(total)},
       {"per_island", json::array()},
       {"run_directory", result.run_directory}});
  if (result.rate_search) document["rate_search"] = RateSearchJson(*result.rate_search);
  for (const auto& [reason, count] : total.aborts_by_reason) document["aborts_by_reason"][reason] = count;
  for (const IslandResult& island : result.islands) document["per_island"].push_back(IslandJson(island));
  return document;
}

std::string LoadView::Text(const control::v1::ClusterStatus& status, double seconds) {
  for (const control::v1::IslandStatus& island : status.islands()) {
    const auto seen = seen_.find(island.island());
    if (island.has_load()) {
      seen_[island.island()] = island.load();
    } else if (seen != seen_.end()) {
      seen->second.set_share(1);
      seen->second.set_written(1);
    }
  }
  uint64_t rows = 0;
  double share = 1, written = 0;
  for (const auto& [island, load] : seen_) {
    rows += load.rows();
    share = std::min(share, load.share());  // the slowest is waited for
    written += load.written();
  }
  if (rows == 0) return "";
  const std::string so_far = fmt::format("loading: {} rows", Grouped(rows));
  if (share >= 1)
    return fmt::format("{}, data files {:.0f} %", so_far, 100 * written / static_cast<double>(seen_.size()));
  constexpr double kToldFrom = 0.02;  // before, nobody can tell
  if (share < kToldFrom) return so_far;
  return fmt::format("{}, {:.0f} %, about {:.0f} s more", so_far, 100 * share, seconds / share - seconds);
}

std::string ResultText(const RunResult& result) {
  const RunOptions& options = result.plan.options;
  const Sums total = result.Total();
  std::string text =
      fmt::format("{}, mpl {}{}, {:g} s on {} ({}, durability {}, votes {}, {})\n\n",
                  WorkloadText(result.plan), options.mpl, ClientsText(options), options.duration_s,
                  result.layout, result.transport, result.durability, result.votes, result.deployment);
  text += fmt::format("committed    {} = {}/s\n", Grouped(total.committed()),
                      PerSecond(result.CommittedPerSecond()));
  text += fmt::format("aborted      {}{}\n", Grouped(total.aborted()), ReasonsText(total));
  if (total.unknown() > 0) text += fmt::format("unknown      {}\n", Grouped(total.unknown()));
  text += fmt::format("latency      {}\n", LatencyText(total.latency()));
  text += fmt::format("             {}\n", LatencyFrom(options));
  text += fmt::format("messages     {:.2f} per transaction\n", MessagesPerTransaction(total));
  if (total.client_messages != 0) {
    text += fmt::format(
        "clients      {:.2f} per transaction went to another island, in {:.2f} messages more\n",
        Ratio(total.clients_moved, total.committed()), Ratio(total.client_messages, total.committed()));
  }
  if (const std::optional<double> hits = total.hit_fraction())
    text +=
        fmt::format("pool         {:.1f} % of the rows that were looked for were in memory\n", 100 * *hits);
  if (total.arrivals_refused != 0)
    text += fmt::format("overloaded   {} arrivals were turned away\n", Grouped(total.arrivals_refused));
  text += TrafficText(result, total.committed());
  text += CoresText(result);
  text += fmt::format("sum check    {}\n", result.sum.Verdict());
  if (result.sum.Verdict() == kSumFailed) text += fmt::format("             {}\n", result.sum.Explain());
  if (result.rate_search) text += "\n" + RateSearchText(*result.rate_search);
  text += "\n" + ScopesText(result, total) + "\n" + IslandsText(result);
  return text + fmt::format("\nresults in {}\n", result.run_directory);
}

}  // namespace islands::deploy
