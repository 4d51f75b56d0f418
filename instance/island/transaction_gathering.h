// An island's answer to the question which transactions are open, put together from what its workers say.
//
// Each worker adds its part when it comes to its mailbox. Whoever asked does not wait for one that stands
// still, or rests for a load: what such a worker adds later is thrown away.
//
// Thread safety: all functions from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <vector>

#include "proto/control.pb.h"
#include "runtime/mutex.h"

namespace islands::instance {

class TransactionGathering {
 public:
  TransactionGathering(const control::v1::TransactionsRequest& request, size_t workers);

  const control::v1::TransactionsRequest& request() const { return request_; }
  // Once for each worker.
  void Add(uint32_t worker, const control::v1::Transactions& part);
  // When all have added theirs, or it has taken so long.
  control::v1::Transactions Take(int64_t timeout_ns);

 private:
  const control::v1::TransactionsRequest request_;
  runtime::Mutex mutex_;
  std::condition_variable_any added_;
  control::v1::Transactions gathered_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> heard_ ABSL_GUARDED_BY(mutex_);  // by worker
  size_t silent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace islands::instance
