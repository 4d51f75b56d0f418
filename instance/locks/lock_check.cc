// The lock table's invariants, looked at from outside: lock_table.h.
#include "instance/locks/lock_table_impl.h"
#include "runtime/check.h"

namespace islands::locks {

void LockTable::Impl::CheckHead(const LockHead& head, size_t bucket) {
  // Only those of a (table, site) stay when nobody needs them.
  ISLANDS_CHECK(head.granted != nullptr || head.first_waiting != nullptr || head.name.key_hash == 0);
  ModeCounts granted_modes, waiting_modes;
  uint32_t granted = 0;
  const LockRequest* previous = nullptr;
  for (const LockRequest* request = head.granted; request != nullptr; request = request->next) {
    ISLANDS_CHECK(request->head == &head && request->bucket == bucket && request->name == head.name);
    ISLANDS_CHECK(request->previous == previous && !request->holder.evicted());
    ISLANDS_CHECK(!request->waits || request->converting);
    // Nobody holds what another's mode forbids.
    ISLANDS_CHECK(CompatibleWithAll(request->granted, head.granted_modes.MaskWithoutOne(request->granted)));
    granted_modes.Add(request->granted);
    ++granted;
    previous = request;
  }
  previous = nullptr;
  bool only_new = false;  // conversions go before new requests
  uint32_t waiting = 0;
  for (const LockRequest* request = head.first_waiting; request != nullptr; request = request->next_waiting) {
    ISLANDS_CHECK(request->head == &head && request->waits && request->previous_waiting == previous);
    ISLANDS_CHECK(request->holder.owner() != nullptr && request->holder.owner()->waiting());
    ISLANDS_CHECK(!request->converting || !only_new);
    only_new |= !request->converting;
    waiting_modes.Add(request->wanted);
    ++waiting;
    previous = request;
  }
  ISLANDS_CHECK(head.last_waiting == previous && head.waiters.load() == waiting);
  ISLANDS_CHECK(head.granted_count == granted && head.granted_modes.mask() == granted_modes.mask());
  ISLANDS_CHECK(head.waiting_modes.mask() == waiting_modes.mask());
}

void LockTable::CheckInvariants() const {
  for (size_t bucket = 0; bucket < impl_->buckets.size(); ++bucket) {
    for (const LockHead* head = impl_->buckets[bucket].first; head != nullptr; head = head->next_in_bucket) {
      ISLANDS_CHECK(impl_->BucketOf(head->name) == bucket && impl_->FindHead(bucket, head->name) == head);
      Impl::CheckHead(*head, bucket);
    }
  }
}

}  // namespace islands::locks
