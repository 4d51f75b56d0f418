#include "deploy/file/measured.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "deploy/file/yaml_reader.h"
#include "deploy/file/yaml_tree.h"

namespace islands::deploy {
namespace {

using nlohmann::ordered_json;
using topology::ClusterLevel;

constexpr int64_t kMostNs = 1'000'000'000;
constexpr int64_t kMostCpu = 65535;
constexpr size_t kMostCores = 1024;
constexpr size_t kMostBytes = 16 << 20;  // many times what so many cores need

class MeasuredReader {
 public:
  MeasuredReader(const YamlNode& root, Complaints* complaints)
      : complaints_(*complaints),
        top_(root, "", {"version", "cpus", "round_trip_ns", "clusters", "firmware", "hwloc_xml"}, &positions_,
             complaints) {}

  Measured Read() {
    for (const char* key : {"version", "cpus", "round_trip_ns", "clusters", "hwloc_xml"}) {
      if (!top_.Has(key)) top_.Complain(top_.at(), fmt::format("found no '{}', expected it", key));
    }
    top_.Integer("version", kMeasuredVersion, kMeasuredVersion);
    ReadCpus();
    ReadRoundTrips();
    ReadClusters();
    top_.Map("firmware");  // for readers: it follows from the XML
    if (const auto xml = top_.Text("hwloc_xml", "the machine as hwloc XML")) measured_.hwloc_xml = *xml;
    return std::move(measured_);
  }

 private:
  size_t cores() const { return measured_.trips.cpus.size(); }

  std::optional<uint32_t> Number(const YamlNode& node, int64_t least, int64_t most) {
    const std::optional<int64_t> value = ParseInteger(node);
    if (value && *value >= least && *value <= most) return static_cast<uint32_t>(*value);
    complaints_.Add(node.at, fmt::format("found {}, expected a whole number from {} to {}", node.Describe(),
                                         least, most));
    return std::nullopt;
  }

  void ReadCpus() {
    for (const YamlNode& node : top_.List("cpus", "the CPUs that were measured")) {
      const auto cpu = Number(node, 0, kMostCpu);
      if (!cpu) continue;
      if (!index_of_.emplace(*cpu, cores()).second) {
        complaints_.Add(node.at, fmt::format("found CPU {} again, expected every CPU once", *cpu));
      } else if (cores() < kMostCores) {
        measured_.trips.cpus.push_back(*cpu);
      } else {
        complaints_.Add(node.at, fmt::format("found more CPUs, expected at most {}", kMostCores));
        return;
      }
    }
  }

  void ReadRoundTrips() {
    const std::string rows = fmt::format("a list of {} lists of as many numbers", cores());
    const std::vector<YamlNode>& matrix = top_.List("round_trip_ns", rows);
    if (matrix.empty()) return;
    if (matrix.size() != cores()) {
      top_.Complain("round_trip_ns", fmt::format("found {} rows, expected {}", matrix.size(), rows));
      return;
    }
    topology::RoundTripMatrix& ns = measured_.trips.ns;
    for (size_t i = 0; i < cores(); ++i) {
      const YamlNode& row = matrix[i];
      if (row.kind != YamlNode::Kind::kList || row.items.size() != cores()) {
        complaints_.Add(row.at, fmt::format("found {} of {}, expected a list of {} numbers", row.Describe(),
                                            row.items.size(), cores()));
        return;
      }
      ns.emplace_back();
      for (size_t j = 0; j < cores(); ++j) {
        ns[i].push_back(Number(row.items[j], i == j ? 0 : 1, i == j ? 0 : kMostNs).value_or(0));
        if (j < i && ns[i][j] != ns[j][i]) {
          complaints_.Add(row.items[j].at,
                          fmt::format("found {}, expected {} as in the other direction", ns[i][j], ns[j][i]));
        }
      }
    }
  }

  void ReadClusters() {
    const YamlNode* levels = top_.Find("clusters");
    if (levels == nullptr) return;
    if (levels->kind != YamlNode::Kind::kList) return top_.Unexpected("clusters", "a list of levels, or []");
    for (size_t i = 0; i < levels->items.size(); ++i)
      ReadLevel(levels->items[i], fmt::format("clusters[{}]", i));
  }

  void ReadLevel(const YamlNode& node, const std::string& path) {
    if (node.kind != YamlNode::Kind::kMap) {
      complaints_.Add(node.at, fmt::format("found {}, expected a map with 'cpus'", node.Describe()));
      return;
    }
    const MapReader reader(
        node, path, {"cpus", "lone_cpus", "within_ns", "across_ns", "packages", "numa_nodes", "l3_groups"},
        &positions_, &complaints_);
    if (!reader.Has("cpus")) reader.Complain(node.at, "found no 'cpus', expected a list of CPU lists");
    ClusterLevel level;
    std::set<uint32_t> seen;
    for (const YamlNode& cluster : reader.List("cpus", "a list of CPU lists such as '0-5,12'")) {
      level.clusters.push_back(ReadCluster(cluster, &seen));
    }
    if (!level.clusters.empty() && seen.size() != cores()) {
      reader.Complain("cpus", fmt::format("found {} CPUs in clusters, expected all {} that were measured",
                                          seen.size(), cores()));
    }
    if (level.clusters.size() == 1) reader.Complain("cpus", "found one cluster, expected at least two");
    const YamlNode* lone = reader.Find("lone_cpus");
    const bool none = lone == nullptr || (lone->kind == YamlNode::Kind::kScalar && lone->text.empty());
    if (!none) level.lone = ReadCluster(*lone, nullptr);
    CheckLevel(reader, &level);
    measured_.levels.push_back(std::move(level));
  }

  // Round trips and clusters, and this level and those before it, beside each other.
  void CheckLevel(const MapReader& reader, ClusterLevel* level) {
    const auto within = reader.Integer("within_ns", 0, kMostNs);
    const auto across = reader.Integer("across_ns", 0, kMostNs);
    if (!complaints_.empty()) return;  // the matrix may have holes, and cores no cluster
    std::sort(level->clusters.begin(), level->clusters.end());
    topology::SetMedians(measured_.trips.ns, level);
    const auto expect = [&](std::string_view key, const std::optional<int64_t>& found, uint32_t median) {
      if (!found || *found == median) return;
      reader.Complain(key, fmt::format("found {}, expected the median of 'round_trip_ns', {}, or no '{}'",
                                       *found, median, key));
    };
    expect("within_ns", within, level->within_ns);
    expect("across_ns", across, level->across_ns);
    if (measured_.levels.empty() || topology::MayFollow(measured_.levels.back(), *level)) return;
    const ClusterLevel& before = measured_.levels.back();
    reader.Complain(
        reader.at(),
        fmt::format("found a level of {} clusters, {} ns within and {} ns across, after one of {}, {} "
                    "and {} ns; expected the coarsest first, and each once",
                    level->clusters.size(), level->within_ns, level->across_ns, before.clusters.size(),
                    before.within_ns, before.across_ns));
  }

  // As indexes.
  std::vector<uint32_t> ReadCluster(const YamlNode& node, std::set<uint32_t>* seen) {
    std::vector<uint32_t> members;
    const auto cpus = topology::ParseCpuList(node.text);
    if (node.kind != YamlNode::Kind::kScalar || !cpus.ok() || cpus->empty()) {
      complaints_.Add(node.at,
                      fmt::format("found {}, expected a CPU list such as '0-5,12'", node.Describe()));
      return members;
    }
    for (uint32_t cpu : *cpus) {
      const auto index = index_of_.find(cpu);
      if (index == index_of_.end()) {
        complaints_.Add(node.at, fmt::format("found CPU {}, expected CPUs that were measured", cpu));
        break;  // a list may have thousands of them
      } else if (seen != nullptr && !seen->insert(cpu).second) {
        complaints_.Add(node.at, fmt::format("found CPU {} again, expected every CPU in one cluster", cpu));
      } else {
        members.push_back(index->second);
      }
    }
    std::sort(members.begin(), members.end());
    return members;
  }

  Positions positions_;
  Complaints& complaints_;
  MapReader top_;
  Measured measured_;
  std::map<uint32_t, uint32_t> index_of_;  // of a CPU
};

std::string CpusOf(const Measured& measured, const std::vector<uint32_t>& indexes) {
  std::vector<uint32_t> cpus;
  for (uint32_t index : indexes) cpus.push_back(measured.trips.cpus[index]);
  return topology::FormatCpuList(std::move(cpus));
}

}  // namespace

bool LooksMeasured(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

absl::StatusOr<Measured> ParseMeasured(std::string_view text, const std::string& filename) {
  Complaints complaints(filename);
  YamlNode root;
  if (text.size() > kMostBytes) {
    complaints.Add({1, 1},
                   fmt::format("found a file of {}, expected at most {}", topology::FormatBytes(text.size()),
                               topology::FormatBytes(kMostBytes)));
    return complaints.ToStatus();
  }
  if (!ParseYaml(text, &root, &complaints)) return complaints.ToStatus();
  if (root.kind != YamlNode::Kind::kMap) {
    complaints.Add(
        root.at, fmt::format("found {}, expected what `islands machine --measure` writes", root.Describe()));
    return complaints.ToStatus();
  }
  Measured measured = MeasuredReader(root, &complaints).Read();
  if (!complaints.empty()) return complaints.ToStatus();
  return measured;
}

ordered_json MeasuredJson(const Measured& measured, const topology::Machine& machine) {
  const std::vector<topology::FirmwareLevel> firmware =
      topology::FirmwareLevels(machine, measured.trips.cpus);
  const size_t cores = measured.trips.cpus.size();
  ordered_json levels = ordered_json::array();
  for (const ClusterLevel& level : measured.levels) {
    std::vector<std::string> clusters;
    for (const std::vector<uint32_t>& cluster : level.clusters) clusters.push_back(CpusOf(measured, cluster));
    ordered_json entry = {{"cpus", clusters},
                          {"lone_cpus", CpusOf(measured, level.lone)},
                          {"within_ns", level.within_ns},
                          {"across_ns", level.across_ns}};
    for (const topology::FirmwareLevel& said : firmware) {
      entry[std::string(said.key)] =
          topology::LikenessName(topology::Compare(topology::LabelsOf(level, cores), said.labels));
    }
    levels.push_back(std::move(entry));
  }
  ordered_json groups = ordered_json::object();
  for (const topology::FirmwareLevel& said : firmware) {
    std::map<uint32_t, std::vector<uint32_t>> members;
    for (uint32_t i = 0; i < cores; ++i) members[said.labels[i]].push_back(i);
    std::vector<std::string> lists;
    for (const auto& [label, indexes] : members) lists.push_back(CpusOf(measured, indexes));
    groups[std::string(said.key)] = lists;
  }
  return {{"version", kMeasuredVersion},        {"cpus", measured.trips.cpus},
          {"round_trip_ns", measured.trips.ns}, {"clusters", std::move(levels)},
          {"firmware", std::move(groups)},      {"hwloc_xml", measured.hwloc_xml}};
}

std::string MeasuredText(const Measured& measured, const topology::Machine& machine) {
  const auto line = [](const ordered_json& value) {
    return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  const ordered_json document = MeasuredJson(measured, machine);
  std::string text = "{";
  for (const auto& [key, value] : document.items()) {
    text += fmt::format("{}\n  {}: ", text.size() > 1 ? "," : "", line(key));
    if (key != "round_trip_ns" && key != "clusters") {
      text += line(value);
      continue;
    }
    std::vector<std::string> rows;
    for (const ordered_json& row : value) rows.push_back("\n    " + line(row));
    text += fmt::format("[{}{}]", fmt::join(rows, ","), rows.empty() ? "" : "\n  ");
  }
  return text + "\n}\n";
}

}  // namespace islands::deploy
