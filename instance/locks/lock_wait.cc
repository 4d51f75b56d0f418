// Waiting for a lock: queues, the search for cycles of waiting owners, grants.
#include <algorithm>

#include "instance/locks/lock_table_impl.h"
#include "runtime/planted_bug.h"

namespace islands::locks {

using runtime::Planted;
using runtime::PlantedBug;

LockResult LockTable::Impl::AcquireOrWait(LockOwner& owner, size_t bucket, const LockName& name,
                                          LockMode mode) {
  const Search searching_now(*this, ISLANDS_LATCH("lock.graph"));
  Candidate candidate{&owner, name, mode, false};
  ++search;
  to_visit.clear();
  {
    const LatchGuard guard(buckets[bucket].latch, latched, ISLANDS_LATCH("lock.wait"));
    if (TryGrant(owner, bucket, name, mode)) return LockResult::kGranted;  // released meanwhile
    const LockHead& head = *FindHead(bucket, name);
    if (const LockRequest* own = FindOwn(head, owner)) {
      candidate.converting = true;
      candidate.wanted = Supremum(own->granted, mode);
    }
    PushBlockers(candidate, head, &owner, candidate.wanted, nullptr);
  }
  if (ClosesCycle(candidate, bucket)) return LockResult::kDeadlock;  // invariant 4: nothing is queued yet
  const LatchGuard guard(buckets[bucket].latch, latched, ISLANDS_LATCH("lock.wait"));
  LockHead* head = FindHead(bucket, name);
  if (head == nullptr) head = NewHead(owner, bucket, name);
  head->waiters.fetch_add(1);  // before it looks for inherited locks for the last time (lock_inheritance.h)
  if (TryGrant(owner, bucket, name, mode)) {
    head->waiters.fetch_sub(1);
    return LockResult::kGranted;
  }
  Enqueue(owner, bucket, candidate);
  return LockResult::kWaiting;
}

void LockTable::Impl::Enqueue(LockOwner& owner, size_t bucket, const Candidate& candidate) {
  LockHead* const head = FindHead(bucket, candidate.name);
  const LockOwner* const blocker = FirstInTheWay(*head, candidate);
  owner.blocked_by_ = {candidate.name,
                       blocker != nullptr ? blocker->doing.load(std::memory_order_relaxed) : uint8_t{0}};
  LockRequest* const request = candidate.converting ? FindOwn(*head, owner) : NewRequest(owner, bucket, head);
  head->LinkWaiting(request, candidate.wanted, candidate.converting);
  (candidate.converting ? conversions_waiting : new_waiting).fetch_add(1, std::memory_order_relaxed);
  owner.waiting_.store(request, std::memory_order_release);
}

// They have requests in the bucket that is latched now, and so they are alive. Null: those who hold it have
// left it to their workers at this moment.
const LockOwner* LockTable::Impl::FirstInTheWay(const LockHead& head, const Candidate& candidate) {
  for (const LockRequest* request = head.granted; request != nullptr; request = request->next) {
    const LockOwner* const owner = request->holder.owner();
    if (owner != nullptr && owner != candidate.owner && !Compatible(request->granted, candidate.wanted))
      return owner;
  }
  for (const LockRequest* ahead = head.first_waiting; ahead != nullptr; ahead = ahead->next_waiting) {
    if (!Compatible(ahead->wanted, candidate.wanted)) return ahead->holder.owner();
  }
  return nullptr;
}

// Depth-first search over waiting owners, on the graph as it will be once the candidate waits. Nothing begins
// or cancels a wait meanwhile, so whatever is found waiting has been so since the search began (and held its
// locks all along): a cycle found is a real one. What others are granted or release meanwhile only adds edges
// to owners that do not wait, or takes edges away. So no cycle is missed either.
bool LockTable::Impl::ClosesCycle(const Candidate& candidate, size_t bucket) {
  while (!to_visit.empty()) {
    const Visit visit = to_visit.back();
    to_visit.pop_back();
    const LatchGuard guard(buckets[visit.bucket].latch, latched, ISLANDS_LATCH("lock.search"));
    if (!StillWaits(visit)) continue;  // granted or given up since it was pushed
    const LockRequest& request = *visit.request;
    // A conversion goes ahead of the new requests that are already there.
    if (candidate.converting && !request.converting && visit.bucket == bucket &&
        request.head->name == candidate.name && !Compatible(request.wanted, candidate.wanted)) {
      return true;
    }
    if (PushBlockers(candidate, *request.head, request.holder.owner(), request.wanted, &request)) return true;
  }
  return false;
}

// Remembers the waiting owners that `waiter` waits for. `request` is null for the candidate, which would be
// the last. True when the candidate's owner is among them.
bool LockTable::Impl::PushBlockers(const Candidate& candidate, const LockHead& head, const LockOwner* waiter,
                                   LockMode wanted, const LockRequest* request) {
  for (const LockRequest* holder = head.granted; holder != nullptr; holder = holder->next) {
    const LockOwner* const owner = holder->holder.owner();
    if (owner == nullptr || owner == waiter || Compatible(holder->granted, wanted)) continue;
    if (PushOwner(candidate, *owner)) return true;
  }
  const bool converting = request != nullptr ? request->converting : candidate.converting;
  if (converting) return false;  // invariant 1: it goes ahead of all new requests
  for (const LockRequest* ahead = head.first_waiting; ahead != request; ahead = ahead->next_waiting) {
    if (!Compatible(ahead->wanted, wanted) && PushOwner(candidate, *ahead->holder.owner())) return true;
  }
  return false;
}

// The blocker has a request in the bucket that is latched now, and this is a Search, so it cannot finish
// ReleaseAll: it is alive, and so is the request it waits with, even if that is being granted at this moment.
bool LockTable::Impl::PushOwner(const Candidate& candidate, const LockOwner& blocker) {
  if (&blocker == candidate.owner) return true;
  LockRequest* const request = blocker.waiting_.load(std::memory_order_acquire);
  if (request == nullptr || request->visited == search) return false;
  request->visited = search;
  to_visit.push_back({request, request->bucket});
  return false;
}

// The request may have been granted, freed and used again since it was seen: it is looked for, not looked at.
bool LockTable::Impl::StillWaits(const Visit& visit) const {
  for (const LockHead* head = buckets[visit.bucket].first; head != nullptr; head = head->next_in_bucket) {
    for (const LockRequest* request = head->first_waiting; request != nullptr;
         request = request->next_waiting) {
      if (request == visit.request) return true;
    }
  }
  return false;
}

void LockTable::Impl::EndWait(LockHead* head, LockRequest* request) {
  (request->converting ? conversions_waiting : new_waiting).fetch_sub(1, std::memory_order_relaxed);
  head->UnlinkWaiting(request);
  head->waiters.fetch_sub(1, std::memory_order_relaxed);
}

void LockTable::Impl::GrantWaiters(LockHead* head, std::vector<Wakeup>* wakeups) {
  ModeMask ahead = 0;  // of those passed over
  LockRequest* next = nullptr;
  for (LockRequest* request = head->first_waiting; request != nullptr; request = next) {
    next = request->next_waiting;
    const bool converting = request->converting;
    const ModeMask others = converting ? head->granted_modes.MaskWithoutOne(request->granted)
                                       : static_cast<ModeMask>(head->granted_modes.mask() | ahead);
    if (!CompatibleWithAll(request->wanted, others)) {
      ahead |= Bit(request->wanted);
      if (!converting && (ahead & Bit(LockMode::kX)) != 0) return;  // nothing new gets past an X
      continue;
    }
    EndWait(head, request);
    if (converting) {
      head->Strengthen(request, request->wanted);
    } else {
      head->LinkGranted(request, request->wanted);
    }
    LockOwner* const owner = request->holder.owner();
    if (!Planted(PlantedBug::kLoseWakeup) || grants_seen.fetch_add(1, std::memory_order_relaxed) % 2 == 0) {
      wakeups->push_back({owner->worker, owner->wake_token});
    }
    owner->waiting_.store(nullptr, std::memory_order_release);
  }
}

bool LockTable::Impl::CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  const std::unique_lock<runtime::Mutex> graph = LockGraph(ISLANDS_LATCH("lock.graph"));
  LockRequest* const request = owner.waiting_.load(std::memory_order_acquire);
  if (request == nullptr) return false;
  const size_t bucket = request->bucket;
  const LatchGuard guard(buckets[bucket].latch, latched, ISLANDS_LATCH("lock.cancel"));
  if (!owner.waiting()) return false;  // granted before the latch was ours
  LockHead* const head = request->head;
  const bool converting = request->converting;
  EndWait(head, request);
  owner.waiting_.store(nullptr, std::memory_order_release);
  if (!converting) {
    LockRequest*& list = request->name.key_hash == 0 ? owner.coarse_ : owner.keys_;
    ISLANDS_CHECK(list == request);  // an owner that waits acquires nothing else
    list = request->next_of_owner;
    --owner.held_count_;
    memory.FreeRequests(owner.worker, request, request, 1);
  }
  GrantWaiters(head, wakeups);
  DropIfEmpty(bucket, head);
  return true;
}

// On a hot lock kAll has an edge for every two of those who wait. kHolders is enough for a deadlock that
// has come to rest: once nobody near it can move any more, a holder that is in the way is stuck itself,
// and so is, where no holder is, whoever waits ahead. So from everyone stuck an edge leads to another who
// is, and these edges close a cycle. But a cycle through the queue of a lock stays hidden for as long as a
// holder who is no part of it may still move.
void LockTable::Impl::Blockers(const LockOwner& owner, BlockerSet which,
                               std::vector<coordinator::TransactionId>* blockers) {
  const Search searching_now(*this, ISLANDS_LATCH("lock.graph"));
  const LockRequest* const waiting = owner.waiting_.load(std::memory_order_acquire);
  if (waiting == nullptr) return;
  const LatchGuard guard(buckets[waiting->bucket].latch, latched, ISLANDS_LATCH("lock.search"));
  if (!owner.waiting()) return;  // granted before the latch was ours
  const LockHead& head = *waiting->head;
  bool enough = false;
  for (const LockRequest* r = head.granted; r != nullptr; r = r->next) {
    const LockOwner* const holder = r->holder.owner();
    if (holder == nullptr || holder == &owner || Compatible(r->granted, waiting->wanted)) continue;
    blockers->push_back(holder->transaction);
    enough = which == BlockerSet::kHolders;
  }
  if (waiting->converting) return;  // invariant 1: nobody is ahead of a conversion but holders
  for (const LockRequest* r = head.first_waiting; r != waiting && !enough; r = r->next_waiting) {
    if (Compatible(r->wanted, waiting->wanted)) continue;
    blockers->push_back(r->holder.owner()->transaction);
    enough = which == BlockerSet::kHolders;
  }
}

}  // namespace islands::locks
