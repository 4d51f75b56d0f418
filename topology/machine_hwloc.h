// hwloc's tree as a Machine: private to topology/, so that hwloc.h stays out of everybody else's includes.
//
// Thread safety: pure function of a loaded topology that no other thread changes.
#pragma once

#include <hwloc.h>

#include <string>

#include "absl/status/statusor.h"
#include "topology/machine.h"

namespace islands::topology {

// `topology` must be loaded with HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED, so that what this process may not
// use is seen and counted. Error: no usable PU, or more PUs than any real machine has.
absl::StatusOr<Machine> BuildMachine(hwloc_topology_t topology, std::string source);

}  // namespace islands::topology
