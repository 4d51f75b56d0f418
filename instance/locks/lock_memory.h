// Where the requests and heads of a lock table come from: slabs in shares, one per worker, which are never
// given back before the table dies. Memory that was once a request can always be read.
//
// Thread safety: all functions from every thread. Requests go back to the share they came from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "instance/locks/lock_latch.h"
#include "instance/locks/lock_queue.h"

namespace islands::locks {

class LockMemory {
 public:
  static constexpr uint32_t kShares = 64;  // workers beyond that share

  explicit LockMemory(bool latched) : latched_(latched), shares_(kShares) {}

  LockRequest* NewRequest(uint32_t worker);
  // A chain through next_of_owner, `count` long.
  void FreeRequests(uint32_t worker, LockRequest* first, LockRequest* last, size_t count);
  // The caller names it.
  LockHead* NewHead(uint32_t worker);
  void FreeHead(LockHead* head);

  // Exact when quiet, otherwise approximate.
  uint64_t requests_in_use() const;

 private:
  struct alignas(64) Share {
    Latch latch;
    LockRequest* free_requests = nullptr;
    LockHead* free_heads = nullptr;
    std::vector<std::unique_ptr<LockRequest[]>> request_slabs;
    std::vector<std::unique_ptr<LockHead[]>> head_slabs;
    std::atomic<uint64_t> requests_in_use = 0;  // written under latch
  };

  const bool latched_;
  std::vector<Share> shares_;
};

}  // namespace islands::locks
