#include "deploy/run/rate_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "deploy/cli/output.h"
#include "instance/worker/latency_histogram.h"

namespace islands::deploy {
namespace {

using json = nlohmann::ordered_json;

constexpr double kStepSeconds = 1;
constexpr double kStepWarmupSeconds = 0.25;
constexpr int64_t kStepStatusMs = 10'000;

RunPlan PlanOf(const RunPlan& plan, const KneeSearch::Ask& ask, size_t step) {
  RunPlan made = plan;
  made.run_id += step;
  made.options.rate_per_s = ask.rate_per_s;
  if (ask.at_length) return made;
  made.options.duration_s = std::min(plan.options.duration_s, kStepSeconds);
  made.options.warmup_s = std::min(plan.options.warmup_s, kStepWarmupSeconds);
  return made;
}

RateStep SeenIn(const RunResult& result) {
  const Sums total = result.Total();
  const std::vector<uint64_t> latency = total.latency();
  RateStep seen{.seconds = result.measured_s,
                .committed_per_s = result.CommittedPerSecond(),
                .p50_us = instance::PercentileUs(latency, 0.50),
                .p99_us = instance::PercentileUs(latency, 0.99),
                .p999_us = instance::PercentileUs(latency, 0.999),
                .utilisation = total.busy_fraction(),
                .refused = total.arrivals_refused};
  for (const SeriesRow& row : result.series) {
    if (row.elapsed_s == result.series.back().elapsed_s) seen.waiting += row.clients_waiting;
  }
  return seen;
}

bool WentWrong(const RunResult& result) {
  return result.sum.Verdict() != kSumOk || result.Total().aborts_by_reason.contains("contradiction") ||
         std::any_of(result.islands.begin(), result.islands.end(),
                     [](const IslandResult& island) { return island.lost || island.silent; });
}

absl::Status NoneHolds(const KneeSearch& search) {
  if (search.steps().size() == 1)
    return absl::FailedPreconditionError(
        "--rate auto: no transaction was committed; there is no rate to find");
  const RateStep& last = search.steps().back();
  return absl::FailedPreconditionError(fmt::format(
      "--rate auto: no rate holds: at {:.0f}/s p99 was {:.0f} us, where at most {:.0f} us were to be, and "
      "{:.0f}/s were done; --p99-ms allows for more",
      last.rate_per_s, last.p99_us, search.limit_us(), last.committed_per_s));
}

std::string RateText(double per_s) { return Grouped(static_cast<uint64_t>(std::llround(per_s))); }
std::string UsText(double us) { return Grouped(static_cast<uint64_t>(std::llround(us))); }

std::string_view FaultName(RateFault fault) {
  switch (fault) {
    case RateFault::kNone:
      return "";
    case RateFault::kRefused:
      return "refused";
    case RateFault::kBehind:
      return "behind";
    case RateFault::kWaiting:
      return "waiting";
    case RateFault::kLate:
      return "late";
  }
  return "";
}

std::string FaultText(const RateStep& step) {
  switch (step.fault) {
    case RateFault::kNone:
      return "no limit follows from it";
    case RateFault::kRefused:
      return fmt::format("{} were refused, since too many waited", Grouped(step.refused));
    case RateFault::kBehind:
      return fmt::format("{}/s too few were done", RateText(step.rate_per_s - step.committed_per_s));
    case RateFault::kWaiting:
      return fmt::format("{} waited at the end", Grouped(step.waiting));
    case RateFault::kLate:
      return "p99 is above the limit";
  }
  return "";
}

std::string DueText(const RateStep& step) {
  return step.rate_per_s > 0 ? fmt::format("{}/s due", RateText(step.rate_per_s))
                             : "as fast as they are done";
}

}  // namespace

absl::StatusOr<RunResult> FindRate(const ClusterClient& client, const RunPlan& plan, Interrupts& interrupts,
                                   const RateSearchSeams& seams) {
  KneeSearch search(plan.options.p99_ms.value_or(0) * 1000);
  const auto quiet = [](double, double, double, size_t) {};
  std::optional<RunResult> last;
  while (const std::optional<KneeSearch::Ask> ask = search.Next()) {
    const RunPlan step = PlanOf(plan, *ask, search.steps().size());
    if (absl::Status noted = seams.on_id(step.run_id); !noted.ok()) return noted;
    // Asked anew each time: an island may have begun another life meanwhile.
    const absl::StatusOr<control::v1::ClusterStatus> status = client.Status(kStepStatusMs);
    if (!status.ok()) return status.status();
    RunDriver driver(client, *status, step, ask->at_length ? seams.progress : quiet);
    absl::StatusOr<RunResult> result = driver.Run(interrupts);
    if (!result.ok()) return result;
    search.Observe(SeenIn(*result));
    last = *std::move(result);
    last->rate_search =
        RateSearch{search.limit_us(), plan.options.p99_ms.has_value(), search.found(), search.steps()};
    if (WentWrong(*last)) return *std::move(last);
    seams.on_step(search.steps().back());
  }
  if (search.holds() == 0) return NoneHolds(search);
  return *std::move(last);
}

std::string StepText(const RateStep& step) {
  return fmt::format("{:>26}  {:>12} committed/s  p50 {} us  p99 {} us  {}", DueText(step),
                     RateText(step.committed_per_s), UsText(step.p50_us), UsText(step.p99_us),
                     step.rate_per_s == 0 ? ""
                     : step.held          ? "holds"
                                          : "does not hold: " + FaultText(step));
}

json RateSearchJson(const RateSearch& search) {
  json steps = json::array();
  for (const RateStep& step : search.steps) {
    steps.push_back({{"rate_per_s", std::round(step.rate_per_s * 10) / 10},
                     {"seconds", std::round(step.seconds * 1000) / 1000},
                     {"committed_per_s", std::round(step.committed_per_s * 10) / 10},
                     {"latency_us", {{"p50", step.p50_us}, {"p99", step.p99_us}, {"p999", step.p999_us}}},
                     {"utilisation", std::round(step.utilisation * 1000) / 1000},
                     {"clients_waiting", step.waiting},
                     {"arrivals_refused", step.refused},
                     {"held", step.held},
                     {"fault", FaultName(step.fault)}});
  }
  return {{"p99_limit_us", search.limit_us},
          {"limit_given", search.limit_given},
          {"found", search.found},
          {"steps", std::move(steps)}};
}

std::string RateSearchText(const RateSearch& search) {
  TextTable table;
  for (const char* title :
       {"due/s", "committed/s", "p50 us", "p99 us", "p99.9 us", "busy", "waiting", "seconds"}) {
    table.AddColumn(title, TextTable::Align::kRight);
  }
  table.AddColumn("");
  for (const RateStep& step : search.steps) {
    table.AddRow({step.rate_per_s > 0 ? RateText(step.rate_per_s) : "no rate", RateText(step.committed_per_s),
                  UsText(step.p50_us), UsText(step.p99_us), UsText(step.p999_us),
                  fmt::format("{:.0f}%", step.utilisation * 100), Grouped(step.waiting),
                  fmt::format("{:.1f}", step.seconds),
                  step.rate_per_s == 0 ? ""
                  : step.held          ? "holds"
                                       : FaultText(step)});
  }
  return fmt::format(
             "{}: p99 at most {} us ({})\n", search.found ? "knee" : "no knee that holds at length",
             UsText(search.limit_us),
             search.limit_given ? "--p99-ms" : "ten times the p50, or twice the p99, of a quiet rate") +
         table.Render();
}

}  // namespace islands::deploy
