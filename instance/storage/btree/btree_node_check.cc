// Node::FindFault. The bytes may be anybody's: a field is bounded before it is used.
#include <algorithm>
#include <array>
#include <cstring>

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

// Of every page that is read from disk: so by words, and not byte by byte.
const char* Node::FindFaultOfHeap() const {
  constexpr size_t kBits = 64;
  std::array<uint64_t, kPageBytes / kBits> taken{};
  size_t used = 0;
  const auto take = [&](size_t offset, size_t bytes) {
    used += bytes;
    bool free = true;
    for (size_t at = offset, end = offset + bytes; at < end;) {
      const size_t bit = at % kBits, count = std::min(kBits - bit, end - at);
      const uint64_t bits = (~uint64_t{0} >> (kBits - count)) << bit;
      free = free && (taken[at / kBits] & bits) == 0;
      taken[at / kBits] |= bits;
      at += count;
    }
    return free;
  };
  bool free = take(lower_offset_, lower_bytes_) && take(upper_offset_, upper_bytes_);
  for (uint32_t i = 0; i < count_; ++i) free = take(slots()[i].offset, SlotEntryBytes(i)) && free;
  if (!free) return "entries overlap";
  if (used != heap_used_) return "bytes in use miscounted";
  const KeyView room = Range(slots_end(), heap_begin_ - slots_end());
  // Each byte is as the one before it.
  if (!room.empty() &&
      (room[0] != std::byte{0} || std::memcmp(room.data(), room.data() + 1, room.size() - 1) != 0))
    return "free room is not zero";
  return nullptr;
}

}  // namespace islands::storage
