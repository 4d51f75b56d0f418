// What was measured between cores, as text for people.
//
// Thread safety: pure function.
#pragma once

#include <string>

#include "deploy/file/measured.h"
#include "topology/machine.h"

namespace islands::deploy {

// Round trips as a table of numbers, or as a map of shades where that would be wider than 110 columns
// (several cores a character where there are more than 100); cores of a cluster stand together. Then the
// clusters, and whether the firmware says the same. `machine` has the CPUs that were measured.
std::string RenderMeasured(const Measured& measured, const topology::Machine& machine);

}  // namespace islands::deploy
