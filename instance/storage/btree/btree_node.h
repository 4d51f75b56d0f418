// A node of a B+tree as its writers see it: the page of btree_node_view.h, changed in place, split, merged.
//
// Thread safety: none; the page is latched, or a copy that nobody else knows.
//
// Invariants: those of the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "instance/storage/btree/btree_node_view.h"

namespace islands::storage {

// What is about to be put into a node: by key and size.
struct PendingEntry {
  KeyView key;
  size_t value_bytes = 0;
};

class Node : NodeFields {
 public:
  using NodeFields::kHeaderBytes;
  using NodeFields::kRightmostChild;

  // The node in a page.
  static const Node* At(const std::byte* page) { return reinterpret_cast<const Node*>(page); }
  static Node* At(std::byte* page) { return reinterpret_cast<Node*>(page); }

  // Makes an empty node of a page whose PageHeader is set. The fences lie elsewhere.
  void Initialize(KeyView lower, KeyView upper);
  // Takes over everything of `from` but its page id and LSN.
  void CopyContent(const Node& from);

  const PageHeader& header() const { return header_; }
  PageHeader& header() { return header_; }
  uint64_t number() const { return PageId::FromValue(header_.page_id).number(); }
  uint8_t level() const { return header_.level; }
  bool is_leaf() const { return header_.level == 0; }
  uint32_t count() const { return count_; }
  size_t used_bytes() const { return kHeaderBytes + count_ * sizeof(Slot) + heap_used_; }
  size_t free_bytes() const { return kPageBytes - used_bytes(); }
  // The free room: from here to there.
  size_t slots_end() const { return kHeaderBytes + count_ * sizeof(Slot); }
  size_t heap_begin() const { return heap_begin_; }
  bool Underfull() const { return used_bytes() < kPageBytes / 4; }

  KeyView lower_fence() const { return Range(lower_offset_, lower_bytes_); }
  KeyView upper_fence() const { return Range(upper_offset_, upper_bytes_); }
  KeyView prefix() const { return Range(lower_offset_, prefix_bytes_); }
  KeyView suffix(uint32_t i) const {
    return Range(slots()[i].offset + sizeof(uint16_t), slots()[i].key_bytes);
  }
  void CopyKey(uint32_t i, KeyBuffer* key) const { key->Set(prefix(), suffix(i)); }

  // As NodeView's.
  uint32_t LowerBound(KeyView key, bool* equal) const { return view().LowerBound(key, equal); }
  bool IsLowerBound(uint32_t i, KeyView key) const { return view().IsLowerBound(i, key); }
  int CompareAt(uint32_t i, KeyView key) const { return view().CompareAt(i, key); }
  uint32_t ChildIndex(KeyView key) const { return view().ChildIndex(key); }
  uint64_t child(uint32_t i) const { return view().child(i); }
  RowView value(uint32_t i) const { return view().entry(i).value; }
  std::span<std::byte> value(uint32_t i) {
    const RowView found = static_cast<const Node*>(this)->value(i);
    return {const_cast<std::byte*>(found.data()), found.size()};
  }
  bool ghost(uint32_t i) const { return view().entry(i).ghost; }
  void SetChild(uint32_t i, uint64_t number);

  // Whether the entry fits (next to its equal, if `replace`: instead of it).
  bool HasRoomFor(const PendingEntry& entry) const {
    return EntryBytes(entry) + sizeof(Slot) <= free_bytes();
  }
  bool HasRoomToReplace(uint32_t i, size_t value_bytes) const {
    return value_bytes <= value(i).size() + free_bytes();
  }
  // A ghost is a deleted row that is still there for those who lock the key or the gap below it.
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

  // Everything that can be checked without other nodes; null when all is well. Any bytes may be asked; where
  // there is no fault, no function of a node leaves the page or meets an assertion, given what it asks for.
  const char* FindFault() const;

 private:
  size_t EntryBytes(const PendingEntry& entry) const {
    return sizeof(uint16_t) + entry.key.size() - prefix_bytes_ + entry.value_bytes;
  }
  size_t SlotEntryBytes(uint32_t i) const {
    return sizeof(uint16_t) + slots()[i].key_bytes + value(i).size();
  }
  const char* FindFaultOfFences() const;
  const char* FindFaultOfEntry(uint32_t i) const;
  const char* FindFaultOfHeap() const;
  size_t SlotBytes(uint32_t i) const { return sizeof(Slot) + SlotEntryBytes(i); }
  size_t KeyBytes(uint32_t i) const { return prefix_bytes_ + slots()[i].key_bytes; }
  bool SidesFit(size_t left_bytes, size_t right_bytes, size_t separator_bytes) const;
  void MakeRoom(size_t entry_bytes_and_slot);
  void Compact();
  uint16_t PlaceInHeap(size_t bytes);

  const std::byte* base() const { return reinterpret_cast<const std::byte*>(this); }
  std::byte* base() { return reinterpret_cast<std::byte*>(this); }
  const Slot* slots() const { return reinterpret_cast<const Slot*>(base() + kHeaderBytes); }
  Slot* slots() { return reinterpret_cast<Slot*>(base() + kHeaderBytes); }
  KeyView Range(size_t offset, size_t bytes) const { return KeyView(base() + offset, bytes); }
  PlainNode view() const { return PlainNode(PlainPage(base())); }
};
static_assert(sizeof(Node) == Node::kHeaderBytes && alignof(Node) == alignof(Slot));

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

}  // namespace islands::storage
