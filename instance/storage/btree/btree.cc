#include "instance/storage/btree/btree.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/planted_bug.h"

namespace islands::storage {

using runtime::Planted;
using runtime::PlantedBug;

namespace {

// Merges leave room for some inserts, so that a node at the border is not split and merged in turn.
constexpr size_t kMergeBytes = kPageBytes - kPageBytes / 8;

// Copies slots [begin, end) of an old node into a new one with the given fences.
void Fill(Node* node, const Node& from, uint32_t begin, uint32_t end, KeyView lower, KeyView upper) {
  node->Initialize(lower, upper);
  node->AppendFrom(from, begin, end);
}

// Distributes `from` around the split point. An inner node's separator at the split point moves up, its child
// stays as the left side's rightmost.
void Distribute(const Node& from, const Node::SplitPoint& split, Node* left, Node* right) {
  const KeyView separator = split.separator.view();
  Fill(left, from, 0, split.left, from.lower_fence(), separator);
  if (from.is_leaf()) {
    Fill(right, from, split.left, from.count(), separator, from.upper_fence());
    return;
  }
  left->SetChild(left->count(), from.child(split.left));
  Fill(right, from, split.left + 1, from.count(), separator, from.upper_fence());
  right->SetChild(right->count(), from.child(from.count()));
}

// A child's number, the rightmost one's too.
PageChange ChildAt(const Node* node, uint32_t i) {
  if (i < node->count()) return {PageChange::Kind::kValue, i, 0, sizeof(uint64_t)};
  return {.offset = Node::kRightmostChild, .bytes = sizeof(uint64_t)};
}

// For leaves also when the entry would take the place of its equal.
bool HasRoom(const Node& node, const PendingEntry& entry) {
  bool equal = false;
  const uint32_t i = node.LowerBound(entry.key, &equal);
  return equal ? node.HasRoomToReplace(i, entry.value_bytes) : node.HasRoomFor(entry);
}

}  // namespace

BTree::BTree(SiteSpace* site, uint32_t tree, uint64_t root)
    : site_(site),
      tree_(tree),
      root_(root),
      hints_(site->key_hints()),
      hint_salt_(runtime::MixHash(uint64_t{site->site()} << 32 | tree)) {
  const GuardS guard(site->At(root), ISLANDS_LATCH("btree.open"));
  lower_.Set(Node::At(guard.bytes())->lower_fence());
  upper_.Set(Node::At(guard.bytes())->upper_fence());
}

uint64_t BTree::MakeRoot(SiteSpace* site, uint32_t tree, KeyView lower, KeyView upper) {
  GuardX header;
  const GuardX root = site->Allocate(tree, 0, &header);
  if (!root) return 0;
  ChangeAll(root)->Initialize(lower, upper);
  site->AddRoot(header, tree, NodeOf(root)->number());
  return NodeOf(root)->number();
}

void BTree::ChooseSplit(const Node& node, const PendingEntry& entry, Node::SplitPoint* split) const {
  const bool last = CompareKeys(node.upper_fence(), upper_.view()) == 0;
  node.is_leaf() ? node.ChooseLeafSplit(entry, last, split) : node.ChooseInnerSplit(entry, last, split);
}

void BTree::Position::TryAgain(PageWait& wait, runtime::LatchSite site) {
  const GuardO& beaten = parent && (!node || node.Valid()) ? parent : node;
  beaten.WaitToTryAgain(wait, site);
  *this = {};
}

template <typename ChooseChild>
bool BTree::Descend(uint8_t level, ChooseChild choose, Position* position) const {
  position->parent.Release();
  position->index = 0;
  position->node = GuardO(site_->At(root_), ISLANDS_LATCH("btree.root"));
  while (true) {
    const TornNode node = NodeOf(position->node);
    if (node.level() <= level) return position->node.Valid();
    const uint32_t index = choose(node);
    const uint64_t child = node.child(index);
    site_->Prefetch(child);
    if (!position->node.Valid()) return false;  // `child` may be nonsense: do not touch it
    runtime::Linger();
    GuardO next(site_->At(child), ISLANDS_LATCH("btree.descend"));
    if (!position->node.Valid() && !Planted(PlantedBug::kSkipValidation)) {
      return false;  // the child may have been split since
    }
    position->parent = std::move(position->node);
    position->node = std::move(next);
    position->index = index;
  }
}

GuardO BTree::FindLeaf(KeyView key) const {
  if (site_->unguarded()) {
    uint64_t number = root_;
    while (true) {
      const GuardN guard(site_->At(number));
      const PlainNode node = NodeOf(guard);
      if (node.is_leaf()) return GuardO(site_->At(number));
      number = node.child(node.ChildIndex(key));
      site_->Prefetch(number);
    }
  }
  Position position;
  for (PageWait wait; !Descend(
           0, [&](TornNode node) { return node.ChildIndex(key); }, &position);) {
    position.TryAgain(wait, {"btree.descend"});
  }
  return std::move(position.node);
}

GuardO BTree::LeafAt(uint64_t number, KeyView key) const {
  if (number == 0 || !site_->HasPage(number)) return {};
  GuardO guard = GuardO::Try(site_->At(number));
  if (!guard) return {};
  const TornNode node = NodeOf(guard);
  const bool covers = node.Covers(key) || Planted(PlantedBug::kTrustOldLeaf);
  if (!node.is_leaf() || !node.IsOf(tree_) || !covers) guard.Release();
  return guard;
}

GuardO BTree::FindLeaf(KeyView key, const Lookup& stale) const {
  GuardO leaf = LeafAt(stale.leaf(), key);
  return leaf ? std::move(leaf) : FindLeaf(key);
}

GuardX BTree::FindLeafExclusive(KeyView key, const Lookup* stale) {
  for (PageWait wait;; stale = nullptr) {
    GuardO leaf = stale != nullptr ? FindLeaf(key, *stale) : FindLeaf(key);
    GuardX exclusive = GuardX::Upgrade(leaf, ISLANDS_PAGE_LATCH("btree.leaf"));
    if (exclusive) return exclusive;
    leaf.WaitToTryAgain(wait, {"btree.leaf"});
  }
}

[[gnu::always_inline]] inline GuardX BTree::FindLeafExclusive(KeyView key, Lookup* hint, uint32_t* slot,
                                                              bool* found) {
  GuardX guard;
  if (hint != nullptr && hint->node_) guard = GuardX::Upgrade(hint->node_, ISLANDS_PAGE_LATCH("btree.leaf"));
  if (guard && hint->searched_) {
    *slot = hint->slot_;
    *found = hint->has_slot_;
    return guard;
  }
  if (!guard) guard = FindLeafExclusive(key, hint);
  *slot = NodeOf(guard)->LowerBound(key, found);
  return guard;
}

absl::StatusCode BTree::Read(KeyView key, std::vector<std::byte>* row) const {
  return Find(key, row) == KeyState::kRow ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
}

KeyState BTree::Find(KeyView key, std::vector<std::byte>* row) const {
  return Find(key, nullptr, [row](TornBytes found) {
    row->resize(found.size());
    found.CopyTo(row->data());
  });
}

absl::StatusCode BTree::Modify(KeyView key, RowPart part,
                               absl::FunctionRef<void(std::span<std::byte>)> change, Lookup* hint) {
  if (!Covers(key, hint)) return absl::StatusCode::kNotFound;
  uint32_t i = 0;
  bool found = false;
  const GuardX guard = FindLeafExclusive(key, hint, &i, &found);
  const Node* leaf = NodeOf(guard);
  if (!found || leaf->ghost(i)) return absl::StatusCode::kNotFound;
  if (!part.Within(leaf->value(i).size())) return absl::StatusCode::kInvalidArgument;
  change(Change(guard, {Kind::kValue, i, part.offset, part.bytes})->value(i));
  return absl::StatusCode::kOk;
}

absl::StatusCode BTree::Insert(KeyView key, RowView row, std::optional<uint64_t> expected, Lookup* hint) {
  if (!Covers(key, hint)) return absl::StatusCode::kInvalidArgument;
  const PendingEntry entry{.key = key, .value_bytes = row.size()};
  while (true) {
    uint32_t i = 0;
    bool found = false;
    GuardX guard = FindLeafExclusive(key, hint, &i, &found);
    const Node* leaf = NodeOf(guard);
    if (found && !leaf->ghost(i)) return absl::StatusCode::kAlreadyExists;
    if (found && leaf->HasRoomToReplace(i, row.size())) {
      Change(guard, {Kind::kNewValue, i, 0, row.size()})->ReplaceValue(i, row);
      Change(guard, {Kind::kGhost, i})->SetGhost(i, false);
      return absl::StatusCode::kOk;
    }
    if (!found && leaf->HasRoomFor(entry)) {
      if (!expected) {
        key_changes_.fetch_add(1, std::memory_order_acq_rel);  // invariant 4
      } else if (!key_changes_.compare_exchange_strong(*expected, *expected + 1, std::memory_order_acq_rel)) {
        return absl::StatusCode::kAborted;  // invariant 4: the gap that the caller has locked was parted
      }
      const bool last = i == leaf->count();
      Change(guard, {Kind::kInsert, i, 0, row.size()})->Insert(i, key, row);
      if (last && hint != nullptr) NoteRun(key, leaf->number());  // else nobody will ask
      return absl::StatusCode::kOk;
    }
    guard.Release();
    if (const absl::StatusCode split = Split(entry, 0); split != absl::StatusCode::kOk) return split;
  }
}

// Written only when it changes: other workers read it.
void BTree::NoteRun(KeyView key, uint64_t leaf) const {
  if (hints_ == nullptr) return;
  std::atomic<uint32_t>& guess = GuessFor(key);
  if (leaf <= UINT32_MAX && guess.load(std::memory_order_relaxed) != leaf)
    guess.store(static_cast<uint32_t>(leaf), std::memory_order_relaxed);
}

absl::StatusCode BTree::Replace(KeyView key, RowView row, Lookup* hint) {
  if (!Covers(key, hint)) return absl::StatusCode::kNotFound;
  const PendingEntry entry{.key = key, .value_bytes = row.size()};
  while (true) {
    uint32_t i = 0;
    bool found = false;
    GuardX guard = FindLeafExclusive(key, hint, &i, &found);
    const Node* leaf = NodeOf(guard);
    if (!found || leaf->ghost(i)) return absl::StatusCode::kNotFound;
    if (leaf->HasRoomToReplace(i, row.size())) {
      Change(guard, {Kind::kNewValue, i, 0, row.size()})->ReplaceValue(i, row);
      const bool underfull = leaf->Underfull();
      guard.Release();
      if (underfull && !UndoScope::Active()) Merge(key, 0);
      return absl::StatusCode::kOk;
    }
    guard.Release();
    if (const absl::StatusCode split = Split(entry, 0); split != absl::StatusCode::kOk) return split;
  }
}

absl::StatusCode BTree::Remove(KeyView key, bool only_ghost) {
  if (!Covers(key)) return absl::StatusCode::kNotFound;
  GuardX guard = FindLeafExclusive(key);
  const Node* leaf = NodeOf(guard);
  bool found = false;
  const uint32_t i = leaf->LowerBound(key, &found);
  if (!found || (only_ghost && !leaf->ghost(i))) return absl::StatusCode::kNotFound;
  key_changes_.fetch_add(1, std::memory_order_acq_rel);
  Change(guard, {Kind::kRemove, i})->Remove(i);
  const bool underfull = leaf->Underfull();
  guard.Release();
  if (underfull && !UndoScope::Active()) Merge(key, 0);
  return absl::StatusCode::kOk;
}

absl::StatusCode BTree::SetGhost(KeyView key, bool ghost) {
  if (!Covers(key)) return absl::StatusCode::kNotFound;
  const GuardX guard = FindLeafExclusive(key);
  const Node* leaf = NodeOf(guard);
  bool found = false;
  const uint32_t i = leaf->LowerBound(key, &found);
  if (!found || leaf->ghost(i) == ghost) return absl::StatusCode::kNotFound;
  Change(guard, {Kind::kGhost, i})->SetGhost(i, ghost);
  return absl::StatusCode::kOk;
}

absl::StatusCode BTree::Split(const PendingEntry& entry, uint8_t level) {
  const auto choose = [&](TornNode node) { return node.ChildIndex(entry.key); };
  Position position;
  for (PageWait wait;; position.TryAgain(wait, {"btree.split"})) {
    if (!Descend(level, choose, &position)) continue;
    if (!position.parent) {
      GuardX root = GuardX::Upgrade(position.node, ISLANDS_PAGE_LATCH("btree.split_root"));
      if (!root) continue;  // somebody was faster: look again from the root
      // A root below `level`: the tree shrank, and what needed room is elsewhere now.
      if (NodeOf(root)->level() != level || HasRoom(*NodeOf(root), entry)) return absl::StatusCode::kOk;
      return SplitRoot(std::move(root), entry);
    }
    GuardX parent = GuardX::Upgrade(position.parent, ISLANDS_PAGE_LATCH("btree.split"));
    if (!parent) continue;
    GuardX node = GuardX::Upgrade(position.node, ISLANDS_PAGE_LATCH("btree.split"));
    if (!node) continue;
    if (HasRoom(*NodeOf(node), entry)) return absl::StatusCode::kOk;  // somebody has split it
    Node::SplitPoint split;
    ChooseSplit(*NodeOf(node), entry, &split);
    const PendingEntry separator{.key = split.separator.view(), .value_bytes = sizeof(uint64_t)};
    if (NodeOf(parent)->HasRoomFor(separator)) {
      return SplitChild(parent, position.index, node, split);
    }
    node.Release();
    parent.Release();
    const absl::StatusCode above = Split(separator, static_cast<uint8_t>(level + 1));
    if (above != absl::StatusCode::kOk) return above;
  }
}

absl::StatusCode BTree::SplitRoot(GuardX root, const PendingEntry& entry) {
  GuardX header;
  GuardX left = site_->Allocate(tree_, NodeOf(root)->level(), &header);
  if (!left) return absl::StatusCode::kResourceExhausted;  // invariant 3: before anything has changed
  GuardX right = site_->Allocate(tree_, NodeOf(root)->level(), &header);
  if (!right) {
    site_->Free(left, &header);
    return absl::StatusCode::kResourceExhausted;
  }
  Node::SplitPoint split;
  ChooseSplit(*NodeOf(root), entry, &split);
  Distribute(*NodeOf(root), split, ChangeAll(left), ChangeAll(right));
  Node* node = ChangeAll(root);
  ++node->header().level;  // invariant 2: its content is one level down now
  node->Initialize(lower_.view(), upper_.view());
  node->InsertChild(0, split.separator.view(), NodeOf(left)->number());
  node->SetChild(1, NodeOf(right)->number());
  return absl::StatusCode::kOk;
}

absl::StatusCode BTree::SplitChild(const GuardX& parent, uint32_t index, const GuardX& node,
                                   const Node::SplitPoint& split) {
  GuardX header;
  const GuardX right = site_->Allocate(tree_, NodeOf(node)->level(), &header);
  if (!right) return absl::StatusCode::kResourceExhausted;  // invariant 3: likewise
  // The child is where the parent says, or the descent has gone wrong.
  ISLANDS_CHECK(NodeOf(parent)->child(index) == NodeOf(node)->number());
  ISLANDS_CHECK(NodeOf(parent)->level() == NodeOf(node)->level() + 1);
  alignas(Node) std::byte left_bytes[kPageBytes];
  Node* left = Node::At(left_bytes);
  left->header() = NodeOf(node)->header();
  Distribute(*NodeOf(node), split, left, ChangeAll(right));
  ChangeAll(node)->CopyContent(*left);
  Change(parent, {Kind::kInsert, index, 0, sizeof(uint64_t)})
      ->InsertChild(index, split.separator.view(), NodeOf(node)->number());
  Change(parent, ChildAt(NodeOf(parent), index + 1))->SetChild(index + 1, NodeOf(right)->number());
  return absl::StatusCode::kOk;
}

void BTree::Merge(KeyView key, uint8_t level) {
  // Best effort: a node that stays underfull is correct, and the next removal tries again.
  constexpr int kTries = 8;
  const auto choose = [&](TornNode node) { return node.ChildIndex(key); };
  Position position;
  PageWait wait;
  for (int tries = 0; tries < kTries; ++tries, position.TryAgain(wait, {"btree.merge"})) {
    const auto parent_level = static_cast<uint8_t>(level + 1);
    if (!Descend(parent_level, choose, &position)) continue;
    position.parent.Release();
    GuardX parent = GuardX::Upgrade(position.node, ISLANDS_PAGE_LATCH("btree.merge"));
    if (!parent) continue;
    if (NodeOf(parent)->level() != parent_level) return;  // the tree has shrunk below this level
    if (NodeOf(parent)->count() == 0) {  // an only child: give its parent neighbours to merge with
      parent.Release();
      return Merge(key, parent_level);
    }
    const uint32_t index = NodeOf(parent)->ChildIndex(key);
    GuardX node(site_->At(NodeOf(parent)->child(index)), ISLANDS_PAGE_LATCH("btree.merge"));
    if (!NodeOf(node)->Underfull()) return;
    // Siblings are latched by whoever holds their parent only, so their order does not matter.
    GuardX header, other;
    GuardX* left = nullptr;  // what stays
    if (index < NodeOf(parent)->count()) {
      other = GuardX(site_->At(NodeOf(parent)->child(index + 1)), ISLANDS_PAGE_LATCH("btree.merge"));
      if (MergeNeighbours(parent, index, node, other, &header)) left = &node;
    }
    if (left == nullptr && index > 0) {
      other = GuardX(site_->At(NodeOf(parent)->child(index - 1)), ISLANDS_PAGE_LATCH("btree.merge"));
      if (MergeNeighbours(parent, index - 1, other, node, &header)) left = &other;
    }
    if (left == nullptr) return;
    if (NodeOf(parent)->number() == root_) {
      if (NodeOf(parent)->count() == 0) PullUpIntoRoot(parent, *left, &header);  // in the same step
      return;
    }
    const bool parent_underfull = NodeOf(parent)->Underfull();
    for (GuardX* guard : {&header, &other, &node, &parent}) guard->Release();
    if (parent_underfull) Merge(key, parent_level);
    return;
  }
}

bool BTree::MergeNeighbours(const GuardX& parent_guard, uint32_t left_index, const GuardX& left_guard,
                            const GuardX& right_guard, GuardX* header) {
  const Node* parent = NodeOf(parent_guard);
  const Node* left = NodeOf(left_guard);
  const Node* right = NodeOf(right_guard);
  KeyBuffer separator;
  parent->CopyKey(left_index, &separator);
  ISLANDS_CHECK(left->level() == right->level() && parent->level() == left->level() + 1);
  ISLANDS_CHECK(CompareKeys(left->upper_fence(), separator.view()) == 0);
  ISLANDS_CHECK(CompareKeys(right->lower_fence(), separator.view()) == 0);
  if (left->MergedBytes(*right, separator.view()) > kMergeBytes) return false;
  alignas(Node) std::byte merged_bytes[kPageBytes];
  Node* merged = Node::At(merged_bytes);
  merged->header() = left->header();
  Fill(merged, *left, 0, left->count(), left->lower_fence(), right->upper_fence());
  if (!left->is_leaf()) merged->InsertChild(merged->count(), separator.view(), left->child(left->count()));
  merged->AppendFrom(*right, 0, right->count());
  if (!left->is_leaf()) merged->SetChild(merged->count(), right->child(right->count()));
  ChangeAll(left_guard)->CopyContent(*merged);
  Change(parent_guard, {Kind::kRemove, left_index})->Remove(left_index);
  Change(parent_guard, ChildAt(parent, left_index))->SetChild(left_index, left->number());
  site_->Free(right_guard, header);
  return true;
}

// The only child has the root's fences, so its content is the root's.
void BTree::PullUpIntoRoot(const GuardX& root, const GuardX& child, GuardX* header) {
  ISLANDS_CHECK(NodeOf(root)->count() == 0 && NodeOf(child)->level() + 1 == NodeOf(root)->level());
  ISLANDS_CHECK(NodeOf(root)->child(0) == NodeOf(child)->number());
  ISLANDS_CHECK(CompareKeys(NodeOf(child)->upper_fence(), upper_.view()) == 0);
  ChangeAll(root)->CopyContent(*NodeOf(child));
  site_->Free(child, header);
}

size_t BTree::FindMissing(KeyView at, bool reverse, size_t most,
                          std::span<uint64_t, kMostAhead> pages) const {
  pages[0] = root_;
  if (site_->At(root_).on_disk()) return 1;
  GuardO guard(site_->At(root_), ISLANDS_LATCH("btree.root"));
  while (true) {
    const TornNode node = NodeOf(guard);
    if (node.is_leaf()) return 0;
    const uint32_t from = reverse ? node.ChildIndexBelow(at) : node.ChildIndex(at), end = node.count() + 1;
    const size_t wanted = node.level() == 1 ? std::min(most, pages.size()) : 1;
    size_t count = 0;
    for (uint32_t i = from; i < end && count < wanted; reverse ? --i : ++i)
      pages[count++] = node.child(i);  // 0 - 1 is no index either
    if (count == 0 || !guard.Valid()) return 0;
    size_t missing = 0;
    while (missing < count && site_->At(pages[missing]).on_disk()) ++missing;
    if (missing != 0 || node.level() == 1) return missing;
    GuardO child(site_->At(pages[0]), ISLANDS_LATCH("btree.descend"));
    if (!guard.Valid()) return 0;
    guard = std::move(child);
  }
}

// Rows lie in a leaf as they came: read one by one in key order they would miss the caches one after the
// other (0.8 times the speed of copying the page first, with YCSB E), so all lines are fetched at once, and
// from the second leaf on the next one's, too (1.1 to 1.3 times). Not where few are wanted.
const std::byte* BTree::LeafInPlace(KeyView at, bool reverse, bool part, bool goes_on, GuardO* leaf) const {
  uint64_t number = root_;
  while (true) {
    const PageRef page = site_->At(number);
    const GuardN guard(page);
    const PlainNode node = NodeOf(guard);
    if (node.is_leaf()) {
      *leaf = GuardO(page);
      return guard.bytes();
    }
    const uint32_t i = reverse ? node.ChildIndexBelow(at) : node.ChildIndex(at);
    number = node.child(i);
    if (node.level() > 1 || (part && !goes_on)) {
      site_->Prefetch(number);
      continue;
    }
    site_->PrefetchAll(number);
    if (goes_on && (reverse ? i > 0 : i < node.count()))
      site_->PrefetchAll(node.child(reverse ? i - 1 : i + 1));
  }
}

const std::byte* BTree::HintedLeaf(KeyView at, KeyHints::Place hint, std::byte* copy, GuardO* leaf) const {
  if (hint.page == 0) return nullptr;
  site_->PrefetchHinted(hint.page, TornNode::SlotOffset(hint.slot));
  *leaf = LeafAt(hint.page, at);
  if (!*leaf) return nullptr;
  if (site_->unguarded()) return GuardN(site_->At(hint.page)).bytes();
  leaf->page().Bytes(0, kPageBytes).CopyTo(copy);
  const bool valid = leaf->Valid();
  leaf->Release();
  return valid ? copy : nullptr;
}

void BTree::CopyLeaf(KeyView at, bool reverse, std::byte* copy) const {
  const auto choose = [&](TornNode node) { return reverse ? node.ChildIndexBelow(at) : node.ChildIndex(at); };
  Position position;
  for (PageWait wait;; position.TryAgain(wait, {"btree.scan"})) {
    if (!Descend(0, choose, &position)) continue;
    position.parent.Release();
    position.node.page().Bytes(0, kPageBytes).CopyTo(copy);
    if (position.node.Valid()) return;  // or what was copied may be torn
  }
}

// What is left to visit is [low, high); it shrinks leaf by leaf. The next leaf is looked for by the bound,
// not followed by a link: it may have been split or merged since, and then only its rows within the bounds
// count.
void BTree::ScanAll(KeyView first, KeyView end, bool reverse,
                    absl::FunctionRef<bool(KeyView key, RowView row, bool ghost)> visit,
                    std::vector<uint64_t>* missing, Reach reach) const {
  ISLANDS_CHECK(first.size() <= kMaxTreeKeyBytes && end.size() <= kMaxTreeKeyBytes);
  alignas(Node) std::byte copy[kPageBytes];
  KeyBuffer low, high, key;
  low.Set(CompareKeys(first, lower_.view()) > 0 ? first : lower_.view());
  high.Set(!end.empty() && (upper_.view().empty() || CompareKeys(end, upper_.view()) < 0) ? end
                                                                                          : upper_.view());
  const bool hinted = reach == Reach::kAgain && !reverse && hints_ != nullptr;
  const uint64_t hash = hinted ? runtime::HashBytes(first.data(), first.size()) ^ hint_salt_ : 0;
  const KeyHints::Place hint = hinted ? hints_->Find(hash) : KeyHints::Place();
  bool goes_on = false;  // there was a leaf before
  for (size_t ahead = 1; high.view().empty() || CompareKeys(low.view(), high.view()) < 0;) {
    GuardO in_place;
    const KeyView at = reverse ? high.view() : low.view();
    const std::byte* bytes = !goes_on ? HintedLeaf(at, hint, copy, &in_place) : nullptr;
    const bool known = bytes != nullptr;
    if (!known && site_->paged() && !site_->unguarded()) {
      std::array<uint64_t, kMostAhead> pages;
      const size_t count = FindMissing(at, reverse, ahead, pages);
      if (count != 0 && missing != nullptr) {
        missing->insert(missing->end(), pages.begin(), pages.begin() + count);
        return;
      }
      if (count != 0) site_->FetchAhead(std::span(pages).first(count));
      ahead = std::min(2 * ahead, kMostAhead);
    }
    if (!known && site_->unguarded()) {
      bytes = LeafInPlace(at, reverse, reach != Reach::kLeaves, goes_on, &in_place);
    } else if (!known) {
      CopyLeaf(at, reverse, copy);
      bytes = copy;
    }
    const Node* const leaf = Node::At(bytes);
    const KeyView lower = leaf->lower_fence();
    const KeyView upper = leaf->upper_fence();
    // Every leaf brings the bounds closer together, so the scan ends.
    ISLANDS_CHECK(leaf->is_leaf() && (upper.empty() || CompareKeys(lower, upper) < 0));
    const bool has_begin = CompareKeys(low.view(), lower) >= 0;
    const bool has_end = !high.view().empty() && (upper.empty() || CompareKeys(high.view(), upper) < 0);
    bool equal = false;
    uint32_t from = hint.slot;
    if (!known || !leaf->IsLowerBound(from, low.view())) {
      from = has_begin ? leaf->LowerBound(low.view(), &equal) : 0;
      if (hinted && !goes_on) hints_->Note(hash, {leaf->number(), from}, site_->resident_pages());
    }
    goes_on = true;
    const bool step_by_step = has_end && !reverse && reach != Reach::kLeaves;  // a search costs more
    const uint32_t to = has_end && !step_by_step ? leaf->LowerBound(high.view(), &equal) : leaf->count();
    for (uint32_t n = 0; from + n < to; ++n) {
      const uint32_t i = reverse ? to - 1 - n : from + n;
      if (step_by_step && leaf->CompareAt(i, high.view()) >= 0) return;
      leaf->CopyKey(i, &key);
      const bool more = visit(key.view(), leaf->value(i), leaf->ghost(i));
      ISLANDS_CHECK(!in_place || in_place.Valid());  // `visit` changes nothing
      if (!more) return;
    }
    if (reverse ? has_begin : upper.empty()) return;
    reverse ? high.Set(lower) : low.Set(upper);
  }
}

void BTree::Scan(KeyView first, KeyView end, bool reverse,
                 absl::FunctionRef<bool(KeyView key, RowView row)> visit, std::vector<uint64_t>* missing,
                 Reach reach) const {
  ScanAll(
      first, end, reverse, [&](KeyView key, RowView row, bool ghost) { return ghost || visit(key, row); },
      missing, reach);
}

bool BTree::NextKey(KeyView key, KeyBuffer* next) const {
  bool found = false;
  const auto visit = [&](KeyView other, RowView, bool) {
    if (CompareKeys(other, key) == 0) return true;
    next->Set(other);
    found = true;
    return false;
  };
  ScanAll(key, {}, /*reverse=*/false, visit, /*missing=*/nullptr, Reach::kPart);
  return found;
}

BTree::Gap BTree::FindGap(KeyView key, Lookup* place, std::vector<std::byte>* ghost, KeyBuffer* next) const {
  if (!Covers(key, place)) return {.last = next == nullptr || !NextKey(key, next)};
  PageWait wait;
  for (int tries = 0;; ++tries) {
    if (!place->node_) {  // or somebody has used it up
      place->node_ = FindLeaf(key, *place);
      place->searched_ = false;
    }
    if (!place->searched_) place->slot_ = NodeOf(place->node_).LowerBound(key, &place->has_slot_);
    place->searched_ = true;
    const TornNode leaf = NodeOf(place->node_);
    Gap gap;
    if (place->has_slot_) {
      const TornNode::Entry entry = leaf.entry(place->slot_);
      gap.state = entry.ghost ? KeyState::kGhost : KeyState::kRow;
      if (entry.ghost && entry.value.size() <= kMaxRowBytes) {  // or torn
        ghost->resize(entry.value.size());
        entry.value.CopyTo(ghost->data());
      }
    } else if (next == nullptr) {
      // Nobody asks.
    } else if (place->slot_ < leaf.count()) {
      leaf.CopyKey(place->slot_, next);
    } else {
      gap.last = true;  // of this leaf
    }
    if (place->node_.Valid()) {
      if (gap.last) gap.last = !NextKey(key, next);
      return gap;
    }
    if (tries > 0) place->node_.WaitToTryAgain(wait, {"btree.read"});
    place->node_.Release();
  }
}

uint64_t BTree::Count() const {
  uint64_t rows = 0;
  Scan({}, {}, false, [&](KeyView, RowView) { return ++rows, true; });
  return rows;
}

uint32_t BTree::levels() const {
  for (PageWait wait;;) {
    const GuardO root(site_->At(root_), ISLANDS_LATCH("btree.root"));
    const uint32_t level = NodeOf(root).level();
    if (root.Valid()) return level + 1;
    root.WaitToTryAgain(wait, {"btree.root"});
  }
}

void BTree::Clear() {
  const GuardX root(site_->At(root_), ISLANDS_PAGE_LATCH("btree.clear"));
  const Node* full = NodeOf(root);
  for (uint32_t i = 0; !full->is_leaf() && i <= full->count(); ++i) FreeBelow(full->child(i));
  Node* node = ChangeAll(root);
  node->header().level = 0;
  node->Initialize(lower_.view(), upper_.view());
}

void BTree::FreeBelow(uint64_t number) {
  GuardX guard(site_->At(number), ISLANDS_PAGE_LATCH("btree.clear"));
  const Node* node = NodeOf(guard);
  for (uint32_t i = 0; !node->is_leaf() && i <= node->count(); ++i) FreeBelow(node->child(i));
  GuardX header;
  site_->Free(guard, &header);
}

}  // namespace islands::storage
