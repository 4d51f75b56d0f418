// What is about to happen to the bytes of a page. Whoever changes them says so to the guard first
// (GuardX::Change), and has no other way to bytes that can be written to; so one place hears of every change,
// of rows, splits, merges and allocation alike.
//
// Thread safety: plain values; every thread has a sink of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace islands::storage {

struct PageChange {
  enum class Kind : uint8_t {
    kBytes,     // of the page: `bytes` from `offset` on
    kValue,     // of the value in `slot`: `bytes` from `offset` on
    kInsert,    // an entry with a value of `bytes` comes to `slot`; those from there on move up
    kRemove,    // the entry in `slot` goes; those behind it move down
    kNewValue,  // the value in `slot` is replaced by one of `bytes`
    kGhost,     // the entry in `slot` becomes a ghost or ceases to be one
  };
  Kind kind = Kind::kBytes;
  uint32_t slot = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

// Hears of changes on the thread that makes them, in the order in which they are made. What they put into the
// page is there when its latch goes, in the slots that they name: none of them moves the entry of one before.
// Pages that change together (a split, a merge, the site header with a page that it gives out) are all
// latched until all their changes are made: when the first of them goes they are one step, and whole.
class PageChangeSink {
 public:
  virtual ~PageChangeSink() = default;
  // The page as it is before.
  virtual void BeforeChange(const std::byte* page, const PageChange& change) = 0;
  // Nobody else has seen the changes yet; called for pages without any, too. Of the page the sink may write
  // the header's LSN, stamper and crowded, and nothing else.
  virtual void BeforeRelease(std::byte* page) = 0;
  // Somebody else has the latch that this thread wants, and may wait for what this thread has to say.
  virtual void BeforeWait() {}
};

// Null: nobody listens.
inline constinit thread_local PageChangeSink* page_change_sink = nullptr;

}  // namespace islands::storage
