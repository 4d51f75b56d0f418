// Brings an island's rows back from its log: repeats what was done, then undoes what nobody ended (ARIES,
// Mohan et al. 1992).
//
//   BeginFrom   the checkpoint whose pages have been read in (island_data.h), if there is one
//   Redo        every record of the log from there on, in LSN order: its changes, unless their pages have
//               them, by the site's lane (page_redo.h), or its command, unless the snapshot has it
//               (command_replay.h); and what it says of transactions
//   FindTrees   the pages are as they were when the island died
//   UndoLosers  with a journal that listens: what was open is rolled back, by key, and that is logged as any
//               rollback is. An island that dies meanwhile goes on where it was
//   unsettled   what two-phase commit has left: it is for the workers of the new life to end
//
// Records in a cut do not count: power was lost, and not everything of their epochs was on disk on every
// island (log.md, Restart). What such a record said has never been heard of.
//
// Thread safety: none; nobody else uses the store.
//
// Invariants:
//  1. A change is undone once, whenever islands die: what was undone before is known from the log.
//  2. Records come in the order of their LSNs, in which pages were changed. The log of an island with one
//     worker has them so; of several workers, stream_merge.h puts them so.
//  3. A page that was not whole in its file is not there; the first that the log has of it is an image.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "coordinator/transaction_id.h"
#include "instance/execution/branch.h"
#include "instance/execution/executor.h"
#include "instance/log/box_manifest.h"
#include "instance/log/entry.h"
#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "instance/recovery/checkpoint.h"
#include "instance/recovery/command_replay.h"
#include "instance/recovery/page_redo.h"
#include "instance/recovery/unsettled.h"
#include "instance/storage/store.h"

namespace islands::recovery {

class Recovery {
 public:
  // `store` and `lanes` as PageRedo has them; `open` as CommandReplay.
  Recovery(const storage::Catalog& catalog, storage::Store& store, std::vector<log::EpochCut> cuts,
           uint32_t lanes = 1, WorkloadOpener open = {})
      : catalog_(catalog),
        store_(store),
        cuts_(std::move(cuts)),
        pages_(store, lanes),
        open_workload_(std::move(open)) {}

  // Before the first Redo: the store has the pages that this checkpoint speaks of.
  void BeginFrom(const Checkpoint& checkpoint);
  // DATA_LOSS: the record is damaged, or is none that the stream's worker writes; or an earlier one does not
  // fit the pages.
  absl::Status Redo(const log::StreamId& stream, const log::Record& record);
  // DATA_LOSS: a record does not fit the pages, or they are not what the catalog says.
  absl::Status FindTrees();
  // Whether the rows are as undo takes for granted, once the trees have been found: of who has not ended, and
  // of who is in doubt. A page that is whole may be an old state of itself, if the disk has lost a write.
  // DATA_LOSS: one is not.
  absl::Status CheckUndo() const;
  // Rolls back what has not ended; what the executor's journal collects is appended, and shown after each, or
  // earlier where the ring is short of room (ExecutorOptions::wait_for_room). Ends early, with false, when
  // `go_on` says so: somebody else may go on later, after another Redo.
  bool UndoLosers(instance::Executor& executor, absl::FunctionRef<bool()> go_on);

  const Unsettled& unsettled() const { return unsettled_; }

  uint64_t records() const { return records_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t commands() const { return commands_run_; }  // among the records
  size_t losers() const { return open_.size(); }
  // Who has not ended, with what is to be undone.
  void VisitLosers(
      absl::FunctionRef<void(const coordinator::TransactionId& id, const instance::UndoLog& undo)> visit)
      const {
    for (const auto& [id, open] : open_) visit(id, open.undo);
  }
  // The highest of all records that count: the new life goes on above it.
  log::Lsn last() const { return last_; }

 private:
  struct Open {
    instance::UndoLog undo;
    log::Lsn first;
    log::Lsn last;
  };
  absl::Status Note(const log::Entry& entry, log::Lsn lsn);
  absl::Status NoteUpdate(const log::Entry& entry, log::Lsn lsn);
  absl::Status NotePrepare(const log::Entry& entry, log::Lsn lsn);
  absl::Status NoteCommit(const log::Entry& entry, log::Lsn lsn);
  absl::Status RunCommand(const log::Entry& entry, log::Lsn lsn);
  absl::Status FindTreesOfCommands();
  // Whose end is in the log though its beginning may not be: the checkpoint knows of both.
  bool MayHaveEnded(log::Lsn lsn) const { return lsn.epoch() <= taken_; }
  bool Decided(const coordinator::TransactionId& id) const;

  const storage::Catalog& catalog_;
  storage::Store& store_;
  const std::vector<log::EpochCut> cuts_;
  PageRedo pages_;
  const WorkloadOpener open_workload_;
  std::optional<CommandReplay> commands_;  // once there was one
  bool pages_changed_ = true;              // by redo, since the last command
  uint64_t trees_ = 0;                     // that were found for commands
  uint64_t snapshot_ = 0;                  // the pages are those of the end of this epoch; 0: of no moment
  uint64_t commands_run_ = 0;
  std::map<coordinator::TransactionId, Open> open_;  // have changed something and not ended
  uint64_t bound_ = 0;                               // epochs of the checkpoint
  uint64_t taken_ = 0;
  Unsettled unsettled_;
  log::Lsn last_;
  uint64_t records_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace islands::recovery
