// Whether what a ring holds is whole.
//
// Thread safety: plain function; nobody moves the ring's head meanwhile.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "instance/log/ring.h"

namespace islands::log {

// The highest LSN of the records between head and `tail`, 0 if there are none. DATA_LOSS: they are not whole
// records of this stream; says why.
absl::StatusOr<uint64_t> HighestLsn(const Ring& ring, uint64_t tail);

}  // namespace islands::log
