// Rows of a key range with the ranks that they have in Zipf's law: the next key has the next rank, and after
// the law's last rank comes its first. So one run of keys may be two runs of ranks, where the hottest row
// lies inside the range.
//
// Thread safety: immutable but for Cut; Draw changes only the Random it is given.
//
// Invariants:
//  1. A key's chance is proportional to its rank's, over the rows that are not cut off.
#pragma once

#include <cstdint>
#include <optional>

#include "experiments/zipf.h"
#include "runtime/random.h"

namespace islands::experiments {

// Sum of (r / first)^-s over the ranks r in [first, last], to 12 digits.
double ZipfWeight(uint64_t first, uint64_t last, double s);

class ZipfRows {
 public:
  // Keys [begin, begin + rows); `begin` has rank `first` of a law with `ranks`. 1 <= first <= ranks,
  // 1 <= rows <= ranks.
  ZipfRows(uint64_t begin, uint64_t rows, uint64_t first, uint64_t ranks, double s);

  uint64_t Draw(runtime::Random& random) const {
    const bool tail = tail_ && random.Unit() >= head_share_;
    const uint64_t rank = tail ? tail_->Draw(random) : law_.Draw(random);
    return KeyAt(rank < first_ ? rank - 1 : head_ + rank - first_);
  }
  // By heat: 0 is the hottest of the range.
  uint64_t KeyAt(uint64_t place) const {
    return place < head_ ? begin_ + (rows_ - head_) + place : begin_ + (place - head_);
  }
  // Leaves out the `hottest` rows, not all of them; the law over the others stays the same.
  void Cut(uint64_t hottest);

 private:
  uint64_t begin_;
  uint64_t rows_;
  uint64_t first_;  // rank of begin_
  uint64_t head_;   // so many of the last keys have ranks 1, 2, ...
  double s_;
  Zipf law_;                  // of the head, or of all where its ranks are one run
  std::optional<Zipf> tail_;  // else of the others
  double head_share_ = 1;
};

}  // namespace islands::experiments
