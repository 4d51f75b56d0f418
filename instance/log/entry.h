// What records say: their kinds, and what the body of each consists of. The body's last part is always
// changes of pages, perhaps none (page_changes_format.h).
//
//   kind            body before the changes                    what it says
//   kDone           -                                          changes that nothing undoes any more: all of a
//                                                              transaction that has committed, of one that
//                                                              was undone before anything else had a turn, a
//                                                              ghost removed, a page split; or that an undo
//                                                              entry in an earlier record undoes as well
//   kUpdate         id, undo                                   part of a transaction that is still open
//   kCompensation   id, varint left                            part of its undo: of the undo entries of its
//                                                              kUpdate records the first `left` are still to
//                                                              be undone, the last of them perhaps in part
//   kCommit         id                                         the rest of the transaction; it has committed
//   kAborted        id                                         the rest of its undo; it is over
//   kPrepare        id, fellows, undo                          the rest of a transaction that another island
//                                                              coordinates: its word ends it, and nothing
//                                                              else. Fellows: the other participants
//   kDecision       id, fellows                                as kCommit, by its coordinator: all commit.
//                                                              Fellows: who has yet to hear
//   kDecided        id                                         as kCommit, by the one participant that wrote:
//                                                              its coordinator has yet to hear
//   kEnd            id                                         of kDecision and kDecided: they have heard
//   kCommand        id, check, workload, input                 as kDone, of a transaction of one procedure:
//                                                              what it has changed is not in the record, but
//                                                              follows from all records before, and is made
//                                                              again by running it: recovery/
//                                                              command_replay.h
//   kCall           likewise                                   the same, called from outside
//
//   id     varints: island, worker, boot epoch, sequence of the transaction
//   undo   varint n, n bytes: entries, oldest first (execution/branch.h has what is in one)
//   fellows   varint n, n bytes: of each 4, its island, and 8, its life
//   check     4: CRC-32C of the changes, as another kind would have them
//   workload  varint n, n bytes: whose procedure; none: that of the command before it in the stream. The
//             first of every epoch has it: recovery may begin with any, behind a load or a snapshot
//   input     varint n, n bytes: what the procedure is given (workload/input_coder.h); of kCall, its name and
//             arguments (workload/procedures.h)
//
// kPrepare may come again, with all of the undo, and kDecision and kDecided too: then the transaction's
// records before that are not needed any more (open_transactions.h).
//
// Invariants:
//  1. A page's changes are in the log in the order in which they were made to it: a record holds what was
//     changed since the one before it in its stream, so no change may be seen by anybody who might append
//     first.
//  2. kDone takes one epoch, for all its changes and for itself: were a change in an earlier one than what
//     says that it stays, a page might go to disk that a cut between the two could not bring back (log.md,
//     Pages). The same holds of kCommit and kAborted and the changes within them.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/fellow.h"
#include "coordinator/transaction_id.h"
#include "instance/log/page_changes_buffer.h"
#include "instance/log/record.h"

namespace islands::log {

enum class EntryKind : uint8_t {
  kDone = 1,
  kUpdate = 2,
  kCompensation = 3,
  kCommit = 4,
  kAborted = 5,
  kPrepare = 6,
  kDecision = 7,
  kDecided = 8,
  kEnd = 9,
  kCommand = 10,
  kCall = 11,
};

// Has what a procedure was given, and not what it has changed.
constexpr bool IsCommand(EntryKind kind) { return kind == EntryKind::kCommand || kind == EntryKind::kCall; }

// Says that a transaction has committed: whatever it changed stays.
constexpr bool Commits(EntryKind kind) {
  return kind == EntryKind::kDone || IsCommand(kind) || kind == EntryKind::kCommit ||
         kind == EntryKind::kDecision || kind == EntryKind::kDecided;
}

// Ends a transaction of which no other record speaks.
constexpr bool IsWhole(EntryKind kind) { return kind == EntryKind::kDone || IsCommand(kind); }

// What kCommand or kCall has of a transaction.
struct Command {
  bool called = false;  // from outside
  std::span<const std::byte> workload;
  std::span<const std::byte> input;
};

struct Entry {
  EntryKind kind = EntryKind::kDone;
  coordinator::TransactionId transaction;  // not of kDone
  uint32_t left = 0;                       // of kCompensation
  std::span<const std::byte> fellows;      // of kPrepare, kDecision: as EncodeFellows has them
  std::span<const std::byte> undo;         // of kUpdate, kPrepare
  uint32_t check = 0;                      // of kCommand and kCall, likewise the two that follow
  std::span<const std::byte> workload;
  std::span<const std::byte> input;
  std::span<const std::byte> changes;
};

// Everything of the body but the changes.
void EncodeEntryHead(const Entry& entry, RecordBuffer* head);
// DATA_LOSS: the record is of another kind, or its body too short.
absl::StatusOr<Entry> DecodeEntry(const Record& record);

inline constexpr size_t kFellowBytes = 12;
void EncodeFellows(std::span<const coordinator::Fellow> fellows, std::vector<std::byte>* out);
// DATA_LOSS: it is not what EncodeFellows wrote.
absl::StatusOr<std::vector<coordinator::Fellow>> DecodeFellows(std::span<const std::byte> bytes);

}  // namespace islands::log
