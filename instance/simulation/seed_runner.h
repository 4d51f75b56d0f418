// One seed: a cluster made up, loaded, hurt, healed, brought to rest, and judged.
//
// A seed counts with at least 3 islands, 200 ended transactions and one fault; every seed runs until it
// counts. Judged are, always: strict serializability of what survived (serializability.h), answers within the
// deadline, released locks and closed branches, well-formed trees. Without crashes also that the sum over all
// rows is what committed transactions made it.
//
// Thread safety: one seed at a time per thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "instance/simulation/coverage.h"
#include "instance/simulation/seed_plan.h"

namespace islands::simulation {

struct SeedReport {
  uint64_t seed = 0;
  std::string plan;
  std::vector<std::string> events;      // what was done to the cluster, with simulated times
  std::vector<std::string> violations;  // empty: all is well
  Coverage coverage;
  uint64_t trace = 0;  // equal in every run of the same seed
  uint64_t attempts = 0, ended = 0, committed = 0, unknown = 0, torn = 0;
  uint64_t distributed = 0;                                 // committed, on islands that lived to the end
  uint64_t deadlocks = 0, lock_timeouts = 0, no_room = 0;   // aborts, likewise
  uint64_t probes = 0, probe_victims = 0, escalations = 0;  // likewise
  uint64_t pages_read = 0, waits_for_pages = 0;             // likewise
  uint64_t failed_reads = 0;
  uint32_t faults = 0, crashes = 0, power_losses = 0;
  uint64_t commands = 0;      // in logs that islands have read
  uint64_t images = 0;        // of losses of power (sim_log.h)
  uint64_t lost = 0;          // with the power: had asked for their commit and have not committed
  uint64_t lost_answers = 0;  // of those, answered
  uint32_t disk_errors = 0, box_stops = 0;  // of which that many ended the log
  uint32_t full_disks = 0;                  // times that it was noticed
  int64_t simulated_ns = 0;

  bool ok() const { return violations.empty(); }
  std::string Text() const;
};

SeedReport RunSeed(uint64_t seed, Keeps keeps = Keeps::kNothing);

}  // namespace islands::simulation
