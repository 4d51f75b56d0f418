#include "instance/locks/lock_inheritance.h"

#include "runtime/check.h"
#include "runtime/planted_bug.h"

namespace islands::locks {

using runtime::Planted;
using runtime::PlantedBug;

namespace {

// A stronger lock than wanted would exclude others for nothing: only IX stands in, for IS, as the pair that
// is mixed most.
bool StandsIn(LockMode have, LockMode wanted) {
  if (Planted(PlantedBug::kReclaimAnyMode)) return true;
  return have == wanted || (have == LockMode::kIX && wanted == LockMode::kIS);
}

}  // namespace

bool InheritedLocks::Takes(const LockRequest& request) const {
  return request.hot && request.granted <= LockMode::kS && size() < kMost;
}

void InheritedLocks::Add(LockRequest* request) {
  const size_t count = size();
  ISLANDS_CHECK(count < kMost);
  entries_[count] = {request, 0};
  size_.store(count + 1, std::memory_order_relaxed);
}

void InheritedLocks::Remove(size_t i) {
  const size_t last = size() - 1;
  entries_[i] = entries_[last];
  size_.store(last, std::memory_order_relaxed);
}

LockRequest* InheritedLocks::Reclaim(LockOwner& owner, const LockName& name, LockMode mode) {
  for (size_t i = 0; i < size(); ++i) {
    LockRequest* const request = entries_[i].request;
    if (!(request->name == name) || !StandsIn(request->granted, mode)) continue;
    if (!request->holder.Reclaim(owner)) continue;  // evicted; TakeUseless will find it
    Remove(i);
    return request;
  }
  return nullptr;
}

LockRequest* InheritedLocks::TakeUseless() {
  for (size_t i = 0; i < size(); ++i) {
    LockRequest* const request = entries_[i].request;
    if (!request->holder.evicted() && entries_[i].unused < kPatience) continue;
    Remove(i);
    return request;
  }
  for (size_t i = 0; i < size(); ++i) ++entries_[i].unused;
  return nullptr;
}

bool EvictInherited(LockHead& head, LockMode mode) {
  bool any = false;
  LockRequest* next = nullptr;
  for (LockRequest* request = head.granted; request != nullptr; request = next) {
    next = request->next;  // the request may be used again as soon as its eviction has ended
    if (Compatible(request->granted, mode) || !request->holder.BeginEviction()) continue;
    head.UnlinkGranted(request);
    request->holder.EndEviction();
    any = true;
  }
  return any;
}

}  // namespace islands::locks
