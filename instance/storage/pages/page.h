// What every page of every data file begins with, and how pages are named.
//
// A page id is (site, number); number 0 of a site is its site header (site_space.h). Ids do not say which
// island holds the site: a site moves as a whole, byte for byte.
//
//   page id     63        48 47                                          0
//               |   site    |                  number                    |
//
//   page header  offset  bytes
//                     0      8  page id: a page read from a wrong place is recognised
//                     8      8  LSN of the last change that is in the log (0: none yet). Whoever listens to
//                               changes sets it (page_change.h), and nobody ever lowers it: not with the
//                               page's next use either, nor with content that comes from another page
//                    16      4  checksum of the page with this field zero; covers the page id (0: none yet)
//                    20      4  tree id: position of the table or index among all trees of the deployment
//                    24      1  page type
//                    25      1  level: 0 = leaf
//                    26      3  in memory what whoever listens wants to know: who has set the LSN, and
//                               whether many do. On disk, and in the log, zero
//                    29      3  zero
//                    32         what the type says
//
// All integers are little endian, as the machine has them.
//
// Thread safety: plain values; page bytes are reached through guards (page_guard.h) only.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace islands::storage {

inline constexpr size_t kPageBytes = 4096;

class PageId {
 public:
  static constexpr int kNumberBits = 48;

  constexpr PageId() = default;
  constexpr PageId(uint32_t site, uint64_t number) : value_(uint64_t{site} << kNumberBits | number) {}
  static constexpr PageId FromValue(uint64_t value) {
    PageId id;
    id.value_ = value;
    return id;
  }

  constexpr uint32_t site() const { return static_cast<uint32_t>(value_ >> kNumberBits); }
  constexpr uint64_t number() const { return value_ & ((uint64_t{1} << kNumberBits) - 1); }
  constexpr uint64_t value() const { return value_; }
  friend constexpr auto operator<=>(PageId, PageId) = default;

 private:
  uint64_t value_ = 0;
};
static_assert(PageId(0xffff, 7).site() == 0xffff && PageId(0xffff, 7).number() == 7);

enum class PageType : uint8_t { kFree = 0, kSiteHeader = 1, kTree = 2 };

struct PageHeader {
  uint64_t page_id = 0;
  uint64_t lsn = 0;
  uint32_t checksum = 0;
  uint32_t tree = 0;
  PageType type = PageType::kFree;
  uint8_t level = 0;
  uint16_t stamper = 0;  // number of the worker, from 1
  uint8_t crowded = 0;   // so many changes more go to the log at once (journal.h)
  uint8_t zero[3] = {};
};
static_assert(sizeof(PageHeader) == 32);

}  // namespace islands::storage
