// The pages of one site: its header page, with the roots of its trees, and which pages are free.
//
//   site header (page number 0)   offset  bytes
//                                      0     32  page header, type kSiteHeader
//                                     32      8  magic "ISLSITE1"
//                                     40      8  next page never used so far
//                                     48      8  first free page, 0 = none
//                                     56      8  number of free pages
//                                     64      4  number of trees: all ids below it have been given out
//                                     68      4  zero
//                                     72  8 * n  root by tree id; roots never move; 0: another site's tree
//   free page                          0     32  page header, type kFree
//                                     32      8  next free page, 0 = none
//
// Free pages stay resident and are used again by any tree of the site.
//
// Thread safety: Allocate and Free from any thread, holding any latches of tree pages: the header's latch is
// taken last. Format before anything else.
//
// Invariant: 1. who has allocated or freed a page holds the header until the first of the pages of that step
// goes: others would build on a header of which the log knows nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "instance/storage/pages/buffer_pool.h"
#include "instance/storage/pages/page_guard.h"

namespace islands::storage {

class SiteSpace {
 public:
  SiteSpace(BufferPool* pool, uint32_t slot, uint32_t site)
      : pool_(pool), slot_(slot), site_(site), pages_(pool->Slot(slot)) {}

  // Writes a header without trees. False when the pool is full.
  [[nodiscard]] bool Format();
  // Of a tree behind those that are there, in the step that allocates the page, by which `header` is latched.
  void AddRoot(const GuardX& header, uint32_t tree, uint64_t number);
  // After redo: whether page 0 is a header.
  bool HasHeader() const;
  // Those that the header knows have lower ids; 0 while there is no header.
  uint32_t trees() const;
  // After redo: 0 if the header is none, or knows no such tree.
  uint64_t Root(uint32_t tree) const;
  // Whether the page was ever touched; for recovery.
  bool HasPage(uint64_t number) const { return number < pages_.size() && pages_.At(number).touched(); }
  // Behind the last page that was ever used; 0 while there is no header.
  uint64_t end_page() const;
  // Redo: the page with this number, latched, zeroed if it was never touched; empty if no site has such a
  // number. Whether there is room in the pool is not asked: the page was there before. `image`: all of it
  // will be written anew, and it need not be read.
  GuardX ForRedo(uint64_t number, bool image);

  // A page of type kTree, zeroed behind its header. Empty when the pool or the site's address space is full.
  // `header` latches the site header, if it does not yet, and keeps it: until the step that the page is part
  // of has made all its changes.
  GuardX Allocate(uint32_t tree, uint8_t level, GuardX* header);
  // Nothing may point to the page any more. `header` as above.
  void Free(const GuardX& page, GuardX* header);

  uint32_t site() const { return site_; }
  PageRef At(uint64_t number) const { return pages_.At(number); }
  [[gnu::always_inline]] void Prefetch(uint64_t number) const { pages_.Prefetch(number); }
  [[gnu::always_inline]] void PrefetchAll(uint64_t number) const { pages_.PrefetchAll(number); }
  // Starts loading what a hint is judged by: state word, the node's header, its fences, and the slot.
  [[gnu::always_inline]] void PrefetchHinted(uint64_t number, size_t offset) const {
    pages_.PrefetchHinted(number, offset);
  }
  KeyHints* key_hints() const { return pool_->key_hints(); }
  uint64_t resident_pages() const { return pool_->resident_pages(); }
  bool alone() const { return pages_.alone(); }
  bool paged() const { return pages_.paged(); }
  // Nobody need look at a state word, until the next page is claimed.
  bool unguarded() const { return pages_.unguarded(); }
  bool OnDisk(uint64_t number) const { return number < pages_.size() && pages_.At(number).on_disk(); }
  void FetchAhead(std::span<const uint64_t> numbers) const { pool_->source()->FetchAhead(slot_, numbers); }
  // Once more, if nobody has looked since: the clock hand had.
  void Mark(uint64_t number) {
    if (pages_.At(number).Mark()) pool_->NoteOut(1);
  }
  // Of a page's data file (BufferPool): who moves pages keeps it.
  uint64_t Home(uint64_t number) const { return pages_.Home(number).load(std::memory_order_acquire); }
  void SetHome(uint64_t number, uint64_t lsn) { pages_.Home(number).store(lsn, std::memory_order_release); }
  // By the cleaner, home; for metrics.
  void NoteWritten() { written_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  uint64_t used_pages() const;  // header included, free pages not
  // The free list is a list, its pages are free, and with `tree_pages` reachable pages and the header every
  // page is accounted for.
  absl::Status Check(uint64_t tree_pages) const;

 private:
  GuardX FirstUse(uint64_t number) {
    pool_->NoteUse(slot_, number);
    return GuardX::FirstUse(pages_.At(number));
  }

  BufferPool* const pool_;
  const uint32_t slot_;
  const uint32_t site_;
  const PageArray pages_;
  std::atomic<uint64_t> written_ = 0;
};

}  // namespace islands::storage
