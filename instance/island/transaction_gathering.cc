#include "instance/island/transaction_gathering.h"

#include <chrono>

#include "instance/worker/transaction_list.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"

namespace islands::instance {

TransactionGathering::TransactionGathering(const control::v1::TransactionsRequest& request, size_t workers)
    : request_(request), heard_(workers, false), silent_(workers) {}

void TransactionGathering::Add(uint32_t worker, const control::v1::Transactions& part) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.transactions"));
  ISLANDS_CHECK(worker < heard_.size() && !heard_[worker]);
  heard_[worker] = true;
  gathered_.set_total(gathered_.total() + part.total());
  gathered_.mutable_work()->MergeFrom(part.work());
  if (--silent_ == 0) added_.notify_all();
}

control::v1::Transactions TransactionGathering::Take(int64_t timeout_ns) {
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("island.transactions"));
  added_.wait_for(mutex_, std::chrono::nanoseconds(timeout_ns),
                  [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return silent_ == 0; });
  control::v1::Transactions taken = gathered_;
  KeepOldest(request_.most(), &taken);
  for (uint32_t worker = 0; worker < heard_.size(); ++worker) {
    if (!heard_[worker]) taken.add_silent_workers(worker);
  }
  return taken;
}

}  // namespace islands::instance
