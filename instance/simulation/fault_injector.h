// Does things to a simulated cluster, counts what they hit, and tells the history what cannot be expected of
// it any more.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "instance/simulation/coverage.h"
#include "instance/simulation/history.h"
#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {

// A two-phase-commit machine somewhere in the cluster.
struct Machine {
  StateIndex state = 0;
  messaging::Address where;
  coordinator::TransactionId id;
  std::vector<messaging::Address> peers;  // whose workers are at the other end; of an orphan, its fellows

  bool HasPeer(uint32_t island) const;
};

// All machines of living islands, in an order that is the same in every run.
std::vector<Machine> Machines(SimCluster& cluster);

class FaultInjector {
 public:
  // `keeps`: the cluster does, so that a death takes nothing of what was promised.
  FaultInjector(SimCluster& cluster, History& history, bool keeps = false)
      : cluster_(cluster), history_(history), keeps_(keeps) {}

  // Each does nothing when it would change nothing (a dead island, a link that is cut), and says so.
  bool Crash(uint32_t island);
  // Of the whole box, whose islands then all restart. Returns which epoch was durable.
  uint64_t LosePower();
  // Likewise, once the log has failed; nothing is lost.
  void StopBox();
  bool Restart(uint32_t island);  // also false when the island cannot be started: see failures()
  // The connection that worker `dialler` has dialled to `to`, once.
  bool Break(messaging::Address dialler, uint32_t to);
  bool Cut(uint32_t a, uint32_t b);
  bool Sever(uint32_t island);
  bool Stall(messaging::Address worker, int64_t ns);
  // All workers of the island stall, as when its process is stopped.
  bool Hang(uint32_t island, int64_t ns);
  // What `fault` means for this machine and one of its peers; a crash without the restart. `dialled` says
  // whether the connection that breaks is the one the machine's worker has dialled, or the peer's.
  bool Inject(const Machine& machine, messaging::Address peer, Fault fault, bool dialled, int64_t stall_ns);
  void HealAll();
  // What was done to the log's disk.
  void NoteOfDisk(const std::string& what) { Note("disk of the log: " + what), ++faults_; }

  const Coverage& coverage() const { return coverage_; }
  const std::vector<std::string>& events() const { return events_; }
  const std::vector<std::string>& failures() const { return failures_; }
  uint32_t faults() const { return faults_; }
  uint32_t crashes() const { return crashes_; }
  uint32_t dead() const;
  // All stalls together.
  int64_t stalled_ns() const { return stalled_ns_; }

 private:
  void Note(const std::string& what);
  void Lose(uint32_t island);
  bool IsCut(uint32_t a, uint32_t b) const;

  SimCluster& cluster_;
  History& history_;
  const bool keeps_;
  Coverage coverage_;
  // By dead island: transactions that had a branch or their coordinator there. Those begun since have not met
  // its death, and its return means nothing to them.
  std::map<uint32_t, std::set<coordinator::TransactionId>> bereft_;
  std::vector<std::string> events_;
  std::vector<std::string> failures_;
  std::set<std::pair<uint32_t, uint32_t>> cut_;
  std::set<uint32_t> severed_;
  uint32_t faults_ = 0;
  uint32_t crashes_ = 0;
  int64_t stalled_ns_ = 0;
};

}  // namespace islands::simulation
