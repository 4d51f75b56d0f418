// Log sequence number: one number that orders the changes of a page, what is undone, and what is durable.
//
//   63                                  24 23                 0
//   |            epoch (40 bits)          |  counter (24 bits) |
//
// The epoch is the box's when the change was made, or a later one. An LSN is one more than the largest of the
// worker's last, the page's, and the first of its epoch. When the counter is full, one more carries into the
// epoch: such an LSN is ahead of the box, whose epoch must be raised to it before anybody can depend on the
// change and be stamped with less, that is before its locks go (PageChangeCollector::AheadOfEpoch).
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>

#include "fmt/format.h"

namespace islands::log {

class Lsn {
 public:
  static constexpr int kCounterBits = 24;
  static constexpr uint64_t kMostEpoch = (uint64_t{1} << 40) - 2;  // there is always one more

  constexpr Lsn() = default;  // none yet; below all others
  static constexpr Lsn FromValue(uint64_t value) {
    Lsn lsn;
    lsn.value_ = value;
    return lsn;
  }
  static constexpr Lsn Of(uint64_t epoch, uint64_t counter) {
    return FromValue(epoch << kCounterBits | counter);
  }

  constexpr uint64_t value() const { return value_; }
  constexpr uint64_t epoch() const { return value_ >> kCounterBits; }
  constexpr uint64_t counter() const { return value_ & ((uint64_t{1} << kCounterBits) - 1); }
  constexpr Lsn Next(uint64_t steps = 1) const { return FromValue(value_ + steps); }
  friend constexpr auto operator<=>(Lsn, Lsn) = default;

 private:
  uint64_t value_ = 0;
};
static_assert(Lsn::Of(7, 0xffffff).Next() == Lsn::Of(8, 0));
static_assert(Lsn::Of(7, 9).epoch() == 7 && Lsn::Of(7, 9).counter() == 9);

// As messages and tools show it: "epoch.counter".
inline std::string ToString(Lsn lsn) { return fmt::format("{}.{}", lsn.epoch(), lsn.counter()); }

}  // namespace islands::log
