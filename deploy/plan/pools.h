// Whether what islands will hold fits their pools: what `plan` says of it, and `up` before it starts.
//
// Thread safety: plain values and functions.
//
// Invariant: 1. PredictedPools::islands has exactly plan.islands.size() entries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/plan/resolve.h"
#include "runtime/file_system.h"

namespace islands::deploy {

// Of an island.
struct PredictedPool {
  uint64_t data_bytes = 0;
  bool on_disk = false;  // its data files have them; else its tables will, once they are loaded
  bool paged = false;    // its pool will be
};

struct PredictedPools {
  std::vector<PredictedPool> islands;       // by number
  std::vector<std::string> unknown_tables;  // not counted: how many rows they get the file does not say
};

// From the tables' ranges, with a row for each value.
PredictedPools PredictPools(const ResolvedDeployment& resolved);
// The same, but for what data files have, if there are any of this deployment and its layout: looks, and
// changes nothing.
PredictedPools PredictPools(const ResolvedDeployment& resolved, runtime::FileSystem& files);

// For people: where data will not fit, and what may be done.
std::vector<std::string> NotesOnPools(const ResolvedDeployment& resolved, const PredictedPools& pools);

}  // namespace islands::deploy
