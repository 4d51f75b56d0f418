#include "deploy/plan/measured_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "deploy/cli/terminal_line.h"
#include "topology/clusters.h"
#include "topology/round_trips.h"

namespace islands::deploy {
namespace {

// Of hardware threads a taskset may leave fewer here than the XML has.
bool SameCore(const topology::Core& described, const topology::Core& here) {
  return described.package == here.package && described.nodes == here.nodes &&
         std::all_of(here.pus.begin(), here.pus.end(), [&](uint32_t pu) {
           return std::find(described.pus.begin(), described.pus.end(), pu) != described.pus.end();
         });
}

bool SameMachine(const topology::Machine& described, const topology::Machine& here) {
  const auto same_package = [](const topology::Package& a, const topology::Package& b) {
    return a.os_index == b.os_index && a.cpu_model == b.cpu_model;
  };
  const auto same_node = [](const topology::NumaNode& a, const topology::NumaNode& b) {
    return a.os_index == b.os_index;
  };
  const auto equal = [](const auto& a, const auto& b, const auto& same) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  };
  return equal(described.packages, here.packages, same_package) &&
         equal(described.nodes, here.nodes, same_node) && equal(described.cores, here.cores, SameCore);
}

// What islands are cut and placed by, besides.
bool SameCaches(const topology::Machine& described, const topology::Machine& here) {
  const auto same_group = [](const topology::CacheGroup& a, const topology::CacheGroup& b) {
    return a.package == b.package && a.bytes == b.bytes;
  };
  const auto same_core = [](const topology::Core& a, const topology::Core& b) {
    return a.cache_group == b.cache_group;
  };
  return std::equal(described.cache_groups.begin(), described.cache_groups.end(), here.cache_groups.begin(),
                    here.cache_groups.end(), same_group) &&
         std::equal(described.cores.begin(), described.cores.end(), here.cores.begin(), here.cores.end(),
                    same_core) &&
         described.node_distances == here.node_distances;
}

}  // namespace

topology::Machine MachineOfXml(topology::Machine described, const std::string& file,
                               const topology::Machine& here) {
  if (!SameMachine(described, here) || !SameCaches(described, here)) return described;
  topology::Machine same = here;
  same.source = fmt::format("this machine, as in {}", file);
  return same;
}

absl::StatusOr<topology::Machine> MachineOfMeasured(const Measured& measured, const std::string& file,
                                                    topology::Machine described,
                                                    const topology::Machine& here) {
  const auto with_clusters = [&](topology::Machine machine) {
    return topology::WithClusters(std::move(machine), measured.trips.cpus, measured.levels, file);
  };
  std::optional<topology::Machine> machine = with_clusters(std::move(described));
  if (!machine) {
    return absl::InvalidArgumentError(
        fmt::format("{}:1:1: found CPUs {}, expected one of each core of the machine in 'hwloc_xml'", file,
                    topology::FormatCpuList(measured.trips.cpus)));
  }
  if (!SameMachine(*machine, here)) return *std::move(machine);
  std::optional<topology::Machine> same = with_clusters(here);
  if (!same) return *std::move(machine);  // a taskset leaves the other hardware thread of a core
  same->source = fmt::format("this machine, measured in {}", file);
  return *std::move(same);
}

absl::StatusOr<MachineFile> LoadMachineFile(const std::string& path) {
  const absl::StatusOr<std::string> text = topology::ReadMachineFile(path);
  if (!text.ok()) return text.status();
  if (!LooksMeasured(*text)) {
    absl::StatusOr<topology::Machine> machine = topology::LoadMachineXmlText(*text, path);
    if (!machine.ok()) return machine.status();
    const absl::StatusOr<topology::Machine> here = topology::LoadThisMachine();
    return MachineFile{
        .machine = here.ok() ? MachineOfXml(*std::move(machine), path, *here) : *std::move(machine),
        .measured = std::nullopt};
  }
  absl::StatusOr<Measured> measured = ParseMeasured(*text, path);
  if (!measured.ok()) return measured.status();
  absl::StatusOr<topology::Machine> described = topology::LoadMachineXmlText(measured->hwloc_xml, path);
  if (!described.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}:1:1: found 'hwloc_xml' that is none: {}", path,
                                                  std::string(described.status().message())));
  }
  const absl::StatusOr<topology::Machine> here = topology::LoadThisMachine();
  if (!here.ok()) return here.status();
  absl::StatusOr<topology::Machine> machine =
      MachineOfMeasured(*measured, path, *std::move(described), *here);
  if (!machine.ok()) return machine.status();
  return MachineFile{.machine = *std::move(machine), .measured = *std::move(measured)};
}

bool IsMeasuredComplaint(const absl::Status& status, const std::string& path) {
  return std::string_view(status.message().data(), status.message().size()).starts_with(path + ":");
}

absl::StatusOr<MachineFile> MeasureThisMachine() {
  absl::StatusOr<topology::Machine> machine = topology::LoadThisMachine();
  if (!machine.ok()) return machine.status();
  absl::StatusOr<std::string> xml = topology::ExportThisMachineXml();
  if (!xml.ok()) return xml.status();
  std::vector<uint32_t> cpus;
  for (const topology::Core& core : machine->cores) cpus.push_back(core.pus.front());
  TerminalLine line(TerminalLine::End::kGoes);
  topology::RoundTripOptions options;
  options.progress = [&](size_t done, size_t all) {
    line.Show(fmt::format("round trips between cores: {} of {} measured", done, all));
  };
  absl::StatusOr<topology::RoundTrips> trips = topology::MeasureRoundTrips(std::move(cpus), options);
  if (!trips.ok()) return trips.status();
  Measured measured{.trips = *std::move(trips), .hwloc_xml = *std::move(xml)};
  measured.levels = topology::FindClusters(measured.trips.ns);
  return MachineFile{.machine = *std::move(machine), .measured = std::move(measured)};
}

}  // namespace islands::deploy
