// Several lookups at once, ahead of the operations that need them.
#include <utility>

#include "instance/storage/btree/btree.h"
#include "runtime/planted_bug.h"

namespace islands::storage {

using runtime::Planted;
using runtime::PlantedBug;

void BTree::FinishLookups(std::span<Lookup> lookups) {
  UseHints(lookups);
  Descend(lookups);
  bool follow = false;
  for (Lookup& lookup : lookups) {
    if (lookup.stage_ != Lookup::Stage::kLeaf) {
      follow |= lookup.stage_ == Lookup::Stage::kFollows;
      continue;
    }
    const TornNode leaf = NodeOf(lookup.node_);
    if (lookup.searched_) continue;  // by its hint
    lookup.slot_ = leaf.LowerBound(lookup.key_, &lookup.has_slot_);
    lookup.searched_ = true;
    if (lookup.has_slot_ && lookup.key_hash_ != 0) lookup.tree_->NoteHint(lookup);
    if (lookup.has_slot_) leaf.PrefetchEntry(lookup.slot_, lookup.bytes_);
  }
  if (!follow) return;
  for (size_t i = 0; i < lookups.size(); ++i) {
    if (lookups[i].stage_ == Lookup::Stage::kFollows) Follow(i > 0 ? &lookups[i - 1] : nullptr, &lookups[i]);
  }
  Descend(lookups);
}

// One after the other would wait for each cache miss: first all hints, then all that they lead to.
void BTree::UseHints(std::span<Lookup> lookups) {
  for (Lookup& lookup : lookups) {
    if (lookup.stage_ == Lookup::Stage::kHinted) lookup.tree_->FindHint(&lookup);
  }
  for (Lookup& lookup : lookups) {
    if (lookup.stage_ == Lookup::Stage::kHinted) lookup.tree_->TryHint(&lookup);
    if (lookup.stage_ == Lookup::Stage::kGuessed) lookup.tree_->TryGuess(&lookup);
  }
}

// A wrong one is forgotten: keys come in no order, or the run has gone on elsewhere.
void BTree::TryGuess(Lookup* lookup) const {
  TryLeaf(lookup->place_, lookup);
  if (lookup->stage_ != Lookup::Stage::kLeaf) GuessFor(lookup->key_).store(0, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline void BTree::FindHint(Lookup* lookup) const {
  const KeyHints::Place place = hints_->Find(lookup->key_hash_ ^ hint_salt_);
  if (place.page == 0) return BeginDescent(lookup);
  lookup->next_ = place.page;
  lookup->slot_ = place.slot;
  site_->PrefetchHinted(place.page, TornNode::SlotOffset(place.slot));
}

// Where a leaf has the key, it is the leaf for the key, whatever has become of it since.
[[gnu::always_inline]] inline void BTree::TryHint(Lookup* lookup) const {
  if (!site_->HasPage(lookup->next_)) return BeginDescent(lookup);
  GuardO guard = GuardO::Try(site_->At(lookup->next_));
  if (!guard) return BeginDescent(lookup);
  const TornNode node = NodeOf(guard);
  if (!node.is_leaf() || !node.IsOf(tree_)) return BeginDescent(lookup);
  if (node.HasKeyAt(lookup->slot_, lookup->key_) || Planted(PlantedBug::kBelieveHints)) {
    lookup->searched_ = lookup->has_slot_ = true;
    node.PrefetchEntry(lookup->slot_, lookup->bytes_);
  } else if (!node.Covers(lookup->key_)) {
    return BeginDescent(lookup);
  }
  lookup->node_ = std::move(guard);
  lookup->stage_ = Lookup::Stage::kLeaf;
}

void BTree::NoteHint(const Lookup& lookup) const {
  hints_->Note(lookup.key_hash_ ^ hint_salt_, {lookup.next_, lookup.slot_}, site_->resident_pages());
}

// Another key's slot is not looked for yet: what is done with the one in front changes the leaf.
void BTree::Follow(const Lookup* front, Lookup* lookup) {
  const bool same = front != nullptr && front->searched_ && front->tree_ == lookup->tree_ &&
                    CompareKeys(front->key_, lookup->key_) == 0;
  if (!same) return TryLeaf(front != nullptr ? front->leaf() : 0, lookup);
  lookup->node_ = GuardO(lookup->tree_->site_->At(front->next_), front->node_.seen());
  lookup->next_ = front->next_;
  lookup->slot_ = front->slot_;
  lookup->has_slot_ = front->has_slot_;
  lookup->searched_ = true;
  lookup->stage_ = Lookup::Stage::kLeaf;
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
