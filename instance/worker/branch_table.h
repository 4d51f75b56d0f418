// The branches of other islands' transactions that a worker serves.
//
// A branch whose machine has come to its end is taken out at once, so that nothing finds it any more, and
// kept in the graveyard for as long as its coroutine has not come to its end; then its memory is used again.
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. An entry is not freed while its coroutine is suspended or ready.
//  2. What is used again holds no lock and no undo.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/participant.h"
#include "instance/messaging/links.h"
#include "instance/worker/outbox.h"
#include "instance/worker/waiter.h"
#include "runtime/task.h"

namespace islands::instance {

struct ParticipantEntry : Waiter {
  coordinator::TransactionId id;
  coordinator::Participant machine;
  Batch batch;
  std::vector<RoutedOperation> operations;
  size_t cursor = 0;
  uint32_t step = 0;
  bool executing = false;
  bool prepares_after = false;  // an early PREPARE has come while it executed
  bool ended = false;           // its machine said kForget
  bool stuck = false;           // as stuck_branches.h knows it
  bool outcome_kept = false;    // in the log, until its machine says kForget
  bool restored = false;        // from the log
  int64_t begun_ns = 0;         // when it came to this life
  int64_t deadline_ns = 0;      // of the step
  int64_t idle_ns = 0;          // that it may hear nothing after the step, beside the time that everybody has
  int64_t last_heard_ns = 0;
  int64_t in_doubt_since_ns = 0;  // while it is
  int64_t logged_ns = 0;          // while it is, or outcome_kept: when the log has heard of that last
  std::vector<Fellow> fellows;    // other participants, as the PREPARE that counts named them
  runtime::Task<void> task;

  // Who coordinates it, in which life.
  messaging::Origin coordinator() const { return {{id.island, id.worker}, id.boot_epoch}; }
};

class BranchTable {
 public:
  // Null: there is none (any more).
  ParticipantEntry* Find(const coordinator::TransactionId& id);
  // A fresh one; there must be none of that id.
  ParticipantEntry& Add(const coordinator::TransactionId& id);
  // Its machine has come to its end.
  void Bury(ParticipantEntry& entry);
  // Frees those of the graveyard whose coroutines have ended.
  void Reap();

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Between two rounds.
  void CheckInvariants() const;
  // In the order of their ids: hash order differs from run to run, and a simulation must not.
  std::vector<ParticipantEntry*> All() const;

 private:
  bool Listed(const ParticipantEntry& entry) const;

  absl::flat_hash_map<coordinator::TransactionId, std::unique_ptr<ParticipantEntry>> entries_;
  std::vector<std::unique_ptr<ParticipantEntry>> graveyard_;
  std::vector<std::unique_ptr<ParticipantEntry>> spare_;
};

}  // namespace islands::instance
