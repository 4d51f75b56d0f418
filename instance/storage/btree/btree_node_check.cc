// Node::FindFault. The bytes may be anybody's: a field is bounded before it is used.
#include <algorithm>
#include <array>

#include "instance/storage/btree/btree_node.h"

namespace islands::storage {

const char* Node::FindFault() const {
  if (heap_begin_ > kPageBytes || heap_begin_ < slots_end()) return "slots and heap overlap";
  if (const char* fault = FindFaultOfFences()) return fault;
  KeyBuffer key, before;
  for (uint32_t i = 0; i < count_; ++i) {
    if (const char* fault = FindFaultOfEntry(i)) return fault;
    CopyKey(i, &key);
    if (i > 0 && CompareKeys(before.view(), key.view()) >= 0) return "keys out of order";
    if (CompareKeys(key.view(), lower_fence()) < 0) return "key below the lower fence";
    if (upper_bytes_ != 0 && CompareKeys(key.view(), upper_fence()) >= 0) return "key above the upper fence";
    before = key;
  }
  return FindFaultOfHeap();
}

const char* Node::FindFaultOfFences() const {
  if (lower_offset_ + lower_bytes_ > kPageBytes || upper_offset_ + upper_bytes_ > kPageBytes ||
      (lower_bytes_ != 0 && lower_offset_ < heap_begin_) ||
      (upper_bytes_ != 0 && upper_offset_ < heap_begin_))
    return "fence outside the heap";
  if (lower_bytes_ > kMaxTreeKeyBytes || upper_bytes_ > kMaxTreeKeyBytes) return "fence too long";
  if (upper_bytes_ != 0 && CompareKeys(lower_fence(), upper_fence()) >= 0) return "fences out of order";
  if (prefix_bytes_ != CommonPrefix(lower_fence(), upper_fence())) return "prefix is not that of the fences";
  return nullptr;
}

const char* Node::FindFaultOfEntry(uint32_t i) const {
  const Slot slot = slots()[i];
  if (slot.offset < heap_begin_ || slot.offset + sizeof(uint16_t) + slot.key_bytes > kPageBytes ||
      slot.offset + SlotEntryBytes(i) > kPageBytes)
    return "entry outside the heap";
  if (slot.head != KeyHead(suffix(i))) return "head is not that of the key";
  if (prefix_bytes_ + slot.key_bytes > kMaxTreeKeyBytes) return "key too long";
  if (value(i).size() > kMaxRowBytes) return "value too long";
  if (!is_leaf() && value(i).size() != sizeof(uint64_t)) return "child is not a page number";
  if (!is_leaf() && ghost(i)) return "child is a ghost";
  return nullptr;
}

const char* Node::FindFaultOfHeap() const {
  std::array<bool, kPageBytes> taken{};
  size_t used = 0;
  const auto take = [&](size_t offset, size_t bytes) {
    const auto begin = taken.begin() + static_cast<ptrdiff_t>(offset);
    const auto end = begin + static_cast<ptrdiff_t>(bytes);
    const bool free = std::find(begin, end, true) == end;
    std::fill(begin, end, true);
    used += bytes;
    return free;
  };
  bool free = take(lower_offset_, lower_bytes_) && take(upper_offset_, upper_bytes_);
  for (uint32_t i = 0; i < count_; ++i) free = take(slots()[i].offset, SlotEntryBytes(i)) && free;
  if (!free) return "entries overlap";
  if (used != heap_used_) return "bytes in use miscounted";
  const KeyView room = Range(slots_end(), heap_begin_ - slots_end());
  if (std::any_of(room.begin(), room.end(), [](std::byte byte) { return byte != std::byte{0}; }))
    return "free room is not zero";
  return nullptr;
}

}  // namespace islands::storage
