// Several lookups at once, ahead of the operations that need them.
#include <utility>

#include "instance/storage/btree/btree.h"
#include "runtime/planted_bug.h"

namespace islands::storage {

using runtime::Planted;
using runtime::PlantedBug;

void BTree::FinishLookups(std::span<Lookup> lookups) {
  Descend(lookups);
  bool follow = false;
  for (Lookup& lookup : lookups) {
    if (lookup.stage_ != Lookup::Stage::kLeaf) {
      follow |= lookup.stage_ == Lookup::Stage::kFollows;
      continue;
    }
    const TornNode leaf = NodeOf(lookup.node_);
    if (!lookup.searched_) lookup.slot_ = leaf.LowerBound(lookup.key_, &lookup.has_slot_);
    lookup.searched_ = true;
    if (lookup.has_slot_) leaf.PrefetchEntry(lookup.slot_, lookup.bytes_);
  }
  if (!follow) return;
  for (size_t i = 0; i < lookups.size(); ++i) {
    if (lookups[i].stage_ == Lookup::Stage::kFollows) Follow(i > 0 ? &lookups[i - 1] : nullptr, &lookups[i]);
  }
  Descend(lookups);
}

// Another key's slot is not looked for yet: what is done with the one in front changes the leaf.
void BTree::Follow(const Lookup* front, Lookup* lookup) {
  if (front != nullptr && front->tree_ == lookup->tree_ && CompareKeys(front->key_, lookup->key_) == 0) {
    lookup->tree_->StartLookupAt(front->place(), lookup->key_, lookup->bytes_, lookup);
  } else {
    TryLeaf(front != nullptr ? front->leaf() : 0, lookup);
  }
}

void BTree::TryLeaf(uint64_t number, Lookup* lookup) {
  lookup->node_ = lookup->tree_->LeafAt(number, lookup->key_);
  if (lookup->node_) lookup->next_ = number;
  lookup->stage_ = lookup->node_ ? Lookup::Stage::kLeaf : Lookup::Stage::kDescends;
}

[[gnu::always_inline]] inline bool BTree::AdvanceUnguarded(Lookup* lookup) {
  const SiteSpace& site = *lookup->tree_->site_;
  const GuardN guard(site.At(lookup->next_));
  const PlainNode node = NodeOf(guard);
  if (lookup->has_place_) {
    lookup->has_place_ = false;
    lookup->next_ = node.ChildAt(lookup->place_);
    site.Prefetch(lookup->next_);
    return true;
  }
  if (node.is_leaf()) {
    lookup->node_ = GuardO(site.At(lookup->next_));
    lookup->stage_ = Lookup::Stage::kLeaf;
    return false;
  }
  lookup->place_ = node.ChildPlace(node.ChildIndex(lookup->key_));
  lookup->has_place_ = true;
  node.PrefetchChild(lookup->place_);
  return true;
}

// Level by level for all of them: while one waits for its next node, the others search theirs.
void BTree::Descend(std::span<Lookup> lookups) {
  for (bool any = true; any;) {
    any = false;
    for (Lookup& lookup : lookups) {
      if (lookup.stage_ != Lookup::Stage::kDescends) continue;
      any |= lookup.tree_->site_->unguarded() ? AdvanceUnguarded(&lookup) : Advance(&lookup);
    }
  }
}

bool BTree::Advance(Lookup* lookup) {
  const SiteSpace& site = *lookup->tree_->site_;
  if (lookup->has_place_) {
    lookup->has_place_ = false;
    lookup->next_ = NodeOf(lookup->node_).ChildAt(lookup->place_);
    site.Prefetch(lookup->next_);
    return true;
  }
  const bool first = !lookup->node_;
  // Before: the child may be nonsense, and must not be touched. Afterwards: it may have been split since.
  bool valid = first || lookup->node_.Valid();
  if (valid && site.paged() && site.At(lookup->next_).on_disk()) {
    lookup->node_.Release();
    lookup->stage_ = Lookup::Stage::kOnDisk;
    return false;
  }
  if (valid) {
    if (Planted(PlantedBug::kLookAheadBlindly)) runtime::Linger();
    GuardO node(site.At(lookup->next_), ISLANDS_LATCH("btree.lookup"));
    valid = first || lookup->node_.Valid() || Planted(PlantedBug::kLookAheadBlindly);
    lookup->node_ = std::move(node);
  }
  if (!valid) {
    lookup->node_.Release();
    lookup->stage_ = Lookup::Stage::kNone;
    return false;
  }
  const TornNode node = NodeOf(lookup->node_);
  if (node.is_leaf()) {
    lookup->stage_ = Lookup::Stage::kLeaf;
    return false;
  }
  lookup->place_ = node.ChildPlace(node.ChildIndex(lookup->key_));
  lookup->has_place_ = true;
  node.PrefetchChild(lookup->place_);
  return true;
}

}  // namespace islands::storage
