#include "deploy/run/knee.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace islands::deploy {

std::optional<KneeSearch::Ask> KneeSearch::Next() const {
  if (phase_ == Phase::kOver) return std::nullopt;
  return Ask{rate_, phase_ == Phase::kAtLength};
}

// Of a Poisson process more or fewer become due than the rate says: three standard deviations are forgiven.
// Those who wait have to be answered in time too, so there may be no more than become due within the limit.
RateFault KneeSearch::PilesUp(const RateStep& seen) const {
  const double due = seen.rate_per_s * seen.seconds;
  const double missing = due * kDone - seen.committed_per_s * seen.seconds;
  const double expected = seen.rate_per_s * limit_us_ / 1e6;
  const auto waiting = static_cast<double>(seen.waiting);
  const bool too_many = limit_us_ > 0 && waiting > expected + 3 * std::sqrt(expected) + 1;
  if (seen.refused > 0) return RateFault::kRefused;
  if (missing > 3 * std::sqrt(due)) return RateFault::kBehind;
  return too_many ? RateFault::kWaiting : RateFault::kNone;
}

void KneeSearch::Judge(RateStep& seen) const {
  seen.fault = PilesUp(seen);
  if (seen.fault == RateFault::kNone && seen.p99_us > limit_us_) seen.fault = RateFault::kLate;
  seen.held = seen.fault == RateFault::kNone;
}

void KneeSearch::Observe(RateStep seen) {
  ISLANDS_CHECK(phase_ != Phase::kOver);
  seen.rate_per_s = rate_;
  switch (phase_) {
    case Phase::kMost:
      most_ = seen.committed_per_s;
      rate_ = most_ * kQuietShare;
      fails_ = most_ * 1.1;  // a guess: open arrivals seldom find more than closed ones
      phase_ = most_ > 0 ? Phase::kQuiet : Phase::kOver;
      break;
    case Phase::kQuiet:
      ObserveQuiet(seen);
      break;
    case Phase::kHalve:
      ObserveHalf(seen);
      break;
    case Phase::kAtLength:
      ObserveAtLength(seen);
      break;
    case Phase::kOver:
      break;
  }
  steps_.push_back(seen);
  if (steps_.size() >= kMostSteps) phase_ = Phase::kOver;  // Invariant 2
  CheckInvariants();
}

// The limit comes from a rate at which nothing piles up, or it would be none; nor is it one that a step is
// too short to see exceeded.
void KneeSearch::ObserveQuiet(RateStep& seen) {
  const double limit_us = std::max({10 * seen.p50_us, 2 * seen.p99_us, 1.0});
  seen.fault = PilesUp(seen);
  if (limit_us_ == 0 && (seen.fault != RateFault::kNone || limit_us > kMostOfStep * 1e6 * seen.seconds)) {
    if (++failed_ < kFailures) return;  // once more
    failed_ = 0;
    fails_ = rate_;
    fails_seen_ = true;
    rate_ /= 2;
    if (rate_ < most_ * kLeastShare) phase_ = Phase::kOver;
    return;
  }
  if (limit_us_ == 0) limit_us_ = limit_us;
  failed_ = 0;
  phase_ = Phase::kHalve;
  ObserveHalf(seen);
}

void KneeSearch::ObserveHalf(RateStep& seen) {
  Judge(seen);
  if (seen.held) {
    holds_ = rate_;
  } else if (++failed_ < kFailures) {
    return;  // once more
  } else {
    fails_ = rate_;
    fails_seen_ = true;
  }
  failed_ = 0;
  ChooseNext();
}

void KneeSearch::ChooseNext() {
  const bool precise = fails_ - holds_ <= fails_ * kPrecision;
  if (precise && !fails_seen_) fails_ *= 1.5;  // the guess was too low
  if (fails_ < most_ * kLeastShare) {
    phase_ = Phase::kOver;
  } else if (precise && fails_seen_) {
    phase_ = Phase::kAtLength;
    rate_ = holds_;
  } else {
    rate_ = (holds_ + fails_) / 2;
  }
}

void KneeSearch::ObserveAtLength(RateStep& seen) {
  Judge(seen);
  found_ = seen.held;
  if (found_ || ++at_length_ == kMostAtLength) {
    phase_ = Phase::kOver;
    return;
  }
  fails_ = rate_;
  rate_ *= kStepDown;
  holds_ = std::min(holds_, rate_);
}

void KneeSearch::CheckInvariants() const {
  ISLANDS_CHECK(steps_.size() <= kMostSteps);
  ISLANDS_CHECK(steps_.empty() || most_ == 0 || (holds_ >= 0 && holds_ < fails_));
  if (phase_ == Phase::kHalve) ISLANDS_CHECK(rate_ > holds_ && (rate_ < fails_ || failed_ > 0));
  if (phase_ == Phase::kAtLength) ISLANDS_CHECK(rate_ > 0 && rate_ <= holds_);
}

}  // namespace islands::deploy
