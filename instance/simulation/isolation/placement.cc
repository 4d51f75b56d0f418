#include "instance/simulation/isolation/placement.h"

#include <fmt/format.h>

namespace islands::simulation::isolation {
namespace {

constexpr uint32_t kBorder = 4;  // rows before it lie before the border

}  // namespace

uint64_t KeyOf(Placement placement, uint32_t row) {
  // Borders: the row after it has the first key of its site, the row before it the last key but nine.
  const auto around = [row](uint64_t border) { return border - 10 * kBorder + 10 * row; };
  switch (placement) {
    case Placement::kOneSite:
      return 100 + 10 * row;
    case Placement::kSiteBorder:
      return around(kKeysPerSite);
    case Placement::kTwoIslands:
      return 100 + 10 * row + (row < kBorder ? 0 : 3 * kKeysPerSite);
    case Placement::kIslandBorder:
      return around(2 * kKeysPerSite);
  }
  return 0;
}

uint32_t RowOf(Placement placement, uint64_t key) {
  uint32_t row = 0;
  while (row < kRowNames.size() && KeyOf(placement, row) != key) ++row;
  return row;
}

uint32_t SiteOf(Placement placement, uint32_t row) {
  return static_cast<uint32_t>(KeyOf(placement, row) / kKeysPerSite);
}

uint32_t HomeIsland(const Arrangement& arrangement, uint32_t session) {
  switch (arrangement.homes) {
    case Homes::kOnA:
      return 0;
    case Homes::kOnB:
      return 1;
    case Homes::kApart:
      return session % 2;
    case Homes::kCrossed:
      return 1 - session % 2;
  }
  return 0;
}

uint32_t HomeWorker(const Arrangement& arrangement, uint32_t session) {
  return session % arrangement.workers;
}

std::string_view Name(Placement placement) {
  static constexpr std::array<std::string_view, kPlacements.size()> kNames = {"one-site", "site-border",
                                                                              "two-islands", "island-border"};
  return kNames[static_cast<size_t>(placement)];
}

std::string_view Name(Homes homes) {
  static constexpr std::array<std::string_view, kHomes.size()> kNames = {"on-A", "on-B", "apart", "crossed"};
  return kNames[static_cast<size_t>(homes)];
}

std::string Name(const Arrangement& arrangement) {
  return fmt::format("{} {} {} worker{} seed {}", Name(arrangement.placement), Name(arrangement.homes),
                     arrangement.workers, arrangement.workers == 1 ? "" : "s", arrangement.seed);
}

std::vector<Arrangement> AllArrangements(uint64_t seed) {
  std::vector<Arrangement> arrangements;
  for (Placement placement : kPlacements) {
    for (Homes homes : kHomes) {
      for (uint32_t workers : {1u, 2u}) arrangements.push_back({placement, homes, workers, seed});
    }
  }
  return arrangements;
}

}  // namespace islands::simulation::isolation
