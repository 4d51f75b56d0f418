#include "deploy/run/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/message_differencer.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"

namespace islands::deploy {
namespace {

constexpr const char* kMicro = "micro";
constexpr uint32_t kMaxRows = 10'000;  // as the workload itself allows
constexpr uint32_t kMaxMpl = 1'000;
constexpr double kMaxZipf = 1'000;
constexpr double kMaxSeconds = 7 * 24 * 3600;
constexpr double kMinSeconds = 0.1;

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

// A transaction's rows are distinct: a local one takes all of them from one site, a multisite one its first.
absl::Status CheckRowsFit(const RunOptions& options, int64_t rows_total, uint32_t sites) {
  const int64_t smallest_site = rows_total / sites;
  const int64_t from_one_site = options.multisite < 100 ? options.rows : 1;
  if (from_one_site > smallest_site) {
    return Bad(
        "--rows", fmt::format("{}", options.rows),
        fmt::format(
            "at most the {} rows of the smallest site ({} rows in {} sites); a larger --rows-total makes "
            "room",
            smallest_site, rows_total, sites));
  }
  if (options.rows > rows_total) {
    return Bad("--rows", fmt::format("{}", options.rows), fmt::format("at most all {} rows", rows_total));
  }
  return absl::OkStatus();
}

absl::Status CheckMicroOptions(const RunOptions& options) {
  if (!options.parameters.empty()) {
    return Bad("--set", fmt::format("'{}' for micro", options.parameters.begin()->first),
               "its own options: --op, --update-percent, --rows, --multisite, --zipf");
  }
  if (options.op != "read" && options.op != "update" && options.op != "add" && options.op != "mix") {
    return Bad("--op", fmt::format("'{}'", options.op), "read, update, add or mix");
  }
  if ((options.op == "mix") != options.update_percent.has_value()) {
    return Bad("--op", options.op, "mix and --update-percent together, or none of them");
  }
  if (options.update_percent && !Within(*options.update_percent, 0, 100)) {
    return Bad("--update-percent", fmt::format("{}", *options.update_percent), "a percentage from 0 to 100");
  }
  if (options.rows < 1 || options.rows > kMaxRows) {
    return Bad("--rows", fmt::format("{}", options.rows), fmt::format("1 to {}", kMaxRows));
  }
  if (!Within(options.multisite, 0, 100)) {
    return Bad("--multisite", fmt::format("{}", options.multisite), "a percentage from 0 to 100");
  }
  if (!Within(options.zipf, 0, kMaxZipf)) {
    return Bad("--zipf", fmt::format("{}", options.zipf),
               fmt::format("a skew from 0 (uniform) to {}", kMaxZipf));
  }
  if (options.rows_total && *options.rows_total < 1) {
    return Bad("--rows-total", fmt::format("{}", *options.rows_total), "at least 1 row");
  }
  return absl::OkStatus();
}

absl::Status CheckOtherWorkload(const RunOptions& options) {
  // The name becomes part of paths.
  const bool named = std::all_of(options.workload.begin(), options.workload.end(),
                                 [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
  if (options.workload.empty() || !named) {
    return Bad("WORKLOAD", fmt::format("'{}'", options.workload),
               "the name of a workload: letters, digits, '_' and '-'");
  }
  if (!options.micro_options.empty()) {
    const std::string& option = options.micro_options.front();
    return Bad(option, fmt::format("workload {}", options.workload),
               fmt::format("micro; parameters of others are given as --set NAME=VALUE"));
  }
  return absl::OkStatus();
}

// Workloads there are, for a message.
std::string NamesOfWorkloads(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".so") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
}

absl::Status PlanMicro(const RunOptions& options, const control::v1::IslandConfig& config, RunPlan* plan) {
  const control::v1::TableSpec* table = FindTable(config, kMicro);
  if (table == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the running deployment has no table '{}', which workload {} needs; add it under "
                    "data.tables (see `islands template`), then `down` and `up`",
                    options.file, kMicro, options.workload));
  }
  plan->rows_total = options.rows_total.value_or(table->range_end() - table->range_begin());
  absl::Status fits = CheckRowsFit(options, *plan->rows_total, std::max<uint32_t>(config.site_count(), 1));
  if (!fits.ok()) return fits;
  control::v1::TableSpec& loaded = *plan->load.add_tables();
  loaded = *table;
  if (options.rows_total) {
    loaded.set_range_begin(0);
    loaded.set_range_end(*options.rows_total);
  }
  plan->parameters = {{"op", options.op},
                      {"rows", fmt::format("{}", options.rows)},
                      {"multisite", fmt::format("{}", options.multisite)},
                      {"zipf", fmt::format("{}", options.zipf)}};
  if (options.update_percent) {
    plan->parameters["update_percent"] = fmt::format("{}", *options.update_percent);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddParameter(const std::string& text, std::map<std::string, std::string>* parameters) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Bad("--set", fmt::format("'{}'", text), "NAME=VALUE");
  }
  const std::string name = text.substr(0, equals);
  if (parameters->emplace(name, text.substr(equals + 1)).second) return absl::OkStatus();
  return Bad("--set", fmt::format("'{}' twice", name), "every parameter once");
}

absl::StatusOr<std::string> FindWorkload(const std::string& workload, const std::string& binary_directory) {
  const std::filesystem::path folder =
      (std::filesystem::path(binary_directory) / "../lib/islands").lexically_normal();
  std::string object = (folder / (workload + ".so")).string();
  if (access(object.c_str(), R_OK) == 0) return object;
  return absl::InvalidArgumentError(fmt::format("there is no workload '{}': no {}; built are: {}", workload,
                                                object, NamesOfWorkloads(folder)));
}

absl::Status CheckRunOptions(const RunOptions& options) {
  absl::Status workload =
      options.workload == kMicro ? CheckMicroOptions(options) : CheckOtherWorkload(options);
  if (!workload.ok()) return workload;
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
  return absl::OkStatus();
}

absl::StatusOr<RunPlan> PlanRun(const RunOptions& options, const control::v1::IslandConfig& config,
                                const std::string& binary_directory) {
  RunPlan plan;
  plan.options = options;
  absl::StatusOr<std::string> object = FindWorkload(options.workload, binary_directory);
  if (!object.ok()) return object.status();
  plan.object = *object;
  plan.load.set_workload(options.workload);
  plan.load.set_object(plan.object);
  if (options.workload == kMicro) {
    absl::Status planned = PlanMicro(options, config, &plan);
    if (!planned.ok()) return planned;
  } else {
    // Which of its parameters shape the rows only the workload knows: when one changes, all is loaded again.
    plan.parameters = options.parameters;
    plan.load.mutable_parameters()->insert(plan.parameters.begin(), plan.parameters.end());
  }
  return plan;
}

control::v1::Request StartRequest(const RunPlan& plan) {
  control::v1::Request request;
  control::v1::StartRun& start = *request.mutable_start_run();
  start.set_run_id(plan.run_id);
  start.set_workload(plan.options.workload);
  start.set_object(plan.object);
  start.mutable_parameters()->insert(plan.parameters.begin(), plan.parameters.end());
  start.set_mpl(plan.options.mpl);
  start.set_seed(plan.options.seed);
  return request;
}

control::v1::Request AuditRequestOf(const RunPlan& plan) {
  control::v1::Request request;
  request.mutable_audit()->set_object(plan.object);
  request.mutable_audit()->mutable_parameters()->insert(plan.parameters.begin(), plan.parameters.end());
  return request;
}

bool SameLoad(const control::v1::LoadSpec& a, const control::v1::LoadSpec& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

}  // namespace islands::deploy
