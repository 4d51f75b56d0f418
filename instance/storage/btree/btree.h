// A B+tree of one site: variable-length keys to rows, with optimistic lock coupling (Leis et al. 2016, 2023).
//
// Every public operation is one retry loop around an optimistic descent: it latches nothing on the way down
// and at most the leaf it changes. When a page turned out to have changed underneath (also: when it had
// to be read from disk), the loop starts again from the root. Splits and merges latch the parent, then the
// children. The root page never moves: a root that splits pushes its content down, a root left with one child
// pulls it up.
//
// A deleted row may stay as a ghost: rows and scans do not show it, but its key goes on parting the gaps that
// transactions lock (lock_table.h). Ghosts live in the leaf's entry (btree_node.h).
//
// Scans copy one leaf at a time and go on from its fence, so they hold nothing while their callback runs, and
// what other threads do to the tree between two leaves cannot make them miss or repeat a row that was there
// all the time. Where there are no others (SiteSpace::unguarded) they read the leaf where it is, and the
// callback must not change the tree.
//
// Thread safety: all functions from any thread, except Clear and Check: nothing else may be active.
//
// Invariants:
//  1. A child's fences are its parent's separators around it; the root's are the tree's: every key lies
//     between them. With both, the first bytes that all keys share are not searched again and again.
//  2. All leaves are at level 0, a child's level is one below its parent's.
//  3. An operation that answers RESOURCE_EXHAUSTED changed no row.
//  4. key_changes() changes, under the leaf's latch, whenever a key (row or ghost) comes or goes: as long as
//     it stands still every key has the same next key.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "instance/storage/btree/btree_node.h"
#include "instance/storage/pages/page_guard.h"
#include "instance/storage/pages/site_space.h"
#include "runtime/hash_bytes.h"
#include "runtime/planted_bug.h"

namespace islands::storage {

static_assert(kTornReach <= kSlackBytes);

enum class KeyState : uint8_t { kAbsent, kGhost, kRow };

// So many bytes of a row, from `offset` on.
struct RowPart {
  size_t offset = 0;
  size_t bytes = 0;
  bool Within(size_t row_bytes) const { return offset <= row_bytes && bytes <= row_bytes - offset; }
};

class BTree;

// Where a key is, found ahead of the operation on it. It is a hint: the operation looks whether the leaf is
// still the same, and otherwise descends by itself. Holds nothing (page_guard.h), but must not outlive the
// step that made it: a leaf is looked at again without having been latched in between.
class Lookup {
 public:
  // The page that it needs next, of a paged pool: not in memory when it got there. 0: none.
  uint64_t on_disk() const { return stage_ == Stage::kOnDisk ? next_ : 0; }
  KeyView key() const { return key_; }
  // Of its key, runtime::HashBytes; 0: it was not needed.
  uint64_t key_hash() const { return key_hash_; }

 private:
  friend class BTree;
  enum class Stage : uint8_t { kNone, kFollows, kHinted, kGuessed, kDescends, kLeaf, kOnDisk };

  uint64_t leaf() const { return stage_ == Stage::kLeaf ? next_ : 0; }
  void Start(KeyView key, size_t bytes) {
    key_ = key;
    bytes_ = bytes;
    key_hash_ = 0;
    searched_ = has_slot_ = has_place_ = false;
    node_.Release();
  }

  const BTree* tree_ = nullptr;  // that is known to cover the key
  KeyView key_;
  GuardO node_;        // the last one arrived at; in the end the leaf
  uint64_t next_ = 0;  // its child, or hint, on its way into the cache; in the end the leaf's number
  uint64_t key_hash_ = 0;
  size_t bytes_ = 0;
  uint32_t slot_ = 0;      // of the key in the leaf
  uint32_t place_ = 0;     // of the child's number in the node; a guess: the leaf's number
  bool searched_ = false;  // the leaf, for the slot
  bool has_slot_ = false;
  bool has_place_ = false;
  Stage stage_ = Stage::kNone;
};

class BTree {
 public:
  // The tree whose root page is `root` of `site`.
  BTree(SiteSpace* site, uint32_t tree, uint64_t root);

  // A page that holds an empty tree for keys from `lower` to below `upper` (empty: no bound), of which the
  // site knows; 0 when the pool is full.
  static uint64_t MakeRoot(SiteSpace* site, uint32_t tree, KeyView lower = {}, KeyView upper = {});

  // Several lookups, each with its key (which must stay in place), go down their trees side by side, so that
  // their cache misses overlap (interleaved descents), or to where the keys were found last (key_hints.h).
  // `bytes`: how much of the row will be needed, 0 = all.
  void StartLookup(KeyView key, size_t bytes, Lookup* lookup) const;
  // Of a key that is probably new: to the leaf behind whose last key one like this was put, or down the tree.
  void StartInsert(KeyView key, Lookup* lookup) const;
  // Down the tree in any case.
  void StartDescent(KeyView key, size_t bytes, Lookup* lookup) const;
  // Probably of the leaf of the lookup in front of this one, perhaps of the same key.
  void FollowLookup(KeyView key, size_t bytes, Lookup* lookup) const;
  static void FinishLookups(std::span<Lookup> lookups);
  // Once its page has come: from the root on.
  static void Again(Lookup* lookup) { lookup->tree_->StartLookup(lookup->key_, lookup->bytes_, lookup); }
  // Whether the lookup went down this tree, and so its key is one of the tree's.
  bool IsOf(const Lookup* lookup) const { return lookup != nullptr && lookup->tree_ == this; }

  // Keys have 1 .. kMaxTreeKeyBytes bytes, rows at most kMaxRowBytes; the caller has checked. A key outside
  // the tree's bounds is absent; to insert it is INVALID_ARGUMENT.
  // OK, NOT_FOUND. `row` keeps its capacity.
  absl::StatusCode Read(KeyView key, std::vector<std::byte>* row) const;
  // The same, showing ghosts.
  KeyState Find(KeyView key, std::vector<std::byte>* row) const;
  // Hands the row or ghost to `take(TornBytes)`, perhaps several times: only the last counts. kAgain:
  // the hint stays good for a second operation on the same key.
  template <bool kAgain = false, typename Take>
  KeyState Find(KeyView key, Lookup* hint, Take take) const;
  // OK, NOT_FOUND, INVALID_ARGUMENT (the row does not have that part). `change` gets the row, under the
  // leaf's exclusive latch; after it nothing has another value but `part`.
  absl::StatusCode Modify(KeyView key, RowPart part, absl::FunctionRef<void(std::span<std::byte>)> change,
                          Lookup* hint = nullptr);
  // OK, ALREADY_EXISTS, RESOURCE_EXHAUSTED, INVALID_ARGUMENT. A ghost of this key becomes the row. ABORTED:
  // the key is new, and keys came or went since key_changes() was `expected`.
  absl::StatusCode Insert(KeyView key, RowView row, std::optional<uint64_t> expected = {},
                          Lookup* hint = nullptr);
  // OK, NOT_FOUND, RESOURCE_EXHAUSTED.
  absl::StatusCode Replace(KeyView key, RowView row, Lookup* hint = nullptr);
  // OK, NOT_FOUND. Rows and ghosts; `only_ghost`: a row counts as not found.
  absl::StatusCode Remove(KeyView key, bool only_ghost = false);
  // Row to ghost (true) or back. NOT_FOUND: there is no such row, or ghost.
  absl::StatusCode SetGhost(KeyView key, bool ghost);
  uint64_t key_changes() const { return key_changes_.load(std::memory_order_acquire); }
  // The smallest key above `key`, ghosts included. False: there is none.
  bool NextKey(KeyView key, KeyBuffer* next) const;
  // What is to be known before an insertion, in one descent, or by `place`, which knows the leaf afterwards:
  // what is there under the key (a ghost's bytes in `ghost`), and if nothing is, `next` as NextKey's, if it
  // is asked for (not null).
  struct Gap {
    KeyState state = KeyState::kAbsent;
    bool last = false;  // there is no next key
  };
  Gap FindGap(KeyView key, Lookup* place, std::vector<std::byte>* ghost, KeyBuffer* next) const;
  // What a scan will probably meet: kAgain, a part of a leaf, where others that began with this key have been
  // (key_hints.h).
  enum class Reach : uint8_t { kLeaves, kPart, kAgain };
  // Rows with first <= key < end (empty = no bound), ascending or descending, until `visit` returns false.
  // Key and row are valid during the call only.
  void Scan(KeyView first, KeyView end, bool reverse, absl::FunctionRef<bool(KeyView key, RowView row)> visit,
            std::vector<uint64_t>* missing = nullptr, Reach reach = Reach::kLeaves) const;
  // The same with ghosts among them. With `missing`, of a paged pool: where it needs a page that is on disk
  // it ends, and that page and those that it will need next are appended. Without, it waits for them.
  void ScanAll(KeyView first, KeyView end, bool reverse,
               absl::FunctionRef<bool(KeyView key, RowView row, bool ghost)> visit,
               std::vector<uint64_t>* missing = nullptr, Reach reach = Reach::kLeaves) const;
  uint64_t Count() const;
  uint32_t levels() const;  // at some moment of the call

  // Gives back every page but the root.
  void Clear();
  struct Totals {
    uint64_t rows = 0;
    uint64_t pages = 0;
    uint32_t levels = 0;
  };
  // Walks the whole tree; the error names site, tree, page and fault.
  absl::StatusOr<Totals> Check() const;

 private:
  // Where a descent to some level ended. Without a parent the node is the root.
  struct Position {
    GuardO parent;
    GuardO node;
    uint32_t index = 0;  // of the node in its parent

    // Waits, since somebody has been faster at one of the two, and forgets them.
    void TryAgain(PageWait& wait, runtime::LatchSite site);
  };
  // Child by child until a node of `level` (or the root, if that is lower). False: start again.
  template <typename ChooseChild>
  bool Descend(uint8_t level, ChooseChild choose, Position* position) const;
  GuardO FindLeaf(KeyView key) const;
  // This page, if it is the leaf for `key`, which whoever uses it validates with the rest. Empty: it is not,
  // or one would have to wait for it.
  GuardO LeafAt(uint64_t number, KeyView key) const;
  // What a hint led to, changed since: mostly by the transaction itself, and in place.
  GuardO FindLeaf(KeyView key, const Lookup& stale) const;
  GuardX FindLeafExclusive(KeyView key, const Lookup* stale = nullptr);
  // The leaf of the hint and, if nobody has changed it since, the key's slot there; else as above.
  GuardX FindLeafExclusive(KeyView key, Lookup* hint, uint32_t* slot, bool* found);
  bool Covers(KeyView key) const {
    return CompareKeys(key, lower_.view()) >= 0 &&
           (upper_.view().empty() || CompareKeys(key, upper_.view()) < 0);
  }
  bool Covers(KeyView key, const Lookup* hint) const { return IsOf(hint) || Covers(key); }
  // Half a level further down: from a node to its child's number, from there to the child; in large trees the
  // entry that holds the number is a cache miss of its own. False: that was the last step, whether or not the
  // leaf was found.
  static bool Advance(Lookup* lookup);
  // The same without guards (SiteSpace::unguarded).
  static bool AdvanceUnguarded(Lookup* lookup);
  static void Descend(std::span<Lookup> lookups);
  static void UseHints(std::span<Lookup> lookups);
  void FindHint(Lookup* lookup) const;
  void TryHint(Lookup* lookup) const;
  void NoteHint(const Lookup& lookup) const;
  void BeginDescent(Lookup* lookup) const;
  void TryGuess(Lookup* lookup) const;
  void NoteRun(KeyView key, uint64_t leaf) const;
  std::atomic<uint32_t>& GuessFor(KeyView key) const;
  // This leaf, or else it begins at the root.
  static void TryLeaf(uint64_t number, Lookup* lookup);
  static void Follow(const Lookup* front, Lookup* lookup);
  static TornNode NodeOf(const GuardO& guard) { return TornNode(guard.page()); }
  static PlainNode NodeOf(const GuardN& guard) { return PlainNode(PlainPage(guard.bytes())); }
  static const Node* NodeOf(const GuardX& guard) { return Node::At(guard.bytes()); }
  using Kind = PageChange::Kind;
  static Node* Change(const GuardX& guard, const PageChange& change) {
    return Node::At(guard.Change(change));
  }
  // Of a step that moves many entries.
  static Node* ChangeAll(const GuardX& guard) { return Change(guard, {.bytes = kPageBytes}); }
  void ChooseSplit(const Node& node, const PendingEntry& entry, Node::SplitPoint* split) const;

  // Makes room for the entry at `level`, by one split there or above. OK also when others made the room
  // meanwhile.
  absl::StatusCode Split(const PendingEntry& entry, uint8_t level);
  absl::StatusCode SplitRoot(GuardX root, const PendingEntry& entry);
  absl::StatusCode SplitChild(const GuardX& parent, uint32_t index, const GuardX& node,
                              const Node::SplitPoint& split);
  // Merges the node of `level` around `key` with a neighbour if it is underfull and they fit into one.
  void Merge(KeyView key, uint8_t level);
  bool MergeNeighbours(const GuardX& parent, uint32_t left_index, const GuardX& left, const GuardX& right,
                       GuardX* header);
  void PullUpIntoRoot(const GuardX& root, const GuardX& child, GuardX* header);

  // Of a paged pool, what is on disk on the way to the leaf with the first key >= `at` (or, in reverse, the
  // last below it): a node above it, or it and its neighbours on the way of the scan, up to `most` in all and
  // not beyond one that is in memory. How many went into `pages`; a hint.
  static constexpr size_t kMostAhead = 16;
  size_t FindMissing(KeyView at, bool reverse, size_t most, std::span<uint64_t, kMostAhead> pages) const;
  // Copies the leaf with the first key >= `at`, or in reverse with the last key < `at`.
  void CopyLeaf(KeyView at, bool reverse, std::byte* copy) const;
  // Without guards: the leaf itself. `goes_on`: the next one will be wanted, too.
  const std::byte* LeafInPlace(KeyView at, bool reverse, bool part, bool goes_on, GuardO* leaf) const;
  // The leaf for `at` where a hint says, in place or copied. Null: it is not known there.
  const std::byte* HintedLeaf(KeyView at, KeyHints::Place hint, std::byte* copy, GuardO* leaf) const;
  void FreeBelow(uint64_t number);
  struct Walk;
  absl::Status CheckNode(Walk* walk, uint64_t number, KeyView lower, KeyView upper, int level) const;

  SiteSpace* site_;
  uint32_t tree_;
  uint64_t root_;
  KeyHints* const hints_;     // null: there are none
  const uint64_t hint_salt_;  // tells the site's and the tree's keys from others'
  KeyBuffer lower_, upper_;   // the tree's bounds; empty = none
  std::atomic<uint64_t> key_changes_ = 0;
  // Keys often come in ascending runs, as the orders of each district do: by hash of all but a key's last
  // bytes, leaves behind whose last key one was put. 0: none. Guesses, as hints are.
  static constexpr size_t kGuesses = 16;
  mutable std::array<std::atomic<uint32_t>, kGuesses> guesses_{};
};

[[gnu::always_inline]] inline void BTree::StartLookup(KeyView key, size_t bytes, Lookup* lookup) const {
  StartDescent(key, bytes, lookup);
  if (hints_ == nullptr || lookup->stage_ == Lookup::Stage::kNone) return;
  lookup->key_hash_ = runtime::HashBytes(key.data(), key.size());
  lookup->stage_ = Lookup::Stage::kHinted;
  hints_->Prefetch(lookup->key_hash_ ^ hint_salt_);
}

inline std::atomic<uint32_t>& BTree::GuessFor(KeyView key) const {
  constexpr size_t kTail = 4;
  return guesses_[runtime::HashBytes(key.data(), key.size() - std::min(key.size(), kTail)) % kGuesses];
}

inline void BTree::StartInsert(KeyView key, Lookup* lookup) const {
  StartDescent(key, 0, lookup);
  if (lookup->stage_ == Lookup::Stage::kNone) return;
  const uint32_t guess = GuessFor(key).load(std::memory_order_relaxed);
  if (guess == 0) return;
  lookup->stage_ = Lookup::Stage::kGuessed;
  lookup->place_ = guess;
  site_->Prefetch(guess);
}

inline void BTree::StartDescent(KeyView key, size_t bytes, Lookup* lookup) const {
  lookup->Start(key, bytes);
  const bool covers = Covers(key);
  lookup->tree_ = covers ? this : nullptr;
  covers ? BeginDescent(lookup) : void(lookup->stage_ = Lookup::Stage::kNone);
}

inline void BTree::FollowLookup(KeyView key, size_t bytes, Lookup* lookup) const {
  StartDescent(key, bytes, lookup);
  if (lookup->stage_ != Lookup::Stage::kNone) lookup->stage_ = Lookup::Stage::kFollows;
}

inline void BTree::BeginDescent(Lookup* lookup) const {
  lookup->stage_ = Lookup::Stage::kDescends;
  lookup->next_ = root_;
}

template <bool kAgain, typename Take>
KeyState BTree::Find(KeyView key, Lookup* hint, Take take) const {
  if (!Covers(key, hint)) return KeyState::kAbsent;
  GuardO guard;
  bool hinted = false;
  if (hint != nullptr) {
    guard = std::move(hint->node_);
    hinted = guard && hint->searched_;
  }
  PageWait wait;
  auto again = [&, tries = 0]() mutable {
    // Once at once: that a hint is stale is mostly the transaction's own doing.
    if (++tries > 1) guard.WaitToTryAgain(wait, {"btree.read"});
    guard = hinted ? FindLeaf(key, *hint) : FindLeaf(key);
    hinted = false;
  };
  if (!guard) guard = FindLeaf(key);
  for (;; again()) {
    const TornNode leaf = NodeOf(guard);
    bool found = hinted && hint->has_slot_;
    const uint32_t i = hinted ? hint->slot_ : leaf.LowerBound(key, &found);
    const bool trusted = hinted && !kAgain && runtime::Planted(runtime::PlantedBug::kTrustStaleHint);
    if (!found) {
      if (!guard.Valid() && !trusted) continue;
      if (kAgain && hinted) hint->node_ = std::move(guard);
      return KeyState::kAbsent;
    }
    const TornNode::Entry entry = leaf.entry(i);
    if (entry.value.size() > kMaxRowBytes) continue;  // torn
    take(entry.value);
    if (guard.Valid() || trusted) {
      if (kAgain && hinted) hint->node_ = std::move(guard);
      return entry.ghost ? KeyState::kGhost : KeyState::kRow;
    }
  }
}

}  // namespace islands::storage
