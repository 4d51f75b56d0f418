// The state word of a page: version, residency and latch in 64 bits (vmcache, Leis et al. 2023, section 3.3).
//
//   63                                    16 15      14 13                 0
//   |               version                 | residency |      latch       |
//
//   version    counts exclusive unlatchings; an optimistic reader compares it before and after
//   residency  untouched (all zero), resident, marked by the clock hand, or on disk (page_source.h)
//   latch      0 free, 1..8191 holders of the shared latch, from 8192 on held exclusively: the rest says
//              where in the code it was taken (page_latch.h)
//
// A page that is marked or on disk looks as if it were held exclusively, at a place of its own (kOut): who
// wants it finds out where he would wait for a latch, and who finds a page free pays nothing for those that
// are not.
//
// Thread safety: PageState is a value; AtomicPageState is changed by compare-and-swap only, or, where one
// thread has all pages to itself, by Replace.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace islands::storage {

enum class Residency : uint8_t { kUntouched = 0, kResident = 1, kMarked = 2, kOnDisk = 3 };

class PageState {
 public:
  static constexpr int kResidencyShift = 14;
  static constexpr int kVersionShift = 16;
  static constexpr uint64_t kLatchMask = (uint64_t{1} << kResidencyShift) - 1;
  static constexpr uint64_t kExclusive = (kLatchMask + 1) / 2;  // and all above
  static constexpr uint64_t kMaxShared = kExclusive - 1;
  // Of a marked page, or one on disk, that nobody works on.
  static constexpr uint64_t kOut = kLatchMask;

  constexpr PageState() = default;
  explicit constexpr PageState(uint64_t bits) : bits_(bits) {}

  constexpr uint64_t bits() const { return bits_; }
  constexpr uint64_t version() const { return bits_ >> kVersionShift; }
  constexpr Residency residency() const { return static_cast<Residency>(bits_ >> kResidencyShift & 3); }
  constexpr uint64_t latch() const { return bits_ & kLatchMask; }
  constexpr bool exclusive() const { return (bits_ & kExclusive) != 0; }
  constexpr bool free() const { return latch() == 0; }
  // Marked, or on disk, and nobody works on it.
  constexpr bool out() const { return latch() == kOut; }

  constexpr PageState WithLatch(uint64_t latch) const { return PageState((bits_ & ~kLatchMask) | latch); }
  constexpr PageState WithResidency(Residency residency) const {
    constexpr uint64_t kMask = uint64_t{3} << kResidencyShift;
    return PageState((bits_ & ~kMask) | static_cast<uint64_t>(residency) << kResidencyShift);
  }
  constexpr PageState WithNextVersion() const { return PageState(bits_ + (uint64_t{1} << kVersionShift)); }
  friend constexpr bool operator==(PageState, PageState) = default;

 private:
  uint64_t bits_ = 0;
};
static_assert(sizeof(PageState) == 8);
static_assert(PageState(0).residency() == Residency::kUntouched && PageState(0).free());
static_assert(PageState(0).WithLatch(PageState::kExclusive).WithNextVersion().version() == 1);
static_assert(PageState(~0ull).WithNextVersion().version() == 0);  // wraps into nothing else

class AtomicPageState {
 public:
  PageState Load() const { return PageState(bits_.load(std::memory_order_acquire)); }
  PageState LoadRelaxed() const { return PageState(bits_.load(std::memory_order_relaxed)); }
  // On failure `expected` becomes what was found.
  bool CompareExchange(PageState& expected, PageState desired) {
    uint64_t found = expected.bits();
    const bool exchanged = bits_.compare_exchange_strong(found, desired.bits(), std::memory_order_acq_rel,
                                                         std::memory_order_acquire);
    expected = PageState(found);
    return exchanged;
  }

  // The same for the only thread there is: without a locked instruction.
  bool Replace(PageState& expected, PageState desired) {
    const PageState found = LoadRelaxed();
    if (found == expected) bits_.store(desired.bits(), std::memory_order_release);
    return found == std::exchange(expected, found);
  }

 private:
  std::atomic<uint64_t> bits_;  // no initializer: zeroed memory from mmap is a valid array of these
};
static_assert(sizeof(AtomicPageState) == 8);

}  // namespace islands::storage
