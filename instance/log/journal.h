// What a worker appends, and when: its ring, its epochs, and what storage says of pages.
//
// A change reaches the ring before anyone else can change its page.
//
// One-worker islands: nobody else is there before the worker gives up control. Changes are collected until
// something says what they are part of. A transaction that ends before anybody else has had a turn leaves one
// record (kDone), which is its commit, and nothing ever undoes it. One that gives up control publishes what
// it has, with what it takes to undo it.
//
// Islands with several workers: a split, a merge, an entry that comes or goes is shown, and all that was
// collected before it, before the first of its step's latches goes. Bytes that change in place may wait for
// the end of the worker's step, as those of a worker alone. Its page says who has stamped it; whoever changes
// it next waits until that one has shown so much, and takes a higher LSN than that record has. Nobody waits
// for a worker that waits: before a worker waits for a latch, or for another's record, it shows what it has
// collected. On a page that several want, changes are shown at once for a while.
//
//   first change                the epochs are held, and one of them is taken for the record
//   a latch goes                the step is whole: if it cannot wait, or enough is collected, the publisher
//                               appends it
//   a record is appended        its changes are behind those of all records before it; one that commits is
//                               shown at once
//   EndStep                     the tail is shown, and the hold is let go; nothing may be collected by then
//
// Of a worker alone a transaction that is one procedure's may leave a command instead (AppendCommand): its
// changes are collected all the same, and the record has their checksum. Where commands are in the log a
// snapshot of all pages is taken now and then, and whoever takes it hears of each page before it changes
// (BeforeImages).
//
// While it listens it is its thread's page_change_sink.
//
// Thread safety: owned by a worker; open().oldest() and commit_epoch() from any thread; what it shares
// (island_log.h) is the island's.
//
// Invariants:
//  1. Between two steps of the worker nothing is collected, everything appended is shown, and no epoch is
//     held.
//  2. A record is shown before its epoch is let go (board.h).
//  3. LSNs of a worker's records ascend. In the order of all records of an island by LSN (that of the last
//     change in each) its pages were changed.
//  4. A record's changes, and what it says, are of one epoch (entry.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/fellow.h"
#include "coordinator/transaction_id.h"
#include "instance/log/board.h"
#include "instance/log/entry.h"
#include "instance/log/island_log.h"
#include "instance/log/open_transactions.h"
#include "instance/log/page_changes.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "instance/storage/pages/page_change.h"
#include "runtime/planted_bug.h"
#include "runtime/work_account.h"

namespace islands::log {

class Journal final : public storage::PageChangeSink {
 public:
  using Id = coordinator::TransactionId;

  // Who knows what the collected changes are part of.
  class Publisher {
   public:
    virtual ~Publisher() = default;
    // Appends them. Latches are held: nothing may be waited for, and no page be touched.
    virtual void Publish() = 0;
  };

  // What is collected, or takes to undo it, may become so much before it has to be appended in part. A record
  // holds as much of both, what one step more changes, and what undoes one operation more.
  static constexpr size_t kMostCollected = kMostRecordBytes / 4;
  static constexpr size_t kMostUndoEntryBytes = 2 << 10;  // branch.h
  static constexpr size_t kMostHeadBytes = 64;            // of what is before them (entry.h)
  // Of kEnd: whoever has decided owes one, and has room for it until then.
  static constexpr size_t kEndBytes = RecordBytes(kMostHeadBytes);
  static_assert(2 * kMostCollected + kMostStepBytes + kMostUndoEntryBytes + kMostHeadBytes <=
                kMostRecordBytes - kRecordHeaderBytes);

  // Hears of every page that is about to change.
  class BeforeImages {
   public:
    virtual ~BeforeImages() = default;
    virtual void Keep(const std::byte* page) = 0;
  };

  // `last`: the highest LSN of any page of the island; what follows is above it. `island`: what all workers
  // of the island share; null if there is one worker.
  Journal(Board& board, Ring& ring, Lsn last, IslandLog* island = nullptr)
      : board_(board),
        hold_(board, ring.stream().island, ring.stream().worker),
        writer_(ring),
        island_(island),
        own_commits_(last.epoch()),
        commits_(island == nullptr ? own_commits_ : island->commits()),
        shown_(island == nullptr ? 0 : island->workers()),
        collector_(runtime::Planted(runtime::PlantedBug::kReuseLsn) ? Lsn() : last,
                   static_cast<uint16_t>(island == nullptr ? 0 : ring.stream().worker + 1)) {}
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // From now on this thread's changes are collected. EndListening: until then; between two steps.
  void Listen();
  void EndListening();
  // Null, as in the beginning: what is collected is part of nothing. Returns who it was.
  Publisher* SetPublisher(Publisher* publisher) { return std::exchange(publisher_, publisher); }
  bool alone() const { return island_ == nullptr; }

  // What was collected, if anything, is done: see entry.h, likewise the others.
  void AppendDone();
  // Likewise, of a worker alone: the changes follow from the command. False: that is too long for one, or
  // there is no room for it and `reserved` bytes more.
  bool AppendCommand(const Id& id, const Command& command, size_t reserved);
  // Of a snapshot: it begins between two steps, in an epoch of its own, and every command behind it can be
  // repeated without one before it. Returns the epoch: all that is stamped later is of a later one.
  uint64_t BeginSnapshot(BeforeImages* images);
  void EndSnapshot() { images_ = nullptr; }
  // The same of what no transaction has committed: a ghost removed, a step of a tree's structure, the rest of
  // a change whose undo is in the log already.
  void AppendRedoOnly();
  // The collected changes are undone by `undo`.
  void AppendUpdate(const Id& id, std::span<const std::byte> undo);
  void AppendCompensation(const Id& id, uint32_t left);
  void AppendCommit(const Id& id) { AppendEntry({.kind = EntryKind::kCommit, .transaction = id}); }
  void AppendAborted(const Id& id) { AppendEntry({.kind = EntryKind::kAborted, .transaction = id}); }
  void AppendPrepare(const Id& id, std::span<const coordinator::Fellow> fellows,
                     std::span<const std::byte> undo);
  void AppendDecision(const Id& id, std::span<const coordinator::Fellow> fellows);
  void AppendDecided(const Id& id);
  // The same once more, for a transaction that waits for others: of its records only this one and what
  // follows are needed from now on. `undo`: all of it. Nothing may be collected. False: it is not
  // WorthRepeating, has more undo than kMostCollected, or there is no room for it and `reserved` bytes more.
  bool RepeatPrepare(const Id& id, std::span<const coordinator::Fellow> fellows,
                     std::span<const std::byte> undo, size_t reserved);
  bool RepeatDecision(const Id& id, std::span<const coordinator::Fellow> fellows, size_t reserved);
  bool RepeatDecided(const Id& id, size_t reserved);
  // False: that would let go of nothing now. Cheap, for whoever has to encode first.
  bool WorthRepeating(const Id& id) const { return !log_full() && open_.IsOldest(id); }
  // Nothing may be collected: it would be another transaction's.
  void AppendEnd(const Id& id);
  void EndStep();

  // What an earlier life has left is for this worker to end (recovery/unsettled.h): as kPrepare, kDecision or
  // kDecided has left it, with the epoch of its first record.
  void NoteEarlier(EntryKind kind, const Id& id, uint64_t epoch) {
    open_.Note(kind, id, epoch);
    if (kind != EntryKind::kPrepare) OweEnd();
  }
  // oldest() from any thread.
  const OpenTransactions& open() const { return open_; }

  // What can be appended besides what is collected, and what is owed.
  size_t room() {
    const size_t room = writer_.Room();
    const size_t taken = body_.size() + owed_;
    return room > taken ? room - taken : 0;
  }
  // So much of it, and whoever needs it may change something.
  bool HasRoom(size_t bytes) { return writer_.Room() >= bytes + body_.size() + owed_ && !board_.full(); }
  size_t capacity() const { return writer_.capacity(); }

  // Since the ring was new.
  uint64_t appended_bytes() const { return writer_.appended(); }
  bool shown() const { return !appended_; }  // all of it
  // Nobody may change anything more (Board::full).
  bool log_full() const { return board_.full(); }
  bool collected() const { return body_.size() != 0; }
  // With several workers: what is collected is of an epoch that is over, and what its transaction has read
  // since may be of a later one. So what ends the transaction, or promises to, must not be in its record.
  bool EpochIsOver() const {
    return !alone() && collected() && board_.epoch() != collector_.last().epoch() &&
           !runtime::Planted(runtime::PlantedBug::kCommitInOldEpoch);
  }
  size_t collected_bytes() const { return body_.size(); }
  uint64_t commit_epoch() const { return commits_.epoch(); }
  // At least that of every record appended so far.
  uint64_t last_epoch() const { return collector_.last().epoch(); }

  // storage::PageChangeSink.
  void BeforeChange(const std::byte* page, const storage::PageChange& change) override {
    if (!begun_) [[unlikely]]
      BeginRecord();
    if (images_ != nullptr) [[unlikely]]
      images_->Keep(page);
    collector_.BeforeChange(page, change);
  }
  void BeforeRelease(std::byte* page) override {
    if (!alone()) {
      if (collector_.within_step()) ReleaseShared(page);
      return;
    }
    const runtime::WorkScope logging(runtime::Work::kLogging);
    collector_.BeforeRelease(page);
    if (body_.size() >= kMostCollected && !collector_.within_step()) PublishCollected();
  }
  void BeforeWait() override {
    if (!alone() && collected()) PublishBeforeStep();
  }

 private:
  void OweEnd() { owed_ += kEndBytes; }
  void BeginRecord();
  void AppendEntry(const Entry& entry, bool again = false);
  bool Repeat(const Entry& entry, size_t reserved);
  void PublishCollected();
  // Several workers.
  void ReleaseShared(std::byte* page);
  void Settle();
  void AwaitShown(size_t worker, const PageChangeCollector::ChangedPage& changed);
  void PublishBeforeStep();

  Board& board_;
  EpochHold hold_;
  RingWriter writer_;
  IslandLog* const island_;
  CommitEpoch own_commits_;
  CommitEpoch& commits_;
  std::vector<Lsn> shown_;  // by worker: as last looked at
  Publisher* publisher_ = nullptr;
  BeforeImages* images_ = nullptr;   // null: nobody takes a snapshot
  std::vector<std::byte> workload_;  // of the last command,
  uint64_t named_in_ = 0;            // whose epoch is this
  OpenTransactions open_;
  PageChangeCollector collector_;
  RecordBuffer body_;               // of the changes
  RecordBuffer head_;               // scratch
  std::vector<std::byte> fellows_;  // scratch
  size_t owed_ = 0;                 // bytes of what will be appended, whatever happens
  bool begun_ = false;              // a record: its epoch is taken
  bool appended_ = false;           // since the last Show
};

}  // namespace islands::log
