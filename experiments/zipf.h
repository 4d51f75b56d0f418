// Zipf-distributed ranks: rank r of n is drawn with probability proportional to r^-s.
//
// Rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone
// discrete distributions", ACM TOMACS 6(3), 1996): inverts the integral of the hat function x^-s and rejects
// the little that lies between it and the histogram. Exact for every s >= 0, including 1, no tables:
// construction is a handful of logarithms whatever n is, and a draw takes about 1.1 tries.
//
// `first` restricts the ranks to [first, last], with the same proportions: sampling without replacement under
// heavy skew needs it to step over the ranks that are taken already.
//
// Thread safety: immutable; Draw changes only the Random it is given.
//
// Invariants:
//  1. first <= Draw() <= last.
//  2. P(Draw() == r) = r^-s / sum of i^-s over [first, last], up to the 53 bits of a Random::Unit.
#pragma once

#include <cstdint>

#include "runtime/random.h"

namespace islands::experiments {

class Zipf {
 public:
  // 1 <= first <= last < 2^53, s >= 0 and finite.
  Zipf(uint64_t first, uint64_t last, double s);

  uint64_t Draw(runtime::Random& random) const;

 private:
  // All lengths are distances d from `first_`, so that nothing is lost where first is large: the hat is
  // Height(d) = ((first + d) / first)^-s, with Height(0) = 1.
  double Height(double d) const;
  // Integral of Height over [0, d], and its inverse.
  double Area(double d) const;
  double DistanceOfArea(double area) const;

  uint64_t first_;
  double span_;   // last - first
  double start_;  // double(first)
  double s_;
  double area_begin_;  // rank `first` owns [Area(0.5) - 1, Area(0.5)]
  double area_end_;
  double accept_below_;  // a candidate this close above its distance is accepted without computing its height
};

}  // namespace islands::experiments
