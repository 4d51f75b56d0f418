#include "deploy/plan/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/ascii.h"
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

# ---- the data
data:
  directory: data
  sites: {sites:<20} # logical partitions, fixed when the data is created; at least one per island
  tables:
    # The microbenchmark of OLTP on Hardware Islands: {rows} rows of 250 bytes.
    - {{name: micro, key: [uint64], range: [0, {rows}], row_bytes: 250}}

storage:
  buffer_pool: {pool:<14} # of all islands together, divided by their sites; auto = a quarter of the memory
  memory_policy: preferred    # an island's memory comes from its NUMA nodes: preferred | bind | default
  latching: auto              # one-worker islands have none; always = they do, to measure what it costs
  log:
    directory: data/log
    durability: lazy          # what is acknowledged survives kills; sync: losses of power too; none: nothing
#   votes: forced             # two-phase commit waits for the disk, to measure what that costs; else: epoch
#   ring_bytes: 8MiB          # of shared memory for every worker, twice
#   ring_directory: rings     # where they are; else in /dev/shm. A copy beside its original needs its own

# ---- between and around the islands
messaging: {{transport: {transport}}}   # uds | zmq
gateway: {{enabled: true}}      # gRPC for programs, on run/gateway.sock: README, "From your program"
#                               over TCP too, with certificates: listen: HOST:PORT, certificate, key, clients
control: {{directory: run}}     # sockets and process ids; its path must be short
metrics: {{base_port: 9400}}    # island i: http://localhost:(9400 + i)/metrics, then the gateway; 0 = none
timeouts: {{transaction_ms: 2000}}  # and hung_ms: who stands still for so long is killed (5000)
)";

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
  const uint32_t sites = std::max(partitioner::AutoSites(cores), layout->value_or(1));
  const uint64_t pool_bytes = topology::AutoPoolBytes(machine, cores, sites);
  const std::string text = fmt::format(
      kTemplate, fmt::arg("summary", machine.Summary()),
      fmt::arg("name", options.name.value_or(std::string(absl::AsciiStrToLower(options.layout)))),
      fmt::arg("layout", options.layout), fmt::arg("sites", sites), fmt::arg("rows", options.rows_total),
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
