// Looks for the knee of a cluster: the largest rate at which transactions may become due and still be
// answered in time, with none piling up. A pure search: it says which rate to try, and is told what was seen
// there.
//
// First the most that clients do who ask again when they have their answer (rate 0). Then a fifth of that:
// quiet, but not idle. It gives the limit of p99 where none was given: ten times the p50, or twice the p99
// where something else than load makes that long. Then halves of the interval between the largest rate that
// held and the smallest that did not; to have failed takes kFailures on end, since machines hiccup. When the
// two are kPrecision apart, the one that held is measured at length; if it fails then, slightly lower ones,
// down to four fifths of it.
//
// Thread safety: none; plain values.
//
// Invariants:
//  1. 0 <= holds() < fails(), and every rate that is tried lies between them, or is quiet, or is tried again.
//  2. It ends: after kMostSteps observations at most.
//  3. Nothing larger than holds() has held since it was found, but for a rate that was tried at length.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace islands::deploy {

// Why a rate does not hold: the first of these that is so. kRefused: more waited than may; kBehind: too few
// were done of those that were due; kWaiting: more waited at the end than become due within the limit;
// kLate: p99 is above the limit.
enum class RateFault : uint8_t { kNone, kRefused, kBehind, kWaiting, kLate };

// What was seen at a rate.
struct RateStep {
  double rate_per_s = 0;  // that became due; 0: each client's when it had the answer to the one before
  double seconds = 0;     // that it was measured
  double committed_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double utilisation = 0;  // 0..1, of the workers' time
  uint64_t waiting = 0;    // for a slot, at the end
  uint64_t refused = 0;    // because too many waited
  // Set by the search.
  bool held = false;
  RateFault fault = RateFault::kNone;  // none where no rate was asked for, or there was no limit yet
};

class KneeSearch {
 public:
  static constexpr double kQuietShare = 0.2;   // of the most
  static constexpr double kPrecision = 0.02;   // between what holds and what does not, of the latter
  static constexpr double kLeastShare = 1e-3;  // of the most: below it nothing is looked for
  static constexpr double kDone = 0.98;        // of what is due must be done
  static constexpr double kStepDown = 0.95;    // from a rate that failed at length
  static constexpr double kMostOfStep = 0.25;  // of its time: the longest limit that it can give
  static constexpr size_t kMostSteps = 60;
  static constexpr size_t kMostAtLength = 5;
  static constexpr size_t kFailures = 3;  // one after the other, until a rate has failed

  struct Ask {
    double rate_per_s = 0;
    bool at_length = false;  // for as long as the result is to be measured; else shortly
  };

  // 0: by the rule.
  explicit KneeSearch(double p99_limit_us) : limit_us_(p99_limit_us) {}

  // Nothing: the search is over.
  std::optional<Ask> Next() const;
  // At the rate that Next says.
  void Observe(RateStep seen);

  const std::vector<RateStep>& steps() const { return steps_; }
  double limit_us() const { return limit_us_; }  // 0: not known yet
  double holds() const { return holds_; }        // 0: none has held so far
  double fails() const { return fails_; }
  // The last step was at length, and held.
  bool found() const { return phase_ == Phase::kOver && found_; }
  void CheckInvariants() const;

 private:
  enum class Phase : uint8_t { kMost, kQuiet, kHalve, kAtLength, kOver };

  RateFault PilesUp(const RateStep& seen) const;
  void Judge(RateStep& seen) const;
  void ObserveQuiet(RateStep& seen);
  void ObserveHalf(RateStep& seen);
  void ObserveAtLength(RateStep& seen);
  void ChooseNext();

  Phase phase_ = Phase::kMost;
  std::vector<RateStep> steps_;
  double limit_us_;
  double most_ = 0;
  double rate_ = 0;  // to be tried
  double holds_ = 0;
  double fails_ = 0;
  size_t failed_ = 0;        // at rate_, one after the other
  bool fails_seen_ = false;  // else it is a guess
  size_t at_length_ = 0;
  bool found_ = false;
};

}  // namespace islands::deploy
