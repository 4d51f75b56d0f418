#include "deploy/cluster/shared_cores.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "deploy/processes/claim.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/registry.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

// All hardware threads of the cores that islands are to have.
std::set<uint32_t> CpusOfCores(const ResolvedDeployment& resolved) {
  std::set<uint32_t> planned;
  for (const topology::PlannedIsland& island : resolved.plan.islands)
    planned.insert(island.cpus.begin(), island.cpus.end());
  std::set<uint32_t> cpus;
  for (const topology::Core& core : resolved.machine.cores) {
    if (std::any_of(core.pus.begin(), core.pus.end(), [&](uint32_t pu) { return planned.contains(pu); }))
      cpus.insert(core.pus.begin(), core.pus.end());
  }
  return cpus;
}

// It is this user's, and its control directory still is its own.
bool CanBeRead(const Registered& entry) {
  const ControlFiles files{entry.claim.control_directory};
  if (!entry.alive || entry.owner != geteuid() || !runtime::CheckPrivateDirectory(files.directory).ok())
    return false;
  const auto holder = LockHolder(files.SupervisorLock());
  return holder.ok() && holder->has_value() && **holder == entry.pid;
}

// Where its workers are bound; none: they are not, or nothing is known.
std::set<uint32_t> CpusOf(const Registered& entry) {
  std::set<uint32_t> cpus;
  if (!CanBeRead(entry)) return cpus;
  const ControlFiles files{entry.claim.control_directory};
  for (uint32_t i = 0; i < entry.claim.islands; ++i) {
    const absl::StatusOr<std::string> json = runtime::ReadPrivateFile(files.IslandConfig(i));
    control::v1::IslandConfig config;
    if (!json.ok() || !google::protobuf::util::JsonStringToMessage(*json, &config).ok()) break;
    for (const control::v1::WorkerPlace& worker : config.workers()) {
      if (worker.cpu() >= 0) cpus.insert(static_cast<uint32_t>(worker.cpu()));
    }
    cpus.insert(config.cpus().begin(), config.cpus().end());
  }
  return cpus;
}

}  // namespace

std::vector<std::string> NotesOnSharedCores(const ResolvedDeployment& resolved) {
  std::vector<std::string> notes;
  if (!resolved.bound) return notes;
  const std::set<uint32_t> ours = CpusOfCores(resolved);
  const std::string own = CanonicalPath(resolved.control_directory);
  for (const Registered& entry : ReadRegistry().entries) {
    if (CanonicalPath(entry.claim.control_directory) == own) continue;
    std::vector<uint32_t> shared;
    for (const uint32_t cpu : CpusOf(entry)) {
      if (ours.contains(cpu)) shared.push_back(cpu);
    }
    if (shared.empty()) continue;
    notes.push_back(
        fmt::format("the deployment '{}' of {} is up and has workers on CPUs {}, of cores that this one "
                    "would use: both would wait for each other; see `islands ps`, and `cores`",
                    entry.claim.name, entry.claim.file, topology::FormatCpuList(shared)));
  }
  return notes;
}

}  // namespace islands::deploy
