// Where a scenario's rows lie and its sessions run.
//
// Three islands of two sites with a thousand keys each:   A: sites 0 1   B: sites 2 3   C: sites 4 5
// Rows are on A and B, sessions too; C holds only the rows that idle sessions read (session.h).
//
// Thread safety: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "instance/simulation/isolation/script.h"

namespace islands::simulation::isolation {

inline constexpr uint32_t kIslands = 3;
inline constexpr uint32_t kDataIslands = 2;
inline constexpr uint32_t kSites = 6;
inline constexpr uint64_t kKeysPerSite = 1000;
inline constexpr uint64_t kIdleKey = 4 * kKeysPerSite;  // and up, one per session

// Borders and gaps lie between `mid` and `more`.
enum class Placement : uint8_t {
  kOneSite,       // A: all in site 0
  kSiteBorder,    // A: the last keys of site 0, the first of site 1
  kTwoIslands,    // A: site 0, B: site 3; two empty sites between
  kIslandBorder,  // A: the last keys of site 1, B: the first of site 2
};
inline constexpr std::array kPlacements = {Placement::kOneSite, Placement::kSiteBorder,
                                           Placement::kTwoIslands, Placement::kIslandBorder};

// On which island the sessions begin.
enum class Homes : uint8_t {
  kOnA,
  kOnB,
  kApart,    // T1, T3 on A, T2 on B
  kCrossed,  // T1, T3 on B, T2 on A
};
inline constexpr std::array kHomes = {Homes::kOnA, Homes::kOnB, Homes::kApart, Homes::kCrossed};

struct Arrangement {
  Placement placement = Placement::kOneSite;
  Homes homes = Homes::kOnA;
  uint32_t workers = 1;  // per island; sessions take turns
  uint64_t seed = 1;     // of message delays
};

uint64_t KeyOf(Placement placement, uint32_t row);
// The row with that key; kRowNames.size() if there is none.
uint32_t RowOf(Placement placement, uint64_t key);
uint32_t SiteOf(Placement placement, uint32_t row);
uint32_t HomeIsland(const Arrangement& arrangement, uint32_t session);
uint32_t HomeWorker(const Arrangement& arrangement, uint32_t session);

std::string_view Name(Placement placement);
std::string_view Name(Homes homes);
// "one-site on-A 2 workers seed 1"
std::string Name(const Arrangement& arrangement);

// Every placement, home and worker count (one and two).
std::vector<Arrangement> AllArrangements(uint64_t seed);

}  // namespace islands::simulation::isolation
