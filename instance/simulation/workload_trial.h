// A workload tried out in one thread, for its unit test: the islands are the product's, their network is
// memory, and time moves only when all wait, so that a trial is over in an instant and the same every time.
// Tests of workloads outside this tree link islands::trial, which is this and all that it needs.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"
#include "instance/workload/workload.h"

namespace islands::simulation {

struct TrialOptions {
  storage::Catalog::TableSpecs tables;  // as data.tables of a deployment has them
  instance::Parameters parameters;
  uint32_t islands = 2;
  uint32_t workers = 2;  // of each
  uint32_t sites = 6;    // of all of them
  uint32_t mpl = 4;      // transactions in flight per worker
  int64_t ms = 50;       // of simulated time, which begins when the rows are loaded
  uint64_t seed = 1;
};

struct Trial {
  uint64_t committed = 0;
  uint64_t distributed = 0;  // of those
  uint64_t aborted = 0;
  uint64_t contradictions = 0;  // of those: DATA_LOSS
  // The audited sum, and what committed transactions say they have added.
  int64_t sum_before = 0;
  int64_t sum_after = 0;
  int64_t sum_committed = 0;
  bool SumHolds() const { return sum_after - sum_before == sum_committed; }
};

// Opens the workload, loads its rows, runs it, and looks at them. An error says what it complains of.
absl::StatusOr<Trial> TryWorkload(instance::OpenWorkloadFunction open, const TrialOptions& options);

}  // namespace islands::simulation

// What the macro ISLANDS_WORKLOAD at the end of a workload defines.
extern "C" islands::instance::Workload* IslandsOpenWorkload(uint32_t abi,
                                                            const islands::storage::Catalog* catalog,
                                                            const islands::instance::Parameters* parameters,
                                                            std::string* error);
extern "C" const islands::instance::Description* IslandsDescribeWorkload(uint32_t abi);
