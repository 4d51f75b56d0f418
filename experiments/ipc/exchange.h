// Exchanges messages over a channel and times it: one end measures, the other sends every message back.
//
// Message: bytes 0-7 its number (from 0, each direction), the last 8 a check over number and seed, so that a
// message that is torn, lost, repeated or from elsewhere is noticed: DATA_LOSS. All ones as number: the end.
//
// Thread safety: none.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/ipc/channel.h"

namespace islands::experiments {

struct ExchangeOptions {
  uint32_t bytes = 64;
  uint32_t batch = 1;  // messages on their way at once; 1: the next one leaves when the last came back
  uint64_t seed = 1;
  double warmup_s = 0.2;
  double seconds = 1;
};

struct ExchangeResult {
  uint64_t round_trips = 0;
  double seconds = 0;
  // Of every eighth round trip: taking the time of each would be a good part of the fastest. 0 unless batch
  // is 1.
  double round_trip_us_p50 = 0;
  double round_trip_us_p99 = 0;
  uint32_t in_flight_max = 0;  // less than `batch` where the mechanism has no room for more

  // Both directions count, as in Figure 6.
  double MessagesPerSecond() const { return 2 * static_cast<double>(round_trips) / seconds; }
};

// Measures, takes what is still on its way and tells the other end to finish.
absl::StatusOr<ExchangeResult> Exchange(Channel& channel, const ExchangeOptions& options);
// The other end: until it is told to finish, or an error.
absl::Status Echo(Channel& channel, const ExchangeOptions& options);

}  // namespace islands::experiments
