// Answers that clients have not been given yet: with durability `sync` they wait until EPOCH has reached what
// they depend on (log.md, Answers).
//
// An answer that says anything of rows depends on every transaction whose work its own has seen, and on its
// own commit: a loss of power must not take what it says. Whoever has seen the work of a transaction got its
// locks after that one's commit was in the log, which had raised its island's CommitEpoch before (journal.h).
// So the maximum of these is enough, taken when nothing more will be seen:
//
//   what was seen here, and an own commit   the CommitEpoch of this island
//   what was seen on another island         its CommitEpoch when it answered the operations: ExecuteReply
//                                           carries it, also of an answer like ALREADY_EXISTS that makes the
//                                           procedure give up
//   the commit of the one that decides      its CommitEpoch after it has: OnePhaseReply and, where that was
//     alone                                 lost, InquiryReply carry it
//
// Votes carry nothing. All that a voter has seen it has told with its answers to operations; and where the
// coordinator writes a COMMIT, that is stamped after all votes, from the one box epoch G, which never falls:
// so it is in no earlier epoch than anything that YES voters have written or READ voters have seen.
//
// Nobody wakes a worker when EPOCH moves: it looks once in a round, and, asleep, every kLookAtEpochNs.
//
// Thread safety: owned by a worker.
//
// Invariant: waiting answers are in the order of their epochs; of one epoch, in the order in which they came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/transaction_id.h"
#include "instance/execution/abort_reason.h"
#include "instance/worker/counters.h"
#include "instance/worker/stays.h"
#include "instance/workload/workload.h"
#include "runtime/clock.h"

namespace islands::instance {

inline constexpr int64_t kLookAtEpochNs = 100 * runtime::kNsPerUs;

struct Answer {
  coordinator::TransactionId id;
  coordinator::Outcome outcome = coordinator::Outcome::kUnknown;
  Scope scope = Scope::kLocal;
  AbortReason reason = AbortReason::kNone;
  int64_t begun_ns = 0;
  int64_t due_ns = 0;  // from when its latency counts
};

struct WaitingAnswer {
  Answer answer;
  uint64_t epoch = 0;  // until it is durable
  int64_t deadline_ns = 0;
  std::unique_ptr<Request> request;
  Stays stays;  // of one that is watched
};

class WaitingAnswers {
 public:
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  void Add(WaitingAnswer answer);
  // Whether the first one may be given.
  bool Ready(uint64_t durable) const { return !waiting_.empty() && waiting_.front().epoch <= durable; }
  WaitingAnswer TakeFirst();
  // Those whose deadline has passed.
  std::vector<WaitingAnswer> TakeOverdue(int64_t now_ns);
  void CheckInvariants() const;

 private:
  std::deque<WaitingAnswer> waiting_;
};

}  // namespace islands::instance
