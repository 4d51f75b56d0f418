// What is known of the latch of a page by who has to wait for it: where in the code it has been taken, and
// whose page it is. So waits are told apart by table, site and level of the tree, with the critical section
// that is in the way (Horikawa, ICPE 2011, section 3).
//
// The exclusive latch's site is a number in the state word, of which a latched page had all bits to spare
// (page_state.h): to take it says where without another instruction. Of readers that share a latch nothing
// is known.
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "instance/storage/pages/page.h"
#include "instance/storage/pages/page_state.h"
#include "instance/storage/pages/torn.h"
#include "runtime/latch_site.h"

// As ISLANDS_LATCH, for exclusive latches of pages. The name is one of kExclusiveSiteNames.
#define ISLANDS_PAGE_LATCH(site) \
  (::islands::runtime::SchedulingPoint(), ::islands::storage::ExclusiveSite{site})

namespace islands::storage {

// The first one stands for who does not say.
inline constexpr std::array<std::string_view, 11> kExclusiveSiteNames = {"",
                                                                         "btree.leaf",
                                                                         "btree.split",
                                                                         "btree.split_root",
                                                                         "btree.merge",
                                                                         "btree.clear",
                                                                         "site.allocate",
                                                                         "site.free",
                                                                         "data.load",
                                                                         "pager.read",
                                                                         "pager.evict"};

class ExclusiveSite {
 public:
  constexpr ExclusiveSite() = default;
  // A name that is not in the list does not compile.
  consteval ExclusiveSite(const char* name) : name_(name) {
    const auto* const found =
        std::find(kExclusiveSiteNames.begin(), kExclusiveSiteNames.end(), std::string_view(name));
    if (found == kExclusiveSiteNames.end()) throw "add it to kExclusiveSiteNames";
    latch_ = PageState::kExclusive + static_cast<uint64_t>(found - kExclusiveSiteNames.begin());
  }

  runtime::LatchSite site() const { return {name_}; }
  constexpr uint64_t latch() const { return latch_; }  // in the state word

 private:
  const char* name_ = nullptr;
  uint64_t latch_ = PageState::kExclusive;
};
static_assert(ExclusiveSite("data.load").latch() <= PageState::kLatchMask);

// Where a page is in the store, as one number (LatchWaits): 0 where nothing is known.
//
//   63     48 47                   16 15      8 7       0
//   |  site  |         tree          |  level  |  type  |
class PagePlace {
 public:
  constexpr PagePlace() = default;
  explicit constexpr PagePlace(uint64_t value) : value_(value) {}
  constexpr PagePlace(PageType type, uint32_t site, uint32_t tree, uint8_t level)
      : value_(uint64_t{site} << 48 | uint64_t{tree} << 16 | uint64_t{level} << 8 |
               static_cast<uint64_t>(type)) {}

  constexpr PageType type() const { return static_cast<PageType>(value_ & 0xff); }
  constexpr uint8_t level() const { return static_cast<uint8_t>(value_ >> 8); }  // 0 = leaf
  constexpr uint32_t tree() const { return static_cast<uint32_t>(value_ >> 16); }
  constexpr uint32_t site() const { return static_cast<uint32_t>(value_ >> 48); }
  constexpr uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};
static_assert(PagePlace(PageType::kTree, 0xffff, ~0u, 7).tree() == ~0u);
static_assert(PagePlace(PageType::kTree, 0xffff, ~0u, 7).level() == 7);

// What a wait for a page's latch is counted under.
struct Latched {
  const char* holder = nullptr;  // the site where the exclusive latch was taken; null: nobody knows
  uint64_t place = 0;            // PagePlace
};

// Of a page that may be changing: a hint. `seen`: its state.
Latched LookAtLatched(TornPage page, PageState seen);

}  // namespace islands::storage
