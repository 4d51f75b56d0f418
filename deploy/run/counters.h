// Counters of an island as sums over its workers, and their differences: what `run` and `top` compute with.
//
// Thread safety: plain values and functions.
//
// Invariant: counters of one boot epoch only grow, and start at zero with it. A difference across epochs is
// therefore the later value itself; what the lost incarnation counted after its last snapshot is lost with
// it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deploy/run/profile.h"
#include "proto/control.pb.h"

namespace islands::deploy {

struct ScopeSums {
  uint64_t committed = 0;
  uint64_t aborted = 0;
  uint64_t unknown = 0;
  double latency_sum_us = 0;
  std::vector<uint64_t> latency;  // buckets of instance/worker/latency_histogram.h
};

// To thousandths, for documents.
inline double Thousandths(double value) { return std::round(value * 1000) / 1000; }

struct Sums {
  std::array<ScopeSums, kScopes> scopes;
  std::map<std::string, uint64_t> aborts_by_reason;
  double busy_seconds = 0;
  double idle_seconds = 0;
  double waiting_seconds = 0;  // of idle_seconds: while transactions were open
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t clients_moved = 0;     // to other islands
  uint64_t client_messages = 0;   // of messages_sent: that they went in
  uint64_t arrivals_refused = 0;  // because too many waited
  uint64_t log_bytes = 0;         // of records
  uint64_t page_looks = 0;        // for rows by key, in a paged pool
  uint64_t page_misses = 0;       // of them
  Profile profile;

  uint64_t committed() const;
  uint64_t aborted() const;
  uint64_t unknown() const;
  std::vector<uint64_t> latency() const;       // of all scopes
  double busy_fraction() const;                // 0..1; 0 when no time has passed
  double waiting_fraction() const;             // likewise
  std::optional<double> hit_fraction() const;  // of looks in a paged pool; nothing: there were none

  void Add(const Sums& other);
};

Sums SumOf(const control::v1::Snapshot& snapshot);
// later - earlier, counter by counter. A counter that shrank counts as 0: it is not worth a crash.
Sums Difference(const Sums& later, const Sums& earlier);

// Follows one island through its snapshots, across its restarts.
class IslandMeter {
 public:
  struct Step {
    Sums sums;           // since the snapshot before
    double seconds = 0;  // by the island's clock; 0 across a restart
    bool restarted = false;
    uint64_t clients_waiting = 0;  // for a slot, at the end
  };

  // What happened since the last snapshot. The first one only sets the base.
  Step Observe(const control::v1::Snapshot& snapshot);
  bool seen() const { return last_.has_value(); }
  uint64_t boot_epoch() const { return boot_epoch_; }

 private:
  std::optional<Sums> last_;
  uint64_t boot_epoch_ = 0;
  int64_t time_us_ = 0;
};

}  // namespace islands::deploy
