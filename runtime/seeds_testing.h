// Which seeds a property test runs: as many as it asks for, or those that somebody wants to see again.
//
// Thread safety: plain function.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace islands::runtime {

// AddressSanitizer makes it about fifteen times slower: of many seeds it runs 1 in so many.
#ifdef __SANITIZE_ADDRESS__
inline constexpr uint64_t kSanitizedShare = 4;
#else
inline constexpr uint64_t kSanitizedShare = 1;
#endif

// The first one and how many: 1 and `count`, or what ISLANDS_SEEDS=FIRST:COUNT says.
inline std::pair<uint64_t, uint64_t> SeedsToRun(uint64_t count) {
  std::pair<uint64_t, uint64_t> seeds{1, count};
  if (const char* wanted = std::getenv("ISLANDS_SEEDS")) {
    EXPECT_EQ(std::sscanf(wanted, "%lu:%lu", &seeds.first, &seeds.second), 2)
        << "ISLANDS_SEEDS=FIRST:COUNT, not " << wanted;
  }
  return seeds;
}

}  // namespace islands::runtime
