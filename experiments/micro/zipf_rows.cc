#include "experiments/micro/zipf_rows.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace islands::experiments {

// The first ones one by one, the rest by the formula of Euler and Maclaurin, whose error falls with the
// fifth power of where it begins.
double ZipfWeight(uint64_t first, uint64_t last, double s) {
  constexpr uint64_t kOneByOne = 64;
  const auto start = static_cast<double>(first);
  const auto weight = [&](double rank) { return std::exp(-s * std::log(rank / start)); };
  const uint64_t one_by_one = std::min(first + kOneByOne, last + 1);
  double sum = 0;
  for (uint64_t rank = first; rank < one_by_one; ++rank) sum += weight(static_cast<double>(rank));
  if (one_by_one > last) return sum;
  const auto a = static_cast<double>(one_by_one), b = static_cast<double>(last);
  const double log_ratio = std::log(b / a), power = (1 - s) * log_ratio;
  const double mean = std::abs(power) > 1e-8 ? std::expm1(power) / power : 1 + power / 2;
  sum += weight(a) * a * log_ratio * mean;                // the integral
  sum += (weight(a) + weight(b)) / 2;                     // its ends
  return sum + s * (weight(a) / a - weight(b) / b) / 12;  // and their slopes
}

ZipfRows::ZipfRows(uint64_t begin, uint64_t rows, uint64_t first, uint64_t ranks, double s)
    : begin_(begin),
      rows_(rows),
      first_(first),
      head_(first - 1 + rows > ranks ? first - 1 + rows - ranks : 0),
      s_(s),
      law_(head_ > 0 ? 1 : first, head_ > 0 ? head_ : first + rows - 1, s) {
  ISLANDS_CHECK(first >= 1 && first <= ranks && rows >= 1 && rows <= ranks);
  if (head_ > 0) Cut(0);
}

void ZipfRows::Cut(uint64_t hottest) {
  ISLANDS_CHECK(hottest < rows_);
  const uint64_t last = first_ + (rows_ - head_) - 1;
  const bool one_run = head_ == 0 || hottest >= head_ || first_ == head_ + 1;
  const uint64_t low = hottest < head_ ? hottest + 1 : first_ + (hottest - head_);
  tail_.reset();
  law_ = Zipf(low, one_run ? last : head_, s_);
  if (one_run) return;
  tail_.emplace(first_, last, s_);
  const double head = ZipfWeight(low, head_, s_);
  const double ratio = std::exp(-s_ * std::log(static_cast<double>(first_) / static_cast<double>(low)));
  head_share_ = head / (head + ratio * ZipfWeight(first_, last, s_));
}

}  // namespace islands::experiments
