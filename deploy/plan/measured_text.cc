#include "deploy/plan/measured_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "topology/clusters.h"

namespace islands::deploy {
namespace {

using topology::ClusterLevel;
using topology::FirmwareLevel;
using topology::Likeness;

constexpr size_t kMostColumns = 110;
constexpr size_t kMostShades = 100;  // in a row
constexpr std::string_view kShades = ".:-=+*#@";

std::string Count(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Indexes in the order in which they are shown.
std::vector<uint32_t> ByCluster(const Measured& measured) {
  std::vector<uint32_t> order(measured.trips.cpus.size());
  std::iota(order.begin(), order.end(), 0);
  for (auto level = measured.levels.rbegin(); level != measured.levels.rend(); ++level) {
    const std::vector<uint32_t> labels = topology::LabelsOf(*level, order.size());
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return labels[a] < labels[b]; });
  }
  return order;
}

// Of all pairs, ascending.
std::vector<uint32_t> Sorted(const topology::RoundTripMatrix& ns) {
  std::vector<uint32_t> values;
  for (size_t i = 0; i < ns.size(); ++i) values.insert(values.end(), ns[i].begin() + i + 1, ns[i].end());
  std::sort(values.begin(), values.end());
  return values;
}

std::string Table(const Measured& measured, const std::vector<uint32_t>& order, size_t width) {
  std::string text = fmt::format("{:>{}}", "CPU", width);
  for (uint32_t i : order) text += fmt::format("{:>{}}", measured.trips.cpus[i], width);
  for (uint32_t i : order) {
    text += fmt::format("\n{:>{}}", measured.trips.cpus[i], width);
    for (uint32_t j : order) {
      text +=
          i == j ? fmt::format("{:>{}}", "-", width) : fmt::format("{:>{}}", measured.trips.ns[i][j], width);
    }
  }
  return text + "\n";
}

// Shades are equal steps of ratio between the shortest and the longest.
class Scale {
 public:
  Scale(uint32_t shortest, uint32_t longest)
      : shortest_(shortest), step_(std::log(static_cast<double>(longest) / shortest) / kShades.size()) {}

  char Of(uint32_t ns) const {
    const double steps = step_ > 0 ? std::log(static_cast<double>(ns) / shortest_) / step_ : 0;
    return kShades[std::min(static_cast<size_t>(std::max(steps, 0.0)), kShades.size() - 1)];
  }
  std::string Legend() const {
    std::string text = "shades:";
    for (size_t i = 0; i < kShades.size(); ++i) {
      text += fmt::format("  {} {:.0f}", kShades[i], shortest_ * std::exp(step_ * static_cast<double>(i)));
    }
    return text + " ns and more\n";
  }

 private:
  double shortest_, step_;
};

// Rows are named by their first CPU.
std::string Map(const Measured& measured, const std::vector<uint32_t>& order, const Scale& scale) {
  const size_t cores = order.size();
  const size_t together = (cores + kMostShades - 1) / kMostShades;
  std::string text =
      together == 1 ? "" : fmt::format("one character: {} x {} cores, their median\n", together, together);
  for (size_t row = 0; row < cores; row += together) {
    text += fmt::format("{:>5} ", measured.trips.cpus[order[row]]);
    for (size_t column = 0; column < cores; column += together) {
      std::vector<uint32_t> values;
      for (size_t i = row; i < std::min(row + together, cores); ++i) {
        for (size_t j = column; j < std::min(column + together, cores); ++j) {
          if (i != j) values.push_back(measured.trips.ns[order[i]][order[j]]);
        }
      }
      std::sort(values.begin(), values.end());
      text += values.empty() ? ' ' : scale.Of(values[values.size() / 2]);
    }
    text += "\n";
  }
  return text + scale.Legend();
}

std::string HeatMap(const Measured& measured, const std::vector<uint32_t>& sorted) {
  std::string text = "round trips of a cache line between cores, ns\n";
  const std::vector<uint32_t> order = ByCluster(measured);
  const uint32_t largest_cpu = *std::max_element(measured.trips.cpus.begin(), measured.trips.cpus.end());
  const size_t width =
      1 + std::max<size_t>(3, fmt::formatted_size("{}", std::max(largest_cpu, sorted.back())));
  if (width * (order.size() + 1) <= kMostColumns) return text + Table(measured, order, width);
  return text + Map(measured, order, Scale(sorted.front(), sorted.back()));
}

std::string LevelText(const Measured& measured, const ClusterLevel& level,
                      const std::vector<FirmwareLevel>& firmware) {
  std::string text = fmt::format("{}, {} ns within, {} ns across:\n", Count(level.clusters.size(), "cluster"),
                                 level.within_ns, level.across_ns);
  const auto cpus = [&](const std::vector<uint32_t>& indexes) {
    std::vector<uint32_t> list;
    for (uint32_t index : indexes) list.push_back(measured.trips.cpus[index]);
    return topology::FormatCpuList(std::move(list));
  };
  for (const std::vector<uint32_t>& cluster : level.clusters) text += fmt::format("  {}\n", cpus(cluster));
  if (!level.lone.empty()) {
    text += fmt::format("  far from all others, or disturbed, and counted to the nearest: {}\n",
                        cpus(level.lone));
  }
  const std::vector<uint32_t> labels = topology::LabelsOf(level, measured.trips.cpus.size());
  std::vector<std::string> said;
  bool shown = false;
  for (const FirmwareLevel& named : firmware) {
    const Likeness likeness = topology::Compare(labels, named.labels);
    shown |= likeness == Likeness::kSame;
    said.push_back(
        fmt::format("{} the {}", topology::LikenessName(likeness), Count(named.groups, named.name)));
  }
  return text + fmt::format("  {}{}\n", shown ? "" : "hidden by the firmware: ", fmt::join(said, ", "));
}

// What the firmware names and round trips do not show.
std::string UnseenText(const Measured& measured, const std::vector<FirmwareLevel>& firmware) {
  const size_t cores = measured.trips.cpus.size();
  std::string text;
  for (const FirmwareLevel& named : firmware) {
    const bool seen =
        std::any_of(measured.levels.begin(), measured.levels.end(), [&](const ClusterLevel& level) {
          return topology::Compare(topology::LabelsOf(level, cores), named.labels) == Likeness::kSame;
        });
    if (named.groups == 1 || named.groups == cores || seen) continue;
    text +=
        fmt::format("the firmware's {} are no clusters by round trips\n", Count(named.groups, named.name));
  }
  return text;
}

}  // namespace

std::string RenderMeasured(const Measured& measured, const topology::Machine& machine) {
  const size_t cores = measured.trips.cpus.size();
  const std::vector<uint32_t> sorted = Sorted(measured.trips.ns);
  if (sorted.empty()) return "one core: there is no round trip to measure\n";
  std::string text = HeatMap(measured, sorted);
  const std::vector<FirmwareLevel> firmware = topology::FirmwareLevels(machine, measured.trips.cpus);
  for (const ClusterLevel& level : measured.levels) text += LevelText(measured, level, firmware);
  if (measured.levels.empty() && cores < topology::kFewestCoresForClusters) {
    return text + fmt::format("{} cores are too few to find clusters among\n", cores);
  }
  if (measured.levels.empty()) {
    text += fmt::format("no clusters: all {} cores are alike, {} to {} ns, half of the pairs below {}\n",
                        cores, sorted.front(), sorted.back(), sorted[sorted.size() / 2]);
  }
  return text + UnseenText(measured, firmware);
}

}  // namespace islands::deploy
