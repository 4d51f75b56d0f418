// The rankings of a profile (profile.h): which latches, rows and queues were waited for longest, per
// committed transaction, with who had them.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace islands::deploy {

struct Sums;

inline constexpr double kUsPerSecond = 1e6;

inline double Per(double what, uint64_t transactions) {
  return transactions == 0 ? 0 : what / static_cast<double>(transactions);
}

// Which latch it is that is wanted at this site, for people; empty: the site's name has to do. Those of pages
// islands name themselves.
std::string LatchName(std::string_view site);

// Members "latches", "rows", "queues"; the longest first, ten of each.
nlohmann::ordered_json WaitsJson(const Sums& sums);
std::string WaitsText(const Sums& sums);

}  // namespace islands::deploy
