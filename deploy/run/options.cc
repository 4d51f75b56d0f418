#include "deploy/run/options.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"

namespace islands::deploy {
namespace {

constexpr uint32_t kMaxMpl = 1'000;
constexpr double kMaxSeconds = 7 * 24 * 3600;
constexpr double kMaxRate = 1e9;
constexpr double kMinSeconds = 0.1;
constexpr double kMinP99Ms = 0.001, kMaxP99Ms = 60'000;
constexpr const char* kRates =
    "transactions per second, at most {:.0f}; 0: as fast as they are done; auto: the knee";

absl::Status Bad(std::string_view option, std::string_view found, std::string_view expected) {
  return absl::InvalidArgumentError(fmt::format("{}: found {}, expected {}", option, found, expected));
}

// NaN fails every comparison, so it is asked for in the positive.
bool Within(double value, double low, double high) { return value >= low && value <= high; }

const control::v1::TableSpec* FindTable(const control::v1::IslandConfig& config, const std::string& name) {
  for (const control::v1::TableSpec& table : config.tables()) {
    if (table.name() == name) return &table;
  }
  return nullptr;
}

control::v1::LoadSpec WithoutIdleParameters(control::v1::LoadSpec load,
                                            const instance::Description& description, bool durable) {
  for (const instance::Parameter& parameter : description.parameters) {
    if (!parameter.loads && (durable || !parameter.grows)) load.mutable_parameters()->erase(parameter.name);
  }
  return load;
}

}  // namespace

absl::Status ReadRate(const std::string& text, RunOptions* options) {
  options->find_rate = text == "auto";
  options->rate_per_s = 0;
  if (options->find_rate || absl::SimpleAtod(text, &options->rate_per_s)) return absl::OkStatus();
  return Bad("--rate", fmt::format("'{}'", text), fmt::format(kRates, kMaxRate));
}

absl::StatusOr<RunOptions> CheckRunOptions(RunOptions options, const instance::Description& description) {
  if (options.mpl < 1 || options.mpl > kMaxMpl) {
    return Bad("--mpl", fmt::format("{}", options.mpl),
               fmt::format("1 to {} transactions per worker", kMaxMpl));
  }
  if (!Within(options.duration_s, kMinSeconds, kMaxSeconds)) {
    return Bad("--duration", fmt::format("{}", options.duration_s),
               fmt::format("{} to {} seconds", kMinSeconds, kMaxSeconds));
  }
  if (!Within(options.warmup_s, 0, kMaxSeconds)) {
    return Bad("--warmup", fmt::format("{}", options.warmup_s), fmt::format("0 to {} seconds", kMaxSeconds));
  }
  if (options.clients != kClientsOfIsland && options.clients != kClientsOfDeployment) {
    return Bad("--clients", fmt::format("'{}'", options.clients),
               fmt::format("{} or {}", kClientsOfIsland, kClientsOfDeployment));
  }
  if (!Within(options.rate_per_s, 0, kMaxRate)) {
    return Bad("--rate", fmt::format("{}", options.rate_per_s), fmt::format(kRates, kMaxRate));
  }
  if (options.p99_ms && !Within(*options.p99_ms, kMinP99Ms, kMaxP99Ms)) {
    return Bad("--p99-ms", fmt::format("{}", *options.p99_ms),
               fmt::format("{} to {} milliseconds", kMinP99Ms, kMaxP99Ms));
  }
  if (options.p99_ms && !options.find_rate) {
    return Bad("--p99-ms", fmt::format("{}", *options.p99_ms), "it only with --rate auto");
  }
  if (options.rows_total && *options.rows_total < 1) {
    return Bad("--rows-total", fmt::format("{}", *options.rows_total), "at least 1 row");
  }
  absl::StatusOr<instance::Parameters> read =
      instance::ReadParameters(description.parameters, options.parameters);
  if (!read.ok()) return read.status();
  options.parameters = *std::move(read);
  return options;
}

absl::StatusOr<RunPlan> PlanRun(const RunOptions& options, const DescribedWorkload& workload,
                                const control::v1::IslandConfig& config) {
  RunPlan plan{.options = options, .workload = workload};
  plan.load.set_workload(workload.name);
  plan.load.set_object(workload.object);
  plan.load.mutable_parameters()->insert(options.parameters.begin(), options.parameters.end());
  int64_t rows = 0;
  for (const std::string& name : workload.description.tables) {
    const control::v1::TableSpec* found = FindTable(config, name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("{}: the running deployment has no table '{}', which workload {} needs; add what is "
                      "missing of this under data.tables, then `down` and `up`; with rows that are kept, "
                      "and have other tables, in another data.directory. `islands template NISL --workload "
                      "{}` writes a file that has it:\n{}",
                      options.file, name, workload.name, workload.name, workload.description.tables_yaml));
    }
    control::v1::TableSpec table = *found;
    const bool resizable = name == workload.description.rows_total_of;
    if (resizable && options.rows_total) {
      table.set_range_begin(0);
      table.set_range_end(*options.rows_total);
    }
    rows += table.range_end() - table.range_begin();
    // An earlier run may have loaded another number of them.
    if (resizable) *plan.load.add_tables() = table;
  }
  if (workload.description.row_per_key) plan.rows_total = rows;
  return plan;
}

control::v1::Request StartRequest(const RunPlan& plan) {
  control::v1::Request request;
  control::v1::StartRun& start = *request.mutable_start_run();
  start.set_run_id(plan.run_id);
  start.set_workload(plan.workload.name);
  start.set_object(plan.workload.object);
  start.mutable_parameters()->insert(plan.options.parameters.begin(), plan.options.parameters.end());
  start.set_mpl(plan.options.mpl);
  start.set_seed(plan.options.seed);
  start.set_anywhere(plan.options.clients == kClientsOfDeployment);
  start.set_rate_per_s(plan.options.rate_per_s);
  start.set_even(plan.options.even);
  start.set_began_ns(plan.began_ns);
  return request;
}

control::v1::Request AuditRequestOf(const RunPlan& plan) {
  control::v1::Request request;
  request.mutable_audit()->set_object(plan.workload.object);
  request.mutable_audit()->mutable_parameters()->insert(plan.options.parameters.begin(),
                                                        plan.options.parameters.end());
  return request;
}

bool SameLoad(const control::v1::LoadSpec& there, const control::v1::LoadSpec& wanted,
              const instance::Description& description, bool durable) {
  return google::protobuf::util::MessageDifferencer::Equals(
      WithoutIdleParameters(there, description, durable),
      WithoutIdleParameters(wanted, description, durable));
}

std::string DifferenceOf(const control::v1::LoadSpec& there, const control::v1::LoadSpec& wanted,
                         const instance::Description& description) {
  if (there.workload() != wanted.workload())
    return fmt::format("this run needs those of '{}'", wanted.workload());
  const auto value = [](const control::v1::LoadSpec& load, const std::string& name) {
    const auto found = load.parameters().find(name);
    return found != load.parameters().end() ? found->second : std::string("-");
  };
  std::vector<std::string> differences;
  for (const instance::Parameter& parameter : description.parameters) {
    const std::string has = value(there, parameter.name), needs = value(wanted, parameter.name);
    if (parameter.loads && has != needs)
      differences.push_back(fmt::format("'{}' is {}, this run has {}", parameter.name, has, needs));
  }
  if (differences.empty()) return "this run needs others, or another number of them";
  return fmt::format("{}", fmt::join(differences, "; "));
}

}  // namespace islands::deploy
