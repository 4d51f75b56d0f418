// Where pages come from that are not in memory, in pools that hold less than there is (files/pager.h).
//
// Whoever finds a page marked or on disk where it would wait for a latch calls BringIn: that is a guard deep
// within a tree, which knows the page's state word and nothing of pools. So sources are found by the address
// of the state word. It happens once for many looks at a page, and costs less than the mark or the read.
//
// Thread safety: any thread; a source's stretch is registered before anybody uses its pages, and until nobody
// does any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "instance/storage/pages/page_state.h"

namespace islands::storage {

class PageSource {
 public:
  virtual ~PageSource() = default;
  // `seen` is out(). Unmarks the page, or reads it, and waits for the disk then; or somebody else has been
  // faster: look again.
  virtual void BringIn(AtomicPageState* state, PageState seen) = 0;
  // Those of these pages that are on disk come to memory, if they can: whoever needs one finds out otherwise.
  virtual void FetchAhead(uint32_t slot, std::span<const uint64_t> numbers) = 0;
  // A page has been claimed beyond the pool's capacity: evicts what can be evicted. Never waits for a latch.
  virtual void MakeRoom() = 0;
};

// Of the source whose state words are there.
void BringIn(AtomicPageState* state, PageState seen);

// State words in [begin, end) belong to the source while this lives.
class PageSourceStretch {
 public:
  PageSourceStretch(PageSource* source, const void* begin, const void* end);
  ~PageSourceStretch();
  PageSourceStretch(const PageSourceStretch&) = delete;
  PageSourceStretch& operator=(const PageSourceStretch&) = delete;

 private:
  size_t place_;
};

}  // namespace islands::storage
