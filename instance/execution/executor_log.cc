// What the executor says to the log: what changes are part of, and what undoes them; and whether the worker's
// ring has room for them.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "instance/execution/executor_internal.h"
#include "runtime/planted_bug.h"

namespace islands::instance {

using runtime::Planted;
using runtime::PlantedBug;

void Executor::UndoChanges(Branch& branch) {
  log::Journal* const journal = options_.journal;
  if (journal == nullptr) return branch.undo.Rollback(store_, [](size_t) {});
  if (branch.published) Publish(branch);  // what is undone below is in the log, all of it
  working_ = &branch;
  undoing_ = true;
  undo_left_ = branch.undo.size();
  WaitForRoom(branch);
  branch.undo.Rollback(store_, [&](size_t left) {
    undo_left_ = left;
    WaitForRoom(branch);
  });
  undoing_ = false;
  branch.published ? journal->AppendAborted(branch.locks.transaction) : journal->AppendDone();
}

// Between two steps of its undo: what has been undone, but for a part perhaps of the entry that it is at,
// need not be undone again.
void Executor::PublishUndone(Branch& branch) {
  if (branch.published) {
    options_.journal->AppendCompensation(branch.locks.transaction, static_cast<uint32_t>(undo_left_));
    return;
  }
  undo_.clear();
  branch.undo.Encode(0, undo_left_, &undo_);
  options_.journal->AppendUpdate(branch.locks.transaction, undo_);
  branch.published = true;
}

void Executor::Publish() {
  if (working_ == nullptr) return options_.journal->AppendRedoOnly();
  undoing_ ? PublishUndone(*working_) : Publish(*working_);
}

bool Executor::NoteChanges(Branch& branch, Failure* failure) {
  const WorkScope logging(Work::kLogging);
  log::Journal& journal = *options_.journal;
  if (Planted(PlantedBug::kPublishAfterLatch)) {
    runtime::Linger(5);
    Publish(branch);
    return true;
  }
  if (branch.undo.size() != branch.undo_reserved) Reserve(branch);
  if (branch.log_reserved > most_to_undo_) *failure = FailureOfUndo(branch);
  if (journal.collected()) {
    ISLANDS_CHECK(changing_ == nullptr || changing_ == &branch);
    changing_ = &branch;
    const size_t undo_bytes = branch.undo.bytes() - branch.undo_published_bytes;
    if (std::max(journal.collected_bytes(), undo_bytes) >= log::Journal::kMostCollected) Publish(branch);
  }
  return branch.log_reserved <= most_to_undo_;
}

void Executor::Publish(Branch& branch) {
  if (!options_.journal->collected() && branch.undo_published == branch.undo.size()) return;
  // A page was split, an index entry has followed its row: what undoes that is in the log already.
  if (branch.undo_published == branch.undo.size()) return options_.journal->AppendRedoOnly();
  undo_.clear();
  const bool forget = Planted(PlantedBug::kPublishWithoutUndo);
  branch.undo.Encode(forget ? branch.undo.size() : branch.undo_published, branch.undo.size(), &undo_);
  options_.journal->AppendUpdate(branch.locks.transaction, undo_);
  NotePublished(branch);
}

// Before what ends the branch, or promises to.
void Executor::EndEpoch(Branch& branch) {
  ISLANDS_CHECK(changing_ == nullptr || changing_ == &branch);  // or the log took another's for its own
  if (options_.journal != nullptr && options_.journal->EpochIsOver()) Publish(branch);
}

void Executor::NotePublished(Branch& branch) {
  branch.published = true;
  branch.undo_published = branch.undo.size();
  branch.undo_published_bytes = branch.undo.bytes();
}

void Executor::Adopt(Branch& branch) {
  ISLANDS_CHECK(!branch.open && branch.locks.transaction.valid());
  branch.open = true;
  NotePublished(branch);
  if (options_.alone) ++open_;
  Reserve(branch);
}

void Executor::EndStep() {
  EndQuiet();
  if (options_.journal != nullptr) options_.journal->EndStep();
}

// For what undoes the entries that have come: they themselves, and what the changes take that they make. A
// row or an index entry that comes back may find its page full of others; more than one page that splits for
// each is not reckoned with, which is what WaitForRoom is there for.
void Executor::Reserve(Branch& branch) {
  size_t bytes = branch.undo_reserved == 0 ? log::RecordBytes(log::Journal::kMostHeadBytes) : 0;  // its end
  const size_t end = branch.undo.size();
  for (size_t i = branch.undo_reserved; i < end; ++i) {
    const UndoLog::EntrySize entry = branch.undo.SizeOf(i);
    const TableCosts& table = costs_[entry.table];
    bytes += entry.bytes + table.trees * (kSmallRecordBytes + entry.bytes);
    if (entry.comes_back && table.may_grow) bytes += table.trees * 2 * storage::kPageBytes;
  }
  branch.undo_reserved = end;
  branch.log_reserved += bytes;
  reserved_ += bytes;
  if (branch.foreign) reserved_for_foreign_ += bytes;
}

// A PREPARE or a decision, and the end that a decision owes (Journal::kEndBytes).
bool Executor::ReserveTwoPhases(Branch& branch, size_t fellows) {
  if (options_.journal == nullptr) return true;
  const size_t bytes =
      log::RecordBytes(log::Journal::kMostHeadBytes + fellows * log::kFellowBytes) + log::Journal::kEndBytes;
  if (options_.journal->room() < reserved_ + bytes) return false;
  branch.log_reserved += bytes;
  reserved_ += bytes;
  if (branch.foreign) reserved_for_foreign_ += bytes;
  return true;
}

bool Executor::RepeatPrepare(const Branch& branch, std::span<const coordinator::Fellow> fellows) {
  if (options_.journal == nullptr) return true;
  ISLANDS_CHECK(branch.published && branch.undo_published == branch.undo.size());
  if (!options_.journal->WorthRepeating(branch.locks.transaction) ||
      branch.undo.LeastBytesInLog() > log::Journal::kMostCollected)
    return false;
  undo_.clear();
  branch.undo.Encode(Planted(PlantedBug::kRepeatRestOfUndo) ? branch.undo_published : 0, branch.undo.size(),
                     &undo_);
  return options_.journal->RepeatPrepare(branch.locks.transaction, fellows, undo_, reserved_);
}

bool Executor::RepeatDecision(const coordinator::TransactionId& id,
                              std::span<const coordinator::Fellow> participants) {
  return options_.journal == nullptr || options_.journal->RepeatDecision(id, participants, reserved_);
}

bool Executor::RepeatDecided(const coordinator::TransactionId& id) {
  return options_.journal == nullptr || options_.journal->RepeatDecided(id, reserved_);
}

Failure Executor::FailureOfUndo(const Branch& branch) const {
  return {
      AbortReason::kProcedure,
      absl::FailedPreconditionError(fmt::format(
          "the transaction has changed so much on one island that to undo it takes {} bytes of a log ring of "
          "{}, an eighth of which it may have; commit in smaller pieces, or raise storage.log.ring_bytes",
          branch.log_reserved, options_.journal->capacity()))};
}

// An operation on a row: its undo entry, and what it and its undo change.
size_t Executor::RoomOfChange(size_t trees, size_t levels) {
  return log::Journal::kMostUndoEntryBytes + trees * (2 * log::kMostGroupBytes + 2 * kSmallRecordBytes) +
         (levels + trees) * (log::kMostStepBytes + kSmallRecordBytes);
}

// The common case did not say yes at once.
Progress Executor::FindRoom(const Branch& branch, const Batch::Operation& operation,
                            const storage::SiteTable* rows, Failure* failure) {
  if (!IsWrite(operation.kind) || rows == nullptr) return Progress::kDone;
  if (options_.journal->log_full()) {
    *failure = {AbortReason::kStorage,
                absl::ResourceExhaustedError("the disk with the log is full: nothing can be changed until it "
                                             "has room again; logger.log says which one")};
    return Progress::kFailed;
  }
  const size_t trees = costs_[operation.table].trees;
  const size_t need = RoomOfChange(trees, rows->levels() + trees);  // one of each may come meanwhile
  const size_t half = options_.journal->capacity() / 2;
  const bool foreign_half = branch.foreign && reserved_for_foreign_ + need > half;
  if (need > half || foreign_half) {
    *failure = {
        AbortReason::kStorage,
        absl::ResourceExhaustedError(fmt::format(
            "table '{}': a change takes up to {} bytes of a log ring of {}{}; raise storage.log.ring_bytes",
            catalog_.table(operation.table).name, need, options_.journal->capacity(),
            need > half ? "" : ", and half of it is other islands' already"))};
    return Progress::kFailed;
  }
  return options_.journal->room() < reserved_ + need ? Progress::kWaitingForRoom : Progress::kDone;
}

bool Executor::HasRoomToBury(const storage::SiteTable& rows) const {
  return options_.journal == nullptr ||
         (!options_.journal->log_full() &&
          options_.journal->room() >=
              reserved_ + (rows.levels() + 1) * (log::kMostStepBytes + kSmallRecordBytes));
}

// Before the next entry of an undo. There is something to wait for where a page or more may split: others
// have taken room on its pages since, and what was reserved is not enough; or the island recovers.
void Executor::WaitForRoom(Branch& branch) {
  if (undo_left_ == 0) return;
  log::Journal& journal = *options_.journal;
  const UndoLog::EntrySize entry = branch.undo.SizeOf(undo_left_ - 1);
  const TableCosts& table = costs_[entry.table];
  const size_t most = entry.comes_back && table.may_grow
                          ? RoomOfChange(table.trees, table.trees * kMostLevels)
                          : 2 * table.trees * (kSmallRecordBytes + entry.bytes);
  const size_t need =
      std::min(most, journal.capacity() / 2);  // no change is let in that takes more (FindRoom)
  if (journal.room() >= need) return;
  if (!branch.published || journal.collected()) PublishUndone(branch);
  for (journal.EndStep(); journal.room() < need; journal.EndStep()) {
    options_.wait_for_room ? options_.wait_for_room() : std::this_thread::yield();
  }
}

}  // namespace islands::instance
