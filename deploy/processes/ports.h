// Whether a port of this machine can still be had.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace islands::deploy {

// On 127.0.0.1, as a server will try it: a port of connections that have ended counts as free.
absl::Status CheckPortFree(uint16_t port);

}  // namespace islands::deploy
