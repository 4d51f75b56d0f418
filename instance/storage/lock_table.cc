// Buckets hold heads (lock_queue.h). Heads of keys are recycled when empty; heads of (table, site) are few
// and stay. Requests and heads come from slabs in shards, one per worker, which are never given back before
// the table dies: memory that was once a request can always be read.
//
// (One file of this length: its parts are the few operations on one structure.)
#include "instance/storage/lock_table.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "absl/hash/hash.h"
#include "instance/runtime/check.h"
#include "instance/runtime/latch_site.h"
#include "instance/storage/lock_queue.h"

namespace islands::storage {
namespace {

using enum LockMode;
constexpr LockMode kSupremum[kModes][kModes] = {
    {kIS, kIX, kS, kSIX, kX},     {kIX, kIX, kSIX, kSIX, kX}, {kS, kSIX, kS, kSIX, kX},
    {kSIX, kSIX, kSIX, kSIX, kX}, {kX, kX, kX, kX, kX},
};

class Latch {
 public:
  void Lock() {
    if (!held_.exchange(true, std::memory_order_acquire)) return;
    for (runtime::Backoff backoff;
         held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire);) {
      backoff.Wait();
    }
  }
  void Unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_ = false;
};

// Holds a latch for a scope; without `latched` (a one-worker island) it costs a predicted branch.
class LatchGuard {
 public:
  LatchGuard(Latch& latch, bool latched) : latch_(latched ? &latch : nullptr) {
    if (latch_ != nullptr) latch_->Lock();
  }
  ~LatchGuard() {
    if (latch_ != nullptr) latch_->Unlock();
  }
  LatchGuard(const LatchGuard&) = delete;
  LatchGuard& operator=(const LatchGuard&) = delete;

 private:
  Latch* const latch_;
};

}  // namespace

bool Compatible(LockMode a, LockMode b) { return (kCompatible[static_cast<size_t>(a)] & Bit(b)) != 0; }

LockMode Supremum(LockMode a, LockMode b) {
  return kSupremum[static_cast<size_t>(a)][static_cast<size_t>(b)];
}

uint64_t KeyHash(const void* key, size_t bytes) {
  const std::string_view view(static_cast<const char*>(key), bytes);
  const uint64_t hash = absl::Hash<std::string_view>()(view);
  return hash != 0 ? hash : 1;
}

struct LockTable::Impl {
  struct Bucket {
    Latch latch;
    LockHead* first = nullptr;  // guarded by latch, as is everything in the heads
  };
  // The memory of one worker's requests and heads.
  struct alignas(64) Shard {
    Latch latch;
    LockRequest* free_requests = nullptr;
    LockHead* free_heads = nullptr;
    std::vector<std::unique_ptr<LockRequest[]>> request_slabs;
    std::vector<std::unique_ptr<LockHead[]>> head_slabs;
    std::atomic<uint64_t> requests_in_use = 0;  // written under latch
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

  static constexpr size_t kSlab = 128;
  static constexpr size_t kShards = 64;

  explicit Impl(LockTableOptions options)
      : latched(options.latched), mask(options.buckets - 1), buckets(options.buckets), shards(kShards) {
    ISLANDS_CHECK(options.buckets > 0 && (options.buckets & mask) == 0);
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

  // The owner's granted request, by whichever list is shorter.
  static LockRequest* FindOwn(const LockHead& head, const LockOwner& owner) {
    if (head.granted_count <= owner.held_count_) {
      LockRequest* request = head.granted;
      while (request != nullptr && request->owner != &owner) request = request->next;
      return request;
    }
    LockRequest* request = owner.held_;
    while (request != nullptr && request->head != &head) request = request->next_of_owner;
    return request != nullptr && request->waits && !request->converting ? nullptr : request;
  }

  LockResult Acquire(LockOwner& owner, const LockName& name, LockMode mode);
  LockResult AcquireOrWait(LockOwner& owner, size_t bucket, const LockName& name, LockMode mode);
  bool TryGrant(LockOwner& owner, size_t bucket, const LockName& name, LockMode mode);
  void Enqueue(LockOwner& owner, size_t bucket, const Candidate& candidate);
  bool CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups);
  void ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups);
  void GrantWaiters(LockHead* head, std::vector<Wakeup>* wakeups);
  void EndWait(LockHead* head, LockRequest* request);
  void DropIfEmpty(size_t bucket, LockHead* head);

  bool ClosesCycle(const Candidate& candidate, size_t bucket);
  bool PushBlockers(const Candidate& candidate, const LockHead& head, const LockOwner* waiter,
                    LockMode wanted, const LockRequest* request);
  bool PushOwner(const Candidate& candidate, const LockOwner& blocker);
  bool StillWaits(const Visit& visit) const;

  Shard& ShardOf(const LockOwner& owner) { return shards[owner.worker % kShards]; }
  LockRequest* NewRequest(LockOwner& owner, size_t bucket, LockHead* head);
  void FreeRequests(LockOwner& owner, LockRequest* first, LockRequest* last, size_t count);
  LockHead* NewHead(LockOwner& owner, size_t bucket, const LockName& name);

  std::unique_lock<std::mutex> LockGraph() {
    return latched ? std::unique_lock(graph_mutex) : std::unique_lock(graph_mutex, std::defer_lock);
  }

  const bool latched;
  const size_t mask;
  std::vector<Bucket> buckets;
  std::vector<Shard> shards;
  std::atomic<uint64_t> new_waiting = 0;
  std::atomic<uint64_t> conversions_waiting = 0;

  // Taken by everyone who begins or cancels a wait, before any latch. Grants end waits without it.
  std::mutex graph_mutex;
  uint64_t search = 0;          // guarded by graph_mutex
  std::vector<Visit> to_visit;  // guarded by graph_mutex
};

LockRequest* LockTable::Impl::NewRequest(LockOwner& owner, size_t bucket, LockHead* head) {
  Shard& shard = ShardOf(owner);
  LockRequest* request = nullptr;
  {
    const LatchGuard guard = ISLANDS_LATCH("lock.memory", LatchGuard(shard.latch, latched));
    if (shard.free_requests == nullptr) {
      shard.request_slabs.push_back(std::make_unique<LockRequest[]>(kSlab));
      for (LockRequest& fresh : std::span(shard.request_slabs.back().get(), kSlab)) {
        fresh.next_of_owner = std::exchange(shard.free_requests, &fresh);
      }
    }
    request = shard.free_requests;
    shard.free_requests = request->next_of_owner;
    shard.requests_in_use.store(shard.requests_in_use.load(std::memory_order_relaxed) + 1,
                                std::memory_order_relaxed);
  }
  request->owner = &owner;
  request->head = head;
  request->bucket = bucket;
  request->waits = false;
  request->converting = false;
  request->next_of_owner = owner.held_;
  owner.held_ = request;
  ++owner.held_count_;
  return request;
}

void LockTable::Impl::FreeRequests(LockOwner& owner, LockRequest* first, LockRequest* last, size_t count) {
  Shard& shard = ShardOf(owner);
  const LatchGuard guard = ISLANDS_LATCH("lock.memory", LatchGuard(shard.latch, latched));
  last->next_of_owner = std::exchange(shard.free_requests, first);
  shard.requests_in_use.store(shard.requests_in_use.load(std::memory_order_relaxed) - count,
                              std::memory_order_relaxed);
}

LockHead* LockTable::Impl::NewHead(LockOwner& owner, size_t bucket, const LockName& name) {
  Shard& shard = ShardOf(owner);
  LockHead* head = nullptr;
  {
    const LatchGuard guard = ISLANDS_LATCH("lock.memory", LatchGuard(shard.latch, latched));
    if (shard.free_heads == nullptr) {
      shard.head_slabs.push_back(std::make_unique<LockHead[]>(kSlab));
      for (LockHead& fresh : std::span(shard.head_slabs.back().get(), kSlab)) {
        fresh.shard = static_cast<uint32_t>(&shard - shards.data());
        fresh.next_in_bucket = std::exchange(shard.free_heads, &fresh);
      }
    }
    head = shard.free_heads;
    shard.free_heads = head->next_in_bucket;
  }
  head->name = name;
  head->next_in_bucket = std::exchange(buckets[bucket].first, head);
  return head;
}

void LockTable::Impl::DropIfEmpty(size_t bucket, LockHead* head) {
  if (head->granted_count != 0 || head->first_waiting != nullptr || head->name.key_hash == 0) return;
  LockHead** link = &buckets[bucket].first;
  while (*link != head) link = &(*link)->next_in_bucket;
  *link = head->next_in_bucket;
  Shard& shard = shards[head->shard];
  const LatchGuard guard = ISLANDS_LATCH("lock.memory", LatchGuard(shard.latch, latched));
  head->next_in_bucket = std::exchange(shard.free_heads, head);
}

LockResult LockTable::Impl::Acquire(LockOwner& owner, const LockName& name, LockMode mode) {
  ISLANDS_CHECK(!owner.waiting());
  if (const LockRequest* coarse = owner.coarse_; coarse != nullptr && coarse->head->name == name) {
    if (Supremum(coarse->granted, mode) == coarse->granted) return LockResult::kGranted;
  }
  const size_t bucket = BucketOf(name);
  {
    const LatchGuard guard = ISLANDS_LATCH("lock.acquire", LatchGuard(buckets[bucket].latch, latched));
    if (TryGrant(owner, bucket, name, mode)) return LockResult::kGranted;
  }
  return AcquireOrWait(owner, bucket, name, mode);
}

// Under the bucket's latch, as all functions below that take a head.
bool LockTable::Impl::TryGrant(LockOwner& owner, size_t bucket, const LockName& name, LockMode mode) {
  LockHead* head = FindHead(bucket, name);
  if (head == nullptr) head = NewHead(owner, bucket, name);
  LockRequest* request = FindOwn(*head, owner);
  if (request != nullptr) {
    const LockMode target = Supremum(request->granted, mode);
    if (target != request->granted) {
      if (!CompatibleWithAll(target, head->granted_modes.MaskWithoutOne(request->granted))) return false;
      head->Strengthen(request, target);
    }
  } else {
    if (!CompatibleWithAll(mode, head->granted_modes.mask() | head->waiting_modes.mask())) return false;
    request = NewRequest(owner, bucket, head);
    head->LinkGranted(request, mode);
  }
  if (name.key_hash == 0) owner.coarse_ = request;
  return true;
}

LockResult LockTable::Impl::AcquireOrWait(LockOwner& owner, size_t bucket, const LockName& name,
                                          LockMode mode) {
  const std::unique_lock<std::mutex> graph = ISLANDS_LATCH("lock.graph", LockGraph());
  Candidate candidate{&owner, name, mode, false};
  ++search;
  to_visit.clear();
  {
    const LatchGuard guard = ISLANDS_LATCH("lock.wait", LatchGuard(buckets[bucket].latch, latched));
    if (TryGrant(owner, bucket, name, mode)) return LockResult::kGranted;
    const LockHead& head = *FindHead(bucket, name);
    if (const LockRequest* own = FindOwn(head, owner)) {
      candidate.converting = true;
      candidate.wanted = Supremum(own->granted, mode);
    }
    PushBlockers(candidate, head, &owner, candidate.wanted, nullptr);
  }
  if (ClosesCycle(candidate, bucket)) return LockResult::kDeadlock;
  const LatchGuard guard = ISLANDS_LATCH("lock.wait", LatchGuard(buckets[bucket].latch, latched));
  if (TryGrant(owner, bucket, name, mode)) return LockResult::kGranted;
  Enqueue(owner, bucket, candidate);
  return LockResult::kWaiting;
}

void LockTable::Impl::Enqueue(LockOwner& owner, size_t bucket, const Candidate& candidate) {
  LockHead* const head = FindHead(bucket, candidate.name);
  LockRequest* const request = candidate.converting ? FindOwn(*head, owner) : NewRequest(owner, bucket, head);
  head->LinkWaiting(request, candidate.wanted, candidate.converting);
  (candidate.converting ? conversions_waiting : new_waiting).fetch_add(1, std::memory_order_relaxed);
  owner.waiting_.store(request, std::memory_order_release);
}

// Depth-first search over waiting owners, on the graph as it will be once the candidate waits. Nothing begins
// or cancels a wait meanwhile, so whatever is found waiting has been so since the search began (and held its
// locks all along): a cycle found is a real one. What others are granted or release meanwhile only adds edges
// to owners that do not wait, or takes edges away. So no cycle is missed either.
bool LockTable::Impl::ClosesCycle(const Candidate& candidate, size_t bucket) {
  while (!to_visit.empty()) {
    const Visit visit = to_visit.back();
    to_visit.pop_back();
    const LatchGuard guard = ISLANDS_LATCH("lock.search", LatchGuard(buckets[visit.bucket].latch, latched));
    if (!StillWaits(visit)) continue;
    const LockRequest& request = *visit.request;
    // A conversion goes ahead of the new requests that are already there.
    if (candidate.converting && !request.converting && visit.bucket == bucket &&
        request.head->name == candidate.name && !Compatible(request.wanted, candidate.wanted)) {
      return true;
    }
    if (PushBlockers(candidate, *request.head, request.owner, request.wanted, &request)) return true;
  }
  return false;
}

// Remembers the waiting owners that `waiter` waits for. `request` is null for the candidate, which would be
// the last. True when the candidate's owner is among them.
bool LockTable::Impl::PushBlockers(const Candidate& candidate, const LockHead& head, const LockOwner* waiter,
                                   LockMode wanted, const LockRequest* request) {
  for (const LockRequest* holder = head.granted; holder != nullptr; holder = holder->next) {
    if (holder->owner == waiter || Compatible(holder->granted, wanted)) continue;
    if (PushOwner(candidate, *holder->owner)) return true;
  }
  const bool converting = request != nullptr ? request->converting : candidate.converting;
  if (converting) return false;
  for (const LockRequest* ahead = head.first_waiting; ahead != request; ahead = ahead->next_waiting) {
    if (!Compatible(ahead->wanted, wanted) && PushOwner(candidate, *ahead->owner)) return true;
  }
  return false;
}

// The blocker has a request in the bucket that is latched now, so it cannot finish ReleaseAll: it is alive,
// and so is the request it waits with, even if that is being granted at this moment.
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
      if (!converting && (ahead & Bit(kX)) != 0) return;  // nothing new gets past an X
      continue;
    }
    EndWait(head, request);
    if (converting) {
      head->Strengthen(request, request->wanted);
    } else {
      head->LinkGranted(request, request->wanted);
    }
    LockOwner* const owner = request->owner;
    wakeups->push_back({owner->worker, owner->wake_token});
    owner->waiting_.store(nullptr, std::memory_order_release);
  }
}

bool LockTable::Impl::CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  const std::unique_lock<std::mutex> graph = ISLANDS_LATCH("lock.graph", LockGraph());
  LockRequest* const request = owner.waiting_.load(std::memory_order_acquire);
  if (request == nullptr) return false;
  const size_t bucket = request->bucket;
  const LatchGuard guard = ISLANDS_LATCH("lock.cancel", LatchGuard(buckets[bucket].latch, latched));
  if (!owner.waiting()) return false;  // granted before the latch was ours
  LockHead* const head = request->head;
  const bool converting = request->converting;
  EndWait(head, request);
  owner.waiting_.store(nullptr, std::memory_order_release);
  if (!converting) {
    ISLANDS_CHECK(owner.held_ == request);  // an owner that waits acquires nothing else
    owner.held_ = request->next_of_owner;
    --owner.held_count_;
    FreeRequests(owner, request, request, 1);
  }
  GrantWaiters(head, wakeups);
  DropIfEmpty(bucket, head);
  return true;
}

// Requests are freed only after all have left their buckets: a search for cycles relies on it (PushOwner).
void LockTable::Impl::ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  if (owner.waiting()) CancelWait(owner, wakeups);
  if (owner.held_ == nullptr) return;
  LockRequest* last = nullptr;
  for (LockRequest* request = owner.held_; request != nullptr; request = request->next_of_owner) {
    const LatchGuard guard =
        ISLANDS_LATCH("lock.release", LatchGuard(buckets[request->bucket].latch, latched));
    LockHead* const head = request->head;
    head->UnlinkGranted(request);
    if (head->first_waiting != nullptr) GrantWaiters(head, wakeups);
    DropIfEmpty(request->bucket, head);
    last = request;
  }
  FreeRequests(owner, owner.held_, last, owner.held_count_);
  owner.held_ = nullptr;
  owner.held_count_ = 0;
  owner.coarse_ = nullptr;
}

LockTable::LockTable(LockTableOptions options) : impl_(std::make_unique<Impl>(options)) {}

LockTable::~LockTable() = default;

LockResult LockTable::Acquire(LockOwner& owner, const LockName& name, LockMode mode) {
  return impl_->Acquire(owner, name, mode);
}

bool LockTable::Holds(const LockOwner& owner, const LockName& name, LockMode mode) const {
  const size_t bucket = impl_->BucketOf(name);
  const LatchGuard guard =
      ISLANDS_LATCH("lock.holds", LatchGuard(impl_->buckets[bucket].latch, impl_->latched));
  const LockHead* const head = impl_->FindHead(bucket, name);
  const LockRequest* const request = head != nullptr ? Impl::FindOwn(*head, owner) : nullptr;
  return request != nullptr && Supremum(request->granted, mode) == request->granted;
}

bool LockTable::CancelWait(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  return impl_->CancelWait(owner, wakeups);
}

bool LockTable::WaitOver(const LockOwner& owner) const { return !owner.waiting(); }

void LockTable::ReleaseAll(LockOwner& owner, std::vector<Wakeup>* wakeups) {
  impl_->ReleaseAll(owner, wakeups);
}

uint64_t LockTable::LocksHeld() const {
  uint64_t requests = 0;
  for (const Impl::Shard& shard : impl_->shards)
    requests += shard.requests_in_use.load(std::memory_order_relaxed);
  const uint64_t not_granted = impl_->new_waiting.load(std::memory_order_relaxed);
  return requests > not_granted ? requests - not_granted : 0;
}

uint64_t LockTable::OwnersWaiting() const {
  return impl_->new_waiting.load(std::memory_order_relaxed) +
         impl_->conversions_waiting.load(std::memory_order_relaxed);
}

}  // namespace islands::storage
