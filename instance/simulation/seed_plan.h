// What a seed stands for: a cluster, a load, a network and a list of faults.
//
// Thread safety: pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "instance/simulation/coverage.h"
#include "instance/simulation/ledger.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {

struct PlannedFault {
  enum Kind : uint8_t {
    kCrash,
    kBreak,
    kCut,
    kSever,
    kStall,
    kHang,       // all workers of an island
    kPowerLoss,  // of the whole box; its islands restart at once
    // Of the log's disk, soon. An error ends the logger, and the box stops and starts again.
    kDiskError,
    kDiskFull,  // until there is room again
    kShortWrites,
  };
  // Aimed: when a machine is in this state, `aim` happens to it. After kPatienceNs without one, or without a
  // target, `kind` happens to whomever chance names.
  std::optional<StateIndex> state;
  Fault aim = Fault::kCut;
  Kind kind = kStall;
  int64_t wait_ns = 0;      // after the fault before it
  int64_t duration_ns = 0;  // until the island restarts, the links heal, the worker goes on
  bool stays_dead = false;  // crash: until the end
};

// What the islands of a seed keep. Those that keep something have a log. kLazy, kSync and kForced: power is
// lost, too, and the log's disk has faults; with kSync answers wait for EPOCH, with kForced what two-phase
// commit says does (`votes: forced`), and in half of the seeds answers do, too. kCommand: as kLazy, and what
// stays on its island is logged as commands, which a restart repeats.
enum class Keeps : uint8_t { kNothing, kWhatWasAppended, kLazy, kCommand, kSync, kForced };

inline constexpr int64_t kPatienceNs = 300 * runtime::kNsPerMs;
// Beyond every timeout of the product, by far: the load rests meanwhile.
inline constexpr int64_t kLongFaultNs = 10 * runtime::kNsPerSecond;

// How long packets take between two workers.
struct NetworkPlan {
  uint64_t seed = 0;
  int64_t base_ns = 0;    // every pair of workers has its own, up to this
  int64_t jitter_ns = 0;  // added per packet
  uint32_t tail_percent =
      0;  // packets that take much longer, so that others of other connections overtake them
  int64_t tail_ns = 0;

  int64_t Delay(runtime::Random& random, messaging::Address from, messaging::Address to) const;
  // No packet takes longer.
  int64_t SlowestNs() const { return base_ns + jitter_ns + (tail_percent != 0 ? tail_ns : 0); }
};

struct SeedPlan {
  SimOptions cluster;  // without workload
  LedgerMix mix;
  uint64_t keys = 0;
  uint32_t mpl = 1;
  NetworkPlan network;
  std::vector<PlannedFault> faults;

  std::string Describe() const;
};

// Where islands keep something nobody stays dead, since a branch in doubt waits.
SeedPlan MakePlan(uint64_t seed, Keeps keeps = Keeps::kNothing);

}  // namespace islands::simulation
