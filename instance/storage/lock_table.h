// The lock table: hierarchical strict two-phase locking for one island.
//
// Names are (table, site) and (table, site, key hash): two keys with the same 64-bit hash share a lock, which
// costs a false conflict once in an age and never an isolation fault. Point reads take IS on (table, site)
// and S on the key; updates of existing rows IX and X; inserts and deletes IX and X on the key; scans take S
// on (table, site), so nothing can appear in or vanish from a scanned range. (Next-key locking will make
// scans and inserts of one site compatible.)
//
// Waiting is the caller's affair: Acquire answers kWaiting and the caller suspends; whoever releases gets the
// list of owners whose wait is over and wakes them. The table does no I/O and holds no clock; timeouts call
// CancelWait.
//
// Thread safety: all functions may be called from every worker of the island; one LockOwner is used by one
// worker only. Hash buckets are latched one at a time; the wait-for graph has its own mutex, taken before any
// bucket latch and only on the paths that wait.
//
// Invariants:
//  1. Granted modes on a name are pairwise compatible between different owners; grants are in arrival order
//     among incompatible requests, except that a conversion (an owner strengthening its own lock) waits for
//     granted locks only: it goes ahead of all new requests.
//  2. An owner waits for at most one name at a time.
//  3. After ReleaseAll an owner holds and waits for nothing.
//  4. A cycle of waiting owners on this island never survives the Acquire that closes it: that Acquire
//     answers kDeadlock, and leaves no trace in the table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/transaction_id.h"

namespace islands::storage {

enum class LockMode : uint8_t { kIS = 0, kIX = 1, kS = 2, kSIX = 3, kX = 4 };

bool Compatible(LockMode a, LockMode b);
// The weakest mode that covers both.
LockMode Supremum(LockMode a, LockMode b);

struct LockName {
  uint32_t table = 0;
  uint32_t site = 0;
  uint64_t key_hash = 0;  // 0 = the whole (table, site); KeyHash never returns 0
  friend bool operator==(const LockName&, const LockName&) = default;
};

// Never 0.
uint64_t KeyHash(const void* key, size_t bytes);

enum class LockResult : uint8_t { kGranted, kWaiting, kDeadlock };

struct LockRequest;  // pooled; lock_table.cc

// What one transaction holds and waits for on one island. Requests point to it: it stays where it is, and
// lives until it holds and waits for nothing.
class LockOwner {
 public:
  LockOwner() = default;
  LockOwner(const LockOwner&) = delete;
  LockOwner& operator=(const LockOwner&) = delete;

  coordinator::TransactionId transaction;  // for people and for deadlock probes
  uint32_t worker = 0;                     // whom to wake
  uint64_t wake_token = 0;                 // says which suspended branch of that worker

  // Names held, and the one waited for.
  size_t held() const { return held_count_; }
  bool waiting() const { return waiting_.load(std::memory_order_acquire) != nullptr; }

 private:
  friend class LockTable;
  // Owned by the owner's worker:
  LockRequest* held_ = nullptr;  // list through LockRequest::next_of_owner, newest first
  size_t held_count_ = 0;
  LockRequest* coarse_ = nullptr;  // the (table, site) lock used last: most operations need it again
  // Set by the owner's worker, cleared by it or by a granting one, under the bucket's latch:
  std::atomic<LockRequest*> waiting_ = nullptr;
};

// An owner whose wait is over. By value: the owner itself may be gone when its worker reads this.
struct Wakeup {
  uint32_t worker = 0;
  uint64_t wake_token = 0;
};

struct LockTableOptions {
  size_t buckets = 1 << 16;  // power of two
  // A one-worker island takes no latches. Then all calls must come from one thread.
  bool latched = true;
};

class LockTable {
 public:
  explicit LockTable(LockTableOptions options);
  ~LockTable();

  // kGranted also if a covering mode is already held. kWaiting: the owner is queued; a Wakeup for it will be
  // handed to whoever makes room. kDeadlock: not queued; the caller must abort.
  LockResult Acquire(LockOwner& owner, const LockName& name, LockMode mode);
  // True when a mode at least as strong is held.
  bool Holds(const LockOwner& owner, const LockName& name, LockMode mode) const;
  // Ends a wait (timeout, abort). False when it had just been granted: the lock is then held.
  bool CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups);
  // After a Wakeup: whether the wait is really over (a wakeup may be stale).
  bool WaitOver(const LockOwner& owner) const;
  void ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups);

  // Exact when quiet, otherwise approximate.
  uint64_t LocksHeld() const;
  uint64_t OwnersWaiting() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace islands::storage
