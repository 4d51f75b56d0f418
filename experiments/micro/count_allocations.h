// Counts what a program takes from the heap with `new`: link count_allocations.cc into it.
//
// Thread safety: from every thread.
#pragma once

#include <cstdint>

namespace islands::experiments {

uint64_t AllocationsSoFar();

}  // namespace islands::experiments
