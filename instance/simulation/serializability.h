// Whether a history is strictly serializable: the checker.
//
// It builds the direct serialization graph of Adya (2000): ww, wr and rw edges from the order of each row's
// versions, a scan counting as a read of every key in its range, and real-time edges from every transaction
// to all that began after it was answered (through one chain of helper nodes, so that their number stays
// linear). A cycle is an anomaly; so are reads of versions whose writer did not commit, and writes of its own
// that a transaction does not see.
//
// What is not known, and how it is treated so that a correct engine is never accused:
//  - Outcome unknown, or the coordinator's island died: committed exactly if the next one to look at a row it
//    wrote saw its write, and nobody who is known to have committed made the same version. Otherwise it is
//    left out; nobody can tell.
//  - Torn (Attempt::torn): its branches are transactions of their own, each of unknown outcome, and each has
//    to fit into the order. What is lost is what the dead island had; the islands that live to the end must
//    all have ended it in the same way.
//  - Power was lost (History::lossy): whoever had looked at a row before may be gone with what was there. So
//    only those count as looking who are known to have committed; since whoever sees a transaction's work
//    has its lock point later, the last lock points are decided first. An answer that was given and does not
//    bind (Attempt::cut) is as none, but for its place in real time. Nothing may be deleted there: an absence
//    has no name, and nobody could tell whether it is that of before an insertion that was lost.
//  - An earlier life of an island: its rows are other rows. Transactions that touched it keep all edges among
//    themselves, and no row of it has an edge to a row of the later life.
//
// Why this is sound under strict two-phase locking: call the moment after its last operation the lock point
// of a transaction. It holds all locks then. Every edge a -> b, real time included, means that a's lock point
// came first, for a branch of a torn transaction as well; so no cycle can exist.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

#include "instance/simulation/history.h"

namespace islands::simulation {

// What a row was found to hold after everything had ended.
struct FinalRow {
  uint32_t island = 0;
  uint64_t key = 0;
  uint64_t life = 0;
  Word word = kAbsent;
  int64_t amount = 0;
};

struct Verdict {
  // For people: what kind of anomaly, and the smallest cycle or the accesses that show it.
  std::vector<std::string> violations;
  // By attempt: whether it counts as committed (a torn one: whether all its branches do).
  std::vector<bool> committed;
  uint64_t transactions = 0;  // in the graph
  uint64_t edges = 0;

  bool ok() const { return violations.empty(); }
};

// `rows` is every key of every living island, absent ones too; empty: the end is not known.
Verdict CheckHistory(const History& history, const std::vector<FinalRow>& rows = {});

}  // namespace islands::simulation
