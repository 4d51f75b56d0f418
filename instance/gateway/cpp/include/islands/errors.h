// How a call to a deployment can end other than well. Every error is an absl::Status that says what happened,
// where, and what to do; its code is what a program goes by:
//
//   kAborted             nothing of the transaction is left; run it again, perhaps with other luck
//   kUnavailable         the same; an island or the gateway is not there, so again a little later
//   kFailedPrecondition  a write did not find what it needs (IsConditionFailed), or the request makes no
//                        sense as things are; nothing is left
//   kDeadlineExceeded    there was not enough time; nothing is left
//   kResourceExhausted   too many transactions at a time, or no room; nothing is left
//   kInvalidArgument, kOutOfRange, kNotFound, kAlreadyExists, kUnimplemented
//                        the request makes no sense, and would make none later
//   kUnknown             nobody knows whether it was committed
//   others               a fault of the gateway, an island or this library; nothing is left
//
// Invariant: the code is kUnknown exactly if the outcome is unknown. It is known only if the gateway has said
// it, or if the call could not commit a change, or was never sent; a connection that breaks and a deadline
// that passes at the client say nothing.
//
// Thread safety: plain values and pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace islands {

enum class Outcome {
  kAborted,  // for certain not committed: nothing is left
  kUnknown,  // committed, or not
};

// What the gateway has said of an error besides code and message.
struct Failure {
  Outcome outcome = Outcome::kAborted;
  // A word of a fixed list, or empty if the gateway has said nothing: condition, deadlock, lock_timeout,
  // deadline, vote_no, peer_lost, peer_restarted, peer_unresponsive, storage, refused, invalid, unknown, ...
  std::string reason;
  int operation = -1;       // of reason "condition": which one did not find what it needs, from 0
  std::string transaction;  // its id, as `islands txn` and logs write it, if it had begun
};

// Of an error that this library has returned.
Failure FailureOf(const absl::Status& error);

// A write did not find what it needs: an insert found a row, or a replace, delete or add found none.
bool IsConditionFailed(const absl::Status& error);

// Whether the same again may end better, and can do no harm: kAborted and kUnavailable.
bool MayRunAgain(const absl::Status& error);

}  // namespace islands
