#include "instance/gateway/counters.h"

#include "runtime/check.h"

namespace islands::gateway {

using client::v1::Failure;

namespace {

constexpr size_t kInvalid = instance::kAbortReasons;
constexpr size_t kUnknown = kInvalid + 1;

// Only of what failed: nobody waits for this who is in a hurry.
size_t ReasonOf(std::string_view word) {
  for (size_t reason = 1; reason < kReasons; ++reason) {
    if (ReasonName(reason) == word) return reason;
  }
  return 0;
}

}  // namespace

std::string_view ReasonName(size_t reason) {
  if (reason == 0) return "other";
  if (reason == kInvalid) return "invalid";
  if (reason == kUnknown) return "unknown";
  ISLANDS_CHECK(reason < instance::kAbortReasons);
  return instance::AbortReasonName(static_cast<instance::AbortReason>(reason));
}

void Counters::TransactionEnded(const Answer& answer, uint64_t transactions) {
  const Outcome outcome = answer.ok()                                    ? Outcome::kCommitted
                          : answer.failure.outcome() == Failure::UNKNOWN ? Outcome::kUnknown
                                                                         : Outcome::kAborted;
  outcomes_[static_cast<size_t>(outcome)].Add(transactions);
  if (outcome != Outcome::kCommitted) reasons_[ReasonOf(answer.failure.reason())].Add(transactions);
}

}  // namespace islands::gateway
