#include "deploy/run_options.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

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

}  // namespace

absl::Status CheckRunOptions(const RunOptions& options) {
  if (options.workload != kMicro) return Bad("WORKLOAD", fmt::format("'{}'", options.workload), "micro");
  if (options.op != "read" && options.op != "update" && options.op != "mix") {
    return Bad("--op", fmt::format("'{}'", options.op), "read, update or mix");
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
  if (options.rows_total && *options.rows_total < 1) {
    return Bad("--rows-total", fmt::format("{}", *options.rows_total), "at least 1 row");
  }
  return absl::OkStatus();
}

absl::StatusOr<RunPlan> PlanRun(const RunOptions& options, const control::v1::IslandConfig& config,
                                const std::string& binary_directory) {
  const control::v1::TableSpec* table = FindTable(config, kMicro);
  if (table == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the running deployment has no table '{}', which workload {} needs; add it under "
                    "data.tables (see "
                    "`islands template`), then `down` and `up`",
                    options.file, kMicro, options.workload));
  }
  RunPlan plan;
  plan.options = options;
  plan.rows_total = options.rows_total.value_or(table->range_end() - table->range_begin());
  absl::Status fits = CheckRowsFit(options, plan.rows_total, std::max<uint32_t>(config.site_count(), 1));
  if (!fits.ok()) return fits;
  plan.object = (std::filesystem::path(binary_directory) / "../lib/islands" / (options.workload + ".so"))
                    .lexically_normal()
                    .string();
  if (access(plan.object.c_str(), R_OK) != 0) {
    return absl::NotFoundError(
        fmt::format("workload {} is not built: there is no {}", options.workload, plan.object));
  }
  plan.load.set_workload(options.workload);
  plan.load.set_object(plan.object);
  control::v1::TableSpec& loaded = *plan.load.add_tables();
  loaded = *table;
  if (options.rows_total) {
    loaded.set_range_begin(0);
    loaded.set_range_end(*options.rows_total);
  }
  plan.parameters = {{"op", options.op},
                     {"rows", fmt::format("{}", options.rows)},
                     {"multisite", fmt::format("{}", options.multisite)},
                     {"zipf", fmt::format("{}", options.zipf)}};
  if (options.update_percent) {
    plan.parameters["update_percent"] = fmt::format("{}", *options.update_percent);
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
