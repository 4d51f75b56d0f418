// What a worker of a one-worker island appends, and when: its ring, its epochs, and what storage says of
// pages.
//
// Changes are collected until something says what they are part of. A transaction that ends before anybody
// else has had a turn leaves one record (kDone), which is its commit, and nothing ever undoes it. One that
// gives up control publishes what it has, with what it takes to undo it. So whoever comes next finds
// everything in the ring that it can see in pages.
//
//   first change                the epochs are held, and one of them is taken for the record
//   a record is appended        its changes are behind those of all records before it
//   EndStep                     the tail is shown, and the hold is let go; nothing may be collected by then
//
// While it listens it is its thread's page_change_sink.
//
// Thread safety: owned by a worker.
//
// Invariants:
//  1. Between two steps nothing is collected, everything appended is shown, and no epoch is held.
//  2. A record is shown before its epoch is let go (board.h).
//  3. LSNs of a worker's records ascend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/fellow.h"
#include "coordinator/transaction_id.h"
#include "instance/log/board.h"
#include "instance/log/entry.h"
#include "instance/log/page_changes.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "instance/storage/pages/page_change.h"
#include "runtime/planted_bug.h"

namespace islands::log {

class Journal final : public storage::PageChangeSink {
 public:
  using Id = coordinator::TransactionId;

  // What is collected, or takes to undo it, may become so much before it has to be appended in part: a record
  // holds as much of both, and what one operation more changes.
  static constexpr size_t kMostCollected = kMostRecordBytes / 4;

  // `last`: the highest LSN of any page of the island; what follows is above it.
  Journal(Board& board, Ring& ring, Lsn last)
      : board_(board),
        hold_(board, ring.stream().island, ring.stream().worker),
        writer_(ring),
        commit_epoch_(board.epoch()),
        collector_(runtime::Planted(runtime::PlantedBug::kReuseLsn) ? Lsn() : last) {}

  // From now on this thread's changes are collected. EndListening: until then; between two steps.
  void Listen();
  void EndListening();

  // What was collected, if anything, is done: see entry.h, likewise the others.
  void AppendDone();
  // The same of a ghost's removal, which nobody can see.
  void AppendBurial();
  // The collected changes are undone by `undo`.
  void AppendUpdate(const Id& id, std::span<const std::byte> undo);
  void AppendCompensation(const Id& id, uint32_t left);
  void AppendCommit(const Id& id) { AppendEntry({.kind = EntryKind::kCommit, .transaction = id}); }
  void AppendAborted(const Id& id) { AppendEntry({.kind = EntryKind::kAborted, .transaction = id}); }
  void AppendPrepare(const Id& id, std::span<const coordinator::Fellow> fellows,
                     std::span<const std::byte> undo);
  void AppendDecision(const Id& id, std::span<const coordinator::Fellow> fellows);
  void AppendDecided(const Id& id) { AppendEntry({.kind = EntryKind::kDecided, .transaction = id}); }
  void AppendEnd(const Id& id) { AppendEntry({.kind = EntryKind::kEnd, .transaction = id}); }
  void EndStep();

  bool collected() const { return body_.size() != 0; }
  size_t collected_bytes() const { return body_.size(); }
  // The epoch of the last record that ended a transaction for good, at least: whoever has seen what it did
  // depends on it. A new life begins with the box's, which is above all that it has recovered.
  uint64_t commit_epoch() const { return commit_epoch_; }

  // storage::PageChangeSink.
  void BeforeChange(const std::byte* page, const storage::PageChange& change) override;
  void BeforeRelease(std::byte* page) override { collector_.BeforeRelease(page); }

 private:
  void BeginRecord();
  void AppendEntry(const Entry& entry);

  Board& board_;
  EpochHold hold_;
  RingWriter writer_;
  uint64_t commit_epoch_;
  PageChangeCollector collector_;
  RecordBuffer body_;               // of the changes
  RecordBuffer head_;               // scratch
  std::vector<std::byte> fellows_;  // scratch
  bool begun_ = false;              // a record: its epoch is taken
  bool appended_ = false;           // since the last Show
};

}  // namespace islands::log
