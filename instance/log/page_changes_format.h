// Changes of pages as they lie in the body of a log record: enough to make them again (redo), without what
// was there before. page_changes.h writes them, page_changes_reader.h reads them.
//
// A body is a sequence of groups. A group is all that one exclusive latch changed on one page. Pages that
// were changed by one step (page_change.h) have one LSN, and LSNs ascend within a body otherwise:
//
//   bytes      what
//   1          head: bit 0 the site follows; bit 1 the LSN follows; bits 2-7 number of changes, 1-63
//   varint     site - that of the group before (zigzag); absent: the same
//   varint     page number - that of the group before (zigzag)
//   varint     LSN - that of the group before; absent: 1, the next one. 0: one step has changed both pages
//   1          what the page's LSN was before, folded into a byte (FoldLsn)
//   ...        changes, in the order in which they were made
//
// "The group before" the first has site 0, number 0, LSN 0. A change begins with a byte: bits 0-2 its Op,
// bits 3-7 its slot, 31 = the slot follows as a varint; 0 for an Op that has none. Then, by Op:
//
//   kBytes       varint offset, varint n, n bytes             these bytes of the page
//   kValue       varint offset, varint n, n bytes             these bytes of the slot's value
//   kInsert      varint k, varint n, k bytes, n bytes         a new entry: key without the node's prefix,
//                                                             value
//   kRemove                                                   the entry is gone
//   kNewValue    varint n, n bytes                            the value, whatever its length was
//   kGhost                                                    the row is a ghost from now on
//   kNoGhost                                                  it is none from now on
//   kImage       varint m, varint n, m bytes, n bytes         the page: m bytes from kImageBegin on, zeros,
//                                                             and its last n bytes. The only change of its
//                                                             group
//
// Numbers are little endian; a varint has seven bits a byte, lowest first, the top bit says that more follow.
//
// Invariants:
//  1. One LSN for each group is enough: page LSN < group LSN says exactly that nothing of the group is in the
//     page. A group's bytes and its LSN come to the page under one exclusive latch, and whoever copies a page
//     to disk holds a latch for it: a copy has the whole group or nothing, and the LSN that goes with it. A
//     page's groups have ascending LSNs in the order of its latches, since each is more than the page's; so a
//     page with an LSN of at least the group's has the group and all before it.
//  2. A page's groups are a chain: each tells how to come from the page as the one before left it, down to
//     where entries lie. So every group goes to the log, also those of a transaction that aborts, and those
//     of its undo; one left out would make redo of the next one wrong. The fold of the LSN before finds that
//     in 255 of 256 cases, and the checks of redo find most of the rest.
//  3. A page's first group is an image, and an image needs nothing of what the page was.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "instance/log/lsn.h"
#include "instance/storage/pages/page.h"

namespace islands::log {

enum class PageOp : uint8_t { kBytes, kValue, kInsert, kRemove, kNewValue, kGhost, kNoGhost, kImage };

inline constexpr uint8_t kHeadSite = 1;
inline constexpr uint8_t kHeadLsn = 2;
inline constexpr int kHeadCountShift = 2;
inline constexpr uint32_t kMostGroupChanges = 63;
inline constexpr int kOpSlotShift = 3;
inline constexpr uint8_t kOpMask = 7;
inline constexpr uint32_t kOpFarSlot = 31;
inline constexpr size_t kMaxVarintBytes = 10;

// What is before has a place in the group or is none of redo's: page id, LSN, checksum.
inline constexpr size_t kImageBegin = offsetof(storage::PageHeader, tree);

constexpr uint8_t FoldLsn(Lsn lsn) {
  return static_cast<uint8_t>((lsn.value() * 0x9e3779b97f4a7c15) >> 56);  // neighbours differ
}

// At most kMaxVarintBytes. Returns where they end.
inline std::byte* PutVarint(std::byte* to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<std::byte>(value | 0x80);
  *to++ = static_cast<std::byte>(value);
  return to;
}

constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr uint64_t UnZigZag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

}  // namespace islands::log
