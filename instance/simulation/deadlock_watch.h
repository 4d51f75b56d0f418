// Looks at all islands at once, as nothing in the product can, and sees who waits for whom: it knows every
// deadlock without a probe, and notices those that stand for longer than probes may take to find them.
//
// A transaction that waits for a lock waits for all who hold it in a mode that is in the way, and for all who
// wait ahead of it for such a mode. Each of these waits lasts until one of the two transactions has ended. So
// a cycle of them never opens by itself, and it is as old as its youngest wait.
//
// How long one may stand follows from how probes work (probes.h): the next chase of its highest
// transaction that goes through queues finds it, and each of the others costs the probe two messages, one to
// its coordinator, one to where it waits. That takes a calm, in which nobody stalls and every link is as it
// should be; what a disturbance has destroyed begins anew when it is over.
//
// Whether waits that are no deadlock last long says nothing: behind slow messages, long transactions and
// deadlocks that are found one after the other they do.
//
// Thread safety: none.
//
// Invariants:
//  1. It changes nothing: the trace is the same with and without it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/transaction_id.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {

class DeadlockWatch {
 public:
  // `slowest_packet_ns` is the longest that the network lets a packet take.
  DeadlockWatch(SimCluster& cluster, int64_t slowest_packet_ns);

  // To be called after every step; looks every few milliseconds.
  void Look();
  // Deadlocks that stood for too long, with who waits where for whom; waits that are over and the waiter was
  // not told.
  const std::vector<std::string>& violations() const { return violations_; }
  // How long a deadlock of so many transactions may stand, while all is calm.
  int64_t MayStandNs(size_t members) const;

 private:
  using TransactionId = coordinator::TransactionId;
  struct Wait {
    uint32_t island = 0;  // where the lock is
    int64_t since_ns = 0;
  };
  using Waits = std::map<std::pair<TransactionId, TransactionId>, Wait>;  // (who, for whom)
  using Place = std::tuple<uint32_t, uint32_t, uint64_t>;                 // island, worker, wake token

  bool Calm() const;
  int64_t AgeNs(int64_t since_ns) const { return now_ns_ - std::max(since_ns, calm_since_ns_); }
  void LookAtWorker(uint32_t island, instance::Worker& worker, Waits* waits,
                    std::map<Place, int64_t>* untold);
  bool Executes(const TransactionId& id) const;
  // The smallest cycle of waits that are at least so old.
  std::vector<TransactionId> OldCycle(int64_t age_ns) const;
  void JudgeCycles();
  void Report(const std::vector<TransactionId>& cycle);

  SimCluster& cluster_;
  int64_t wake_ns_ = 0;
  int64_t chase_ns_ = 0;    // until the next chase begins
  int64_t message_ns_ = 0;  // that a message may take, with what its receiver does
  int64_t now_ns_ = 0;
  int64_t last_look_ns_ = 0;
  int64_t calm_since_ns_ = 0;  // has been calm at every look
  Waits waits_;
  std::map<Place, int64_t> untold_;  // since when a wait is over
  std::vector<std::string> violations_;
};

}  // namespace islands::simulation
