// The lock table: hierarchical strict two-phase locking for one island.
//
// Names, from coarse to fine:
//
//     (table, site)                      IS, IX, S, SIX, X   all of it, or what is intended below it
//     (table, site, KeyHash(key))        S, X                a record, whether it exists or not
//     (table, site, GapHash(key))        S, IX               the gap between the key and the one before it
//     (table, site, kSupremumGap)        S, IX               the gap above the last key of the site
//     (table, site, kIndexEntries)       S, IX               which entries its secondary indexes have
//
// Two keys with the same 63-bit hash share a lock, which costs a false conflict once in an age and never an
// isolation fault; a record and a gap never share one. With gaps (next-key locking) nothing can appear in a
// range that was scanned: a scan takes S on every record and gap it visits, and on the gap of the first key
// beyond. An insert takes X on its record and IX on the gap it goes into, a delete X on its record and IX on
// the gaps on both sides of it: IX because inserts into one gap do not disturb one another, only scans of it.
// Point reads and updates lock their record only.
//
// AcquireKey does the coarse part by itself. It also escalates: an owner with many locks below one (table,
// site) tries, without waiting, to take S (if all are reads) or X on all of it, and needs no more of them
// then. If others are in the way it goes on with key locks, and tries again after as many more.
//
// Hot locks on (table, site) are inherited: left to the worker when a transaction ends, for its next one
// (lock_inheritance.h). To everybody else it is as if they were released.
//
// Waiting is the caller's affair: Acquire answers kWaiting and the caller suspends; whoever releases gets the
// list of owners whose wait is over and wakes them. The table does no I/O and holds no clock; timeouts call
// CancelWait. Deadlocks across islands are the callers' too: Blockers is one step of their probes.
//
// Thread safety: all functions may be called from every worker of the island; all owners with the same worker
// number are used by one thread. Hash buckets are latched one at a time; the wait-for graph has its own
// mutex, taken before any bucket latch and only on the paths that wait, or when they are met by an owner that
// leaves locks to its worker.
//
// Invariants:
//  1. Granted modes on a name are pairwise compatible between different owners; grants are in arrival order
//     among incompatible requests, except that a conversion (an owner strengthening its own lock) waits for
//     granted locks only: it goes ahead of all new requests.
//  2. An owner waits for at most one name at a time.
//  3. After ReleaseAll an owner holds and waits for nothing, and nothing in the table points to it.
//  4. A cycle of waiting owners on this island never survives the Acquire that closes it: that Acquire
//     answers kDeadlock, and leaves no trace in the table.
//  5. An inherited lock is nobody's: it is not counted as held, and nobody waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/transaction_id.h"
#include "runtime/hash_bytes.h"

namespace islands::locks {

enum class LockMode : uint8_t { kIS = 0, kIX = 1, kS = 2, kSIX = 3, kX = 4 };

bool Compatible(LockMode a, LockMode b);
// The weakest mode that covers both.
LockMode Supremum(LockMode a, LockMode b);

struct LockName {
  uint32_t table = 0;
  uint32_t site = 0;
  uint64_t key_hash = 0;  // 0 = the whole (table, site), KeyHash = a record, GapHash = the gap below one
  friend bool operator==(const LockName&, const LockName&) = default;
};

// The gap above the last key of a site.
inline constexpr uint64_t kSupremumGap = ~0ull;
// The entries of all secondary indexes of a (table, site): a scan of one holds S, who adds or removes some,
// IX.
inline constexpr uint64_t kIndexEntries = ~0ull - 1;
// Records and gaps differ in the highest bit of their hash.
inline constexpr uint64_t kGapBit = uint64_t{1} << 63;
// A record, whether it exists or not. Never 0, and never what GapHash returns for any key.
inline uint64_t KeyHash(const void* key, size_t bytes);
// The same for who knows the key's runtime::HashBytes.
inline uint64_t RecordHash(uint64_t hash) {
  hash &= ~kGapBit;
  return hash != 0 ? hash : 1;
}
// The gap between the key and the one before it. Never 0, kSupremumGap or kIndexEntries.
inline uint64_t GapHash(const void* key, size_t bytes);
// The same for who knows the key's KeyHash.
inline uint64_t GapHashOf(uint64_t record) {
  const uint64_t hash = record | kGapBit;
  return hash < kIndexEntries ? hash : kIndexEntries - 1;
}

enum class LockResult : uint8_t { kGranted, kWaiting, kDeadlock };

// A waiting owner waits for all who hold an incompatible lock and, unless it strengthens its own, for all who
// wait ahead of it for one.
enum class BlockerSet : uint8_t {
  kHolders,  // the holders; where there are none, the first who waits ahead. lock_wait.cc says what for
  kAll,
};

struct LockRequest;  // pooled; lock_queue.h

// What a wait is for, and who was in the way when it began: one who holds the lock, or, where none does, the
// first who waits ahead.
struct BlockedBy {
  LockName name;
  uint8_t doing = 0;  // LockOwner::doing
};

// What one transaction holds and waits for on one island. Requests point to it: it stays where it is, and
// lives until ReleaseAll has returned.
class LockOwner {
 public:
  LockOwner() = default;
  LockOwner(const LockOwner&) = delete;
  LockOwner& operator=(const LockOwner&) = delete;

  // For people and for deadlock probes of other workers: changed only while nothing is held and waited for,
  // as are the others.
  coordinator::TransactionId transaction;
  uint32_t worker = 0;      // whom to wake
  uint64_t wake_token = 0;  // says which suspended branch of that worker

  // What the transaction does, as a number that means something to callers; for those who wait for what it
  // holds. Set by the owner's worker at any time.
  std::atomic<uint8_t> doing = 0;
  // Of the last wait. For the owner's worker.
  const BlockedBy& blocked_by() const { return blocked_by_; }

  // Names held, and the one waited for.
  size_t held() const { return held_count_; }
  bool waiting() const { return waiting_.load(std::memory_order_acquire) != nullptr; }

 private:
  friend class LockTable;
  // Owned by the owner's worker:
  // Lists through LockRequest::next_of_owner, newest first:
  LockRequest* keys_ = nullptr;
  LockRequest* coarse_ = nullptr;  // those on a (table, site), but first the one used last
  size_t held_count_ = 0;
  BlockedBy blocked_by_;
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
  // Hot coarse locks stay with the worker from one transaction to the next. Only if latched.
  bool inherit = true;
  // So many locks of one owner below one (table, site), and after as many more again, it is tried to take S
  // or X on all of it instead.
  uint32_t escalate_after = 1000;
};

class LockTable {
 public:
  explicit LockTable(LockTableOptions options);
  ~LockTable();

  // kGranted also if a covering mode is already held. kWaiting: the owner is queued; a Wakeup for it will be
  // handed to whoever makes room. kDeadlock: not queued; the caller must abort.
  LockResult Acquire(LockOwner& owner, const LockName& name, LockMode mode);
  // For a record or a gap: takes the intention on (table, site) first (IS for S, IX for IX and X), then the
  // name. Nothing is taken on the name where the owner's lock on (table, site) covers it: S and SIX cover S,
  // X covers all. kWaiting may be for either lock; calling again after the wait goes on from there.
  LockResult AcquireKey(LockOwner& owner, const LockName& name, LockMode mode);
  // The same without waiting: false if it cannot be had at once. The intention may have been taken then.
  bool TryAcquireKey(LockOwner& owner, const LockName& name, LockMode mode, bool escalates = false);
  // Whether an owner that has nothing would be granted it at once, if it has what AcquireKey takes before it:
  // nobody has, or waits for, what does not go with it. Leaves no trace. While one thread alone uses the
  // table.
  bool IsFree(const LockName& name, LockMode mode) const;
  // True when a mode at least as strong is held.
  bool Holds(const LockOwner& owner, const LockName& name, LockMode mode) const;
  // Ends a wait (timeout, abort). False when it had just been granted: the lock is then held.
  bool CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups);
  // After a Wakeup: whether the wait is really over (a wakeup may be stale).
  bool WaitOver(const LockOwner& owner) const;
  void ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups);

  // Transactions that a waiting owner waits for; none when it does not wait. Called by the owner's worker.
  void Blockers(const LockOwner& owner, BlockerSet which,
                std::vector<coordinator::TransactionId>* blockers) const;

  // What every head and queue must be; while nobody else uses the table. Looks at all of it.
  void CheckInvariants() const;
  // Exact when quiet, otherwise approximate.
  uint64_t LocksHeld() const;
  uint64_t OwnersWaiting() const;
  // Left to workers and not reclaimed since; those taken from them count until they notice.
  uint64_t LocksInherited() const;
  // How often key locks became one on their (table, site), since the start.
  uint64_t Escalations() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline uint64_t KeyHash(const void* key, size_t bytes) { return RecordHash(runtime::HashBytes(key, bytes)); }

inline uint64_t GapHash(const void* key, size_t bytes) { return GapHashOf(KeyHash(key, bytes)); }

}  // namespace islands::locks
