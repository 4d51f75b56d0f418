// For whom the log is needed: the transactions of a worker that have records in it and may need them again,
// each with the epoch of its first. The cleaner's checkpoint stays behind the oldest (recovery/cleaner.h).
//
//   kUpdate, kCompensation, kPrepare    it is open, or in doubt
//   kDecision, kDecided                 it has committed, and somebody has yet to hear
//   kCommit, kAborted, kEnd             nobody needs it
//
// Who is in doubt, or decided, may be that for long. What the log has to say of it is one record then, which
// is appended again now and then (Journal::Repeat): so it pins no more of the log than was appended since.
//
// One thread cleans for all workers of an island, and may look at any moment. Why that is right: it takes B,
// above all epochs that are complete (Board::Complete), looks here some time later, and then takes G as
// `taken`.
//  - A first record of an epoch below B had been shown, and its hold let go, before B was taken; it was noted
//    here before that. So the look sees it, unless its transaction has ended meanwhile, or was repeated. What
//    is noted later is of epoch B or later, and cannot be passed.
//  - Who is not seen any more had its last record, or the one that repeats it, appended before that was
//    noted, and G was at least its epoch (Journal::AppendEntry). So it is at most `taken`.
//
// Thread safety: owned by a worker; oldest() by any thread.
//
// Invariant: 1. oldest() is at most the epoch of the first record, or of the last one that repeats what all
//     before it say, of every transaction that is noted here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "coordinator/transaction_id.h"
#include "instance/log/entry.h"

namespace islands::log {

class OpenTransactions {
 public:
  using Id = coordinator::TransactionId;
  static constexpr uint64_t kNone = UINT64_MAX;

  // A record of the transaction was appended: G is at least its epoch, which is held. Or an earlier life has
  // left the transaction: with the epoch of its first record.
  void Note(EntryKind kind, const Id& id, uint64_t epoch);
  // What its records say was appended once more, in one of this epoch.
  void Renew(const Id& id, uint64_t epoch);
  // Whether it is for nobody older that oldest() is what it is.
  bool IsOldest(const Id& id) const {
    const auto found = first_.find(id);
    return found != first_.end() && found->second == epochs_.begin()->first;
  }
  uint64_t oldest() const { return oldest_.load(std::memory_order_acquire); }
  size_t size() const { return first_.size(); }

 private:
  void Begin(const Id& id, uint64_t epoch);
  void End(const Id& id);
  void Leave(uint64_t epoch);
  void Publish() {
    oldest_.store(epochs_.empty() ? kNone : epochs_.begin()->first, std::memory_order_release);
  }

  absl::flat_hash_map<Id, uint64_t> first_;  // epochs of first records
  std::map<uint64_t, size_t> epochs_;        // and how many have each
  std::atomic<uint64_t> oldest_{kNone};
};

}  // namespace islands::log
