// Which transactions of other islands this worker has committed here, for as long as anybody may ask: their
// coordinator, which repeats its decision until it is acknowledged, and other participants, should it die
// (coordinator/participant.h, "orphaned").
//
// Every coordinating worker tells with its requests below which of its transactions all have ended, but for
// few that it names (ExecuteRequest.ended_below, still_open): those need no memory. So a coordinator's share
// is what it has under way at a time, even while a participant of some of them stands still - unless those
// are more than can be named: then it grows by 8 bytes per commit until that one goes on. A coordinator that
// died tells nothing more, and its share is kept.
//
// Thread safety: owned by a worker.
//
// Invariant: what was remembered is known until its coordinator has said that it has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/transaction_id.h"

namespace islands::instance {

// Of a coordinating worker: all below have ended but `open`, in ascending order.
struct Ended {
  // Of those that stay open for long; what is not named is not below either.
  static constexpr size_t kMostNamed = 64;

  uint64_t below = 1;
  std::vector<uint64_t> open;
};
// Every transaction below `below` has ended but the `overdue`.
Ended WhatEnded(uint64_t below, std::vector<uint64_t> overdue);

class CommitMemory {
 public:
  void Remember(const coordinator::TransactionId& id) { of_[KeyOf(id)].committed.push_back(id.sequence); }
  bool Knows(const coordinator::TransactionId& id) const;
  // `id`'s coordinator has ended all of its transactions below `sequence` but `open`.
  void EndedBelow(const coordinator::TransactionId& id, uint64_t sequence, std::span<const uint64_t> open);
  // Kept at the moment, by all coordinators.
  size_t size() const;

 private:
  // A list is cleaned when it has grown to so many times what the last cleaning left.
  static constexpr size_t kGrowth = 2;
  static constexpr size_t kLeast = 8;

  struct Share {
    size_t clean_at = kLeast;
    std::vector<uint64_t> committed;  // in no order
  };
  // The coordinating worker's life, as an id without sequence.
  static coordinator::TransactionId KeyOf(coordinator::TransactionId id) {
    id.sequence = 0;
    return id;
  }

  absl::flat_hash_map<coordinator::TransactionId, Share> of_;
};

}  // namespace islands::instance
