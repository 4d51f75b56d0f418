// A Machine as text for people.
#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "topology/machine.h"

namespace islands::topology {
namespace {

std::string Plural(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Cores in a row that are alike: one line of the tree.
struct Run {
  const Core* first;
  std::vector<const Core*> cores;
};

bool Alike(const Core& a, const Core& b) {
  return a.package == b.package && a.nodes == b.nodes && a.cache_group == b.cache_group &&
         a.efficiency_class == b.efficiency_class;
}

std::vector<Run> RunsOf(const Machine& machine) {
  std::vector<Run> runs;
  for (const Core& core : machine.cores) {
    if (runs.empty() || !Alike(*runs.back().first, core)) runs.push_back({&core, {}});
    runs.back().cores.push_back(&core);
  }
  return runs;
}

// First hardware threads, then second ones: "0-7 + 128-135".
std::string CpusOf(const Run& run) {
  std::vector<std::vector<uint32_t>> threads;
  for (const Core* core : run.cores) {
    threads.resize(std::max(threads.size(), core->pus.size()));
    for (size_t t = 0; t < core->pus.size(); ++t) threads[t].push_back(core->pus[t]);
  }
  std::vector<std::string> lists;
  for (const auto& cpus : threads) lists.push_back(FormatCpuList(cpus));
  return fmt::format("{}", fmt::join(lists, " + "));
}

std::string NodeLine(const Machine& machine, const Core& core) {
  std::vector<std::string> nodes;
  for (uint32_t index : core.nodes) {
    const NumaNode& node = machine.nodes[index];
    std::string memory = node.memory_bytes > 0       ? FormatBytes(node.memory_bytes)
                         : machine.memory_bytes == 0 ? "memory unknown"
                                                     : "no memory";
    bool elsewhere = node.package != static_cast<int32_t>(core.package);
    std::string where = !elsewhere ? ""
                        : node.package < 0
                            ? ", shared by packages"
                            : fmt::format(", of package {}", machine.packages[node.package].os_index);
    nodes.push_back(fmt::format("{} ({}{})", node.os_index, memory, where));
  }
  return fmt::format("  NUMA node{} {}\n", nodes.size() == 1 ? "" : "s", fmt::join(nodes, ", "));
}

std::string RunLine(const Machine& machine, const Run& run) {
  uint64_t l3_bytes = machine.cache_groups[run.first->cache_group].bytes;
  std::string cache = l3_bytes > 0 ? fmt::format("L3 {}: ", FormatBytes(l3_bytes)) : "";
  std::string kind =
      run.first->efficiency_class < 0 ? "" : fmt::format(", speed class {}", run.first->efficiency_class);
  return fmt::format("    {}{}, CPU{} {}{}\n", cache, Plural(run.cores.size(), "core"),
                     run.cores.size() == 1 && run.first->pus.size() == 1 ? "" : "s", CpusOf(run), kind);
}

std::string PackageText(const Machine& machine, uint32_t index, const std::vector<Run>& runs) {
  const Package& package = machine.packages[index];
  std::string model = package.cpu_model.empty() ? "" : ": " + package.cpu_model;
  std::string text = fmt::format("package {}{}\n", package.os_index, model);
  const std::vector<uint32_t>* nodes = nullptr;
  for (const Run& run : runs) {
    if (run.first->package != index) continue;
    if (nodes == nullptr || *nodes != run.first->nodes) text += NodeLine(machine, *run.first);
    nodes = &run.first->nodes;
    text += RunLine(machine, run);
  }
  if (nodes == nullptr) text += "  no core that may be used\n";
  return text;
}

std::string DistancesText(const Machine& machine) {
  if (machine.node_distances.size() < 2) return "";
  std::string text = "NUMA distances\n  node";
  for (const NumaNode& node : machine.nodes) text += fmt::format("{:>5}", node.os_index);
  for (size_t from = 0; from < machine.nodes.size(); ++from) {
    text += fmt::format("\n  {:>4}", machine.nodes[from].os_index);
    for (uint64_t distance : machine.node_distances[from]) text += fmt::format("{:>5}", distance);
  }
  return text + "\n";
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  bool whole = value == static_cast<double>(static_cast<uint64_t>(value)) || value >= 100;
  return whole ? fmt::format("{:.0f} {}", value, kUnits[unit])
               : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string Machine::Summary() const {
  return fmt::format("{}, {}, {}, {}, {}", Plural(packages.size(), "package"),
                     Plural(nodes.size(), "NUMA node"), Plural(cores.size(), "core"),
                     Plural(pu_count(), "PU"),
                     memory_bytes == 0 ? "memory unknown" : FormatBytes(memory_bytes));
}

std::string RenderTree(const Machine& machine) {
  std::string text = fmt::format("{}: {}\n", machine.source, machine.Summary());
  std::vector<Run> runs = RunsOf(machine);
  for (uint32_t i = 0; i < machine.packages.size(); ++i) text += PackageText(machine, i, runs);
  text += DistancesText(machine);
  if (!machine.memory_note.empty()) text += machine.memory_note + "\n";
  if (machine.disallowed_pus > 0) {
    text += fmt::format("not usable: CPU{} {}: offline, or outside this process's cgroup or taskset\n",
                        machine.disallowed_pus == 1 ? "" : "s", FormatCpuList(machine.disallowed_cpus));
  }
  return text;
}

}  // namespace islands::topology
