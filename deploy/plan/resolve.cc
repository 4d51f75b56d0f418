#include "deploy/plan/resolve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "deploy/file/yaml_tree.h"
#include "deploy/plan/measured_machine.h"
#include "instance/messaging/unix_socket.h"
#include "instance/storage/pages/page.h"
#include "runtime/descriptor.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

static_assert(topology::kPageBytes == storage::kPageBytes, "what is planned is what islands divide");

std::string Absolute(const std::string& folder, const std::string& path) {
  std::string text = (std::filesystem::path(folder) / path).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

topology::PlanRequest RequestOf(const Deployment& deployment) {
  return {.islands = deployment.layout,
          .explicit_islands = deployment.islands_by_hand,
          .cpus = deployment.cpus,
          .core_count = deployment.core_count,
          .placement = deployment.placement,
          .worker_order = deployment.workers,
          .use_all_pus = deployment.use_all_pus,
          .sites = deployment.sites,
          .memory_bytes = deployment.buffer_pool_bytes,
          .metrics_base_port = deployment.metrics_base_port,
          .gateway_cpus = deployment.gateway ? deployment.gateway->cpus.value_or(std::vector<uint32_t>())
                                             : std::vector<uint32_t>()};
}

// Where a field of the plan stands in the file. What the file leaves to `auto` follows from its cut.
std::string PathOf(const Deployment& deployment, const topology::PlanComplaint& complaint) {
  using topology::PlanField;
  const std::string cut = deployment.islands_by_hand.empty() ? "layout" : "islands";
  const auto said_or_cut = [&](const char* path) { return deployment.positions.contains(path) ? path : cut; };
  const auto of_island = [&](std::string_view key) {
    return fmt::format("islands[{}].{}", complaint.island, key);
  };
  switch (complaint.field) {
    case PlanField::kCores:
      return "cores";
    case PlanField::kLayout:
      return cut;
    case PlanField::kSites:
      return said_or_cut("data.sites");
    case PlanField::kMemory:
      return said_or_cut("storage.buffer_pool");
    case PlanField::kPort:
      return "metrics.base_port";
    case PlanField::kGatewayCpus:
      return "gateway.cpus";
    case PlanField::kIslandCpus:
      return of_island("cpus");
    case PlanField::kIslandNodes:
      return of_island("numa_nodes");
    case PlanField::kIslandMemory:
      return of_island("memory");
  }
  return "";
}

void CheckControlDirectory(const Deployment& deployment, Complaints& complaints) {
  const std::string directory = Absolute(deployment.folder, deployment.control_directory);
  const size_t longest =
      directory.size() + fmt::formatted_size("/island-{0}.w{0}.sock", topology::kMaxIslands);
  constexpr size_t kMost = messaging::kMaxSocketPathBytes;
  if (longest <= kMost) return;
  complaints.Add(
      deployment.At("control.directory"),
      fmt::format("found a directory whose socket paths have up to {} bytes ({}), expected at most {}: "
                  "choose a directory at least {} bytes shorter, for example {}",
                  longest, directory, kMost, longest - kMost,
                  ShortControlDirectory(deployment.name, geteuid(), getenv("XDG_RUNTIME_DIR"))));
}

void DecideBinding(ResolvedDeployment* resolved) {
  resolved->notes = resolved->plan.notes;
  if (!resolved->machine.is_this_machine) {
    resolved->unbound_reason =
        fmt::format("the file's machine is {}, not this one", Quote(resolved->machine.source));
  } else if (resolved->deployment.placement == topology::Placement::kOs) {
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

void NoteDurability(ResolvedDeployment* resolved) {
  if (resolved->deployment.durability != Durability::kCommand) return;
  const auto& islands = resolved->plan.islands;
  const bool some =
      std::any_of(islands.begin(), islands.end(), [](const auto& island) { return island.workers > 1; });
  if (!some) return;
  resolved->notes.emplace_back(
      "durability command: islands of several workers log what transactions change, as with lazy; "
      "commands are logged where one worker has the island to itself");
}

int32_t ServiceCpu(const topology::Machine& machine, const topology::PlannedIsland& island,
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

// Control and metrics threads go where no worker runs: a core nobody uses, else the other hardware thread
// of one of the island's own cores. The island's own package first.
void ChooseServiceCpus(ResolvedDeployment* resolved) {
  std::set<uint32_t> used;
  for (const auto& island : resolved->plan.islands) used.insert(island.cpus.begin(), island.cpus.end());
  for (const auto& island : resolved->plan.islands) {
    resolved->service_cpus.push_back(resolved->bound ? ServiceCpu(resolved->machine, island, used) : -1);
  }
}

// The machine that the file names. A name that is a file beside the deployment file is that file.
absl::StatusOr<topology::Machine> MachineOf(const Deployment& deployment) {
  const std::string& spec = deployment.machine;
  if (spec == "auto") return topology::LoadThisMachine();
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(deployment.Complain(
        "machine", fmt::format("found {} ({}), expected {}", Quote(spec), why, kMachineValues)));
  };
  const std::string path = Absolute(deployment.folder, spec);
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  if (!is_file && (spec.ends_with(".xml") || spec.ends_with(".json"))) return refuse("no such file");
  if (is_file) {
    auto file = LoadMachineFile(path);
    if (file.ok()) return std::move(file->machine);
    if (IsMeasuredComplaint(file.status(), path)) return file.status();
    return refuse(std::string(file.status().message()));
  }
  auto machine = topology::LoadMachineSynthetic(spec);
  if (!machine.ok()) return refuse(std::string(machine.status().message()));
  return machine;
}

// Why no directory can be made there, or nothing in the one that is there; empty: it can.
std::string Obstacle(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path there = path;
  std::error_code error;
  fs::file_status status = fs::status(there, error);
  while (status.type() == fs::file_type::not_found && there.has_relative_path()) {
    there = there.parent_path();
    status = fs::status(there, error);
  }
  const std::string word = there == path ? "which" : fmt::format("where {}", there.string());
  if (!fs::status_known(status)) return fmt::format("{} cannot be reached ({})", word, error.message());
  if (!fs::is_directory(status)) return fmt::format("{} is no directory", word);
  if (faccessat(AT_FDCWD, there.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return "";
  return fmt::format("{} cannot be written to ({})", word, std::generic_category().message(errno));
}

}  // namespace

// Directories that nobody else may write to: what is under /tmp anybody can take first.
std::string ShortControlDirectory(const std::string& deployment, uint32_t user,
                                  const char* runtime_directory) {
  if (user == 0) return "/run/islands/" + deployment;
  const bool given = runtime_directory != nullptr && *runtime_directory == '/';
  return fmt::format("{}/islands/{}", given ? runtime_directory : fmt::format("/run/user/{}", user),
                     deployment);
}

absl::StatusOr<ResolvedDeployment> ResolveOn(const Deployment& deployment, topology::Machine machine) {
  Complaints complaints(deployment.filename);
  CheckControlDirectory(deployment, complaints);
  topology::Verdict verdict = topology::MakePlan(machine, RequestOf(deployment));
  for (topology::PlanComplaint& complaint : verdict.complaints) {
    complaints.Add(deployment.At(PathOf(deployment, complaint)), std::move(complaint.text));
  }
  if (!complaints.empty()) return complaints.ToStatus();

  ResolvedDeployment resolved{
      .deployment = deployment, .machine = std::move(machine), .plan = *std::move(verdict.plan)};
  if (const uint32_t port = GatewayMetricsPort(resolved); port > topology::kMaxPort) {
    complaints.Add(
        deployment.At("metrics.base_port"),
        fmt::format("found port {}, which makes {} the gateway's, after the islands', expected at "
                    "most {}",
                    deployment.metrics_base_port, port, topology::kMaxPort - resolved.plan.islands.size()));
    return complaints.ToStatus();
  }
  resolved.data_directory = DataDirectoryOf(deployment);
  resolved.log_directory = LogDirectoryOf(deployment);
  resolved.ring_directory = RingDirectoryOf(deployment);
  resolved.control_directory = Absolute(deployment.folder, deployment.control_directory);
  DecideBinding(&resolved);
  NoteDurability(&resolved);
  ChooseServiceCpus(&resolved);
  return resolved;
}

absl::Status CheckPemFiles(const Deployment& deployment) {
  Complaints complaints(deployment.filename);
  if (!deployment.gateway || deployment.gateway->listen.empty()) return absl::OkStatus();
  const GatewaySettings& gateway = *deployment.gateway;
  const auto check = [&](const char* key, const std::string& file, std::string_view wanted) {
    const std::string path = Absolute(deployment.folder, file);
    const runtime::UniqueFd opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const auto text = opened ? runtime::ReadAll(opened.get(), path) : absl::ErrnoToStatus(errno, path);
    const std::string at = fmt::format("gateway.{}", key);
    if (!text.ok()) {
      complaints.Add(deployment.At(at),
                     fmt::format("found a file that cannot be read ({}), expected a PEM file",
                                 std::string(text.status().message())));
    } else if (text->find(wanted) == std::string::npos) {
      complaints.Add(
          deployment.At(at),
          fmt::format("found a file without '{}' ({}), expected a PEM file with one", wanted, path));
    }
  };
  check("certificate", gateway.certificate, "-----BEGIN CERTIFICATE-----");
  check("key", gateway.key, "PRIVATE KEY-----");
  check("clients", gateway.clients, "-----BEGIN CERTIFICATE-----");
  return complaints.ToStatus();
}

absl::Status CheckDirectories(const ResolvedDeployment& resolved) {
  const Deployment& deployment = resolved.deployment;
  Complaints complaints(deployment.filename);
  const auto check = [&](const char* key, const std::string& directory) {
    const std::string obstacle = Obstacle(directory);
    if (!obstacle.empty()) {
      complaints.Add(deployment.At(key),
                     fmt::format("found {}, {}, expected a directory that `up` can make, or "
                                 "write to",
                                 directory, obstacle));
    }
    return obstacle.empty();
  };
  check("data.directory", resolved.data_directory);
  if (!deployment.log_directory.empty()) check("storage.log.directory", resolved.log_directory);
  if (!resolved.ring_directory.empty()) check("storage.log.ring_directory", resolved.ring_directory);
  if (check("control.directory", resolved.control_directory)) {
    const absl::Status ours = runtime::CheckPrivateDirectory(resolved.control_directory);
    if (!ours.ok() && !absl::IsNotFound(ours)) {
      complaints.Add(deployment.At("control.directory"),
                     fmt::format("found a directory that `up` refuses ({}), expected one of yours alone",
                                 std::string(ours.message())));
    }
  }
  return complaints.ToStatus();
}

std::string DataDirectoryOf(const Deployment& deployment) {
  return Absolute(deployment.folder, deployment.data_directory);
}

std::string LogDirectoryOf(const Deployment& deployment) {
  return deployment.log_directory.empty() ? DataDirectoryOf(deployment) + "/log"
                                          : Absolute(deployment.folder, deployment.log_directory);
}

std::string RingDirectoryOf(const Deployment& deployment) {
  return deployment.ring_directory.empty() ? "" : Absolute(deployment.folder, deployment.ring_directory);
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

uint32_t GatewayMetricsPort(const ResolvedDeployment& resolved) {
  const uint32_t base = resolved.deployment.metrics_base_port;
  if (base == 0 || !resolved.deployment.gateway) return 0;
  return base + static_cast<uint32_t>(resolved.plan.islands.size());
}

std::vector<std::string> GatewayAddresses(const ResolvedDeployment& resolved) {
  const std::optional<GatewaySettings>& gateway = resolved.deployment.gateway;
  if (!gateway) return {};
  std::vector<std::string> addresses = {fmt::format("unix:{}/gateway.sock", resolved.control_directory)};
  if (!gateway->listen.empty()) addresses.push_back(gateway->listen);
  return addresses;
}

std::vector<uint32_t> SpareCpus(const ResolvedDeployment& resolved) {
  if (!resolved.bound) return {};
  std::set<uint32_t> used;
  for (const topology::PlannedIsland& island : resolved.plan.islands)
    used.insert(island.cpus.begin(), island.cpus.end());
  std::vector<uint32_t> spare;
  for (const topology::Core& core : resolved.machine.cores) {
    const bool idle =
        std::none_of(core.pus.begin(), core.pus.end(), [&](uint32_t pu) { return used.contains(pu); });
    if (idle) spare.insert(spare.end(), core.pus.begin(), core.pus.end());
  }
  return spare;
}

}  // namespace islands::deploy
