// Branches of this island that are in doubt, and stay so for an unknown time: their coordinator stands still
// or is out of reach. They keep their locks; whoever would wait for one of them is told at once that it would
// wait in vain.
//
// Thread safety: all functions from every worker.
#pragma once

#include <atomic>
#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "coordinator/transaction_id.h"
#include "runtime/latch_site.h"
#include "runtime/mutex.h"

namespace islands::instance {

class StuckBranches {
 public:
  // For those who have a reason not to look: without a latch.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  void Set(const coordinator::TransactionId& id, bool stuck) {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("branches.stuck"));
    if (stuck) {
      ids_.insert(id);
    } else {
      ids_.erase(id);
    }
    count_.store(ids_.size(), std::memory_order_relaxed);
  }
  bool Contains(const coordinator::TransactionId& id) const {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("branches.stuck"));
    return ids_.contains(id);
  }

 private:
  mutable runtime::Mutex mutex_;
  absl::flat_hash_set<coordinator::TransactionId> ids_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> count_ = 0;
};

}  // namespace islands::instance
