// Writes an island's changed pages home, all the time, and moves its checkpoint on: with it the log can be
// let go of, and a restart has little to repeat.
//
// It goes through all pages again and again. A page is changed if its LSN is not the one that it has at home;
// so nobody who changes pages does anything for it. A pass:
//
//   begin        B = the first epoch that anybody may still stamp with (Board::Complete() + 1)
//   visit        every page in memory; the changed ones are copied, whole, under their latch. In between,
//                those that a paged store would like to evict (pager.h)
//   write        a batch of copies at a time, once their LSNs' epochs are durable everywhere: into the
//                double-write area, then home (page_writer.h)
//   checkpoint   with bound min(B, oldest epoch of an open transaction that has records), written when the
//                epoch of now is durable everywhere
//
// Why the bound is right: what is stamped after the pass began is of epoch B or later; so every change of an
// earlier epoch had been made, and each page was visited after that. Then it had the LSN that it has at home,
// or was copied, and the copy is home now. This is the oldest LSN that Shore-MT's cleaner tracks on its way
// (Johnson et al. 2009, section 7.7), with one number for all pages instead of one for each.
//
// RunOnce never waits; it is called between two steps of the worker: no change is half-way, and none is
// collected that is not in the ring. With several workers copies are of single latched pages already; what
// they have to see to is that a change is in the ring before its latch goes (log.md).
//
// Where commands are in the log (command_replay.h) a pass is a snapshot of all pages instead (snapshot.h),
// and the checkpoint names the set of files that has it.
//
// An error of the disk ends it: failure() says why. The log grows from then on. While the disk is full it
// tries again.
//
// Thread safety: owned by the island's worker.
//
// Invariants:
//  1. No page on disk has an LSN of an epoch that is not durable everywhere.
//  2. The checkpoint on disk is right at every moment (checkpoint.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/board.h"
#include "instance/log/segment.h"
#include "instance/recovery/island_data.h"
#include "instance/recovery/snapshot.h"
#include "instance/recovery/warm_pages.h"
#include "instance/storage/files/page_writer.h"
#include "instance/storage/store.h"
#include "runtime/file_system.h"

namespace islands::recovery {

class Cleaner {
 public:
  struct Options {
    std::string log_directory;   // of the deployment: EPOCH says where the log is
    size_t pages_per_call = 64;  // to visit
    size_t batch_pages = 256;
    // Set: a pass is a snapshot, `first_only` or each; of an island of one worker, whose pool is resident.
    // Not set: there are no commands behind the checkpoint.
    log::Journal* snapshots = nullptr;
    bool first_only = false;
  };
  // Of all transactions that have records in the log and are open, in doubt, or decided without an end
  // (kEnd): an epoch not above that of their first; UINT64_MAX if there is none. The least of all workers of
  // the island (Worker::OldestOpen); log/open_transactions.h says why one thread may ask for all.
  using OldestOpen = std::function<uint64_t()>;

  // Begins once recovery has ended. Store and board outlive it. Opens EPOCH, for reading.
  static absl::StatusOr<std::unique_ptr<Cleaner>> Create(runtime::FileSystem& files, storage::Store& store,
                                                         const log::Board& board, IslandData data,
                                                         Options options, OldestOpen oldest_open);
  ~Cleaner();
  Cleaner(const Cleaner&) = delete;
  Cleaner& operator=(const Cleaner&) = delete;

  // A small piece of work. False: there was none, until something completes, becomes durable, or changes.
  bool RunOnce();
  // The checkpoint on disk: log segments before that of its position may go (log::RemoveSegmentsBefore).
  const Checkpoint& checkpoint() const { return data_.checkpoint; }
  // Of a paged store: what brings pages back, and keeps the list of them (warm_pages.h), goes on. False:
  // there is nothing of that to do soon.
  void SetWarmUp(std::unique_ptr<WarmUp> warm_up) { warm_up_ = std::move(warm_up); }
  bool KeepWarm(int64_t now_ns) { return warm_up_ != nullptr && warm_up_->RunOnce(now_ns); }
  // The epoch that it waits for to become durable; 0: for none. Somebody may have to raise G for that.
  uint64_t waits_for() const;
  // Nothing was to be done when it looked last, and nothing is under way.
  bool idle() const { return state_ == State::kIdle; }
  // A paged store wants pages to go home: somebody may wait for their room.
  bool hurried() const {
    return store_.pager() != nullptr && (!victims_.empty() || hurries_ || store_.pager()->HasVictims());
  }
  uint64_t pages_written() const { return writer_.done() + (snapshot_ ? snapshot_->written() : 0); }
  uint64_t passes() const { return passes_; }  // that have ended
  // A pass is a snapshot, since there are commands behind the checkpoint, or may be.
  bool takes_snapshots() const { return takes_snapshots_; }
  // How often it has looked and there was nothing to do.
  uint64_t found_nothing() const { return found_nothing_; }
  const absl::Status& failure() const { return failure_; }
  // Why nothing goes on for now: the disk with the data files is full. OK otherwise.
  const absl::Status& full() const {
    return snapshot_ && !snapshot_->full().ok() ? snapshot_->full() : writer_.full();
  }

 private:
  enum class State : uint8_t {
    kIdle,
    kReadingEpoch,
    kVisiting,
    kWaiting,  // for a batch to be durable in the log
    kWriting,
    kWaitingToMove,  // the checkpoint
    kWritingCheckpoint,
    kSyncingCheckpoint,
    kTakingSnapshot,
  };
  // Of the log: no record before the position is of a later epoch.
  struct Mark {
    uint64_t reaches = 0;
    log::LogPosition position;
  };
  Cleaner(runtime::FileSystem& files, storage::Store& store, const log::Board& board, IslandData data,
          Options options);
  bool BeginPass();
  bool BeginSnapshot();
  bool GoOnWithSnapshot();
  std::optional<log::LogPosition> NoteMark();
  bool Visit();
  bool VisitVictims();
  void VisitPage(size_t slot, uint64_t number);
  bool Write();
  void TakeCheckpoint();
  log::LogPosition PositionFor(uint64_t bound);
  void WriteCheckpoint();
  void Submit(const runtime::IoRequest& request, State state);
  // Whether the one request that is under way has completed.
  bool Completed();
  bool Durable(uint64_t epoch) const { return board_.durable() >= epoch; }

  runtime::FileSystem& files_;
  storage::Store& store_;
  const log::Board& board_;
  const Options options_;
  OldestOpen oldest_open_;
  IslandData data_;
  storage::PageWriter writer_;
  std::unique_ptr<runtime::FileSystem::Queue> queue_;  // of EPOCH and checkpoint
  runtime::FileHandle epoch_file_ = -1;
  std::vector<std::byte> epoch_bytes_;
  std::vector<std::byte> checkpoint_bytes_;

  std::optional<Snapshot> snapshot_;
  bool takes_snapshots_;
  uint64_t oldest_open_then_ = 0;  // as the snapshot began
  uint64_t snapshot_pages_ = 0;    // that the ones before have written
  State state_ = State::kIdle;
  // Of the pass under way, or the last one:
  uint64_t begin_ = 0;                   // B
  std::optional<log::LogPosition> end_;  // of the island's log when it began, if that is known
  bool found_any_ = true;                // changed pages
  size_t slot_ = 0;                      // to visit next
  uint64_t page_ = 0;
  uint64_t batch_epoch_ = 0;  // the latest of the copies in the batch
  struct Copied {
    uint32_t slot;
    uint64_t number;
    uint64_t lsn;
  };
  std::vector<Copied> copied_;                  // in the batch
  bool hurries_ = false;                        // there are some in the batch
  std::vector<storage::Pager::Place> victims_;  // to visit before all others
  uint64_t passes_ = 0;
  uint64_t found_nothing_ = 0;
  std::vector<uint64_t> ends_;  // by slot: pages that the pass visits
  std::deque<Mark> marks_;      // oldest first
  Checkpoint next_;             // not on disk yet
  absl::Status failure_;
  std::unique_ptr<WarmUp> warm_up_;  // null: all data are in memory
  std::vector<runtime::IoCompletion> completions_;
};

}  // namespace islands::recovery
