// Messages of two-phase commit that wait, before they are sent, until EPOCH has reached the record that they
// speak of (`votes: forced`; log.md, Two-phase commit over it). It is the same log and the same cut without
// it, since records are stamped in the order of the messages; so this is for comparison, and for machines
// that have no epoch in common.
//
//   YES vote                                      PREPARE
//   decision COMMIT, answer COMMITTED             the coordinator's COMMIT
//   acknowledgement, the one decider's answers    the participant's COMMIT
//
// All others - NO, READ, aborts, questions - speak of no record, and may pass those that wait. That is so on
// one link, too: about one transaction a participant's question may pass its own vote, and hears that the
// decision is pending, or that the transaction was aborted; and what waits while its link breaks may go out
// on the next one, where it finds nobody who still counts it, or is a repetition.
//
// Thread safety: owned by a worker.
//
// Invariant: epochs of waiting messages ascend; they are sent in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "instance/log/journal.h"
#include "instance/worker/worker_shared.h"

namespace islands::instance {

class HeldMessages {
 public:
  HeldMessages(const WorkerShared& shared, const log::Journal* journal)
      : shared_(shared), journal_(journal) {}

  bool empty() const { return held_.empty(); }
  // Whether a message has to wait that speaks of a record which this worker has appended, lately or long ago.
  // If so, `send` is called later, and asks again.
  template <typename Send>
  bool Hold(Send send) {
    if (!shared_.votes_wait || sending_) return false;
    const uint64_t epoch = journal_->last_epoch();
    if (held_.empty() && epoch <= shared_.board->durable()) return false;
    held_.push_back({epoch, std::move(send)});
    return true;
  }
  // What need not wait any more. How many.
  size_t SendDurable() {
    if (held_.empty()) return 0;
    const uint64_t durable = shared_.board->durable();
    size_t sent = 0;
    sending_ = true;
    for (; !held_.empty() && held_.front().epoch <= durable; ++sent) {
      held_.front().send();
      held_.pop_front();
    }
    sending_ = false;
    return sent;
  }

 private:
  struct Held {
    uint64_t epoch = 0;
    std::function<void()> send;
  };
  const WorkerShared& shared_;
  const log::Journal* const journal_;
  std::deque<Held> held_;
  bool sending_ = false;
};

}  // namespace islands::instance
