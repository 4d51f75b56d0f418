#include "deploy/plan/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "deploy/file/yaml_tree.h"
#include "deploy/plan/resolve.h"
#include "partitioner/site_map.h"
#include "topology/planner.h"

namespace islands::deploy {
namespace {

constexpr std::string_view kTemplate = R"(# An Islands deployment for {summary}.
# `islands plan FILE` shows what it means here, `islands up FILE` starts it.
# Relative paths begin at this file's folder.
version: 1
name: {name:<23} # a-z, 0-9 and '-', at most 32 characters

# ---- the machine and its cut
machine: auto                 # this one; or a file: hwloc XML, or what `islands machine --measure` wrote;
#                               or synthetic: 'pack:4 [numa] core:6 pu:1'
cores: all                    # or a number of cores, or a CPU list '0-5,12'
hardware_threads: one         # of each core; or all
layout: {layout:<21} # 1ISL = shared everything ... one per core = finest; auto = one island per socket
#                               or, instead of cores and layout, islands by hand:
#                               islands: [{{cpus: '0-5', numa_nodes: '0', memory: 3GiB}}, ...]
placement: islands            # neighbours together | spread = across sockets | os = unbound
workers: grouped              # which of its cores an island's workers take first: grouped | spread | mix | os
# without: look_ahead         # leaves out one of the engine's techniques, to measure what it gains

# ---- the data
data:
  directory: data
  sites: {sites:<20} # logical partitions, later by `islands relayout` only; at least one per island
  tables:
{tables}

storage:
  buffer_pool: {pool:<14} # of all islands together, divided by their sites; auto = a quarter of the memory
  mode: auto                  # paged where data are larger than the pool, else resident; or one of the two
  memory_policy: preferred    # an island's memory comes from its NUMA nodes: preferred | bind | default
  latching: auto              # one-worker islands have none; always = they do, to measure what it costs
  log:
    directory: data/log
    durability: lazy          # what is acknowledged survives kills; sync: losses of power too; none: nothing
#                               command: as lazy, and one-worker islands log procedures' inputs, not changes
#   votes: forced             # two-phase commit waits for the disk, to measure what that costs; else: epoch
#   ring_bytes: 8MiB          # of shared memory for every worker, twice
#   ring_directory: rings     # where they are; else in /dev/shm. A copy beside its original needs its own

# ---- between and around the islands
messaging: {{transport: {transport}}}   # rings in shared memory | uds = sockets | zmq
gateway: {{enabled: true}}      # gRPC for programs, on run/gateway.sock: README, "From your program"
#                               over TCP too, with certificates: listen: HOST:PORT, certificate, key, clients
control: {{directory: run}}     # sockets and process ids; its path must be short
metrics: {{base_port: 9400}}    # island i: http://localhost:(9400 + i)/metrics, then the gateway; 0 = none
timeouts: {{transaction_ms: 2000}}  # and hung_ms: who stands still for so long is killed (5000)
)";

std::string MicroTable(uint64_t rows) {
  return fmt::format(
      "    # The microbenchmark of OLTP on Hardware Islands: {} rows of 250 bytes.\n"
      "    - {{name: micro, key: [uint64], range: [0, {}], row_bytes: 250}}",
      rows, rows);
}

// As an item of data.tables stands in the template, however deep it stood.
std::string Indented(const std::string& yaml) {
  constexpr size_t kIndent = 4;
  const std::vector<std::string> lines = absl::StrSplit(yaml, '\n', absl::SkipWhitespace());
  const size_t was = lines.empty() ? 0 : lines[0].find_first_not_of(' ');
  std::string text;
  for (const std::string& line : lines) {
    const size_t depth = std::min(was, line.find_first_not_of(' '));
    text += (text.empty() ? "" : "\n") + std::string(kIndent, ' ') + line.substr(depth);
  }
  return text;
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

// That all tables have, apart from replicated ones; none: they differ.
absl::StatusOr<std::optional<Range>> CommonRange(const std::string& workload, const std::string& tables) {
  const auto parsed = ParseDeployment(fmt::format("version: 1\ndata:\n  tables:\n{}\n", tables),
                                      fmt::format("tables of '{}'", workload));
  if (!parsed.ok()) return parsed.status();
  std::optional<Range> common;
  for (const control::v1::TableSpec& table : parsed->tables) {
    if (table.replicated()) continue;
    const Range range{table.range_begin(), table.range_end()};
    if (common.value_or(range) != range) return std::nullopt;
    common = range;
  }
  return common;
}

// With `range` as the range of each.
std::string WithRange(const std::string& tables, const Range& range) {
  constexpr std::string_view kKey = "range: [";
  std::string text;
  size_t done = 0;
  for (size_t at; (at = tables.find(kKey, done)) != std::string::npos;) {
    text += tables.substr(done, at - done) + fmt::format("{}{}, {}", kKey, range.begin, range.end);
    done = std::min(tables.find(']', at), tables.size());
  }
  return text + tables.substr(done);
}

// The lines of a workload's tables, and how many keys there are to share among the sites.
struct Tables {
  std::string text;
  uint64_t keys = std::numeric_limits<uint64_t>::max();
};

absl::StatusOr<Tables> TablesOf(const WorkloadTables& wanted, uint32_t sites) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("workload '{}': {}", wanted.workload, why));
  };
  const std::string lines = Indented(wanted.yaml);
  if (lines.empty()) return refuse("it does not say which tables it needs");
  const auto range = CommonRange(wanted.workload, lines);
  if (!range.ok()) return range.status();
  Tables tables{.text = fmt::format("    # What `islands run FILE {}` needs.\n{}", wanted.workload, lines)};
  if (!*range) {
    if (wanted.scale)
      return refuse("its tables have different ranges; write it without --scale and change them there");
    return tables;
  }
  Range scaled = **range;
  const uint64_t most =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - std::max<int64_t>(0, scaled.begin));
  const uint64_t keys = wanted.scale.value_or(
      std::max<uint64_t>(sites, static_cast<uint64_t>(scaled.end) - static_cast<uint64_t>(scaled.begin)));
  if (keys == 0 || keys > most) return refuse(fmt::format("found --scale {}, expected 1 to {}", keys, most));
  scaled.end = scaled.begin + static_cast<int64_t>(keys);
  tables.keys = keys;
  if (scaled != **range) tables.text = WithRange(tables.text, scaled);
  return tables;
}

}  // namespace

absl::StatusOr<std::string> MakeTemplate(const TemplateOptions& options, const topology::Machine& machine) {
  const auto layout = topology::ParseLayout(options.layout);
  if (!layout.ok()) {
    return absl::InvalidArgumentError(fmt::format("found layout {}, expected {}", Quote(options.layout),
                                                  std::string(layout.status().message())));
  }
  if (options.rows_total == 0 || options.rows_total > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return absl::InvalidArgumentError(fmt::format("found {} rows, expected at least 1", options.rows_total));
  }
  const auto cores = static_cast<uint32_t>(machine.cores.size());
  uint32_t sites = std::max(partitioner::AutoSites(cores), layout->value_or(1));
  std::string tables = MicroTable(options.rows_total);
  if (options.tables) {
    const absl::StatusOr<Tables> wanted = TablesOf(*options.tables, sites);
    if (!wanted.ok()) return wanted.status();
    tables = wanted->text;
    sites = static_cast<uint32_t>(
        std::clamp<uint64_t>(wanted->keys, std::max(1u, layout->value_or(1)), sites));  // none without a key
  }
  const uint64_t pool_bytes = topology::AutoPoolBytes(machine, cores, sites);
  const std::string text =
      fmt::format(kTemplate, fmt::arg("summary", machine.Summary()),
                  fmt::arg("name", options.name.value_or(std::string(absl::AsciiStrToLower(options.layout)))),
                  fmt::arg("layout", options.layout), fmt::arg("sites", sites), fmt::arg("tables", tables),
                  fmt::arg("pool", topology::FormatSize(std::bit_floor(pool_bytes))),
                  fmt::arg("transport", TransportName(options.transport)));
  auto deployment = ParseDeployment(text, "template");
  if (!deployment.ok()) return deployment.status();
  deployment->control_directory = "/run";  // where the file will lie is not known yet
  const auto resolved = ResolveOn(*deployment, machine);
  if (!resolved.ok()) return resolved.status();
  return text;
}

}  // namespace islands::deploy
