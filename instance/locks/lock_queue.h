// What lock_table.cc is made of: modes, and the requests for one name.
//
// A head holds the granted requests of its name and the queue of waiting ones; a converting one is in both.
//
// Thread safety: a head and the links of its requests are guarded by the latch of its bucket. What is atomic
// is read, and changed as lock_inheritance.h says, without it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "instance/locks/lock_table.h"

namespace islands::locks {

inline constexpr size_t kModes = 5;
using ModeMask = uint8_t;  // bit m: mode m

constexpr ModeMask Bit(LockMode mode) { return static_cast<ModeMask>(1u << static_cast<unsigned>(mode)); }

// The modes that each mode can share a name with (Gray, Lorie, Putzolu, Traiger 1976).
inline constexpr std::array<ModeMask, kModes> kCompatible = {
    Bit(LockMode::kIS) | Bit(LockMode::kIX) | Bit(LockMode::kS) | Bit(LockMode::kSIX),  // IS
    Bit(LockMode::kIS) | Bit(LockMode::kIX),                                            // IX
    Bit(LockMode::kIS) | Bit(LockMode::kS),                                             // S
    Bit(LockMode::kIS),                                                                 // SIX
    0,                                                                                  // X
};

inline bool CompatibleWithAll(LockMode mode, ModeMask others) {
  return (others & ~kCompatible[static_cast<size_t>(mode)]) == 0;
}

// How many requests have each mode.
class ModeCounts {
 public:
  void Add(LockMode mode) {
    ++counts_[static_cast<size_t>(mode)];
    mask_ |= Bit(mode);
  }
  void Remove(LockMode mode) {
    if (--counts_[static_cast<size_t>(mode)] == 0) mask_ &= static_cast<ModeMask>(~Bit(mode));
  }
  ModeMask mask() const { return mask_; }
  // As if one request of `mode` were not there.
  ModeMask MaskWithoutOne(LockMode mode) const {
    return counts_[static_cast<size_t>(mode)] > 1 ? mask_ : static_cast<ModeMask>(mask_ & ~Bit(mode));
  }

 private:
  uint32_t counts_[kModes] = {};
  ModeMask mask_ = 0;
};

inline bool Covers(LockMode strong, LockMode weak) { return Supremum(strong, weak) == strong; }

// Who has a request, in one word: the address of its owner, or nobody. Nobody has what was left to the worker
// (lock_inheritance.h) or was taken from it.
//
//   owner --Leave--> inherited --Reclaim--> owner
//                        `-----BeginEviction--> leaving its head --EndEviction--> evicted
class LockHolder {
 public:
  LockHolder() = default;

  // Null: nobody.
  LockOwner* owner() const {
    const uintptr_t word = word_.load();
    return word > kEvicted ? reinterpret_cast<LockOwner*>(word) : nullptr;
  }
  bool Is(const LockOwner& owner) const {
    return word_.load(std::memory_order_relaxed) == reinterpret_cast<uintptr_t>(&owner);
  }
  // Of a request that is not in its head yet.
  void Set(LockOwner& owner) { word_.store(reinterpret_cast<uintptr_t>(&owner), std::memory_order_relaxed); }

  // By the worker that has it.
  void Leave() { word_.store(kInherited); }
  bool Reclaim(LockOwner& owner) { return Change(kInherited, reinterpret_cast<uintptr_t>(&owner)); }
  bool evicted() const { return word_.load(std::memory_order_acquire) == kEvicted; }

  // By anybody, under the latch.
  bool BeginEviction() { return word_.load() == kInherited && Change(kInherited, kLeavingHead); }
  void EndEviction() { word_.store(kEvicted, std::memory_order_release); }

 private:
  static constexpr uintptr_t kInherited = 0, kLeavingHead = 1, kEvicted = 2;  // no addresses

  bool Change(uintptr_t from, uintptr_t to) { return word_.compare_exchange_strong(from, to); }

  std::atomic<uintptr_t> word_ = kEvicted;
};

struct LockHead;

struct LockRequest {
  LockHolder holder;
  LockHead* head = nullptr;
  LockName name;  // as in the head, which other workers write to
  size_t bucket = 0;
  LockRequest* next_of_owner = nullptr;  // also the free list
  LockRequest* next = nullptr;           // among the granted
  LockRequest* previous = nullptr;
  LockRequest* next_waiting = nullptr;
  LockRequest* previous_waiting = nullptr;
  LockMode granted = LockMode::kIS;  // meaningful unless it is a new request that waits
  LockMode wanted = LockMode::kIS;   // meaningful while it waits
  bool waits = false;
  bool converting = false;  // waits, and is granted a weaker mode
  // Of a (table, site). The worker's own, no latch.
  bool hot = false;             // worth inheriting
  bool keys_exclusive = false;  // some lock counted in `keys` is more than S
  uint32_t keys = 0;            // how many locks below it the owner took
  uint32_t escalate_at = 0;     // when `keys` is that many
  // By which search for a cycle. Guarded by the graph mutex, not the latch, so recycling leaves it alone.
  uint64_t visited = 0;
};

struct LockHead {
  static constexpr uint32_t kNoWorker = ~0u;

  LockName name;
  LockHead* next_in_bucket = nullptr;  // also the free list
  uint32_t share = 0;                  // where its memory belongs
  uint32_t last_worker = kNoWorker;    // whose owner was the last to make a new request
  uint32_t granted_count = 0;
  LockRequest* granted = nullptr;
  LockRequest* first_waiting = nullptr;  // conversions, then new requests, each in arrival order
  LockRequest* last_waiting = nullptr;
  ModeCounts granted_modes;
  ModeCounts waiting_modes;
  // How many wait or are about to. Written under the latch.
  std::atomic<uint32_t> waiters = 0;

  void LinkGranted(LockRequest* request, LockMode mode) {
    request->granted = mode;
    request->previous = nullptr;
    request->next = granted;
    if (granted != nullptr) granted->previous = request;
    granted = request;
    granted_modes.Add(mode);
    ++granted_count;
  }
  void UnlinkGranted(LockRequest* request) {
    (request->previous != nullptr ? request->previous->next : granted) = request->next;
    if (request->next != nullptr) request->next->previous = request->previous;
    granted_modes.Remove(request->granted);
    --granted_count;
  }
  // Whether the mode can be granted: to a new request, or to one that has `own` already.
  bool Fits(LockMode mode, const LockRequest* own) const {
    return CompatibleWithAll(mode, own != nullptr ? granted_modes.MaskWithoutOne(own->granted)
                                                  : granted_modes.mask() | waiting_modes.mask());
  }
  void Strengthen(LockRequest* request, LockMode mode) {
    granted_modes.Remove(request->granted);
    granted_modes.Add(mode);
    request->granted = mode;
  }
  void LinkWaiting(LockRequest* request, LockMode wanted, bool converting) {
    LockRequest* before = last_waiting;  // goes behind this one
    while (converting && before != nullptr && !before->converting) before = before->previous_waiting;
    LockRequest* const after = before != nullptr ? before->next_waiting : first_waiting;
    request->previous_waiting = before;
    request->next_waiting = after;
    (before != nullptr ? before->next_waiting : first_waiting) = request;
    (after != nullptr ? after->previous_waiting : last_waiting) = request;
    request->wanted = wanted;
    request->waits = true;
    request->converting = converting;
    waiting_modes.Add(wanted);
  }
  void UnlinkWaiting(LockRequest* request) {
    LockRequest* const before = request->previous_waiting;
    LockRequest* const after = request->next_waiting;
    (before != nullptr ? before->next_waiting : first_waiting) = after;
    (after != nullptr ? after->previous_waiting : last_waiting) = before;
    request->waits = false;
    request->converting = false;
    waiting_modes.Remove(request->wanted);
  }
};

}  // namespace islands::locks
