#include "experiments/ipc/core_pair.h"

#include <fmt/format.h>

#include <optional>

#include "experiments/program.h"

namespace islands::experiments {
namespace {

using topology::Core;
using topology::Machine;

struct Place {
  uint32_t cpu = 0;
  const Core* core = nullptr;
};

std::vector<Place> PlacesOf(const Machine& machine, const std::vector<uint32_t>& cpus) {
  std::vector<Place> places;
  for (uint32_t cpu : cpus) places.push_back({cpu, CoreOfCpu(machine, cpu)});
  return places;
}

uint64_t Distance(const Machine& machine, const Core& a, const Core& b) {
  if (machine.node_distances.empty() || a.nodes.empty() || b.nodes.empty()) return 0;
  return machine.node_distances[a.nodes[0]][b.nodes[0]];
}

std::string SocketText(const Machine& machine, const Core& core) {
  return fmt::format("socket {}", machine.packages[core.package].os_index);
}

template <typename Fits>
std::optional<CorePair> FirstPair(const std::vector<Place>& places, Fits fits) {
  for (size_t a = 0; a < places.size(); ++a) {
    for (size_t b = a + 1; b < places.size(); ++b) {
      if (fits(*places[a].core, *places[b].core)) return CorePair{places[a].cpu, places[b].cpu, ""};
    }
  }
  return std::nullopt;
}

absl::StatusOr<CorePair> SameCache(const Machine& machine, const std::vector<Place>& places) {
  auto pair = FirstPair(places, [&](const Core& a, const Core& b) {
    return a.cache_group == b.cache_group && machine.cache_groups[a.cache_group].bytes > 0;
  });
  if (!pair) return absl::NotFoundError("no two of these cores are known to share an L3 cache");
  const Core& core = *CoreOfCpu(machine, pair->near);
  pair->text = fmt::format("CPUs {} and {}, under one L3 of {} in {}", pair->near, pair->far,
                           topology::FormatBytes(machine.cache_groups[core.cache_group].bytes),
                           SocketText(machine, core));
  return *pair;
}

absl::StatusOr<CorePair> SameSocket(const Machine& machine, const std::vector<Place>& places) {
  auto pair = FirstPair(places, [](const Core& a, const Core& b) {
    return a.package == b.package && a.cache_group != b.cache_group;
  });
  const bool apart = pair.has_value();
  if (!apart) pair = FirstPair(places, [](const Core& a, const Core& b) { return a.package == b.package; });
  if (!pair) return absl::NotFoundError("no two of these cores are in one socket");
  const Core& core = *CoreOfCpu(machine, pair->near);
  const bool one_cache = machine.cache_groups[core.cache_group].bytes > 0;
  pair->text = fmt::format("CPUs {} and {} of {}{}", pair->near, pair->far, SocketText(machine, core),
                           apart       ? ", under different L3s"
                           : one_cache ? ", which also share an L3: the same as same-cache"
                                       : "");
  return *pair;
}

absl::StatusOr<CorePair> CrossSocket(const Machine& machine, const std::vector<Place>& places) {
  std::vector<Place> firsts;  // of each socket
  for (const Place& place : places) {
    if (firsts.empty() || firsts.back().core->package != place.core->package) firsts.push_back(place);
  }
  std::optional<std::pair<Place, Place>> farthest;
  for (size_t a = 0; a < firsts.size(); ++a) {
    for (size_t b = a + 1; b < firsts.size(); ++b) {
      if (firsts[a].core->package == firsts[b].core->package) continue;
      if (!farthest || Distance(machine, *firsts[a].core, *firsts[b].core) >
                           Distance(machine, *farthest->first.core, *farthest->second.core)) {
        farthest = {firsts[a], firsts[b]};
      }
    }
  }
  if (!farthest) return absl::NotFoundError("all these cores are in one socket");
  const auto& [near, far] = *farthest;
  const uint64_t distance = Distance(machine, *near.core, *far.core);
  return CorePair{near.cpu, far.cpu,
                  fmt::format("CPU {} of {} and CPU {} of {}{}", near.cpu, SocketText(machine, *near.core),
                              far.cpu, SocketText(machine, *far.core),
                              distance > 0 ? fmt::format(", NUMA distance {}", distance) : "")};
}

}  // namespace

absl::StatusOr<CorePair> ChooseCorePair(const Machine& machine, const std::vector<uint32_t>& cpus,
                                        Where where) {
  if (cpus.empty()) return absl::NotFoundError("no core");
  const std::vector<Place> places = PlacesOf(machine, cpus);
  switch (where) {
    case Where::kSameCore:
      return CorePair{cpus[0], cpus[0], fmt::format("both on CPU {}", cpus[0])};
    case Where::kSameCache:
      return SameCache(machine, places);
    case Where::kSameSocket:
      return SameSocket(machine, places);
    case Where::kCrossSocket:
      return CrossSocket(machine, places);
  }
  return absl::InvalidArgumentError("unknown place");
}

}  // namespace islands::experiments
