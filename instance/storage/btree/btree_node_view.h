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
//      ...         free ...
//                  heap, growing downwards: fences, and entries = ghost flag (top bit) and value bytes (2),
//                  key without the prefix, value
//
// The head is the first four bytes of the truncated key as a big-endian number, zero padded: most comparisons
// end there. An inner node's slot i holds a separator s and the child whose keys k have s[i-1] <= k < s.
//
// A search may go on with a latch or without one, so it is written once, for a page that says how it is read:
// TornNode under an optimistic guard, PlainNode for those who hold a latch, are alone, or have a copy.
//
// Thread safety: none; the guard through which the page was reached says what may be done. A TornNode whose
// page changes under it answers nonsense, but stays within kTornReach of the page's begin.
//
// Invariants:
//  1. lower fence <= every key < upper fence; keys strictly ascend.
//  2. The prefix is the longest common prefix of both fences; without an upper fence it is empty.
//  3. The free room between slots and heap is zero: no old rows are there, and the log can leave it out.
//  4. NodeView loads a field once for each question, and what follows from it is bounded by that one value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "instance/storage/btree/tree_key.h"
#include "instance/storage/pages/limits.h"
#include "instance/storage/pages/page.h"
#include "instance/storage/pages/torn.h"

namespace islands::storage {

template <typename Page>
class NodeView;

struct alignas(uint64_t) Slot {  // read as one
  uint32_t head;
  uint16_t offset;
  uint16_t key_bytes;
};
static_assert(sizeof(Slot) == 8);

// What is at fixed places in the page.
class NodeFields {
 public:
  static constexpr size_t kHeaderBytes = 64;
  static constexpr size_t kRightmostChild = sizeof(PageHeader);  // its offset

 protected:
  template <typename Page>
  friend class NodeView;
  static constexpr uint16_t kGhost = 0x8000;

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
static_assert(sizeof(NodeFields) == NodeFields::kHeaderBytes);

inline uint32_t KeyHead(KeyView suffix) {
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

// The page of a TornNode, for those who hold a latch, are alone, or have a copy.
class PlainPage {
 public:
  explicit PlainPage(const std::byte* begin) : begin_(begin) {}

  template <typename Header, typename T>
  T Load(T Header::*field) const {
    return reinterpret_cast<const Header*>(begin_)->*field;
  }
  template <typename T>
  const T* Array(size_t offset) const {
    return reinterpret_cast<const T*>(begin_ + offset);
  }
  template <typename T>
  T CopyAt(size_t offset) const {
    T value;
    std::memcpy(&value, begin_ + offset, sizeof(value));
    return value;
  }
  RowView Bytes(size_t offset, size_t bytes) const { return RowView(begin_ + offset, bytes); }
  [[gnu::always_inline]] void Prefetch(size_t offset) const { __builtin_prefetch(begin_ + offset); }

 private:
  const std::byte* begin_;
};

template <typename Page>
class NodeView {
 public:
  explicit NodeView(Page page) : page_(page) {}

  uint8_t level() const { return page_.Load(&PageHeader::level); }
  bool is_leaf() const { return level() == 0; }
  // Whether it is a node of this tree, and not a free page that was one.
  bool IsOf(uint32_t tree) const {
    return page_.Load(&PageHeader::tree) == tree && page_.Load(&PageHeader::type) == PageType::kTree;
  }
  uint32_t count() const { return page_.Load(&NodeFields::count_); }

  // Whether `key` is between the node's fences.
  bool Covers(KeyView key) const;
  // Whether slot `i` is that of `key`, of whatever node and number: for hints (key_hints.h).
  bool HasKeyAt(uint32_t i, KeyView key) const;
  static size_t SlotOffset(uint32_t i) { return NodeFields::kHeaderBytes + i * sizeof(Slot); }
  // The first slot whose key is >= `key`; `equal` says whether it is `key`. The key has the node's prefix.
  uint32_t LowerBound(KeyView key, bool* equal) const {
    return static_cast<uint32_t>(LowerBound(*this, key, equal));
  }
  // Whether it is slot `i`, of whatever number.
  bool IsLowerBound(uint32_t i, KeyView key) const {
    return i <= count() && (i == 0 || CompareAt(i - 1, key) < 0) && (i == count() || CompareAt(i, key) >= 0);
  }
  // The order of slot `i` and `key`, which has the node's prefix.
  int CompareAt(uint32_t i, KeyView key) const;
  // Which child of an inner node holds `key`: 0 .. count, count being the rightmost.
  uint32_t ChildIndex(KeyView key) const {
    bool equal = false;
    const uint32_t i = LowerBound(key, &equal);
    return i + (equal ? 1 : 0);
  }
  // Which child holds the largest key below `end`; empty = no bound.
  uint32_t ChildIndexBelow(KeyView end) const {
    bool equal = false;
    return end.empty() ? count() : LowerBound(end, &equal);
  }
  uint64_t child(uint32_t i) const { return ChildAt(ChildPlace(i)); }
  // In two steps, since the number may be a cache miss of its own: where in the page it is, and what it is.
  uint32_t ChildPlace(uint32_t i) const {
    return i < count() ? ValueOffset(slots()[i]) : NodeFields::kRightmostChild;
  }
  [[gnu::always_inline]] void PrefetchChild(uint32_t place) const {
    page_.Prefetch(place);
    page_.Prefetch(place + sizeof(uint64_t) - 1);
  }
  uint64_t ChildAt(uint32_t place) const { return page_.template CopyAt<uint64_t>(place); }
  // Row or ghost of a leaf; of an inner node the child.
  struct Entry {
    decltype(std::declval<Page>().Bytes(0, 0)) value;
    bool ghost = false;
  };
  Entry entry(uint32_t i) const {
    const Slot slot = slots()[i];
    const auto prefixed = page_.template CopyAt<uint16_t>(slot.offset);
    return {.value = page_.Bytes(ValueOffset(slot), prefixed & ~NodeFields::kGhost),
            .ghost = (prefixed & NodeFields::kGhost) != 0};
  }
  void CopyKey(uint32_t i, KeyBuffer* key) const;
  // Starts loading an entry's first `bytes` bytes, or about all of it (0).
  void PrefetchEntry(uint32_t i, size_t bytes) const;

 private:
  auto slots() const { return page_.template Array<Slot>(NodeFields::kHeaderBytes); }
  static uint32_t ValueOffset(Slot slot) {
    return slot.offset + static_cast<uint32_t>(sizeof(uint16_t)) + slot.key_bytes;
  }
  static size_t LowerBound(NodeView node, KeyView key, bool* equal);
  // Of the slots [begin, end).
  size_t FirstHeadNotBelow(size_t begin, size_t end, uint32_t head) const;
  int CompareTails(Slot slot, KeyView suffix) const;
  static constexpr size_t kFewEqualHeads = 4;

  Page page_;
};

// The furthest byte that a TornNode may touch, whatever it read: the last slot that a count allows, or the
// end of the longest value behind the longest key.
inline constexpr size_t kMost16 = std::numeric_limits<uint16_t>::max();
inline constexpr size_t kTornReach = std::max(NodeFields::kHeaderBytes + (kMost16 + 1) * sizeof(Slot),
                                              kMost16 + sizeof(uint16_t) + kMost16 + kMost16);

template <typename Page>
inline size_t NodeView<Page>::FirstHeadNotBelow(size_t begin, size_t end, uint32_t head) const {
  // What stands before the slots still in question: so the index is half, and not half - 1, which GCC does
  // not fold into the address of an atomic load.
  const auto header = page_.template Array<Slot>(NodeFields::kHeaderBytes - sizeof(Slot));
  auto before = header + begin;
  size_t left = end - begin;
  while (left > 1) {
    const size_t half = left / 2;
    // All ones if the search goes on to the right: as a condition GCC would make a branch of it.
    const size_t right = size_t{0} - static_cast<size_t>(before[half].head < head);
    before = before + (half & right);
    left -= half;
  }
  return static_cast<size_t>(before - header) + (left == 1 && before[1].head < head ? 1 : 0);
}

// Its size is in the entry itself, where asking would cost the very cache miss: it is taken for average.
template <typename Page>
[[gnu::always_inline]] inline void NodeView<Page>::PrefetchEntry(uint32_t i, size_t bytes) const {
  constexpr size_t kLine = 64;
  constexpr size_t kMost = 512;
  const Slot slot = slots()[i];
  const size_t about = bytes != 0 ? bytes + sizeof(uint16_t) + slot.key_bytes
                                  : page_.Load(&NodeFields::heap_used_) / std::max<size_t>(count(), 1);
  for (size_t at = 0; at < std::min(about + kLine, kMost); at += kLine) page_.Prefetch(slot.offset + at);
}

template <typename Page>
inline void NodeView<Page>::CopyKey(uint32_t i, KeyBuffer* key) const {
  const Slot slot = slots()[i];
  const size_t prefix = std::min<size_t>(page_.Load(&NodeFields::prefix_bytes_), kMaxTreeKeyBytes);
  const size_t suffix = std::min<size_t>(slot.key_bytes, kMaxTreeKeyBytes - prefix);
  std::array<std::byte, kMaxTreeKeyBytes> bytes;
  page_.Bytes(page_.Load(&NodeFields::lower_offset_), prefix).CopyTo(bytes.data());
  page_.Bytes(slot.offset + sizeof(uint16_t), suffix).CopyTo(bytes.data() + prefix);
  key->Set(KeyView(bytes.data(), prefix + suffix));
}

inline int CompareBytes(RowView bytes, KeyView key) { return CompareKeys(bytes, key); }
// As numbers, without a copy; the last eight may overlap those before, which are equal then.
inline int CompareBytes(TornBytes bytes, KeyView key) {
  constexpr size_t kWord = sizeof(uint64_t);
  const size_t common = std::min(bytes.size(), key.size());
  const auto compare = [&](size_t at) {
    uint64_t number;
    std::memcpy(&number, key.data() + at, kWord);
    const uint64_t x = __builtin_bswap64(bytes.CopyAt<uint64_t>(at));
    const uint64_t y = __builtin_bswap64(number);
    return x < y ? -1 : static_cast<int>(x > y);
  };
  int order = 0;
  if (common >= kWord) {
    for (size_t at = 0; order == 0 && at + kWord < common; at += kWord) order = compare(at);
    if (order == 0) order = compare(common - kWord);
  } else {
    for (size_t at = 0; order == 0 && at < common; ++at) {
      order = int{bytes.CopyAt<uint8_t>(at)} - std::to_integer<int>(key[at]);
    }
  }
  if (order != 0) return order;
  return bytes.size() < key.size() ? -1 : bytes.size() > key.size();
}

// As numbers, of which the last may overlap the one before.
template <typename PageBytes>
inline bool EqualBytes(PageBytes bytes, KeyView key) {
  if (bytes.size() != key.size()) return false;
  const auto equal = [&]<typename Number>(Number) {
    uint64_t different = 0;
    for (size_t at = 0;; at = std::min(at + sizeof(Number), key.size() - sizeof(Number))) {
      Number number;
      std::memcpy(&number, key.data() + at, sizeof(number));
      different |= bytes.template CopyAt<Number>(at) ^ number;
      if (at == key.size() - sizeof(Number)) return different == 0;
    }
  };
  if (key.size() >= 8) return equal(uint64_t{});
  if (key.size() >= 4) return equal(uint32_t{});
  if (key.size() >= 2) return equal(uint16_t{});
  return key.empty() || equal(uint8_t{});
}

template <typename Page>
inline bool NodeView<Page>::HasKeyAt(uint32_t i, KeyView key) const {
  constexpr size_t kHead = sizeof(Slot::head);
  const size_t prefix = page_.Load(&NodeFields::prefix_bytes_);
  if (i >= count() || prefix > key.size()) return false;
  const KeyView suffix = key.subspan(prefix);
  const Slot slot = slots()[i];
  if (slot.head != KeyHead(suffix) || slot.key_bytes != suffix.size()) return false;
  if (suffix.size() > kHead &&
      !EqualBytes(page_.Bytes(slot.offset + sizeof(uint16_t) + kHead, suffix.size() - kHead),
                  suffix.subspan(kHead))) {
    return false;
  }
  return EqualBytes(page_.Bytes(page_.Load(&NodeFields::lower_offset_), prefix), key.first(prefix));
}

template <typename Page>
inline bool NodeView<Page>::Covers(KeyView key) const {
  const auto lower =
      page_.Bytes(page_.Load(&NodeFields::lower_offset_), page_.Load(&NodeFields::lower_bytes_));
  const auto upper =
      page_.Bytes(page_.Load(&NodeFields::upper_offset_), page_.Load(&NodeFields::upper_bytes_));
  return CompareBytes(lower, key) <= 0 && (upper.size() == 0 || CompareBytes(upper, key) > 0);
}

// For equal heads. Up to four bytes long, keys differ in length at most, and the heap need not be touched: a
// cache miss.
template <typename Page>
inline int NodeView<Page>::CompareTails(Slot slot, KeyView suffix) const {
  constexpr size_t kHead = sizeof(slot.head);
  if (slot.key_bytes <= kHead || suffix.size() <= kHead) {
    return slot.key_bytes < suffix.size() ? -1 : slot.key_bytes > suffix.size();
  }
  return CompareBytes(page_.Bytes(slot.offset + sizeof(uint16_t) + kHead, slot.key_bytes - kHead),
                      suffix.subspan(kHead));
}

template <typename Page>
inline int NodeView<Page>::CompareAt(uint32_t i, KeyView key) const {
  const KeyView suffix = key.subspan(std::min<size_t>(page_.Load(&NodeFields::prefix_bytes_), key.size()));
  const Slot slot = slots()[i];
  const uint32_t head = KeyHead(suffix);
  if (slot.head != head) return slot.head < head ? -1 : 1;
  return CompareTails(slot, suffix);
}

// Heads first, and without branches: which way a search goes is a coin toss that the processor would guess
// wrong half of the time. Keys with equal heads are told apart by what follows, which is rare where the
// prefix leaves four telling bytes.
template <typename Page>
inline size_t NodeView<Page>::LowerBound(NodeView node, KeyView key, bool* equal) {
  const size_t prefix_bytes = node.page_.Load(&NodeFields::prefix_bytes_);
  const KeyView suffix = key.subspan(std::min(prefix_bytes, key.size()));
  const uint32_t head = KeyHead(suffix);
  const size_t count = node.count();
  const auto slots = node.slots();
  size_t begin = node.FirstHeadNotBelow(0, count, head);
  *equal = false;
  if (begin >= count || slots[begin].head != head) return begin;
  size_t end = begin + 1;
  if (end < count && slots[end].head == head) {
    end = head == ~uint32_t{0} ? count : node.FirstHeadNotBelow(end, count, head + 1);
  }
  // Rows often come behind all others of their kind, a district's orders and an order's lines: one look, and
  // not one, and a cache miss, for each halving.
  if (end - begin > kFewEqualHeads && node.CompareTails(slots[end - 1], suffix) < 0) return end;
  while (begin < end) {
    const size_t middle = (begin + end) / 2;
    const int order = node.CompareTails(slots[middle], suffix);
    if (order == 0) {
      *equal = true;
      return middle;
    }
    (order < 0 ? begin : end) = order < 0 ? middle + 1 : middle;
  }
  return begin;
}

using PlainNode = NodeView<PlainPage>;
using TornNode = NodeView<TornPage>;

}  // namespace islands::storage
