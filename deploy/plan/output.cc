#include "deploy/plan/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "runtime/descriptor.h"

namespace islands::deploy {
namespace {

using nlohmann::ordered_json;

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string_view ModeName(const PredictedPool& pool) { return pool.paged ? "paged" : "resident"; }

// "43MiB", ">43MiB" where some tables are not counted.
std::string DataText(const PredictedPools& pools, uint32_t island) {
  const uint64_t bytes = pools.islands[island].data_bytes;
  if (pools.unknown_tables.empty()) return topology::FormatSize(bytes);
  return bytes == 0 ? "?" : ">" + topology::FormatSize(bytes);
}

std::string PoolsText(const PredictedPools& pools) {
  if (pools.islands.empty()) return "";
  if (pools.islands.front().on_disk) return "data: what data files have\n";
  if (pools.unknown_tables.empty())
    return "data: about what tables take with a row for each value of their ranges\n";
  return fmt::format(
      "data: about what tables take with a row for each value of their ranges; not counted, since that "
      "does not say how many rows they get, or how long: {}\n",
      fmt::join(pools.unknown_tables, ", "));
}

std::string RenderIslands(const ResolvedDeployment& resolved, const PredictedPools& pools) {
  TextTable table;
  table.AddColumn("island", TextTable::Align::kRight);
  table.AddColumn("workers", TextTable::Align::kRight);
  table.AddColumn("cpus");
  table.AddColumn("nodes");
  table.AddColumn("memory", TextTable::Align::kRight);
  table.AddColumn("data", TextTable::Align::kRight);
  table.AddColumn("mode");
  table.AddColumn("sites");
  table.AddColumn("metrics", TextTable::Align::kRight);
  for (const topology::PlannedIsland& island : resolved.plan.islands) {
    table.AddRow({std::to_string(island.id), std::to_string(island.workers),
                  OrDash(topology::FormatCpuList(island.cpus)),
                  OrDash(topology::FormatCpuList(island.numa_nodes)),
                  topology::FormatSize(island.memory_bytes), DataText(pools, island.id),
                  std::string(ModeName(pools.islands[island.id])), FormatSites(island.sites),
                  island.metrics_port == 0 ? "-" : std::to_string(island.metrics_port)});
  }
  return table.Render();
}

std::vector<std::string> TableNames(const Deployment& deployment) {
  std::vector<std::string> names;
  for (const auto& table : deployment.tables) names.push_back(table.name());
  return names;
}

}  // namespace

std::string FormatSites(partitioner::SiteRun sites) {
  if (sites.count <= 1) return std::to_string(sites.first);
  return fmt::format("{}-{}", sites.first, sites.first + sites.count - 1);
}

std::string RenderPlan(const ResolvedDeployment& resolved, const PredictedPools& pools) {
  const Deployment& deployment = resolved.deployment;
  uint64_t pool_bytes = 0;
  for (const topology::PlannedIsland& island : resolved.plan.islands) pool_bytes += island.memory_bytes;
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}{}\n", label, value);
  };
  line("deployment", fmt::format("{} ({})", deployment.name, deployment.filename));
  line("machine", fmt::format("{}: {}", resolved.machine.source, resolved.machine.Summary()));
  line("layout",
       fmt::format("{}, placement {}, workers {}, {}", resolved.plan.layout,
                   topology::PlacementName(deployment.placement),
                   topology::WorkerOrderName(deployment.workers), resolved.bound ? "bound" : "not bound"));
  line("data", fmt::format("{} sites, tables {}, in {}", resolved.plan.sites,
                           fmt::join(TableNames(deployment), ", "), resolved.data_directory));
  line("storage",
       fmt::format("buffer pool {}, durability {}{}{}{}", topology::FormatSize(pool_bytes),
                   DurabilityName(deployment.durability), deployment.forced_votes ? ", votes forced" : "",
                   deployment.always_latched ? ", latching always: also in islands with one worker" : "",
                   deployment.without == "none" ? "" : ", without " + deployment.without));
  line("messaging",
       fmt::format("{}, sockets in {}", TransportName(deployment.transport), resolved.control_directory));
  if (deployment.gateway) {
    const uint32_t port = GatewayMetricsPort(resolved);
    line("gateway", fmt::format("{}, {}", fmt::join(GatewayAddresses(resolved), ", "),
                                port == 0 ? "no metrics" : fmt::format("metrics at port {}", port)));
  }
  text += "\n" + RenderIslands(resolved, pools) + PoolsText(pools);
  if (!resolved.notes.empty()) text += "\n";
  for (const std::string& note : resolved.notes) text += "note: " + note + "\n";
  return text;
}

ordered_json PlanJson(const ResolvedDeployment& resolved, const PredictedPools* pools) {
  const Deployment& deployment = resolved.deployment;
  ordered_json islands = ordered_json::array();
  for (const topology::PlannedIsland& island : resolved.plan.islands) {
    ordered_json entry = {{"id", island.id},
                          {"cpus", topology::FormatCpuList(island.cpus)},
                          {"numa_nodes", topology::FormatCpuList(island.numa_nodes)},
                          {"memory_bytes", island.memory_bytes},
                          {"sites", FormatSites(island.sites)},
                          {"metrics_port", island.metrics_port},
                          {"workers", island.workers},
                          {"worker_cpus", island.cpus},
                          {"service_cpu", resolved.service_cpus[island.id]},
                          {"straddles_package", island.straddles_package},
                          {"straddles_node", island.straddles_node},
                          {"straddles_cache", island.straddles_cache}};
    islands.push_back(std::move(entry));
  }
  ordered_json plan = {
      {"deployment", deployment.name},
      {"file", deployment.filename},
      {"machine", MachineSummaryJson(resolved.machine)},
      {"layout", resolved.plan.layout},
      {"placement", topology::PlacementName(deployment.placement)},
      {"workers", topology::WorkerOrderName(deployment.workers)},
      {"bound", resolved.bound},
      {"cores_shared", resolved.cores_shared},
      {"sites", resolved.plan.sites},
      {"tables", TableNames(deployment)},
      {"transport", TransportName(deployment.transport)},
      {"durability", DurabilityName(deployment.durability)},
      {"votes", VotesName(deployment.forced_votes)},
      {"latching", deployment.always_latched ? "always" : "auto"},
      {"without", deployment.without},
      {"data_directory", resolved.data_directory},
      {"log_directory", resolved.log_directory},
      {"ring_directory",
       resolved.ring_directory.empty() ? ordered_json() : ordered_json(resolved.ring_directory)},
      {"ring_bytes", deployment.ring_bytes},
      {"control_directory", resolved.control_directory},
      {"transaction_timeout_ms", deployment.transaction_timeout_ms},
      {"hung_ms", deployment.hung_ms ? ordered_json(*deployment.hung_ms) : ordered_json()},
      {"gateway", deployment.gateway ? ordered_json{{"addresses", GatewayAddresses(resolved)},
                                                    {"metrics_port", GatewayMetricsPort(resolved)}}
                                     : ordered_json()},
      {"islands", std::move(islands)},
      {"notes", resolved.notes}};
  if (pools == nullptr) return plan;
  for (const PredictedPool& pool : pools->islands) {
    plan["pools"].push_back(
        {{"data_bytes", pool.data_bytes}, {"on_disk", pool.on_disk}, {"mode", ModeName(pool)}});
  }
  plan["tables_not_counted"] = pools->unknown_tables;
  return plan;
}

ordered_json MachineSummaryJson(const topology::Machine& machine) {
  return {{"source", machine.source},
          {"is_this_machine", machine.is_this_machine},
          {"measured_in", machine.measured_in},
          {"summary", machine.Summary()},
          {"packages", machine.packages.size()},
          {"numa_nodes", machine.nodes.size()},
          {"cache_groups", machine.cache_groups.size()},
          {"cores", machine.cores.size()},
          {"pus", machine.pu_count()},
          {"disallowed_pus", machine.disallowed_pus},
          {"memory_bytes", machine.memory_bytes}};
}

ordered_json MachineJson(const topology::Machine& machine) {
  ordered_json packages = ordered_json::array();
  for (const auto& package : machine.packages) {
    packages.push_back({{"os_index", package.os_index}, {"cpu_model", package.cpu_model}});
  }
  ordered_json nodes = ordered_json::array();
  for (const auto& node : machine.nodes) {
    nodes.push_back(
        {{"os_index", node.os_index}, {"package", node.package}, {"memory_bytes", node.memory_bytes}});
  }
  ordered_json caches = ordered_json::array();
  for (const auto& cache : machine.cache_groups) {
    caches.push_back({{"package", cache.package}, {"bytes", cache.bytes}});
  }
  ordered_json cores = ordered_json::array();
  for (const auto& core : machine.cores) {
    cores.push_back({{"package", core.package},
                     {"cache_group", core.cache_group},
                     {"nodes", core.nodes},
                     {"pus", core.pus},
                     {"efficiency_class", core.efficiency_class},
                     {"cluster", core.cluster}});
  }
  return {{"source", machine.source},
          {"is_this_machine", machine.is_this_machine},
          {"summary", machine.Summary()},
          {"memory_bytes", machine.memory_bytes},
          {"memory_note", machine.memory_note},
          {"measured_in", machine.measured_in},
          {"disallowed_pus", machine.disallowed_pus},
          {"packages", std::move(packages)},
          {"numa_nodes", std::move(nodes)},
          {"cache_groups", std::move(caches)},
          {"cores", std::move(cores)},
          {"node_distances", machine.node_distances}};
}

ordered_json ComplaintsJson(const std::vector<std::string>& complaints) {
  ordered_json list = ordered_json::array();
  for (const std::string& complaint : complaints) {
    // Greedy: what a user has written may look like the words between, and stands before the last of them.
    static const std::regex kForm(R"((.*?):(\d+):(\d+): found (.*), expected (.*))");
    std::smatch parts;
    if (!std::regex_match(complaint, parts, kForm)) continue;
    list.push_back({{"file", parts[1].str()},
                    {"line", std::stoul(parts[2].str())},
                    {"column", std::stoul(parts[3].str())},
                    {"found", parts[4].str()},
                    {"expected", parts[5].str()}});
  }
  return list;
}

absl::Status WriteNew(const std::string& path, const std::string& text) {
  const runtime::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) {
    const int error = errno;
    const char* advice = error == EEXIST ? "; choose another name or remove it" : "";
    return absl::ErrnoToStatus(error, fmt::format("cannot create {}{}", path, advice));
  }
  return runtime::WriteAll(file.get(), text, path);
}

}  // namespace islands::deploy
