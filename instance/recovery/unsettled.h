// What two-phase commit has left of an island's earlier lives, for the workers of the new one to end.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/fellow.h"
#include "coordinator/transaction_id.h"
#include "instance/execution/branch.h"

namespace islands::recovery {

// What an island has promised, and has not been told that it may forget. By transaction: they belong to the
// workers that served them. `since`: the epoch of the first record, from which on the log is needed.
struct Unsettled {
  struct Prepared {
    std::vector<coordinator::Fellow> fellows;
    instance::UndoLog undo;
    uint64_t since = 0;
  };
  struct Decision {
    std::vector<coordinator::Fellow> participants;  // that may not have heard
    uint64_t since = 0;
  };
  struct Decided {
    uint64_t since = 0;
  };
  std::map<coordinator::TransactionId, Prepared> prepared;
  std::map<coordinator::TransactionId, Decision> decisions;  // committed, as coordinator
  // Committed in the name of a coordinator that may not have heard.
  std::map<coordinator::TransactionId, Decided> decided;
};

// Whether all whom it names are in the deployment, which somebody may have edited since. FAILED_PRECONDITION:
// an island or a worker is missing that has to be asked, or told. DATA_LOSS: this life, or a later one, has
// decided already.
absl::Status CheckDeployment(const Unsettled& unsettled, uint64_t life,
                             std::span<const uint32_t> workers_per_island);

}  // namespace islands::recovery
