// Why transactions abort: the label `reason` of the abort counters, and a field of ExecuteReply.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace islands::instance {

enum class AbortReason : uint8_t {
  kNone = 0,
  kProcedure = 1,          // the procedure returned an error, or asked for something that cannot be done
  kDeadlock = 2,           // victim of a cycle of waits, on one island or over several
  kLockTimeout = 3,        // waited too long for a lock: contention
  kDeadline = 4,           // the transaction's own deadline
  kPeerLost = 5,           // a participant could not be reached
  kPeerRestarted = 6,      // a participant restarted in mid-transaction
  kVoteNo = 7,             // a participant refused to prepare
  kStorage = 8,            // no room, or a broken page
  kRefused = 9,            // a participant could not make sense of the request, or was loading
  kPeerUnresponsive = 10,  // a participant stands still (instance/worker/peer_watch.h)
  kContradiction = 11,     // the procedure has read what cannot be: it returned DATA_LOSS
  kCondition = 12,         // a client's write did not find what it needs
  kClientGone = 13,  // a client's open transaction was rolled back: by it, or because it said nothing more
};
inline constexpr uint32_t kAbortReasons = 14;

inline std::string_view AbortReasonName(AbortReason reason) {
  static constexpr std::array<std::string_view, kAbortReasons> kNames = {
      "none",    "procedure", "deadlock", "lock_timeout",      "deadline",      "peer_lost", "peer_restarted",
      "vote_no", "storage",   "refused",  "peer_unresponsive", "contradiction", "condition", "client_gone"};
  return kNames[static_cast<uint8_t>(reason)];
}

// Whether running the same transaction again soon may succeed without anything being repaired.
inline bool RetryAtOnce(AbortReason reason) {
  return reason == AbortReason::kDeadlock || reason == AbortReason::kLockTimeout ||
         reason == AbortReason::kVoteNo;
}

// Why a branch or transaction cannot go on.
struct Failure {
  AbortReason reason = AbortReason::kNone;
  absl::Status status;
  bool set() const { return reason != AbortReason::kNone; }
};

}  // namespace islands::instance
