// Speculative lock inheritance (Johnson, Pandis, Ailamaki, VLDB 2009): a hot lock on a (table, site), in a
// mode that nearly everybody can share, is not released at the end of a transaction. It stays granted, but to
// nobody; the worker's next transaction that wants it takes it with one compare-and-swap, without the
// bucket's latch. Who wants what such a lock excludes evicts it, under the latch, with another
// compare-and-swap.
//
// Inherited are IS, IX and S. Hot is a lock whose name was last given to another worker when this request for
// it was made: then the latch and the head travel between cores. It stays hot while it is handed on.
//
// Why no wake-up is lost. One worker leaves a lock without the latch while another queues for its name under
// it:
//
//     the leaving worker                        the waiting one, under the latch
//     1. holder = nobody                        1. ++head.waiters
//     2. head.waiters == 0 ? done               2. evicts whatever inherited lock excludes its mode
//        : latch; takes it back; grants         3. queues, unless that made room
//
// Both do their first step before their second, and all four are sequentially consistent: either the waiter
// finds nobody and evicts, or the leaving worker finds a waiter and then releases as if there were no
// inheritance. (If it was evicted meanwhile, all the same it latches and grants, because whoever evicted may
// not have been the first in the queue.) So whatever stays inherited excludes nobody in the queue (invariant
// 2), and a compare-and-swap that reclaims it overtakes nobody.
//
// Why nobody sees a dead owner. Searches of the wait-for graph look at the owners of granted requests under
// the latch, which a leaving owner does not take. So: a search sets `searching` before it reads any holder,
// and an owner that left a lock looks at `searching` afterwards, and if it is set waits for the graph mutex,
// which the search holds. Again all four are sequentially consistent: either the search finds nobody, or the
// owner stays as it is until the search is over.
//
// Thread safety: an InheritedLocks belongs to its worker, but for size(). EvictInherited needs the bucket's
// latch.
//
// Invariants:
//  1. A request in the list is granted and held by nobody, or is being evicted, or is out of its head.
//  2. An inherited request excludes no waiting one, from the moment that the worker which left it has looked.
//  3. What is evicted is recycled by the worker it was left to, after its eviction has ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "instance/locks/lock_queue.h"

namespace islands::locks {

// What was left to one worker.
class alignas(64) InheritedLocks {
 public:
  static constexpr size_t kMost = 16;
  // Transactions of the worker that did not use a lock before it is released.
  static constexpr uint32_t kPatience = 8;

  // Whether a lock may be left if nobody waits: it is hot and shareable, and there is room.
  bool Takes(const LockRequest& request) const;
  // After request.holder.Leave() was seen to have disturbed nobody.
  void Add(LockRequest* request);
  // One that covers the mode, and not by much more, now held by the owner; or null.
  LockRequest* Reclaim(LockOwner& owner, const LockName& name, LockMode mode);
  // At the end of a transaction. Takes out what is evicted, or has been of no use for long: that one is for
  // the caller to release. Null: no more such; then every lock has become older by one transaction.
  LockRequest* TakeUseless();

  size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    LockRequest* request;
    uint32_t unused;  // transactions
  };
  void Remove(size_t i);

  std::array<Entry, kMost> entries_;
  std::atomic<size_t> size_ = 0;  // written by the worker only
};

// Takes away from their workers all inherited locks on the name that exclude the mode. True if there were
// any.
bool EvictInherited(LockHead& head, LockMode mode);

}  // namespace islands::locks
