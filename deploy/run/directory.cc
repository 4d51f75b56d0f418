#include "deploy/run/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "deploy/file/deployment.h"
#include "deploy/run/build_info.h"
#include "instance/worker/latency_histogram.h"
#include "runtime/descriptor.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;
using control::v1::ClusterStatus;
using control::v1::IslandConfig;

constexpr int kMaxSameNames = 1'000;

std::string Utc(int64_t unix_seconds, const char* format) {
  const time_t seconds = unix_seconds;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return std::string(text, strftime(text, sizeof(text), format, &parts));
}

// Single quotes keep everything but themselves as it is.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

std::string TableYaml(const control::v1::TableSpec& table) {
  std::vector<std::string> key(table.key().begin(), table.key().end());
  for (int i = 0; i < table.key_names_size(); ++i)
    key[static_cast<size_t>(i)] = fmt::format("{}: {}", Quoted(table.key_names(i)), table.key(i));
  const bool named = !table.key_names().empty();
  std::string text = fmt::format("    - name: {}\n      key: {}{}{}\n", Quoted(table.name()),
                                 named ? '{' : '[', fmt::join(key, ", "), named ? '}' : ']');
  std::vector<std::string> fields;
  for (const control::v1::FieldSpec& field : table.fields())
    fields.push_back(fmt::format("{}: {}", Quoted(field.name()), Quoted(field.type())));
  if (!fields.empty()) text += fmt::format("      fields: {{{}}}\n", fmt::join(fields, ", "));
  if (table.replicated()) {
    text += "      replicated: true\n";
  } else {
    text += fmt::format("      range: [{}, {}]\n", table.range_begin(), table.range_end());
  }
  if (table.row_bytes() > 0) text += fmt::format("      row_bytes: {}\n", table.row_bytes());
  if (!table.indexes().empty()) text += "      indexes:\n";
  for (const control::v1::IndexSpec& index : table.indexes()) {
    std::vector<std::string> components;
    for (const std::string& component : index.key()) components.push_back(Quoted(component));
    text +=
        fmt::format("        - {{name: {}, key: [{}]}}\n", Quoted(index.name()), fmt::join(components, ", "));
  }
  return text;
}

// The tables as they are now: those of the file, where no load replaced them.
std::vector<control::v1::TableSpec> TablesOf(const IslandConfig& config) {
  std::vector<control::v1::TableSpec> tables(config.tables().begin(), config.tables().end());
  for (const control::v1::LoadSpec& load : config.loads()) {
    for (const control::v1::TableSpec& loaded : load.tables()) {
      for (control::v1::TableSpec& table : tables) {
        if (table.name() == loaded.name()) table = loaded;
      }
    }
  }
  return tables;
}

std::string WorkerCpus(const IslandConfig& config) {
  std::vector<uint32_t> cpus;
  for (const auto& worker : config.workers()) {
    if (worker.cpu() >= 0) cpus.push_back(static_cast<uint32_t>(worker.cpu()));
  }
  return topology::FormatCpuList(cpus);
}

// Islands by hand where every worker has a core of its own; a file cannot say that islands share cores, a
// layout can.
bool CanListIslands(const ClusterStatus& status) {
  std::set<int32_t> seen;
  for (const IslandConfig& config : status.configs()) {
    if (config.numa_nodes().empty()) return false;
    for (const auto& worker : config.workers()) {
      if (worker.cpu() < 0 || !seen.insert(worker.cpu()).second) return false;
    }
  }
  return true;
}

std::string CutYaml(const ClusterStatus& status) {
  if (!CanListIslands(status)) return fmt::format("layout: {}\n", status.layout());
  std::string text = "islands:\n";
  for (const IslandConfig& config : status.configs()) {
    const std::vector<uint32_t> nodes(config.numa_nodes().begin(), config.numa_nodes().end());
    text += fmt::format("  - {{cpus: '{}', numa_nodes: '{}', memory: {}}}\n", WorkerCpus(config),
                        topology::FormatCpuList(nodes), config.pool_bytes());
  }
  return text;
}

uint64_t TotalPoolBytes(const ClusterStatus& status) {
  uint64_t bytes = 0;
  for (const IslandConfig& config : status.configs()) bytes += config.pool_bytes();
  return bytes;
}

std::string_view PolicyName(control::v1::MemoryPolicy policy) {
  switch (policy) {
    case control::v1::MEMORY_PREFERRED:
      return "preferred";
    case control::v1::MEMORY_BIND:
      return "bind";
    default:
      return "default";
  }
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string Kernel() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

}  // namespace

absl::StatusOr<RunDirectory> RunDirectory::Create(const std::string& parent, const std::string& name) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) {
    return absl::InternalError(
        fmt::format("cannot make {}: {}; choose another place with --results", parent, error.message()));
  }
  const fs::path base = fs::absolute(parent, error).lexically_normal();
  for (int n = 1; n <= kMaxSameNames; ++n) {
    const fs::path path = base / (n == 1 ? name : fmt::format("{}-{}", name, n));
    if (fs::create_directory(path, error)) return RunDirectory(path.string());
    if (error) {
      return absl::InternalError(fmt::format("cannot make {}: {}; choose another place with --results",
                                             path.string(), error.message()));
    }
  }
  return absl::InternalError(fmt::format("there are too many directories like {}/{}", parent, name));
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}

RunDirectory::~RunDirectory() {
  if (!path_.empty()) rmdir(path_.c_str());
}

absl::Status RunDirectory::Write(const std::string& name, std::string_view content) const {
  const std::string path = fmt::format("{}/{}", path_, name);
  const runtime::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return absl::ErrnoToStatus(errno, fmt::format("cannot create {}", path));
  return runtime::WriteAll(file.get(), content, path);
}

std::string CompactUtc(int64_t unix_seconds) { return Utc(unix_seconds, "%Y%m%dT%H%M%SZ"); }
std::string LongUtc(int64_t unix_seconds) { return Utc(unix_seconds, "%Y-%m-%dT%H:%M:%SZ"); }

std::string TimeseriesCsv(const RunResult& result) {
  std::string text =
      "elapsed_s,island,reached,committed_per_s,local_per_s,multisite_per_s,distributed_per_s,aborted_per_s,"
      "unknown_per_s,messages_per_s,busy_fraction,p50_us,p95_us,p99_us,cpu_fraction,core_wait_fraction\n";
  const auto known = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.3f}", *value) : std::string();
  };
  for (const SeriesRow& row : result.series) {
    const auto rate = [&](uint64_t count) {
      return row.seconds > 0 ? static_cast<double>(count) / row.seconds : 0;
    };
    text += fmt::format(
        "{:.3f},{},{},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.3f},{:.1f},{:.1f},{:.1f},{},{}\n",
        row.elapsed_s, row.island, row.reached ? 1 : 0, rate(row.sums.committed()),
        rate(row.sums.scopes[0].committed), rate(row.sums.scopes[1].committed),
        rate(row.sums.scopes[2].committed), rate(row.sums.aborted()), rate(row.sums.unknown()),
        rate(row.sums.messages_sent), row.sums.busy_fraction(), row.p50_us, row.p95_us, row.p99_us,
        known(row.cpu_fraction), known(row.core_wait_fraction));
  }
  return text;
}

std::string LatencyCsv(const Sums& total) {
  std::string text = "bucket_upper_us,local,multisite,distributed\n";
  for (uint32_t b = 0; b < instance::kLatencyBuckets; ++b) {
    std::array<uint64_t, kScopes> counts{};
    bool any = false;
    for (size_t s = 0; s < kScopes; ++s) {
      counts[s] = b < total.scopes[s].latency.size() ? total.scopes[s].latency[b] : 0;
      any |= counts[s] > 0;
    }
    if (any) text += fmt::format("{},{}\n", instance::BucketUpperUs(b), fmt::join(counts, ","));
  }
  return text;
}

std::string ResolvedYaml(const ClusterStatus& status, const std::string& machine) {
  const IslandConfig& config = status.configs(0);
  const bool listed = CanListIslands(status);
  std::string text =
      "# Written by `islands run`: the deployment as it ran, with every default and `auto` replaced.\n";
  text += fmt::format("version: 1\nname: {}\nmachine: {}  # {}\n", status.deployment(), Quoted(machine),
                      status.machine());
  text += CutYaml(status);
  text += fmt::format("placement: {}\nworkers: {}\nhardware_threads: {}\n", config.placement(),
                      config.worker_order(), config.all_hardware_threads() ? "all" : "one");
  if (!config.without().empty()) text += fmt::format("without: {}\n", config.without());
  text += fmt::format("data:\n  directory: {}\n  sites: {}\n  tables:\n", Quoted(config.data_directory()),
                      config.site_count());
  for (const control::v1::TableSpec& table : TablesOf(config)) text += TableYaml(table);
  text += "storage:\n";
  if (!listed) text += fmt::format("  buffer_pool: {}\n", TotalPoolBytes(status));
  if (!config.storage_mode().empty()) text += fmt::format("  mode: {}\n", config.storage_mode());
  text += fmt::format("  memory_policy: {}\n  latching: {}\n", PolicyName(config.memory_policy()),
                      config.always_latched() ? "always" : "auto");
  text += fmt::format("  log:\n    directory: {}\n    durability: {}\n    votes: {}\n",
                      Quoted(config.log_directory()), config.durability(), VotesName(config.votes_wait()));
  text += fmt::format("messaging:\n  transport: {}\n", config.transport());
  text += fmt::format("control:\n  directory: {}\n", Quoted(config.control_directory()));
  text += fmt::format("metrics:\n  base_port: {}\n", config.metrics_port());
  return text + fmt::format("timeouts:\n  transaction_ms: {}\n", config.transaction_timeout_ms());
}

std::string MetaJson(const RunResult& result, const ClusterStatus& status, const std::string& command_line) {
  const nlohmann::ordered_json document = {
      {"version", kVersion},          {"commit", kCommit},
      {"cpu_model", CpuModel()},      {"kernel", Kernel()},
      {"machine", status.machine()},  {"seed", result.plan.options.seed},
      {"command_line", command_line}, {"started", result.started_utc},
      {"run_id", result.plan.run_id}, {"cluster_id", status.cluster_id()}};
  return document.dump(2) + "\n";
}

absl::Status WriteRunDirectory(const RunDirectory& directory, const RunResult& result,
                               const ClusterStatus& status, const RunContext& context) {
  const absl::StatusOr<std::string> machine = topology::ExportThisMachineXml();
  if (!machine.ok()) return machine.status();
  const std::pair<const char*, std::string> files[] = {
      {"summary.json", ResultJson(result).dump(2) + "\n"},
      {"timeseries.csv", TimeseriesCsv(result)},
      {"latency.csv", LatencyCsv(result.Total())},
      {"deployment.yaml", ResolvedYaml(status, context.machine)},
      {"machine.xml", *machine},
      {"meta.json", MetaJson(result, status, context.command_line)}};
  for (const auto& [name, content] : files) {
    absl::Status written = directory.Write(name, content);
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

}  // namespace islands::deploy
