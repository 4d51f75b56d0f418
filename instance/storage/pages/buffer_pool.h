// The buffer pool: one reserved stretch of virtual memory in which every page of the island's sites has its
// fixed place, so that a page id becomes an address by arithmetic (vmcache, Leis et al. 2023).
//
//   region   | state words, 8 bytes per page | homes, likewise | slot 0: pages 0..n-1 | slot 1 | ...
//            | slack | hints (key_hints.h) |
//
// The slots begin at multiples of a huge page, and so do the hints.
//
// A slot holds one site. Memory is used by pages that were touched only. There are two kinds of pools:
//
//   resident   keeps a page in memory once it is touched: when `capacity_bytes` are in use, ClaimPage says
//              no, and operations that need a page answer RESOURCE_EXHAUSTED
//   paged      has a source (page_source.h) that writes pages to disk, gives their memory back, and reads
//              them again: ClaimPage has it make room, and says yes in any case. Whoever has many pages to
//              claim looks for room before it begins
//
// Huge pages spare most of the address translation, which costs more than the cache miss itself. They are
// asked for where a site's share of the pool is large: its pages are used from the front without gaps, so
// that at most one huge page per site is not full (and one of state words, where these fill one). Small pools
// ask for small ones. A paged pool has them for as long as all pages ever used, in whole huge pages, would
// fit into it: then it asks for no more, and whoever gives back a page's memory splits the huge page first,
// because else the kernel keeps it all. The region is left out of core dumps, which would otherwise take
// minutes to walk it.
//
// A pool whose pages are all in memory, and that one thread has to itself, is read without a look at state
// words (SiteSpace::unguarded), paged or not. So it counts the pages that are marked or on disk.
//
// Thread safety: all functions may be called from any thread.
//
// Invariants:
//  1. resident_pages <= capacity_pages, but for what was claimed in an UndoScope; in a paged pool, but for
//     pages that have changed, are not at home yet, and so cannot be given back.
//  2. Reading up to kSlackBytes beyond any page's begin is harmless, so that torn lengths of optimistic reads
//     are too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "instance/storage/pages/key_hints.h"
#include "instance/storage/pages/page.h"
#include "instance/storage/pages/page_guard.h"
#include "instance/storage/pages/page_state.h"
#include "runtime/check.h"

namespace islands::storage {

#if defined(ISLANDS_TSAN) || defined(__SANITIZE_ADDRESS__)
inline constexpr uint64_t kRegionBytes = uint64_t{1} << 36;  // sanitizers shadow the address space
#else
inline constexpr uint64_t kRegionBytes = uint64_t{1} << 44;  // of 47 bits; shared by all slots
#endif
inline constexpr uint64_t kSlackBytes = uint64_t{1} << 20;

struct BufferPoolOptions {
  uint64_t capacity_bytes = 0;
  uint32_t slots = 1;
  uint64_t region_bytes = kRegionBytes;  // halved until the kernel grants it
  absl::FunctionRef<void(void* address, size_t bytes)>* bind_memory = nullptr;
  bool alone = false;  // one thread at a time uses the pages: no latches (page_guard.h)
  bool paged = false;
  bool huge_pages = true;  // where each slot has enough of them
  bool key_hints = true;   // 1/32 of the capacity on top of it (key_hints.h)
};

// The LSN that a page has in its data file; 0: it is not there, or nobody has looked.
using PageHome = std::atomic<uint64_t>;

// The pages of one slot, by number.
class PageArray {
 public:
  PageArray() = default;
  PageArray(AtomicPageState* states, PageHome* homes, std::byte* pages, uint64_t size, bool alone, bool paged,
            const std::atomic<int64_t>* guarded)
      : states_(states),
        homes_(homes),
        pages_(pages),
        size_(size),
        guarded_(guarded),
        alone_(alone),
        paged_(paged) {}
  uint64_t size() const { return size_; }
  bool alone() const { return alone_; }
  bool paged() const { return paged_; }
  // One thread has all pages to itself, and all are in memory.
  bool unguarded() const { return guarded_->load(std::memory_order_relaxed) == 0; }
  PageHome& Home(uint64_t number) const {
    ISLANDS_CHECK(number < size_);
    return homes_[number];
  }
  PageRef At(uint64_t number) const {
    ISLANDS_CHECK(number < size_);
    return PageRef(states_ + number, pages_ + number * kPageBytes, alone_);
  }
  // Starts loading the state word and the first lines of a page, so that their cache misses overlap. Any
  // number will do. Inlined by force, like all who call it only for that: GCC 12 takes a function that does
  // nothing but prefetch for one without effect, and leaves out the calls.
  [[gnu::always_inline]] void Prefetch(uint64_t number) const { PrefetchLines(number, kPrefetchedLines); }
  // The same with the lines at the page's begin, at its end, and at `offset`.
  [[gnu::always_inline]] void PrefetchHinted(uint64_t number, size_t offset) const {
    PrefetchLines(number, 1);
    const auto page = reinterpret_cast<uintptr_t>(pages_) + number * kPageBytes;
    __builtin_prefetch(reinterpret_cast<const void*>(page + offset));
    __builtin_prefetch(reinterpret_cast<const void*>(page + kPageBytes - kCacheLineBytes));
  }
  // The same with the whole page.
  [[gnu::always_inline]] void PrefetchAll(uint64_t number) const {
    PrefetchLines(number, kPageBytes / kCacheLineBytes);
  }

 private:
  friend class Pager;
  static constexpr size_t kCacheLineBytes = 64;
  static constexpr size_t kPrefetchedLines = 3;  // node header and slots of a leaf with wide rows

  [[gnu::always_inline]] void PrefetchLines(uint64_t number, size_t lines) const {
    const auto state = reinterpret_cast<uintptr_t>(states_) + number * sizeof(AtomicPageState);
    __builtin_prefetch(reinterpret_cast<const void*>(state));
    const auto page = reinterpret_cast<uintptr_t>(pages_) + number * kPageBytes;
    for (size_t line = 0; line < lines; ++line) {
      __builtin_prefetch(reinterpret_cast<const void*>(page + line * kCacheLineBytes));
    }
  }

  AtomicPageState* states_ = nullptr;
  PageHome* homes_ = nullptr;
  std::byte* pages_ = nullptr;
  uint64_t size_ = 0;
  const std::atomic<int64_t>* guarded_ = nullptr;
  bool alone_ = false;
  bool paged_ = false;
};

// While one lives on this thread, ClaimPage does not look at the capacity: undoing a change must not fail for
// want of room that somebody else took since. It takes a few pages at most, and trees give them back
// when they shrink next: an undo merges nothing, so that it writes little to the log.
class UndoScope {
 public:
  UndoScope();
  ~UndoScope();
  UndoScope(const UndoScope&) = delete;
  UndoScope& operator=(const UndoScope&) = delete;
  static bool Active();  // on this thread
  // How many live on this thread from now on; returns how many did. For who runs several workers on it.
  static int Swap(int scopes);
};

class BufferPool {
 public:
  static absl::StatusOr<std::unique_ptr<BufferPool>> Create(const BufferPoolOptions& options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  PageArray Slot(uint32_t slot) const;
  // Counts one more page as resident; false when the pool is full.
  [[nodiscard]] bool ClaimPage();
  // Of a paged pool: so many have been given back.
  void GiveBack(uint64_t pages) { resident_pages_.fetch_sub(pages, std::memory_order_relaxed); }
  // So many more pages are marked or on disk, or fewer. Before the first of them is, and after the last.
  void NoteOut(int64_t more) { guarded_.fetch_add(more, std::memory_order_relaxed); }
  // Of a paged pool, before a page's memory goes back to the kernel. By one thread at a time.
  void SplitHugePage(uint32_t slot, uint64_t number);

  bool paged() const { return paged_; }
  bool alone() const { return alone_; }
  uint32_t slots() const { return slots_; }
  // Of a paged pool, before its first page is claimed; outlives all use of it.
  void SetSource(PageSource* source) { source_ = source; }
  PageSource* source() const { return source_; }
  // Pages of the slot that have been used, or will be: those from here on have never been.
  uint64_t End(uint32_t slot) const { return ends_[slot].load(std::memory_order_acquire); }
  void NoteUse(uint32_t slot, uint64_t number) {
    if (number >= ends_[slot].load(std::memory_order_relaxed)) SetEnd(slot, number + 1);
  }
  uint64_t pages_per_slot() const { return pages_per_slot_; }
  const void* states_end() const { return region_ + StatesBytes(); }
  KeyHints* key_hints() const { return key_hints_.get(); }  // null: there are none

  uint64_t resident_pages() const { return resident_pages_.load(std::memory_order_relaxed); }
  uint64_t capacity_pages() const { return capacity_pages_; }
  const void* region() const { return region_; }
  uint64_t region_bytes() const { return region_bytes_; }

 private:
  BufferPool() = default;
  absl::Status Reserve(const BufferPoolOptions& options);
  void Advise(bool huge_pages);
  uint64_t ShareBytes() const { return capacity_pages_ * kPageBytes / slots_; }  // of a slot
  void SetEnd(uint32_t slot, uint64_t end);
  void StopHugePages();
  uint64_t StatesBytes() const { return pages_per_slot_ * slots_ * sizeof(AtomicPageState); }
  std::byte* pages() const;
  std::byte* hints() const;

  // Constant after construction.
  std::byte* region_ = nullptr;
  uint64_t region_bytes_ = 0;
  uint64_t capacity_pages_ = 0;
  uint64_t pages_per_slot_ = 0;
  uint32_t slots_ = 0;
  bool alone_ = false;
  bool paged_ = false;
  PageSource* source_ = nullptr;
  std::unique_ptr<KeyHints> key_hints_;
  std::vector<std::vector<bool>> split_;  // by slot and huge page, of paged pools; of who gives back memory
  // Atomic.
  std::unique_ptr<std::atomic<uint64_t>[]> ends_;  // by slot; written by one thread at a time
  std::atomic<uint64_t> resident_pages_{0};
  std::atomic<uint64_t> huge_pages_{0};  // of a paged pool: that would hold all pages up to their ends
  std::atomic<bool> huge_{false};        // of a paged pool: it has asked for huge pages
  // Pages that are marked or on disk, and one for a pool that several threads use.
  alignas(64) std::atomic<int64_t> guarded_{0};
};

}  // namespace islands::storage
