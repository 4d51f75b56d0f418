// Bytes of a page as a tree's node: FindFault says what is wrong with them, or everything that a tree does to
// its nodes works on them, keeps to the page, and does what it does to a sorted map.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/storage/btree/btree_node.h"
#include "instance/storage/files/disk_page.h"
#include "runtime/check.h"
#include "runtime/fuzz_input_testing.h"

namespace islands::storage {
namespace {

// On the heap, so that a sanitizer sees who leaves it.
using PagePtr = std::unique_ptr<DiskPage>;
Node* NodeOf(const PagePtr& page) { return Node::At(page->bytes.data()); }

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
KeyView View(const std::string& text) { return std::as_bytes(std::span(text)); }

using Entries = std::map<std::string, std::pair<std::string, bool>>;  // by key: value, ghost

Entries EntriesOf(const Node& node) {
  Entries entries;
  KeyBuffer key;
  for (uint32_t i = 0; i < node.count(); ++i) {
    node.CopyKey(i, &key);
    entries[Text(key.view())] = {Text(node.value(i)), node.ghost(i)};
  }
  ISLANDS_CHECK(entries.size() == node.count());
  return entries;
}

void CheckSame(const Node& node, const Entries& entries) {
  ISLANDS_CHECK(node.FindFault() == nullptr && EntriesOf(node) == entries);
  uint32_t number = 0;
  for (const auto& [key, entry] : entries) {
    bool equal = false;
    ISLANDS_CHECK(node.LowerBound(View(key), &equal) == number && equal);
    ++number;
  }
}

PagePtr EmptyLike(const Node& node) {
  auto page = std::make_unique<DiskPage>();
  NodeOf(page)->header() = node.header();
  return page;
}

// Up to three bytes, and some 'k's behind them.
std::string TakeKey(runtime::FuzzInput& input) {
  const uint8_t what = input.Byte();
  std::string key = Text(input.Take(what % 4));
  if (what % 8 == 7) key.append(what, 'k');
  if (what == 0xff) key.append(kMaxTreeKeyBytes - key.size(), 'k');
  return key;
}

PagePtr MakeNode(runtime::FuzzInput& input) {
  auto page = std::make_unique<DiskPage>();
  page->bytes.fill(std::byte{0});
  Node* node = NodeOf(page);
  node->header() = {.page_id = PageId(3, 9).value(), .lsn = 77, .tree = 1, .type = PageType::kTree};
  node->header().level = input.Byte() % 2;
  std::string lower = TakeKey(input), upper = TakeKey(input);
  if (!upper.empty() && upper <= lower) std::swap(lower, upper);
  if (upper <= lower) upper.clear();
  node->Initialize(View(lower), View(upper));
  if (!node->is_leaf()) node->SetChild(0, 5);
  return page;
}

// One of the things that a tree does with a node.
void Step(runtime::FuzzInput& input, PagePtr* page, Entries* entries) {
  Node* node = NodeOf(*page);
  const uint8_t what = input.Byte();
  std::string key = TakeKey(input);
  if (what >= 0x80) key = Text(node->prefix()) + key;
  const bool covered = CompareKeys(View(key), node->lower_fence()) >= 0 && key.size() <= kMaxTreeKeyBytes &&
                       (node->upper_fence().empty() || CompareKeys(View(key), node->upper_fence()) < 0);
  if (!covered || key.empty()) return;
  const uint64_t child = 1 + what;
  std::string value = Text(std::as_bytes(std::span(&child, 1)));
  if (node->is_leaf()) value = std::string(input.Byte() * 6, static_cast<char>(what));
  const PendingEntry pending{View(key), value.size()};
  bool equal = false;
  const uint32_t i = node->LowerBound(View(key), &equal);
  ISLANDS_CHECK(i == static_cast<uint32_t>(std::distance(entries->begin(), entries->lower_bound(key))));
  ISLANDS_CHECK(equal == entries->contains(key) && node->ChildIndex(View(key)) == i + (equal ? 1 : 0));
  switch (what % 4) {
    case 0:
      if (!equal) return;
      node->Remove(i);
      entries->erase(key);
      return;
    case 1:
      if (!equal || !node->is_leaf()) return;
      node->SetGhost(i, what >= 0x40);
      (*entries)[key].second = what >= 0x40;
      return;
    default:
      if (equal && node->HasRoomToReplace(i, value.size())) {
        node->ReplaceValue(i, View(value));
        (*entries)[key].first = value;
      } else if (!equal && node->HasRoomFor(pending)) {
        node->Insert(i, View(key), View(value));
        (*entries)[key] = {value, false};
      }
  }
}

bool HasChildren(const Node& node) {
  for (uint32_t i = 0; i <= node.count(); ++i) {
    if (node.child(i) == 0) return false;
  }
  return true;
}

// A node that has no room is cut, where the cut says; both parts together are what it was.
void Split(const Node& node, const Entries& entries, runtime::FuzzInput& input) {
  const std::string key = Text(node.prefix()) + TakeKey(input);
  if (key.size() > (node.is_leaf() ? partitioner::kMaxKeyBytes : kMaxTreeKeyBytes)) return;
  for (const auto& [each, value] : entries) {
    if (node.is_leaf() && each.size() > partitioner::kMaxKeyBytes) return;  // no tree has both: see below
  }
  const PendingEntry pending{View(key), node.is_leaf() ? kMaxRowBytes : sizeof(uint64_t)};
  const bool covered = CompareKeys(View(key), node.lower_fence()) >= 0 &&
                       (node.upper_fence().empty() || CompareKeys(View(key), node.upper_fence()) < 0);
  const bool fences = !node.is_leaf() || (node.lower_fence().size() <= partitioner::kMaxKeyBytes &&
                                          node.upper_fence().size() <= partitioner::kMaxKeyBytes);
  if (!covered || !fences || key.empty() || node.HasRoomFor(pending)) return;
  if (!node.is_leaf() && !HasChildren(node)) return;
  Node::SplitPoint split;
  const bool last = input.Byte() % 2 == 0;
  node.is_leaf() ? node.ChooseLeafSplit(pending, last, &split) : node.ChooseInnerSplit(pending, last, &split);
  const PagePtr left = EmptyLike(node), right = EmptyLike(node);
  NodeOf(left)->Initialize(node.lower_fence(), split.separator.view());
  NodeOf(left)->AppendFrom(node, 0, split.left);
  NodeOf(right)->Initialize(split.separator.view(), node.upper_fence());
  NodeOf(right)->AppendFrom(node, split.left + (node.is_leaf() ? 0 : 1), node.count());
  ISLANDS_CHECK(NodeOf(left)->FindFault() == nullptr && NodeOf(right)->FindFault() == nullptr);
  Entries both = EntriesOf(*NodeOf(left));
  const size_t moved_up = node.is_leaf() ? 0 : 1;
  both.merge(EntriesOf(*NodeOf(right)));
  ISLANDS_CHECK(both.size() + moved_up == entries.size());
  for (const auto& [each, entry] : both) ISLANDS_CHECK(entries.at(each) == entry);
  if (!node.is_leaf()) return;
  ISLANDS_CHECK(NodeOf(left)->MergedBytes(*NodeOf(right), split.separator.view()) <= kPageBytes);
}

void Try(runtime::FuzzInput input) {
  PagePtr page = MakeNode(input);
  Entries entries;
  for (int left = input.Byte() % 64; left > 0; --left) Step(input, &page, &entries);
  CheckSame(*NodeOf(page), entries);
  // Other bytes here and there; an eighth of the places is among the fields, as many are among the slots.
  for (int left = input.Byte() % 8; left > 0; --left) {
    const uint8_t what = input.Byte();
    const size_t behind_id = offsetof(PageHeader, tree);
    size_t at = behind_id + input.Number(2) % (kPageBytes - behind_id);
    if (what % 8 == 0) at = sizeof(PageHeader) + at % 32;
    if (what % 8 == 1) at = Node::kHeaderBytes + at % 64;
    page->bytes[at] = static_cast<std::byte>(input.Byte());
  }
  if (NodeOf(page)->FindFault() != nullptr) return;
  // Sound, if it is on disk: the same bytes and no others.
  StampChecksum(page->bytes);
  ISLANDS_CHECK(IsWhole(page->bytes, PageId(3, 9)) && !IsWhole(page->bytes, PageId(3, 8)));
  entries = EntriesOf(*NodeOf(page));
  CheckSame(*NodeOf(page), entries);
  Split(*NodeOf(page), entries, input);
  for (int left = 32; left > 0 && !input.empty(); --left) {
    Step(input, &page, &entries);
    CheckSame(*NodeOf(page), entries);
  }
  Split(*NodeOf(page), entries, input);
}

}  // namespace
}  // namespace islands::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  islands::storage::Try({data, size});
  return 0;
}
