// One node of a B+tree: a slotted page with prefix truncation and key heads (Graefe 2011; LeanStore,
// vmcache).
//
//   offset  bytes
//        0     32  page header (page.h)
//       32      8  inner: page number of the child right of all separators; leaf: 0
//       40      2  count of slots
//       42      2  heap begin: the lowest byte in use by fences and entries
//       44      2  heap bytes in use, fences included; the rest of the heap is holes
//       46      2  prefix bytes: every key of the node begins with so many bytes of the lower fence
//       48    2+2  lower fence: offset, bytes. Inclusive; empty = no bound
//       52    2+2  upper fence: offset, bytes. Exclusive; empty = no bound
//       56      8  zero
//       64  8 * n  slots in key order: head (4), offset of the entry (2), key bytes without the prefix (2)
//      ...         free ...         heap, growing downwards: fences, and entries = ghost flag (top bit) and
//      value bytes (2), key
//                  without the prefix, value
//
// The head is the first four bytes of the truncated key as a big-endian number, zero padded: most comparisons
// end there. An inner node's slot i holds a separator s and the child whose keys k have s[i-1] <= k < s.
//
// Thread safety: none; the guard through which the page was reached says what may be done. Functions marked
// (torn) may be called under an optimistic guard: on a page that changes under them they return nonsense but
// stay inside the pool's slack.
//
// Invariants:
//  1. lower fence <= every key < upper fence; keys strictly ascend.
//  2. The prefix is the longest common prefix of both fences; without an upper fence it is empty.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "instance/runtime/check.h"
#include "instance/storage/catalog.h"
#include "instance/storage/page.h"

namespace islands::storage {

// Index entries are an index key followed by a primary key.
inline constexpr size_t kMaxTreeKeyBytes = 2 * partitioner::kMaxKeyBytes;

inline int CompareKeys(KeyView a, KeyView b) {
  if (a.size() == sizeof(uint64_t) && b.size() == sizeof(uint64_t)) {  // the commonest keys
    uint64_t x, y;
    std::memcpy(&x, a.data(), sizeof(x));
    std::memcpy(&y, b.data(), sizeof(y));
    x = __builtin_bswap64(x);
    y = __builtin_bswap64(y);
    return x < y ? -1 : x > y;
  }
  const size_t common = std::min(a.size(), b.size());
  const int order = common == 0 ? 0 : std::memcmp(a.data(), b.data(), common);
  if (order != 0) return order;
  return a.size() < b.size() ? -1 : a.size() > b.size();
}

inline size_t CommonPrefix(KeyView a, KeyView b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return i;
}

// A key put together from a node's prefix and a slot's suffix.
class KeyBuffer {
 public:
  KeyView view() const { return KeyView(bytes_.data(), size_); }
  void Set(KeyView prefix, KeyView suffix) {
    size_ = 0;
    Append(prefix);
    Append(suffix);
  }
  void Set(KeyView key) { Set(key, {}); }

 private:
  void Append(KeyView part) {
    if (part.empty()) return;
    ISLANDS_CHECK(size_ + part.size() <= bytes_.size());
    std::memcpy(bytes_.data() + size_, part.data(), part.size());
    size_ += part.size();
  }
  std::array<std::byte, kMaxTreeKeyBytes> bytes_;
  size_t size_ = 0;
};

struct Slot {
  uint32_t head;
  uint16_t offset;
  uint16_t key_bytes;
};
static_assert(sizeof(Slot) == 8);

// What is about to be put into a node: by key and size.
struct PendingEntry {
  KeyView key;
  size_t value_bytes = 0;
};

class Node {
 public:
  static constexpr size_t kHeaderBytes = 64;

  // The node in a page.
  static const Node* At(const std::byte* page) { return reinterpret_cast<const Node*>(page); }
  static Node* At(std::byte* page) { return reinterpret_cast<Node*>(page); }

  // Makes an empty node of a page whose PageHeader is set.
  void Initialize(KeyView lower, KeyView upper);
  // Takes over everything of `from` but its page id.
  void CopyContent(const Node& from);

  const PageHeader& header() const { return header_; }
  PageHeader& header() { return header_; }
  uint64_t number() const { return PageId::FromValue(header_.page_id).number(); }
  uint8_t level() const { return header_.level; }  // (torn)
  bool is_leaf() const { return header_.level == 0; }
  uint32_t count() const { return count_; }  // (torn)
  size_t used_bytes() const { return kHeaderBytes + count_ * sizeof(Slot) + heap_used_; }
  size_t free_bytes() const { return kPageBytes - used_bytes(); }
  bool Underfull() const { return used_bytes() < kPageBytes / 4; }

  KeyView lower_fence() const { return Range(lower_offset_, lower_bytes_); }
  KeyView upper_fence() const { return Range(upper_offset_, upper_bytes_); }
  KeyView prefix() const { return Range(lower_offset_, prefix_bytes_); }
  KeyView suffix(uint32_t i) const {
    return Range(slots()[i].offset + sizeof(uint16_t), slots()[i].key_bytes);
  }
  void CopyKey(uint32_t i, KeyBuffer* key) const { key->Set(prefix(), suffix(i)); }

  // (torn) The first slot whose key is >= `key`; `equal` says whether it is `key`. The key has the node's
  // prefix.
  uint32_t LowerBound(KeyView key, bool* equal) const;
  // (torn) Which child of an inner node holds `key`: 0 .. count, count being the rightmost.
  uint32_t ChildIndex(KeyView key) const {
    bool equal = false;
    const uint32_t i = LowerBound(key, &equal);
    return i + (equal ? 1 : 0);
  }
  // (torn) Which child holds the largest key below `end`; empty = no bound.
  uint32_t ChildIndexBelow(KeyView end) const {
    bool equal = false;
    return end.empty() ? count_ : LowerBound(end, &equal);
  }
  uint64_t child(uint32_t i) const {  // (torn)
    if (i >= count_) return rightmost_child_;
    uint64_t number;
    std::memcpy(&number, ValueBegin(slots()[i]), sizeof(number));
    return number;
  }
  void SetChild(uint32_t i, uint64_t number);
  RowView value(uint32_t i) const {  // (torn)
    const Slot slot = slots()[i];
    return RowView(ValueBegin(slot), ValueBytes(slot));
  }
  std::span<std::byte> value(uint32_t i) {
    const RowView found = static_cast<const Node*>(this)->value(i);
    return {const_cast<std::byte*>(found.data()), found.size()};
  }

  // (torn) Starts loading an entry's first `bytes` bytes, or about all of it (0).
  void PrefetchEntry(uint32_t i, size_t bytes) const;

  // Whether the entry fits (next to its equal, if `replace`: instead of it).
  bool HasRoomFor(const PendingEntry& entry) const {
    return EntryBytes(entry) + sizeof(Slot) <= free_bytes();
  }
  bool HasRoomToReplace(uint32_t i, size_t value_bytes) const {
    return value_bytes <= value(i).size() + free_bytes();
  }
  // A ghost is a deleted row that is still there for those who lock the key or the gap below it.
  bool ghost(uint32_t i) const { return (Prefixed(slots()[i]) & kGhost) != 0; }  // (torn)
  void SetGhost(uint32_t i, bool ghost);

  // The caller has made sure of the room and of the order. The new entry is no ghost.
  void Insert(uint32_t i, KeyView key, RowView value);
  void InsertChild(uint32_t i, KeyView separator, uint64_t number);
  void Remove(uint32_t i);
  // Another length is allowed, room given. A ghost stays one.
  void ReplaceValue(uint32_t i, RowView value);
  // Appends slots [begin, end) of another node.
  void AppendFrom(const Node& from, uint32_t begin, uint32_t end);

  // Where to cut a full node so that both sides and the pending entry are balanced: `left` slots stay,
  // `separator` parts them.
  struct SplitPoint {
    uint32_t left = 0;
    KeyBuffer separator;
  };
  // `last`: the node is the tree's last one of its level.
  void ChooseLeafSplit(const PendingEntry& pending, bool last, SplitPoint* split) const;
  void ChooseInnerSplit(const PendingEntry& pending, bool last, SplitPoint* split) const;
  // Used bytes of this node and its right neighbour as one. `separator` parts them in their parent.
  size_t MergedBytes(const Node& right, KeyView separator) const;

  // Everything that can be checked without other nodes; empty when all is well.
  const char* FindFault() const;

 private:
  size_t EntryBytes(const PendingEntry& entry) const {
    return sizeof(uint16_t) + entry.key.size() - prefix_bytes_ + entry.value_bytes;
  }
  size_t SlotEntryBytes(uint32_t i) const {
    return sizeof(uint16_t) + slots()[i].key_bytes + value(i).size();
  }
  size_t SlotBytes(uint32_t i) const { return sizeof(Slot) + SlotEntryBytes(i); }
  size_t KeyBytes(uint32_t i) const { return prefix_bytes_ + slots()[i].key_bytes; }
  bool SidesFit(size_t left_bytes, size_t right_bytes, size_t separator_bytes) const;
  static uint32_t Head(KeyView suffix);
  // (torn) Within [begin, end).
  static uint32_t FirstHeadNotBelow(const Slot* slots, uint32_t begin, uint32_t end, uint32_t head);
  int CompareTails(Slot slot, KeyView suffix) const;  // (torn)
  void MakeRoom(size_t entry_bytes_and_slot);
  void Compact();
  uint16_t PlaceInHeap(size_t bytes);

  const std::byte* base() const { return reinterpret_cast<const std::byte*>(this); }
  std::byte* base() { return reinterpret_cast<std::byte*>(this); }
  const Slot* slots() const { return reinterpret_cast<const Slot*>(base() + kHeaderBytes); }
  Slot* slots() { return reinterpret_cast<Slot*>(base() + kHeaderBytes); }
  KeyView Range(size_t offset, size_t bytes) const { return KeyView(base() + offset, bytes); }
  const std::byte* ValueBegin(Slot slot) const {
    return base() + slot.offset + sizeof(uint16_t) + slot.key_bytes;
  }
  static constexpr uint16_t kGhost = 0x8000;
  uint16_t Prefixed(Slot slot) const {
    uint16_t bytes;
    std::memcpy(&bytes, base() + slot.offset, sizeof(bytes));
    return bytes;
  }
  size_t ValueBytes(Slot slot) const { return Prefixed(slot) & ~kGhost; }

  PageHeader header_;
  uint64_t rightmost_child_;
  uint16_t count_;
  uint16_t heap_begin_;
  uint16_t heap_used_;
  uint16_t prefix_bytes_;
  uint16_t lower_offset_;
  uint16_t lower_bytes_;
  uint16_t upper_offset_;
  uint16_t upper_bytes_;
  uint64_t zero_;
};
static_assert(sizeof(Node) == Node::kHeaderBytes);

// What a side of a split has for entries, whatever its fences: more than one of the largest entries, and so
// much more than half of a page that some cut fits both sides. Index trees have the longer keys, but rows of
// two bytes.
constexpr size_t LeastEntryRoom(size_t key_bytes) { return kPageBytes - Node::kHeaderBytes - 2 * key_bytes; }
constexpr size_t MostEntryBytes(size_t key_bytes, size_t value_bytes) {
  return sizeof(Slot) + sizeof(uint16_t) + key_bytes + value_bytes;
}
static_assert(2 * LeastEntryRoom(partitioner::kMaxKeyBytes) >=
              kPageBytes - Node::kHeaderBytes + MostEntryBytes(partitioner::kMaxKeyBytes, kMaxRowBytes));
static_assert(2 * LeastEntryRoom(kMaxTreeKeyBytes) >=
              kPageBytes - Node::kHeaderBytes + MostEntryBytes(kMaxTreeKeyBytes, sizeof(uint64_t)));

inline uint32_t Node::FirstHeadNotBelow(const Slot* slots, uint32_t begin, uint32_t end, uint32_t head) {
  uint32_t left = end - begin;
  while (left > 1) {
    const uint32_t half = left / 2;
    // All ones if the search goes on to the right: as a condition GCC would make a branch of it.
    const uint32_t right = 0u - static_cast<uint32_t>(slots[begin + half - 1].head < head);
    begin += half & right;
    left -= half;
  }
  return begin + (left == 1 && slots[begin].head < head ? 1 : 0);
}

inline uint32_t Node::Head(KeyView suffix) {
  if (suffix.size() >= sizeof(uint32_t)) {
    uint32_t head;
    std::memcpy(&head, suffix.data(), sizeof(head));
    return __builtin_bswap32(head);
  }
  if (suffix.empty()) return 0;
  // Of one to three bytes the first, the middle and the last are all, and may be the same.
  const auto at = [&](size_t i) { return std::to_integer<uint32_t>(suffix[i]) << (24 - 8 * i); };
  return at(0) | at(suffix.size() / 2) | at(suffix.size() - 1);
}

// Its size is in the entry itself, where asking would cost the very cache miss: it is taken for average.
[[gnu::always_inline]] inline void Node::PrefetchEntry(uint32_t i, size_t bytes) const {
  constexpr size_t kLine = 64;
  constexpr size_t kMost = 512;
  const size_t about =
      bytes != 0 ? bytes + sizeof(uint16_t) + slots()[i].key_bytes : heap_used_ / std::max<size_t>(count_, 1);
  const std::byte* const entry = base() + slots()[i].offset;
  for (size_t at = 0; at < std::min(about + kLine, kMost); at += kLine) __builtin_prefetch(entry + at);
}

// For equal heads. Up to four bytes long, keys differ in length at most, and the heap need not be touched: a
// cache miss.
inline int Node::CompareTails(Slot slot, KeyView suffix) const {
  constexpr size_t kHead = sizeof(slot.head);
  if (slot.key_bytes <= kHead || suffix.size() <= kHead) {
    return slot.key_bytes < suffix.size() ? -1 : slot.key_bytes > suffix.size();
  }
  const KeyView tail = Range(slot.offset + sizeof(uint16_t) + kHead, slot.key_bytes - kHead);
  return CompareKeys(tail, suffix.subspan(kHead));
}

// Heads first, and without branches: which way a search goes is a coin toss that the processor would guess
// wrong half of the time. Keys with equal heads are told apart by what follows, which is rare where the
// prefix leaves four telling bytes.
inline uint32_t Node::LowerBound(KeyView key, bool* equal) const {
  const KeyView suffix = key.subspan(std::min<size_t>(prefix_bytes_, key.size()));
  const uint32_t head = Head(suffix);
  const Slot* const all = slots();
  uint32_t begin = FirstHeadNotBelow(all, 0, count_, head);
  *equal = false;
  if (begin >= count_ || all[begin].head != head) return begin;
  uint32_t end = begin + 1;
  if (end < count_ && all[end].head == head) {
    end = head == ~uint32_t{0} ? count_ : FirstHeadNotBelow(all, end, count_, head + 1);
  }
  while (begin < end) {
    const uint32_t middle = (begin + end) / 2;
    const int order = CompareTails(all[middle], suffix);
    if (order == 0) {
      *equal = true;
      return middle;
    }
    (order < 0 ? begin : end) = order < 0 ? middle + 1 : middle;
  }
  return begin;
}

}  // namespace islands::storage
