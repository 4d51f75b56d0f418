// Modes, names, and how a lock is had, escalated, left to the worker and released.
#include "instance/locks/lock_table.h"

#include "instance/locks/lock_table_impl.h"
#include "runtime/planted_bug.h"

namespace islands::locks {
namespace {

using runtime::Planted;
using runtime::PlantedBug;
using enum LockMode;
constexpr LockMode kSupremum[kModes][kModes] = {
    {kIS, kIX, kS, kSIX, kX},     {kIX, kIX, kSIX, kSIX, kX}, {kS, kSIX, kS, kSIX, kX},
    {kSIX, kSIX, kSIX, kSIX, kX}, {kX, kX, kX, kX, kX},
};

// Of a record or a gap: what is meant by more than to read.
bool IsExclusive(LockMode mode) { return mode != kS && mode != kIS; }

}  // namespace

bool Compatible(LockMode a, LockMode b) { return (kCompatible[static_cast<size_t>(a)] & Bit(b)) != 0; }

LockMode Supremum(LockMode a, LockMode b) {
  return kSupremum[static_cast<size_t>(a)][static_cast<size_t>(b)];
}

LockRequest* LockTable::Impl::NewRequest(LockOwner& owner, size_t bucket, LockHead* head) {
  LockRequest* const request = memory.NewRequest(owner.worker);
  request->holder.Set(owner);
  request->head = head;
  request->name = head->name;
  request->bucket = bucket;
  request->waits = false;
  request->converting = false;
  if (request->name.key_hash == 0) {
    request->hot = head->last_worker != owner.worker && head->last_worker != LockHead::kNoWorker;
    head->last_worker = owner.worker;
    request->keys = 0;
    request->keys_exclusive = false;
    request->escalate_at = options.escalate_after;
  }
  AddToOwner(owner, request);
  return request;
}

LockHead* LockTable::Impl::NewHead(LockOwner& owner, size_t bucket, const LockName& name) {
  LockHead* const head = memory.NewHead(owner.worker);
  head->name = name;
  head->next_in_bucket = std::exchange(buckets[bucket].first, head);
  return head;
}

void LockTable::Impl::DropIfEmpty(size_t bucket, LockHead* head) {
  if (head->granted_count != 0 || head->first_waiting != nullptr || head->name.key_hash == 0) return;
  LockHead** link = &buckets[bucket].first;
  while (*link != head) link = &(*link)->next_in_bucket;
  *link = head->next_in_bucket;
  memory.FreeHead(head);
}

// Without waiting: nothing is queued, so nobody's search can take it for somebody who waits.
bool LockTable::Impl::TryAcquire(LockOwner& owner, const LockName& name, LockMode mode) {
  ISLANDS_CHECK(!owner.waiting());  // invariant 2
  if (name.key_hash == 0) {
    if (const LockRequest* const own = FindCoarse(owner, name)) {
      if (Covers(own->granted, mode)) return true;
    } else if (InheritedLocks* const mine = InheritedBy(owner)) {
      if (LockRequest* const reclaimed = mine->Reclaim(owner, name, mode)) {
        reclaimed->keys = 0;
        reclaimed->keys_exclusive = false;
        reclaimed->escalate_at = options.escalate_after;
        AddToOwner(owner, reclaimed);
        return true;
      }
    }
  }
  const size_t bucket = BucketOf(name);
  const LatchGuard guard(buckets[bucket].latch, latched, ISLANDS_LATCH("lock.acquire"));
  return TryGrant(owner, bucket, name, mode);
}

LockResult LockTable::Impl::Acquire(LockOwner& owner, const LockName& name, LockMode mode) {
  if (TryAcquire(owner, name, mode)) return LockResult::kGranted;
  return AcquireOrWait(owner, BucketOf(name), name, mode);
}

bool LockTable::Impl::TryAcquireKey(LockOwner& owner, const LockName& name, LockMode mode, bool escalates) {
  const bool exclusive = IsExclusive(mode);
  const LockName site{name.table, name.site, 0};
  if (!TryAcquire(owner, site, exclusive ? kIX : kIS)) return false;
  LockRequest* const coarse = FindCoarse(owner, site);
  if (Covers(coarse->granted, exclusive ? kX : kS)) return true;
  coarse->keys_exclusive |= exclusive;
  const size_t held = owner.held_count_;
  if (!TryAcquire(owner, name, mode)) return false;
  if (escalates && owner.held_count_ != held) CountKey(owner, coarse);
  return true;
}

// One more below it is granted.
void LockTable::Impl::CountKey(LockOwner& owner, LockRequest* coarse) {
  if (++coarse->keys >= coarse->escalate_at) Escalate(owner, coarse);
}

LockResult LockTable::Impl::AcquireKey(LockOwner& owner, const LockName& name, LockMode mode) {
  ISLANDS_CHECK(name.key_hash != 0);
  const LockName site{name.table, name.site, 0};
  const bool exclusive = IsExclusive(mode);
  const LockResult intention = Acquire(owner, site, exclusive ? kIX : kIS);
  if (intention != LockResult::kGranted) return intention;
  LockRequest* const coarse = FindCoarse(owner, site);
  if (Covers(coarse->granted, exclusive ? kX : kS)) return LockResult::kGranted;
  if (Planted(PlantedBug::kEscalatedSCoversAll) && Covers(coarse->granted, kS)) return LockResult::kGranted;
  const size_t held = owner.held_count_;
  const LockResult result = Acquire(owner, name, mode);
  coarse->keys_exclusive |= exclusive;
  if (owner.held_count_ == held) return result;  // one that it had: no more locks below than before
  if (result == LockResult::kGranted) {
    CountKey(owner, coarse);
  } else {
    ++coarse->keys;
  }
  return result;
}

// Tries to, without waiting. The locks below stay until the end of the transaction: a few too many, but no
// more are added.
void LockTable::Impl::Escalate(LockOwner& owner, LockRequest* coarse) {
  coarse->escalate_at = coarse->keys + options.escalate_after;
  const LatchGuard guard(buckets[coarse->bucket].latch, latched, ISLANDS_LATCH("lock.escalate"));
  const LockMode wanted = coarse->keys_exclusive ? kX : kS;
  if (Planted(PlantedBug::kEscalateOverHolders))
    coarse->head->Strengthen(coarse, Supremum(coarse->granted, wanted));
  if (!TryGrant(owner, coarse->bucket, coarse->name, wanted)) return;
  escalations.fetch_add(1, std::memory_order_relaxed);
}

bool LockTable::Impl::TryGrant(LockOwner& owner, size_t bucket, const LockName& name, LockMode mode) {
  LockHead* head = FindHead(bucket, name);
  if (head == nullptr) head = NewHead(owner, bucket, name);
  LockRequest* request = FindOwn(*head, owner);
  if (request != nullptr) {
    mode = Supremum(request->granted, mode);
    if (mode == request->granted) return true;  // no stronger than what it has
  }
  const bool granted_anyhow = Planted(PlantedBug::kGrantEveryLock) ||
                              (request != nullptr && Planted(PlantedBug::kConvertOverHolders));
  if (!head->Fits(mode, request) && !granted_anyhow) {
    if (!inherit || !EvictInherited(*head, mode) || !head->Fits(mode, request)) return false;
  }
  if (request != nullptr) {
    head->Strengthen(request, mode);
  } else {
    head->LinkGranted(NewRequest(owner, bucket, head), mode);
  }
  return true;
}

// Requests are freed only after all have left their buckets: a search for cycles relies on it (PushOwner).
void LockTable::Impl::ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  if (owner.waiting()) CancelWait(owner, wakeups);  // invariant 3
  if (owner.held_count_ == 0) return;
  for (LockRequest* request = owner.keys_; request != nullptr; request = request->next_of_owner) {
    Release(request, wakeups);
  }
  if (LeaveSome(owner, wakeups) && searching.load()) {
    // A search may have found this owner by a lock that it left: it must stay until that is over.
    const runtime::MutexLock wait(graph_mutex, ISLANDS_LATCH("lock.graph"));
  }
  for (LockRequest** list : {&owner.coarse_, &owner.keys_}) {
    if (*list == nullptr) continue;
    size_t count = 1;
    LockRequest* last = *list;
    for (; last->next_of_owner != nullptr; last = last->next_of_owner) ++count;
    memory.FreeRequests(owner.worker, *list, last, count);
    *list = nullptr;
  }
  owner.held_count_ = 0;
}

// Also of an inherited request, which may be evicted meanwhile.
void LockTable::Impl::Release(LockRequest* request, std::vector<Wakeup>* wakeups) {
  const LatchGuard guard(buckets[request->bucket].latch, latched, ISLANDS_LATCH("lock.release"));
  LockHead* const head = request->head;
  if (request->holder.owner() != nullptr || request->holder.BeginEviction()) head->UnlinkGranted(request);
  if (head->first_waiting != nullptr) GrantWaiters(head, wakeups);  // invariant 1: in the order of arrival
  DropIfEmpty(request->bucket, head);
}

// Leaves to the worker what it may inherit, and releases the other coarse locks; only these remain in the
// owner's list. True if any was left.
bool LockTable::Impl::LeaveSome(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  ReleaseUseless(owner, wakeups);
  bool any = false;
  LockRequest* released = nullptr;
  for (LockRequest* request = owner.coarse_; request != nullptr;) {
    LockRequest* const next = request->next_of_owner;
    if (Leave(owner, request)) {
      any = true;
    } else {
      Release(request, wakeups);
      request->next_of_owner = std::exchange(released, request);
    }
    request = next;
  }
  owner.coarse_ = released;
  return any;
}

// When false the request must be released, even if it has no holder any more.
bool LockTable::Impl::Leave(const LockOwner& owner, LockRequest* request) {
  InheritedLocks* const mine = InheritedBy(owner);
  if (mine == nullptr || !mine->Takes(*request)) return false;
  request->holder.Leave();
  if (request->head->waiters.load() != 0 && !Planted(PlantedBug::kLeavePastWaiter)) return false;
  mine->Add(request);
  return true;
}

void LockTable::Impl::ReleaseUseless(const LockOwner& owner, std::vector<Wakeup>* wakeups) {
  InheritedLocks* const mine = InheritedBy(owner);
  if (mine == nullptr) return;
  while (LockRequest* const request = mine->TakeUseless()) {
    if (!request->holder.evicted()) Release(request, wakeups);
    memory.FreeRequests(owner.worker, request, request, 1);
  }
}

LockTable::LockTable(LockTableOptions options) : impl_(std::make_unique<Impl>(options)) {}

LockTable::~LockTable() = default;

LockResult LockTable::Acquire(LockOwner& owner, const LockName& name, LockMode mode) {
  return impl_->Acquire(owner, name, mode);
}

LockResult LockTable::AcquireKey(LockOwner& owner, const LockName& name, LockMode mode) {
  return impl_->AcquireKey(owner, name, mode);
}

bool LockTable::TryAcquireKey(LockOwner& owner, const LockName& name, LockMode mode, bool escalates) {
  return impl_->TryAcquireKey(owner, name, mode, escalates);
}

bool LockTable::IsFree(const LockName& name, LockMode mode) const { return impl_->Fits(name, mode); }

void LockTable::Blockers(const LockOwner& owner, BlockerSet which,
                         std::vector<coordinator::TransactionId>* blockers) const {
  impl_->Blockers(owner, which, blockers);
}

bool LockTable::Holds(const LockOwner& owner, const LockName& name, LockMode mode) const {
  const size_t bucket = impl_->BucketOf(name);
  const LatchGuard guard =
      LatchGuard(impl_->buckets[bucket].latch, impl_->latched, ISLANDS_LATCH("lock.holds"));
  const LockHead* const head = impl_->FindHead(bucket, name);
  const LockRequest* const request = head != nullptr ? Impl::FindOwn(*head, owner) : nullptr;
  return request != nullptr && Covers(request->granted, mode);
}

bool LockTable::CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  return impl_->CancelWait(owner, wakeups);
}

bool LockTable::WaitOver(const LockOwner& owner) const { return !owner.waiting(); }

void LockTable::ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  impl_->ReleaseAll(owner, wakeups);
}

uint64_t LockTable::LocksHeld() const {
  const uint64_t requests = impl_->memory.requests_in_use();
  const uint64_t not_held = impl_->new_waiting.load(std::memory_order_relaxed) + LocksInherited();
  return requests > not_held ? requests - not_held : 0;
}

uint64_t LockTable::LocksInherited() const {
  uint64_t inherited = 0;
  for (const InheritedLocks& locks : impl_->inherited) inherited += locks.size();
  return inherited;
}

uint64_t LockTable::Escalations() const { return impl_->escalations.load(std::memory_order_relaxed); }

uint64_t LockTable::OwnersWaiting() const {
  return impl_->new_waiting.load(std::memory_order_relaxed) +
         impl_->conversions_waiting.load(std::memory_order_relaxed);
}

}  // namespace islands::locks
