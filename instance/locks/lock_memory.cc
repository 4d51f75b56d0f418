#include "instance/locks/lock_memory.h"

#include <span>
#include <utility>

namespace islands::locks {
namespace {
constexpr size_t kSlab = 128;
}  // namespace

LockRequest* LockMemory::NewRequest(uint32_t worker) {
  Share& share = shares_[worker % kShares];
  const LatchGuard guard(share.latch, latched_, ISLANDS_LATCH("lock.memory"));
  if (share.free_requests == nullptr) {
    share.request_slabs.push_back(std::make_unique<LockRequest[]>(kSlab));
    for (LockRequest& fresh : std::span(share.request_slabs.back().get(), kSlab)) {
      fresh.next_of_owner = std::exchange(share.free_requests, &fresh);
    }
  }
  LockRequest* const request = share.free_requests;
  share.free_requests = request->next_of_owner;
  share.requests_in_use.store(share.requests_in_use.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
  return request;
}

void LockMemory::FreeRequests(uint32_t worker, LockRequest* first, LockRequest* last, size_t count) {
  Share& share = shares_[worker % kShares];
  const LatchGuard guard(share.latch, latched_, ISLANDS_LATCH("lock.memory"));
  last->next_of_owner = std::exchange(share.free_requests, first);
  share.requests_in_use.store(share.requests_in_use.load(std::memory_order_relaxed) - count,
                              std::memory_order_relaxed);
}

LockHead* LockMemory::NewHead(uint32_t worker) {
  Share& share = shares_[worker % kShares];
  const LatchGuard guard(share.latch, latched_, ISLANDS_LATCH("lock.memory"));
  if (share.free_heads == nullptr) {
    share.head_slabs.push_back(std::make_unique<LockHead[]>(kSlab));
    for (LockHead& fresh : std::span(share.head_slabs.back().get(), kSlab)) {
      fresh.share = worker % kShares;
      fresh.next_in_bucket = std::exchange(share.free_heads, &fresh);
    }
  }
  LockHead* const head = share.free_heads;
  share.free_heads = head->next_in_bucket;
  return head;
}

void LockMemory::FreeHead(LockHead* head) {
  Share& share = shares_[head->share];
  const LatchGuard guard(share.latch, latched_, ISLANDS_LATCH("lock.memory"));
  head->next_in_bucket = std::exchange(share.free_heads, head);
}

uint64_t LockMemory::requests_in_use() const {
  uint64_t requests = 0;
  for (const Share& share : shares_) requests += share.requests_in_use.load(std::memory_order_relaxed);
  return requests;
}

}  // namespace islands::locks
