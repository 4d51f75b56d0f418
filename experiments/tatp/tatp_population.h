// TATP's initial rows. They depend on s_id alone, so that every layout loads the same ones.
//
// Thread safety: pure functions, but for the Random they are given.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "experiments/tatp/tatp.h"
#include "runtime/random.h"

namespace islands::experiments {

// All rows of one subscriber, in all four tables.
absl::Status LoadSubscriber(const TatpTables& tables, uint64_t s_id, instance::Loader& loader);

// vlr_location and msc_location: 1 to 2^32 - 1.
inline uint32_t DrawLocation(runtime::Random& random) {
  return static_cast<uint32_t>(1 + random.Below(0xffff'ffff));
}

// 15 random digits.
inline TatpNumber DrawNumber(runtime::Random& random) {
  return NumberOf(random.Below(1'000'000'000'000'000));
}

}  // namespace islands::experiments
