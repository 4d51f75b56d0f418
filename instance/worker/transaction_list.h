// Which transactions have work on a worker, as people are shown it (`islands txn`).
//
// The worker makes the list itself, when it is asked through its mailbox: what it has is its own. It looks at
// everything once, and describes only what is listed.
//
// Thread safety: on the worker's thread, in its mailbox or between two rounds.
#pragma once

#include <cstdint>

#include "instance/messaging/links.h"
#include "instance/worker/branches.h"
#include "instance/worker/clients.h"
#include "instance/worker/coordinated.h"
#include "instance/worker/peers.h"
#include "instance/worker/sessions.h"
#include "proto/control.pb.h"

namespace islands::instance {

// The parts of a worker that know of transactions.
struct TransactionSources {
  const WorkerOptions& options;
  const Turns& turns;
  const Clients& clients;
  const Sessions& sessions;
  const Coordinated& coordinated;
  const Branches& branches;
  Peers& peers;
  const messaging::Links& links;
};

control::v1::Transactions ListTransactions(const TransactionSources& sources,
                                           const control::v1::TransactionsRequest& request);

// Oldest first, and no more than `most`; `total` stays.
void KeepOldest(uint32_t most, control::v1::Transactions* transactions);

}  // namespace islands::instance
