// The keys that a transaction has drawn so far: a hash set of fixed capacity that is emptied in constant
// time.
//
// Thread safety: none; it belongs to one generator.
//
// Invariants:
//  1. At most half of the slots are in use, so a probe ends after a few steps.
//  2. A slot is in use exactly when its stamp equals `stamp_`.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace islands::experiments {

class KeySet {
 public:
  explicit KeySet(size_t capacity) : slots_(std::bit_ceil(2 * capacity + 2)), capacity_(capacity) {}

  void Clear() {
    ++stamp_;
    size_ = 0;
  }

  // False if it was there already.
  bool Insert(uint64_t key) {
    Slot& slot = slots_[Find(key)];
    if (slot.stamp == stamp_) return false;
    assert(size_ < capacity_);
    slot = {key, stamp_};
    ++size_;
    return true;
  }

  bool Contains(uint64_t key) const { return slots_[Find(key)].stamp == stamp_; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint64_t stamp = 0;
  };

  // Where `key` is, or the free slot where it would go.
  size_t Find(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (key * 0x9e3779b97f4a7c15ull >> 32) & mask;
    while (slots_[at].stamp == stamp_ && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
  size_t capacity_;
  size_t size_ = 0;
  uint64_t stamp_ = 1;
};

}  // namespace islands::experiments
