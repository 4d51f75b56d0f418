// The inside of the lock table: lock_table.cc acquires and releases, lock_wait.cc is about waiting.
//
// Buckets hold heads (lock_queue.h). Heads of keys are recycled when empty; heads of (table, site) are few
// and stay.
//
// Thread safety: as lock_table.h says. What takes a head, and NewHead, runs under the latch of its bucket.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "instance/locks/lock_inheritance.h"
#include "instance/locks/lock_latch.h"
#include "instance/locks/lock_memory.h"
#include "instance/locks/lock_queue.h"
#include "instance/locks/lock_table.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "runtime/mutex.h"

namespace islands::locks {

struct LockTable::Impl {
  struct Bucket {
    Latch latch;
    LockHead* first = nullptr;  // guarded by latch, as is everything in the heads
  };
  // A request that was found waiting, to be looked at under its own bucket's latch.
  struct Visit {
    LockRequest* request;
    size_t bucket;
  };
  // The request whose wait might close a cycle.
  struct Candidate {
    LockOwner* owner;
    LockName name;
    LockMode wanted;
    bool converting;
  };

  // While searches look at other owners. Taken by everyone who begins or cancels a wait, before any latch.
  class Search {
   public:
    Search(Impl& impl, runtime::LatchSite site) : impl_(impl), lock_(impl.LockGraph(site)) {
      impl_.searching.store(true);
    }
    ~Search() { impl_.searching.store(false); }
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

   private:
    Impl& impl_;
    const std::unique_lock<runtime::Mutex> lock_;
  };

  explicit Impl(const LockTableOptions& o)
      : options(o),
        latched(o.latched),
        inherit(o.latched && o.inherit),
        mask(o.buckets - 1),
        buckets(o.buckets),
        memory(o.latched),
        inherited(inherit ? LockMemory::kShares : 0) {
    ISLANDS_CHECK(o.buckets > 0 && (o.buckets & mask) == 0 && o.escalate_after > 0);
  }

  size_t BucketOf(const LockName& name) const {
    const uint64_t place = uint64_t{name.table} << 32 | name.site;
    return ((name.key_hash ^ place * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull >> 32) & mask;
  }

  LockHead* FindHead(size_t bucket, const LockName& name) const {
    LockHead* head = buckets[bucket].first;
    while (head != nullptr && head->name != name) head = head->next_in_bucket;
    return head;
  }

  bool Fits(const LockName& name, LockMode mode) const {
    const LockHead* const head = FindHead(BucketOf(name), name);
    return head == nullptr || head->Fits(mode, /*own=*/nullptr);
  }

  // The owner's request for a (table, site), which becomes the first of its list. No latch needed.
  static LockRequest* FindCoarse(LockOwner& owner, const LockName& name) {
    LockRequest** link = &owner.coarse_;
    while (*link != nullptr && !((*link)->name == name)) link = &(*link)->next_of_owner;
    LockRequest* const request = *link;
    if (request == nullptr || request == owner.coarse_) return request;
    *link = request->next_of_owner;
    request->next_of_owner = std::exchange(owner.coarse_, request);
    return request;
  }

  // The owner's granted request, by whichever list is shorter.
  static LockRequest* FindOwn(const LockHead& head, const LockOwner& owner) {
    const bool coarse = head.name.key_hash == 0;
    LockRequest* request = nullptr;
    if (!coarse && head.granted_count <= owner.held_count_) {
      request = head.granted;
      while (request != nullptr && !request->holder.Is(owner)) request = request->next;
      return request;
    }
    request = coarse ? owner.coarse_ : owner.keys_;
    while (request != nullptr && request->head != &head) request = request->next_of_owner;
    return request != nullptr && request->waits && !request->converting ? nullptr : request;
  }

  static void AddToOwner(LockOwner& owner, LockRequest* request) {
    LockRequest*& list = request->name.key_hash == 0 ? owner.coarse_ : owner.keys_;
    request->next_of_owner = std::exchange(list, request);
    ++owner.held_count_;
  }

  LockResult Acquire(LockOwner& owner, const LockName& name, LockMode mode);
  bool TryAcquire(LockOwner& owner, const LockName& name, LockMode mode);
  bool TryAcquireKey(LockOwner& owner, const LockName& name, LockMode mode, bool escalates);
  LockResult AcquireOrWait(LockOwner& owner, size_t bucket, const LockName& name, LockMode mode);
  LockResult AcquireKey(LockOwner& owner, const LockName& name, LockMode mode);
  void CountKey(LockOwner& owner, LockRequest* coarse);
  void Escalate(LockOwner& owner, LockRequest* coarse);
  bool TryGrant(LockOwner& owner, size_t bucket, const LockName& name, LockMode mode);
  void Enqueue(LockOwner& owner, size_t bucket, const Candidate& candidate);
  static const LockOwner* FirstInTheWay(const LockHead& head, const Candidate& candidate);
  bool CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups);
  void ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups);
  void Release(LockRequest* request, std::vector<Wakeup>* wakeups);
  bool Leave(const LockOwner& owner, LockRequest* request);
  bool LeaveSome(LockOwner& owner, std::vector<Wakeup>* wakeups);
  void ReleaseUseless(const LockOwner& owner, std::vector<Wakeup>* wakeups);
  void GrantWaiters(LockHead* head, std::vector<Wakeup>* wakeups);
  void EndWait(LockHead* head, LockRequest* request);
  void DropIfEmpty(size_t bucket, LockHead* head);
  static void CheckHead(const LockHead& head, size_t bucket);

  bool ClosesCycle(const Candidate& candidate, size_t bucket);
  bool PushBlockers(const Candidate& candidate, const LockHead& head, const LockOwner* waiter,
                    LockMode wanted, const LockRequest* request);
  bool PushOwner(const Candidate& candidate, const LockOwner& blocker);
  bool StillWaits(const Visit& visit) const;
  void Blockers(const LockOwner& owner, BlockerSet which, std::vector<coordinator::TransactionId>* blockers);

  // Null: there is no inheritance for the owner's worker.
  InheritedLocks* InheritedBy(const LockOwner& owner) {
    return owner.worker < inherited.size() ? &inherited[owner.worker] : nullptr;
  }
  LockRequest* NewRequest(LockOwner& owner, size_t bucket, LockHead* head);
  LockHead* NewHead(LockOwner& owner, size_t bucket, const LockName& name);

  std::unique_lock<runtime::Mutex> LockGraph(runtime::LatchSite site) {
    if (!latched) return {graph_mutex, std::defer_lock};
    graph_mutex.lock(site);
    return {graph_mutex, std::adopt_lock};
  }

  const LockTableOptions options;
  const bool latched;
  const bool inherit;
  const size_t mask;
  std::vector<Bucket> buckets;
  LockMemory memory;
  std::vector<InheritedLocks> inherited;  // by worker
  std::atomic<uint64_t> new_waiting = 0;
  std::atomic<uint64_t> conversions_waiting = 0;
  std::atomic<uint64_t> escalations = 0;
  std::atomic<uint32_t> grants_seen = 0;  // by a planted bug

  // Taken by everyone who begins or cancels a wait, before any latch. Grants end waits without it.
  alignas(64) runtime::Mutex graph_mutex;
  uint64_t search = 0;          // guarded by graph_mutex
  std::vector<Visit> to_visit;  // guarded by graph_mutex
  // Written under graph_mutex; lock_inheritance.h says who reads it.
  alignas(64) std::atomic<bool> searching = false;
};

}  // namespace islands::locks
