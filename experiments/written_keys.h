// Names for rows that transactions insert: after who wrote them, so that nobody counts for all and a run
// finds no row of an earlier one in its way.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "coordinator/transaction_id.h"

namespace islands::experiments {

// Both together are unique while the transaction's id is: workers of an island are fewer than 2^16, and a
// worker that runs a million transactions a second takes twelve days to come to 2^40. No writer is 0: that is
// the loader.
inline uint32_t WriterOf(const coordinator::TransactionId& id) { return (id.island + 1) << 16 | id.worker; }
inline uint64_t WriterNumberOf(const coordinator::TransactionId& id) {
  return id.boot_epoch << 40 | id.sequence;
}

}  // namespace islands::experiments
