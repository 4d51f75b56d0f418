// A deadlock probe (proto/data.proto has the fields' meaning).
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

#include "coordinator/transaction_id.h"

namespace islands::instance {

struct Probe {
  coordinator::TransactionId initiator;
  coordinator::TransactionId blocked_on;
  uint32_t from_island = 0;
  uint32_t hops = 0;
  bool at_participant = false;
  uint32_t chase = 0;  // which one of the initiator's wait: 1, 2, ...
};

}  // namespace islands::instance
