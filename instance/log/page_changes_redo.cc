// Redo: each change is held against the page before it is made.
#include <algorithm>
#include <cstring>

#include "fmt/format.h"
#include "instance/log/page_changes_cursor.h"
#include "instance/log/page_changes_reader.h"
#include "instance/storage/btree/btree_node.h"

namespace islands::log {
namespace {

using storage::CompareKeys;
using storage::KeyView;
using storage::kPageBytes;
using storage::Node;
using storage::PageHeader;
using storage::PageType;

// All of these say what is wrong, or null when the change is made.
using Fault = const char*;

bool IsTree(const std::byte* page) {
  return reinterpret_cast<const PageHeader*>(page)->type == PageType::kTree;
}

Fault RedoImage(const WrittenChange& change, std::byte* page) {
  constexpr size_t kMost = kPageBytes - kImageBegin;
  const size_t front = change.first.size();
  const size_t end = change.bytes.size();
  if (front < sizeof(PageHeader) - kImageBegin || front > kMost || end > kMost - front)
    return "an image of another size than a page";
  std::memcpy(page + kImageBegin, change.first.data(), front);
  std::memset(page + kImageBegin + front, 0, kMost - front - end);
  if (end != 0) std::memcpy(page + kPageBytes - end, change.bytes.data(), end);
  return IsTree(page) ? Node::At(page)->FindFault() : nullptr;
}

Fault RedoBytes(const WrittenChange& change, std::byte* page) {
  const size_t bytes = change.bytes.size();
  if (change.offset < kImageBegin || change.offset > kPageBytes || bytes > kPageBytes - change.offset)
    return "bytes outside the page, or its id or LSN";
  if (bytes != 0) std::memcpy(page + change.offset, change.bytes.data(), bytes);
  const bool of_child = change.offset >= Node::kRightmostChild &&
                        change.offset + bytes <= Node::kRightmostChild + sizeof(uint64_t);
  return IsTree(page) && !of_child ? Node::At(page)->FindFault() : nullptr;
}

Fault CheckOrder(const Node& node, uint32_t slot, KeyView suffix) {
  storage::KeyBuffer key;
  key.Set(node.prefix(), suffix);
  if (slot > 0 ? CompareKeys(node.suffix(slot - 1), suffix) >= 0
               : CompareKeys(key.view(), node.lower_fence()) < 0)
    return "a new key below its place";
  if (slot < node.count() ? CompareKeys(suffix, node.suffix(slot)) >= 0
                          : !node.upper_fence().empty() && CompareKeys(key.view(), node.upper_fence()) >= 0)
    return "a new key above its place";
  return nullptr;
}

Fault RedoInsert(const WrittenChange& change, Node* node) {
  if (change.slot > node->count()) return "a new entry beyond the last slot";
  const auto slot = static_cast<uint32_t>(change.slot);
  if (node->prefix().size() + change.first.size() > storage::kMaxTreeKeyBytes) return "a new key too long";
  if (node->is_leaf() ? change.bytes.size() > storage::kMaxRowBytes : change.bytes.size() != sizeof(uint64_t))
    return "a new value of the wrong length";
  storage::KeyBuffer key;
  key.Set(node->prefix(), change.first);
  if (!node->HasRoomFor({.key = key.view(), .value_bytes = change.bytes.size()}))
    return "no room for a new entry";
  if (const Fault fault = CheckOrder(*node, slot, change.first)) return fault;
  node->Insert(slot, key.view(), change.bytes);
  return nullptr;
}

Fault RedoNewValue(const WrittenChange& change, uint32_t slot, Node* node) {
  if (!node->is_leaf() || change.bytes.size() > storage::kMaxRowBytes) return "a value of the wrong length";
  if (!node->HasRoomToReplace(slot, change.bytes.size())) return "no room for a longer value";
  node->ReplaceValue(slot, change.bytes);
  return nullptr;
}

Fault RedoValue(const WrittenChange& change, uint32_t slot, Node* node) {
  const std::span<std::byte> value = node->value(slot);
  if (change.offset > value.size() || change.bytes.size() > value.size() - change.offset)
    return "bytes beyond a value's end";
  if (!change.bytes.empty())
    std::memcpy(value.data() + change.offset, change.bytes.data(), change.bytes.size());
  return nullptr;
}

Fault RedoChange(const WrittenChange& change, std::byte* page) {
  if (change.op == PageOp::kImage) return RedoImage(change, page);
  if (change.op == PageOp::kBytes) return RedoBytes(change, page);
  if (!IsTree(page)) return "an entry of a page that has none";
  Node* node = Node::At(page);
  if (change.op == PageOp::kInsert) return RedoInsert(change, node);
  if (change.slot >= node->count()) return "beyond the last slot";
  const auto slot = static_cast<uint32_t>(change.slot);
  switch (change.op) {
    case PageOp::kValue:
      return RedoValue(change, slot, node);
    case PageOp::kNewValue:
      return RedoNewValue(change, slot, node);
    case PageOp::kRemove:
      node->Remove(slot);
      return nullptr;
    default:
      if (!node->is_leaf()) return "a ghost that is a child";
      node->SetGhost(slot, change.op == PageOp::kGhost);
      return nullptr;
  }
}

absl::Status Error(const PageChangeGroup& group, Lsn page_lsn, std::string_view what) {
  return absl::DataLossError(fmt::format(
      "page {} of site {} at LSN {} does not take the change with LSN {} from the log: {}",
      group.page().number(), group.page().site(), ToString(page_lsn), ToString(group.lsn()), what));
}

}  // namespace

bool PageChangeGroup::ChangesValue(uint32_t* slot, size_t* end) const {
  Cursor cursor(changes_);
  WrittenChange change;
  if (!TakeChange(&cursor, &change) || change.op != PageOp::kValue) return false;
  *slot = static_cast<uint32_t>(std::min<uint64_t>(change.slot, UINT32_MAX));
  *end = change.offset + change.bytes.size();
  return true;
}

absl::Status Redo(const PageChangeGroup& group, std::span<std::byte, kPageBytes> page) {
  auto* header = reinterpret_cast<PageHeader*>(page.data());
  const Lsn lsn = Lsn::FromValue(header->lsn);
  const bool unused = header->page_id == 0 && header->lsn == 0;
  if (!unused && header->page_id != group.page().value())
    return Error(group, lsn, "the page carries another's id");
  if (lsn >= group.lsn()) return absl::OkStatus();  // invariant 1 of the format: it is in there
  if (!group.is_image() && FoldLsn(lsn) != group.lsn_before_)
    return Error(group, lsn, "it belongs to a later state of the page; log records in between are missing");
  header->page_id = group.page().value();
  header->lsn = group.lsn().value();
  WrittenChange change;
  for (Cursor cursor(group.changes_); !cursor.empty() && TakeChange(&cursor, &change);) {
    if (const Fault fault = RedoChange(change, page.data())) return Error(group, lsn, fault);
  }
  return absl::OkStatus();
}

}  // namespace islands::log
