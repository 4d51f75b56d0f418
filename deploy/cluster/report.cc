#include "deploy/cluster/report.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "deploy/cli/output.h"
#include "deploy/cluster/file_changes.h"
#include "deploy/observe/observation.h"
#include "deploy/plan/output.h"
#include "instance/storage/pages/page.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

using control::v1::ClusterStatus;
using control::v1::IslandConfig;
using control::v1::IslandStatus;
using json = nlohmann::ordered_json;

// For a moment there is always some branch in doubt.
constexpr int64_t kDoubtWorthAWordMs = 3'000;
constexpr uint64_t kPageBytes = storage::kPageBytes;

// The CPUs its workers are meant to run on; empty when it runs unbound.
std::string PlannedCpus(const IslandConfig& config) {
  std::vector<uint32_t> cpus;
  for (const auto& worker : config.workers()) {
    if (worker.cpu() >= 0) cpus.push_back(static_cast<uint32_t>(worker.cpu()));
  }
  return topology::FormatCpuList(cpus);
}

// Where the kernel lets its workers run, all of them together.
std::string ActualCpus(const IslandStatus& island) {
  std::set<uint32_t> cpus;
  for (const std::string& list : island.placement().worker_cpus()) {
    const auto parsed = topology::ParseCpuList(list);
    if (parsed.ok()) cpus.insert(parsed->begin(), parsed->end());
  }
  return topology::FormatCpuList({cpus.begin(), cpus.end()});
}

std::string Nodes(const IslandConfig& config) {
  return topology::FormatCpuList({config.numa_nodes().begin(), config.numa_nodes().end()});
}

std::string Sites(const IslandConfig& config) {
  for (const auto& peer : config.peers()) {
    if (peer.island() != config.island()) continue;
    const uint32_t first = peer.sites().first();
    const uint32_t count = peer.sites().count();
    return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
  }
  return "";
}

// "N0:1024 N1:3", pages of 4 KiB.
std::string PagesPerNode(const IslandStatus& island) {
  const auto& pages = island.placement().pool_pages_per_node();
  std::vector<std::string> parts;
  for (const auto& [node, count] : std::map<uint32_t, uint64_t>(pages.begin(), pages.end())) {
    parts.push_back(fmt::format("N{}:{}", node, count));
  }
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

json ConfiguredIsland(const IslandConfig& config) {
  return {{"id", config.island()},           {"cpus", PlannedCpus(config)},
          {"numa_nodes", Nodes(config)},     {"memory_bytes", config.pool_bytes()},
          {"sites", Sites(config)},          {"metrics_port", config.metrics_port()},
          {"workers", config.workers_size()}};
}

json IslandJson(const IslandStatus& island, json entry) {
  // Not 0: who hands that to kill(1) kills himself.
  entry.update({{"pid", island.pid() > 0 ? json(island.pid()) : json()},
                {"state", StateName(island)},
                {"hung_ms", island.hung_ms()},
                {"unresponsive_peers", json::array()},
                {"restarts", island.restarts()},
                {"boot_epoch", island.boot_epoch()},
                {"cpus_actual", ActualCpus(island)},
                {"worker_cpus_actual", json::array()},
                {"memory_policy", island.placement().memory_policy()},
                {"paged", island.placement().paged()},
                {"mode_reason", island.placement().mode_reason()},
                {"data_bytes", island.placement().data_pages() * kPageBytes},
                {"pool_pages_per_node", json::object()},
                {"links", island.peers_connected()},
                {"links_expected", island.peers_total()},
                {"running", island.running()},
                {"in_doubt", island.in_doubt()},
                {"in_doubt_oldest_ms", island.in_doubt_ms()},
                {"cores_shared", island.cores_shared()}});
  for (const uint32_t peer : island.unresponsive_peers()) entry["unresponsive_peers"].push_back(peer);
  for (const std::string& cpus : island.placement().worker_cpus())
    entry["worker_cpus_actual"].push_back(cpus);
  for (const auto& [node, pages] : island.placement().pool_pages_per_node()) {
    entry["pool_pages_per_node"][std::to_string(node)] = pages;
  }
  if (island.has_warm_up())
    entry["warm_up"] = {{"done", island.warm_up().done()}, {"listed", island.warm_up().listed()}};
  if (!island.placement().warning().empty()) entry["warning"] = island.placement().warning();
  if (!island.detail().empty()) entry["detail"] = island.detail();
  if (!island.metrics_problem().empty()) entry["metrics_problem"] = island.metrics_problem();
  return entry;
}

// Whether the file still says what the running islands were started with.
bool SamePlan(const ClusterStatus& status, const ResolvedDeployment& resolved) {
  std::vector<IslandConfig> wanted = MakeIslandConfigs(resolved);
  if (wanted.size() != static_cast<size_t>(status.configs_size())) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const IslandConfig& running = status.configs(static_cast<int>(i));
    wanted[i].set_cluster_id(running.cluster_id());
    wanted[i].set_boot_epoch(running.boot_epoch());
    wanted[i].set_layout_generation(running.layout_generation());
    wanted[i].set_data_generation(running.data_generation());
    wanted[i].set_ring_directory(running.ring_directory());
    wanted[i].set_restarts(running.restarts());
    *wanted[i].mutable_cuts() = running.cuts();
    *wanted[i].mutable_loads() = running.loads();
    LeaveOutMade(running, &wanted[i]);
    if (!google::protobuf::util::MessageDifferencer::Equals(wanted[i], running)) return false;
  }
  return true;
}

// Whose coordinators do not answer.
std::string DoubtRemark(const ClusterStatus& status) {
  std::vector<uint32_t> islands;
  uint64_t branches = 0;
  int64_t oldest_ms = 0;
  for (const IslandStatus& island : status.islands()) {
    if (island.in_doubt_ms() < kDoubtWorthAWordMs) continue;
    islands.push_back(island.island());
    branches += island.in_doubt();
    oldest_ms = std::max(oldest_ms, island.in_doubt_ms());
  }
  if (islands.empty()) return "";
  return fmt::format(
      "warning: {} branch{} on island{} {} in doubt, for {:.1f} s at most, with their locks; "
      "`islands txn FILE list --in-doubt` names them\n",
      branches, branches == 1 ? "" : "es", islands.size() == 1 ? "" : "s", topology::FormatCpuList(islands),
      static_cast<double>(oldest_ms) / 1000);
}

// Each warning once, however many islands have it.
std::string Remarks(const ClusterStatus& status) {
  std::string text;
  for (const IslandStatus& island : status.islands()) {
    if (island.hung_ms() == 0) continue;
    text += fmt::format(
        "island {}: hung for {:.1f} s: process {} was stopped, or its cores are busy with something else; "
        "the others begin nothing new with it, and it may go on at any moment\n",
        island.island(), static_cast<double>(island.hung_ms()) / 1000, island.pid());
  }
  text += DoubtRemark(status);
  std::vector<uint32_t> unbound;
  std::string why;
  bool shared = false;
  for (const IslandStatus& island : status.islands()) {
    shared |= island.cores_shared();
    if (!island.placement().warning().empty()) {
      unbound.push_back(island.island());
      if (why.empty()) why = island.placement().warning();
    }
    if (!island.detail().empty()) {
      const char* serves = island.state() == control::v1::READY ? "warning: " : "";
      text += fmt::format("{}island {}: {}\n", serves, island.island(), island.detail());
    }
    if (!island.metrics_problem().empty()) {
      text += fmt::format("warning: island {} serves no metrics: {}\n", island.island(),
                          island.metrics_problem());
    }
  }
  if (shared) text += "note: islands share cores; there are more workers than cores\n";
  if (!unbound.empty()) {
    text += fmt::format("warning: not everything could be bound on island{} {}: {}\n",
                        unbound.size() == 1 ? "" : "s", topology::FormatCpuList(unbound), why);
  }
  return text;
}

// An island that does not answer has none to tell of.
std::string Links(const IslandStatus& island) {
  if (island.peers_total() == 0) return "-";
  return fmt::format("{}/{}", island.peers_connected(), island.peers_total());
}

// Of islands that say the same: in which mode they are, why, and how much of their pools they need.
std::string PoolsText(const ClusterStatus& status) {
  std::map<std::pair<bool, std::string>, std::vector<int>> alike;
  for (int i = 0; i < std::min(status.islands_size(), status.configs_size()); ++i) {
    const auto& placement = status.islands(i).placement();
    if (!placement.mode_reason().empty()) alike[{placement.paged(), placement.mode_reason()}].push_back(i);
  }
  std::string text;
  for (const auto& [said, islands] : alike) {
    std::vector<uint32_t> numbers;
    uint64_t data_bytes = 0, pool_bytes = 0;
    for (const int i : islands) {
      numbers.push_back(status.islands(i).island());
      data_bytes += status.islands(i).placement().data_pages() * kPageBytes;
      pool_bytes += status.configs(i).pool_bytes();
    }
    text += fmt::format("island{} {} {}: {}; data of {}, {} of pool\n", islands.size() == 1 ? "" : "s",
                        topology::FormatCpuList(numbers), said.first ? "paged" : "resident", said.second,
                        topology::FormatSize(data_bytes), topology::FormatSize(pool_bytes));
  }
  for (const IslandStatus& island : status.islands()) {
    if (!island.has_warm_up()) continue;
    text += fmt::format("island {} is warming up: {} of {} pages\n", island.island(), island.warm_up().done(),
                        island.warm_up().listed());
  }
  return text;
}

std::string OrDash(std::string text) { return text.empty() ? "-" : std::move(text); }

std::string LogText(const ClusterStatus& status) {
  if (!status.has_log()) return "";
  const int pid = status.log().logger_pid();
  const uint32_t restarts = status.log().restarts();
  std::string text = fmt::format(
      "log: durability {}, data generation {}, {}{}\n", status.configs(0).durability(),
      status.log().data_generation(), pid > 0 ? fmt::format("logger {}", pid) : "no logger",
      restarts > 0 ? fmt::format(", restarted {} time{}", restarts, restarts == 1 ? "" : "s") : "");
  if (!status.log().full().empty()) text += fmt::format("NOTHING CAN BE CHANGED: {}\n", status.log().full());
  if (!status.log().lost().empty()) text += fmt::format("when it was started: {}\n", status.log().lost());
  return text;
}

std::string GatewayText(const ClusterStatus& status) {
  if (!status.has_gateway()) return "";
  const control::v1::GatewayStatus& gateway = status.gateway();
  std::string text = fmt::format("gateway: {}", StateName(gateway));
  if (gateway.pid() > 0) text += fmt::format(", process {}", gateway.pid());
  if (gateway.restarts() > 0)
    text += fmt::format(", restarted {} time{}", gateway.restarts(), gateway.restarts() == 1 ? "" : "s");
  for (const std::string& address : gateway.addresses()) text += ", " + address;
  if (!gateway.detail().empty()) text += fmt::format("; {}", gateway.detail());
  if (gateway.hung_ms() > 0) {
    text += fmt::format(
        "; hung for {:.1f} s: it was stopped, or its cores are busy with something else; who calls it waits, "
        "and it may go on at any moment",
        static_cast<double>(gateway.hung_ms()) / 1000);
  }
  text += "\n";
  if (!gateway.metrics_problem().empty())
    text += fmt::format("warning: the gateway serves no metrics: {}\n", gateway.metrics_problem());
  return text;
}

json GatewayJson(const control::v1::GatewayStatus& gateway) {
  json addresses = json::array();
  for (const std::string& address : gateway.addresses()) addresses.push_back(address);
  json entry = {{"state", StateName(gateway)},
                {"hung_ms", gateway.hung_ms()},
                {"pid", gateway.pid() > 0 ? json(gateway.pid()) : json()},
                {"restarts", gateway.restarts()},
                {"detail", gateway.detail()},
                {"addresses", std::move(addresses)},
                {"metrics_port", gateway.metrics_port()}};
  if (!gateway.metrics_problem().empty()) entry["metrics_problem"] = gateway.metrics_problem();
  return entry;
}

}  // namespace

std::string_view StateName(control::v1::IslandState state) {
  switch (state) {
    case control::v1::STARTING:
      return "starting";
    case control::v1::READY:
      return "ready";
    case control::v1::STOPPING:
      return "stopping";
    case control::v1::LOST:
      return "lost";
    case control::v1::GIVEN_UP:
      return "given_up";
    case control::v1::STOPPED:
      return "stopped";
    default:
      return "unknown";
  }
}

std::string_view StateName(const IslandStatus& island) {
  if (island.state() == control::v1::READY && island.hung_ms() != 0) return "hung";
  return StateName(island.state());
}

std::string_view StateName(const control::v1::GatewayStatus& gateway) {
  if (gateway.state() == control::v1::READY && gateway.hung_ms() != 0) return "hung";
  return StateName(gateway.state());
}

bool AllWork(const ClusterStatus& status) {
  const auto ready = [](const auto& process) {
    return process.state() == control::v1::READY && process.hung_ms() == 0;
  };
  if (status.stopping() || !std::ranges::all_of(status.islands(), ready)) return false;
  if (status.has_gateway() && !ready(status.gateway())) return false;
  return !status.has_log() || (status.log().logger_pid() > 0 && status.log().full().empty());
}

std::string StatusJson(const ClusterStatus& status, const ResolvedDeployment* resolved) {
  const bool matches = resolved != nullptr && SamePlan(status, *resolved);
  const json plan = matches ? PlanJson(*resolved) : json();
  json document = {{"deployment", status.deployment()},
                   {"layout", status.layout()},
                   {"state", status.stopping() ? "stopping" : "up"},
                   {"cluster_id", status.cluster_id()},
                   {"supervisor_pid", status.supervisor_pid()},
                   {"machine", matches ? plan["machine"] : json(status.machine())},
                   {"islands", json::array()}};
  if (status.has_log()) {
    // Not 0: see IslandJson.
    const int pid = status.log().logger_pid();
    document["log"] = {{"durability", status.configs(0).durability()},
                       {"logger_pid", pid > 0 ? json(pid) : json()},
                       {"restarts", status.log().restarts()},
                       {"full", status.log().full()},
                       {"lost", status.log().lost()},
                       {"data_generation", status.log().data_generation()}};
  }
  if (status.has_gateway()) document["gateway"] = GatewayJson(status.gateway());
  if (status.has_observation()) document["observation"] = ObservationJson(status.observation());
  for (int i = 0; i < std::min(status.islands_size(), status.configs_size()); ++i) {
    json planned = matches ? plan["islands"][i] : ConfiguredIsland(status.configs(i));
    document["islands"].push_back(IslandJson(status.islands(i), std::move(planned)));
  }
  return document.dump(2) + "\n";
}

// "64MiB", "64MiB paged".
std::string Pool(const IslandStatus& island, const IslandConfig& config) {
  return topology::FormatSize(config.pool_bytes()) + (island.placement().paged() ? " paged" : "");
}

std::string StatusText(const ClusterStatus& status) {
  TextTable table;
  table.AddColumn("island", TextTable::Align::kRight);
  table.AddColumn("state");
  table.AddColumn("pid", TextTable::Align::kRight);
  table.AddColumn("restarts", TextTable::Align::kRight);
  for (const char* title : {"cpus", "actual", "nodes", "pages of 4 KiB", "policy"}) table.AddColumn(title);
  table.AddColumn("pool", TextTable::Align::kRight);
  table.AddColumn("sites");
  table.AddColumn("links", TextTable::Align::kRight);
  for (int i = 0; i < std::min(status.islands_size(), status.configs_size()); ++i) {
    const IslandStatus& island = status.islands(i);
    const IslandConfig& config = status.configs(i);
    table.AddRow({fmt::format("{}", island.island()), std::string(StateName(island)),
                  island.pid() > 0 ? fmt::format("{}", island.pid()) : "-",
                  fmt::format("{}", island.restarts()), OrDash(PlannedCpus(config)),
                  OrDash(ActualCpus(island)), OrDash(Nodes(config)), PagesPerNode(island),
                  OrDash(island.placement().memory_policy()), Pool(island, config), OrDash(Sites(config)),
                  Links(island)});
  }
  return fmt::format("{}: {} on {}, supervisor {}{}\n{}\n{}{}", status.deployment(), status.layout(),
                     status.machine(), status.supervisor_pid(), status.stopping() ? ", stopping" : "",
                     LogText(status) + GatewayText(status), table.Render(),
                     PoolsText(status) + Remarks(status) + ObservationText(status.observation()));
}

}  // namespace islands::deploy
