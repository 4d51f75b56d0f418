#include "experiments/zipf.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace islands::experiments {
namespace {

// log(1 + x) / x and (e^x - 1) / x, continuous through 0: they make s = 1 and its neighbourhood no special
// case.
double Log1pOverX(double x) {
  if (std::abs(x) > 1e-8) return std::log1p(x) / x;
  return 1 - x * (0.5 - x / 3);
}

double Expm1OverX(double x) {
  if (std::abs(x) > 1e-8) return std::expm1(x) / x;
  return 1 + x * (0.5 + x / 6);
}

}  // namespace

Zipf::Zipf(uint64_t first, uint64_t last, double s)
    : first_(first),
      span_(static_cast<double>(last - first)),
      start_(static_cast<double>(first)),
      s_(s),
      area_begin_(Area(0.5) - 1),
      area_end_(Area(span_ + 0.5)),
      accept_below_(1 - DistanceOfArea(Area(1.5) - Height(1))) {
  assert(first >= 1 && first <= last && last < (uint64_t{1} << 53));
  assert(s >= 0 && std::isfinite(s));
}

double Zipf::Height(double d) const { return std::exp(-s_ * std::log1p(d / start_)); }

double Zipf::Area(double d) const {
  const double log_ratio = std::log1p(d / start_);
  return start_ * Expm1OverX((1 - s_) * log_ratio) * log_ratio;
}

double Zipf::DistanceOfArea(double area) const {
  const double scaled = area / start_;
  // Rounding may push the argument of the logarithm below 0 far out in the tail of s > 1.
  const double x = std::max(scaled * (1 - s_), -1.0);
  return start_ * std::expm1(Log1pOverX(x) * scaled);
}

uint64_t Zipf::Draw(runtime::Random& random) const {
  while (true) {
    const double area = area_end_ + random.Unit() * (area_begin_ - area_end_);
    const double distance = DistanceOfArea(area);
    const double candidate = std::clamp(std::floor(distance + 0.5), 0.0, span_);
    if (candidate - distance <= accept_below_ || area >= Area(candidate + 0.5) - Height(candidate)) {
      return first_ + static_cast<uint64_t>(candidate);
    }
  }
}

}  // namespace islands::experiments
