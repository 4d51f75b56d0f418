#include "topology/memory_sizes.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

namespace islands::topology {
namespace {

constexpr uint64_t kZonePageBytes = 4096;
constexpr uint64_t kMostBytes = uint64_t{1} << 52;  // what no machine has; sums of a few do not overflow

uint64_t Bytes(uint64_t count, uint64_t unit) { return count > kMostBytes / unit ? 0 : count * unit; }

// "MemTotal:       24684084 kB"; 0: no such line.
uint64_t MemTotal(std::string_view meminfo) {
  std::istringstream words{std::string(meminfo)};
  for (std::string word; words >> word;) {
    if (word != "MemTotal:") continue;
    uint64_t count = 0;
    return words >> count >> word && word == "kB" ? Bytes(count, 1024) : 0;
  }
  return 0;
}

// "Node 0, zone   Normal", and below it "        present  5505024".
std::map<uint32_t, uint64_t> PresentBytes(std::string_view zoneinfo) {
  std::map<uint32_t, uint64_t> present;
  std::istringstream words{std::string(zoneinfo)};
  uint32_t node = 0;
  for (std::string word; words >> word;) {
    uint64_t pages = 0;
    if (word == "Node") words >> node;
    if (word == "present" && words >> pages) {
      present[node] = std::min(kMostBytes, present[node] + Bytes(pages, kZonePageBytes));
    }
  }
  return present;
}

}  // namespace

std::vector<NodeBytes> NodesWithKernelMemory(std::span<const NodeBytes> nodes, std::string_view meminfo,
                                             std::string_view zoneinfo) {
  const uint64_t total = MemTotal(meminfo);
  uint64_t said = 0;
  for (const NodeBytes& node : nodes) said += node.bytes;
  if (nodes.empty() || said >= total / 100 * 99) return {};
  const std::map<uint32_t, uint64_t> present = PresentBytes(zoneinfo);
  std::vector<double> hidden;
  double hidden_in_all = 0;
  for (const NodeBytes& node : nodes) {
    const auto found = present.find(node.os_index);
    const bool more = found != present.end() && found->second > node.bytes;
    hidden.push_back(more ? static_cast<double>(found->second - node.bytes) : nodes.size() == 1 ? 1.0 : 0.0);
    hidden_in_all += hidden.back();
  }
  if (hidden_in_all == 0) return {};
  std::vector<NodeBytes> result(nodes.begin(), nodes.end());
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].bytes += static_cast<uint64_t>(static_cast<double>(total - said) * (hidden[i] / hidden_in_all));
  }
  return result;
}

}  // namespace islands::topology
