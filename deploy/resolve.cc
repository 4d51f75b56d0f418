#include "deploy/resolve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "deploy/output.h"
#include "deploy/yaml_tree.h"

namespace islands::deploy {
namespace {

// A tree per site and table, and room to work in: below this an island cannot even load.
constexpr uint64_t kMinPoolBytesPerIsland = 4u << 20;
// The longest name of a socket in the control directory, with its slash.
constexpr std::string_view kLongestSocketName = "/island-999.w999.sock";

std::string Absolute(const std::string& folder, const std::string& path) {
  std::string text = (std::filesystem::path(folder) / path).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::set<uint32_t> AllowedPus(const topology::Machine& machine) {
  std::set<uint32_t> pus;
  for (const topology::Core& core : machine.cores) pus.insert(core.pus.begin(), core.pus.end());
  return pus;
}

// The checks of one deployment against one machine. What is wrong collects in `complaints_`.
class Resolver {
 public:
  Resolver(const Deployment& deployment, topology::Machine machine)
      : deployment_(deployment), machine_(std::move(machine)), complaints_(deployment.filename) {}

  absl::StatusOr<ResolvedDeployment> Resolve() {
    // Where the cores are wrong that is complained of below, and the rest judged as one island.
    islands_ = topology::CountIslands(machine_, Request()).value_or(1);
    CheckDurability();
    CheckCores();
    CheckNodes();
    CheckSites();
    CheckControlDirectory();
    CheckPorts();
    if (!complaints_.empty()) return complaints_.ToStatus();

    const auto site_map = partitioner::SiteMap::Create(sites_, islands_);
    if (!site_map.ok()) return site_map.status();
    total_pool_bytes_ = TotalPoolBytes();
    topology::PlanRequest request = Request();
    for (uint32_t i = 0; i < islands_; ++i) request.weights.push_back(site_map->SitesOf(i).count);
    auto plan = topology::MakePlan(machine_, request);
    if (!plan.ok()) return PlannerComplaint(plan.status());
    ResolvedDeployment resolved{.deployment = deployment_,
                                .machine = std::move(machine_),
                                .plan = *std::move(plan),
                                .site_map = *site_map};
    Complete(&resolved);
    if (!complaints_.empty()) return complaints_.ToStatus();
    return resolved;
  }

 private:
  void Complain(std::string_view path, std::string text) {
    complaints_.Add(deployment_.At(path), std::move(text));
  }

  void CheckDurability() {
    if (deployment_.durability == Durability::kNone) return;
    Complain("storage.log.durability",
             fmt::format("found durability '{}', which is not available in this version, expected 'none'",
                         DurabilityName(deployment_.durability)));
  }

  void CheckCpus(std::string_view path, const std::vector<uint32_t>& cpus) {
    const std::set<uint32_t> pus = AllowedPus(machine_);
    std::vector<uint32_t> missing;
    std::vector<uint32_t> disallowed;
    for (const uint32_t cpu : cpus) {
      if (pus.contains(cpu)) continue;
      const auto& known = machine_.disallowed_cpus;
      (std::find(known.begin(), known.end(), cpu) == known.end() ? missing : disallowed).push_back(cpu);
    }
    const std::string usable = topology::FormatCpuList({pus.begin(), pus.end()});
    if (!missing.empty()) {
      Complain(path, fmt::format("found CPU {}, which {} does not have, expected CPUs from {}",
                                 topology::FormatCpuList(missing), machine_.source, usable));
    }
    if (!disallowed.empty()) {
      Complain(
          path,
          fmt::format("found CPU {}, which is offline or not allowed here (cgroup, taskset), expected CPUs "
                      "from {}",
                      topology::FormatCpuList(disallowed), usable));
    }
  }

  void CheckCores() {
    if (deployment_.core_count && *deployment_.core_count > machine_.cores.size()) {
      Complain("cores", fmt::format("found {} cores, expected at most the {} of {}", *deployment_.core_count,
                                    machine_.cores.size(), machine_.source));
    }
    if (deployment_.cpus) CheckCpus("cores", *deployment_.cpus);
    for (size_t i = 0; i < deployment_.islands_by_hand.size(); ++i) {
      CheckCpus(fmt::format("islands[{}].cpus", i), deployment_.islands_by_hand[i].cpus);
    }
  }

  void CheckNodes() {
    std::vector<uint32_t> nodes;  // without memory they are of no use to an island
    for (const topology::NumaNode& node : machine_.nodes) {
      if (node.memory_bytes > 0 || machine_.memory_bytes == 0) nodes.push_back(node.os_index);
    }
    for (size_t i = 0; i < deployment_.islands_by_hand.size(); ++i) {
      for (const uint32_t node :
           deployment_.islands_by_hand[i].numa_nodes.value_or(std::vector<uint32_t>{})) {
        if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
        Complain(
            fmt::format("islands[{}].numa_nodes", i),
            fmt::format(
                "found NUMA node {}, which does not exist or has no memory on {}, expected nodes from {}",
                node, machine_.source, topology::FormatCpuList(nodes)));
        break;
      }
    }
  }

  void CheckSites() {
    sites_ = deployment_.sites.value_or(partitioner::AutoSites(static_cast<uint32_t>(machine_.cores.size())));
    if (islands_ > sites_) {
      Complain(
          deployment_.positions.contains("data.sites") ? "data.sites" : LayoutPath(),
          fmt::format(
              "found {} sites{} for {} islands, expected at least one site per island: set data.sites to "
              "{} or more",
              sites_, deployment_.sites ? "" : " (auto)", islands_, islands_));
    }
    if (islands_ > kMaxIslands) {
      Complain(LayoutPath(), fmt::format("found {} islands, expected at most {}", islands_, kMaxIslands));
    }
  }

  std::string LayoutPath() const { return deployment_.islands_by_hand.empty() ? "layout" : "islands"; }

  void CheckControlDirectory() {
    const std::string directory = Absolute(deployment_.folder, deployment_.control_directory);
    const size_t longest = directory.size() + kLongestSocketName.size();
    if (longest <= kMaxSocketPathBytes) return;
    Complain(
        "control.directory",
        fmt::format("found a directory whose socket paths have up to {} bytes ({}), expected at most {}: "
                    "choose a directory at least {} bytes shorter, for example {}",
                    longest, directory, kMaxSocketPathBytes, longest - kMaxSocketPathBytes,
                    ShortControlDirectory(deployment_.name, geteuid(), getenv("XDG_RUNTIME_DIR"))));
  }

  void CheckPorts() {
    const uint32_t last = deployment_.metrics_base_port + islands_ - 1;
    if (deployment_.metrics_base_port == 0 || last <= 65535) return;
    Complain("metrics.base_port",
             fmt::format("found port {}, which makes {} the last of {} islands' ports, expected at "
                         "most {}",
                         deployment_.metrics_base_port, last, islands_, 65536 - islands_));
  }

  // How many of the machine's cores the deployment uses.
  size_t CoresUsed() const {
    if (deployment_.core_count) return *deployment_.core_count;
    std::set<uint32_t> cpus;
    if (deployment_.cpus) cpus.insert(deployment_.cpus->begin(), deployment_.cpus->end());
    for (const auto& island : deployment_.islands_by_hand)
      cpus.insert(island.cpus.begin(), island.cpus.end());
    if (cpus.empty()) return machine_.cores.size();
    return std::count_if(machine_.cores.begin(), machine_.cores.end(), [&](const topology::Core& core) {
      return std::any_of(core.pus.begin(), core.pus.end(), [&](uint32_t pu) { return cpus.contains(pu); });
    });
  }

  uint64_t TotalPoolBytes() const {
    if (deployment_.buffer_pool_bytes) return *deployment_.buffer_pool_bytes;
    uint64_t by_hand = 0;
    for (const auto& island : deployment_.islands_by_hand) by_hand += island.memory_bytes.value_or(0);
    if (by_hand > 0) return by_hand;
    return AutoPoolBytes(machine_, CoresUsed(), islands_);
  }

  topology::PlanRequest Request() const {
    return topology::PlanRequest{.islands = deployment_.layout,
                                 .explicit_islands = deployment_.islands_by_hand,
                                 .cpus = deployment_.cpus,
                                 .core_count = deployment_.core_count,
                                 .placement = deployment_.placement,
                                 .worker_order = deployment_.workers,
                                 .use_all_pus = deployment_.use_all_pus,
                                 .memory_bytes = total_pool_bytes_};
  }

  // What the planner refuses and was not refused above is memory that does not fit, or a list it cannot use.
  absl::Status PlannerComplaint(const absl::Status& status) {
    constexpr std::string_view kMemory = "memory: ";
    std::string reason(status.message());
    if (!reason.starts_with(kMemory)) {
      Complain(LayoutPath(),
               fmt::format("found a cut that cannot be made ({}), expected one that can", reason));
      return complaints_.ToStatus();
    }
    reason.erase(0, kMemory.size());
    const std::string path =
        deployment_.positions.contains("storage.buffer_pool") ? "storage.buffer_pool" : LayoutPath();
    Complain(path, fmt::format("found {} of buffer pool, expected what fits the machine: {}",
                               FormatBytes(total_pool_bytes_), reason));
    return complaints_.ToStatus();
  }

  void Complete(ResolvedDeployment* resolved) {
    resolved->data_directory = Absolute(deployment_.folder, deployment_.data_directory);
    resolved->log_directory = deployment_.log_directory.empty()
                                  ? resolved->data_directory + "/log"
                                  : Absolute(deployment_.folder, deployment_.log_directory);
    resolved->control_directory = Absolute(deployment_.folder, deployment_.control_directory);
    DecideBinding(resolved);
    CheckPools(resolved->plan);
    ChooseServiceCpus(resolved);
    for (const auto& island : resolved->plan.islands) {
      const uint32_t base = deployment_.metrics_base_port;
      resolved->metrics_ports.push_back(base == 0 ? 0 : base + island.id);
    }
  }

  void DecideBinding(ResolvedDeployment* resolved) {
    resolved->notes = resolved->plan.notes;
    if (!resolved->machine.is_this_machine) {
      resolved->unbound_reason =
          fmt::format("the file's machine is {}, not this one", Quote(resolved->machine.source));
    } else if (deployment_.placement == topology::Placement::kOs) {
      resolved->unbound_reason = "placement is 'os'";
    }
    resolved->bound = resolved->unbound_reason.empty();
    resolved->cores_shared = resolved->plan.cores_shared;
    if (resolved->bound) return;
    resolved->notes.push_back(fmt::format("`up` would run unbound: {}; the kernel chooses cores and memory",
                                          resolved->unbound_reason));
    const uint32_t workers = std::accumulate(
        resolved->plan.islands.begin(), resolved->plan.islands.end(), 0u,
        [](uint32_t sum, const topology::PlannedIsland& island) { return sum + island.workers; });
    const uint32_t cpus_here = std::max(1u, std::thread::hardware_concurrency());
    if (workers > cpus_here && !resolved->cores_shared) {
      resolved->cores_shared = true;
      resolved->notes.push_back(
          fmt::format("{} workers would share this machine's {} CPUs", workers, cpus_here));
    }
  }

  void CheckPools(const topology::Plan& plan) {
    for (const topology::PlannedIsland& island : plan.islands) {
      if (island.memory_bytes >= kMinPoolBytesPerIsland) continue;
      const bool listed = island.id < deployment_.islands_by_hand.size();
      const auto named =
          listed ? deployment_.islands_by_hand[island.id].memory_bytes : std::optional<uint64_t>();
      const std::string memory_path = fmt::format("islands[{}].memory", island.id);
      Complain(named ? memory_path : "storage.buffer_pool",
               fmt::format("found {} of buffer pool for island {}, expected at least {} for every island",
                           FormatBytes(named.value_or(island.memory_bytes)), island.id,
                           FormatBytes(kMinPoolBytesPerIsland)));
      return;
    }
  }

  // Control and metrics threads go where no worker runs: a core nobody uses, else the other hardware thread
  // of one of the island's own cores. The island's own package first.
  void ChooseServiceCpus(ResolvedDeployment* resolved) {
    std::set<uint32_t> used;
    for (const auto& island : resolved->plan.islands) used.insert(island.cpus.begin(), island.cpus.end());
    for (const auto& island : resolved->plan.islands) {
      resolved->service_cpus.push_back(resolved->bound ? ServiceCpu(resolved->machine, island, used) : -1);
    }
  }

  static int32_t ServiceCpu(const topology::Machine& machine, const topology::PlannedIsland& island,
                            const std::set<uint32_t>& used) {
    const auto is_used = [&](uint32_t pu) { return used.contains(pu); };
    const auto is_own = [&](uint32_t pu) {
      return std::find(island.cpus.begin(), island.cpus.end(), pu) != island.cpus.end();
    };
    std::set<uint32_t> packages;
    for (const topology::Core& core : machine.cores) {
      if (std::any_of(core.pus.begin(), core.pus.end(), is_own)) packages.insert(core.package);
    }
    int best_rank = 0;
    int32_t best = -1;
    for (const topology::Core& core : machine.cores) {
      const auto free = std::find_if_not(core.pus.begin(), core.pus.end(), is_used);
      if (free == core.pus.end()) continue;
      const bool idle = std::none_of(core.pus.begin(), core.pus.end(), is_used);
      const bool near = packages.contains(core.package);
      const bool own = std::any_of(core.pus.begin(), core.pus.end(), is_own);
      const int rank = idle ? (near ? 4 : 3) : own ? 2 : 1;
      if (rank <= best_rank) continue;
      best_rank = rank;
      best = static_cast<int32_t>(*free);
    }
    return best;
  }

  const Deployment& deployment_;
  topology::Machine machine_;
  Complaints complaints_;
  uint32_t islands_ = 0;
  uint32_t sites_ = 0;
  uint64_t total_pool_bytes_ = 0;
};

// The machine that the file names. A name that is a file beside the deployment file is that file.
absl::StatusOr<topology::Machine> MachineOf(const Deployment& deployment) {
  const std::string& spec = deployment.machine;
  if (spec == "auto") return topology::LoadThisMachine();
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(deployment.Complain(
        "machine",
        fmt::format("found {} ({}), expected auto, an hwloc XML file or a synthetic string such as "
                    "'pack:4 [numa] core:6 pu:1'",
                    Quote(spec), why)));
  };
  const std::string path = Absolute(deployment.folder, spec);
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  if (!is_file && spec.ends_with(".xml")) return refuse("no such file");
  auto machine = is_file ? topology::LoadMachineXml(path) : topology::LoadMachineSynthetic(spec);
  if (!machine.ok()) return refuse(std::string(machine.status().message()));
  return machine;
}

}  // namespace

uint64_t AutoPoolBytes(const topology::Machine& machine, size_t cores_used, size_t islands) {
  constexpr uint64_t kUnknownMemoryBytes = 1u << 30;
  constexpr uint64_t kMiB = 1u << 20;
  const uint64_t memory = machine.memory_bytes > 0 ? machine.memory_bytes : kUnknownMemoryBytes;
  const auto cores = std::max<size_t>(1, machine.cores.size());
  const auto share = static_cast<uint64_t>(static_cast<unsigned __int128>(memory) * cores_used / cores / 4);
  return std::max<uint64_t>(share / kMiB * kMiB, islands * 2 * kMinPoolBytesPerIsland);
}

// Directories that nobody else may write to: what is under /tmp anybody can take first.
std::string ShortControlDirectory(const std::string& deployment, uint32_t user,
                                  const char* runtime_directory) {
  if (user == 0) return "/run/islands/" + deployment;
  const bool given = runtime_directory != nullptr && *runtime_directory == '/';
  return fmt::format("{}/islands/{}", given ? runtime_directory : fmt::format("/run/user/{}", user),
                     deployment);
}

absl::StatusOr<ResolvedDeployment> ResolveOn(const Deployment& deployment, topology::Machine machine) {
  return Resolver(deployment, std::move(machine)).Resolve();
}

absl::StatusOr<ResolvedDeployment> Resolve(const Deployment& deployment) {
  auto machine = MachineOf(deployment);
  if (!machine.ok()) return machine.status();
  return ResolveOn(deployment, *std::move(machine));
}

absl::StatusOr<ResolvedDeployment> ResolveFile(const std::string& path) {
  auto deployment = LoadDeployment(path);
  if (!deployment.ok()) return deployment.status();
  return Resolve(*deployment);
}

}  // namespace islands::deploy
