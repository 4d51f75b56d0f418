// What `islands machine --measure --output FILE` writes and `machine: FILE` reads: the round trips between
// cores, their clusters, and the whole machine as hwloc XML.
//
// The file is JSON, read as the YAML that JSON is, so that it is as strict as a deployment file and
// complains in the same form, with lines and columns. deploy/README.md has its keys.
//
// Thread safety: plain values and functions.
//
// Invariants of what ParseMeasured returns:
//  1. `trips` is as round_trips.h says; there is at least one CPU.
//  2. Each level has at least two clusters, which hold every index below the number of CPUs once, each at
//     least one; its medians are those of `trips`, and each level but the first may follow the one before
//     (clusters.h).
//  3. That the CPUs are the XML's is not checked: topology::WithClusters does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "topology/clusters.h"
#include "topology/machine.h"
#include "topology/round_trips.h"

namespace islands::deploy {

inline constexpr uint32_t kMeasuredVersion = 1;

struct Measured {
  topology::RoundTrips trips;
  std::vector<topology::ClusterLevel> levels;  // coarsest first; `layout: auto` takes the first
  std::string hwloc_xml;
};

// JSON begins with a brace, XML does not.
bool LooksMeasured(std::string_view text);

// Any bytes may be given. Errors are INVALID_ARGUMENT, one `filename:line:column: found X, expected Y` per
// line.
absl::StatusOr<Measured> ParseMeasured(std::string_view text, const std::string& filename);

// `machine` has the CPUs that were measured.
nlohmann::ordered_json MeasuredJson(const Measured& measured, const topology::Machine& machine);
// The same as the file's text: a line for each key, and for each row of round trips.
std::string MeasuredText(const Measured& measured, const topology::Machine& machine);

}  // namespace islands::deploy
