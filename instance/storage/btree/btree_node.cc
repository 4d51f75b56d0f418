#include "instance/storage/btree/btree_node.h"

#include <limits>

namespace islands::storage {
namespace {

// The shortest key that is > `left` and <= `right`.
void Separate(KeyView left, KeyView right, KeyBuffer* separator) {
  separator->Set(right.first(CommonPrefix(left, right) + 1));
}

}  // namespace

void Node::Initialize(KeyView lower, KeyView upper) {
  ISLANDS_CHECK(lower.size() <= kMaxTreeKeyBytes && upper.size() <= kMaxTreeKeyBytes);
  ISLANDS_CHECK(upper.empty() || CompareKeys(lower, upper) < 0);
  std::memset(base() + sizeof(header_), 0, kPageBytes - sizeof(header_));
  heap_begin_ = kPageBytes;
  lower_bytes_ = static_cast<uint16_t>(lower.size());
  lower_offset_ = PlaceInHeap(lower.size());
  if (!lower.empty()) std::memcpy(base() + lower_offset_, lower.data(), lower.size());
  upper_bytes_ = static_cast<uint16_t>(upper.size());
  upper_offset_ = PlaceInHeap(upper.size());
  if (!upper.empty()) std::memcpy(base() + upper_offset_, upper.data(), upper.size());
  prefix_bytes_ = static_cast<uint16_t>(CommonPrefix(lower, upper));
}

void Node::CopyContent(const Node& from) {
  const uint64_t page_id = header_.page_id;
  const uint64_t lsn = header_.lsn;
  std::memcpy(base(), from.base(), kPageBytes);
  header_.page_id = page_id;
  header_.lsn = lsn;
}

uint16_t Node::PlaceInHeap(size_t bytes) {
  heap_begin_ = static_cast<uint16_t>(heap_begin_ - bytes);
  heap_used_ = static_cast<uint16_t>(heap_used_ + bytes);
  return heap_begin_;
}

void Node::MakeRoom(size_t entry_bytes_and_slot) {
  ISLANDS_CHECK(entry_bytes_and_slot <= free_bytes());
  const size_t contiguous = heap_begin_ - kHeaderBytes - count_ * sizeof(Slot);
  if (entry_bytes_and_slot > contiguous) Compact();
}

void Node::Compact() {
  alignas(Node) std::byte copy_bytes[kPageBytes];
  Node* copy = Node::At(copy_bytes);
  copy->header_ = header_;
  copy->Initialize(lower_fence(), upper_fence());
  copy->rightmost_child_ = rightmost_child_;
  copy->AppendFrom(*this, 0, count_);
  std::memcpy(base(), copy_bytes, kPageBytes);
}

void Node::Insert(uint32_t i, KeyView key, RowView value) {
  ISLANDS_CHECK(i <= count_ && key.size() >= prefix_bytes_ && value.size() <= kMaxRowBytes);
  const KeyView suffix = key.subspan(prefix_bytes_);
  const size_t bytes = sizeof(uint16_t) + suffix.size() + value.size();
  MakeRoom(bytes + sizeof(Slot));
  const uint16_t offset = PlaceInHeap(bytes);
  const auto value_bytes = static_cast<uint16_t>(value.size());
  std::byte* at = base() + offset;
  std::memcpy(at, &value_bytes, sizeof(value_bytes));
  at += sizeof(value_bytes);
  if (!suffix.empty()) std::memcpy(at, suffix.data(), suffix.size());
  if (!value.empty()) std::memcpy(at + suffix.size(), value.data(), value.size());
  std::memmove(slots() + i + 1, slots() + i, (count_ - i) * sizeof(Slot));
  slots()[i] = {KeyHead(suffix), offset, static_cast<uint16_t>(suffix.size())};
  ++count_;
}

void Node::InsertChild(uint32_t i, KeyView separator, uint64_t number) {
  Insert(i, separator, std::as_bytes(std::span(&number, 1)));
}

void Node::SetChild(uint32_t i, uint64_t number) {
  ISLANDS_CHECK(!is_leaf() && i <= count_ && number != 0);
  if (i >= count_) {
    rightmost_child_ = number;
  } else {
    std::memcpy(value(i).data(), &number, sizeof(number));
  }
}

void Node::Remove(uint32_t i) {
  ISLANDS_CHECK(i < count_ && heap_used_ >= SlotEntryBytes(i));
  heap_used_ = static_cast<uint16_t>(heap_used_ - SlotEntryBytes(i));
  std::memmove(slots() + i, slots() + i + 1, (count_ - i - 1) * sizeof(Slot));
  --count_;
  slots()[count_] = {};  // invariant 3
}

void Node::SetGhost(uint32_t i, bool ghost) {
  ISLANDS_CHECK(is_leaf() && i < count_);
  const auto bytes = static_cast<uint16_t>(value(i).size() | (ghost ? kGhost : 0));
  std::memcpy(base() + slots()[i].offset, &bytes, sizeof(bytes));
}

void Node::ReplaceValue(uint32_t i, RowView value) {
  const std::span<std::byte> old = this->value(i);
  if (old.size() == value.size()) {
    if (!value.empty()) std::memcpy(old.data(), value.data(), value.size());
    return;
  }
  KeyBuffer key;
  CopyKey(i, &key);
  const bool was_ghost = ghost(i);
  Remove(i);
  Insert(i, key.view(), value);
  SetGhost(i, was_ghost);
}

void Node::AppendFrom(const Node& from, uint32_t begin, uint32_t end) {
  ISLANDS_CHECK(level() == from.level() && end <= from.count_);
  KeyBuffer key;
  for (uint32_t i = begin; i < end; ++i) {
    from.CopyKey(i, &key);
    Insert(count_, key.view(), from.value(i));
    if (from.ghost(i)) SetGhost(count_ - 1, true);
  }
}

// Whether slots of so many bytes fit on both sides of a separator, which becomes a fence of both. Their
// prefixes can only get longer, so this errs on the safe side.
bool Node::SidesFit(size_t left_bytes, size_t right_bytes, size_t separator_bytes) const {
  return kHeaderBytes + lower_bytes_ + separator_bytes + left_bytes <= kPageBytes &&
         kHeaderBytes + separator_bytes + upper_bytes_ + right_bytes <= kPageBytes;
}

// The cut is made in the sequence of entries as it will be with the pending one in its place, at least one on
// each side, so that cutting again and again ends: at the latest when the pending entry is alone. The
// balanced cut is the best, but ascending inserts fill their leaves: at the right edge of the tree, and where
// the entry before the new one is the one that came last, which lies lowest in the heap: a run of one
// district's orders amid those of others. A cut where both sides fit exists because no entry and no fence is
// larger than half a page (see the static_asserts).
void Node::ChooseLeafSplit(const PendingEntry& pending, bool last, SplitPoint* split) const {
  bool replaces = false;
  const uint32_t position = LowerBound(pending.key, &replaces);
  const uint32_t total_entries = count_ + (replaces ? 0 : 1);
  const bool appends = !replaces && position == count_ && last;
  const bool continues = !replaces && position > 0 && slots()[position - 1].offset == heap_begin_;
  // Which slot entry v of the sequence is; count_ stands for a pending one that is new.
  const auto slot_of = [&](uint32_t v) {
    return replaces || v < position ? v : v == position ? count_ : v - 1;
  };
  const size_t pending_bytes = sizeof(Slot) + EntryBytes(pending);
  size_t real_bytes = 0;
  for (uint32_t i = 0; i < count_; ++i) real_bytes += SlotBytes(i);
  size_t real_left = 0;
  size_t best = std::numeric_limits<size_t>::max();
  uint32_t cut = 0;
  for (uint32_t v = 1; v < total_entries; ++v) {
    if (slot_of(v - 1) < count_) real_left += SlotBytes(slot_of(v - 1));
    const size_t real_right = real_bytes - real_left;
    const size_t separator_bytes = slot_of(v) < count_ ? KeyBytes(slot_of(v)) : pending.key.size();
    if (!SidesFit(real_left, real_right, separator_bytes)) continue;
    const size_t left = real_left + (position < v ? pending_bytes : 0);
    const size_t right = real_right + (position < v ? 0 : pending_bytes);
    const bool behind_run = continues && v == position && left >= right;
    const size_t larger = appends || behind_run ? 0 : std::max(left, right);
    if (larger <= best) {
      best = larger;
      cut = v;
    }
  }
  ISLANDS_CHECK(cut > 0);
  const auto copy_key = [&](uint32_t v, KeyBuffer* key) {
    slot_of(v) < count_ ? CopyKey(slot_of(v), key) : key->Set(pending.key);
  };
  KeyBuffer left_key, right_key;
  copy_key(cut - 1, &left_key);
  copy_key(cut, &right_key);
  Separate(left_key.view(), right_key.view(), &split->separator);
  split->left = cut - (!replaces && position < cut ? 1 : 0);
}

// The separator at `left` moves up; both sides keep at least one.
void Node::ChooseInnerSplit(const PendingEntry& pending, bool last, SplitPoint* split) const {
  bool equal = false;
  const bool appends = last && LowerBound(pending.key, &equal) == count_;
  size_t total_bytes = 0;
  for (uint32_t i = 0; i < count_; ++i) total_bytes += SlotBytes(i);
  size_t best = std::numeric_limits<size_t>::max();
  size_t left = 0;
  split->left = 0;
  for (uint32_t i = 1; i + 1 < count_; ++i) {
    left += SlotBytes(i - 1);
    const size_t right = total_bytes - left - SlotBytes(i);
    if (!SidesFit(left, right, KeyBytes(i))) continue;
    const size_t larger = appends ? 0 : std::max(left, right);
    if (larger <= best) {
      best = larger;
      split->left = i;
    }
  }
  ISLANDS_CHECK(split->left > 0);
  CopyKey(split->left, &split->separator);
}

size_t Node::MergedBytes(const Node& right, KeyView separator) const {
  const size_t prefix = CommonPrefix(lower_fence(), right.upper_fence());
  size_t bytes = kHeaderBytes + lower_bytes_ + right.upper_bytes_;
  for (const Node* node : {this, &right}) {
    bytes += node->count_ * sizeof(Slot) + node->heap_used_ - node->lower_bytes_ - node->upper_bytes_;
    bytes += node->count_ * (node->prefix_bytes_ - prefix);
  }
  if (!is_leaf()) bytes += sizeof(Slot) + sizeof(uint16_t) + separator.size() - prefix + sizeof(uint64_t);
  return bytes;
}

}  // namespace islands::storage
