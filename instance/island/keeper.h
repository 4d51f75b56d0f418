// What an island keeps: the log that its workers append to, and its data files.
//
//   Recover          a generation of files is read, the log repeated from its checkpoint on, and what nobody
//                    has ended undone; from then on the journals are for the workers
//   WriteGeneration  the rows of a store become a new generation of files, beside the one that counts
//   TakeCleaner      who moves changed pages home and checkpoints on, from now on
//
// Where there is no directory for data files (simulated clusters) the log is laid over rows that were loaded
// anew, page for page as the first life loaded them.
//
// Thread safety: used while no worker runs; from any thread, once Recover has returned: what metrics tell.
// Journals belong to the workers once these run.
//
// Invariants:
//  1. Records of this life are appended only to its own rings, which the logger knew before it began.
//  2. A generation is written only when all that the island has appended is durable, and stands for all of
//     it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/board.h"
#include "instance/log/box_manifest.h"
#include "instance/log/journal.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"
#include "instance/log/segment.h"
#include "instance/recovery/cleaner.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/warm_pages.h"
#include "instance/storage/catalog.h"
#include "instance/storage/store.h"
#include "runtime/clock.h"
#include "runtime/file_system.h"

namespace islands::instance {

// Where an island keeps what it has promised, if it does.
struct LogSeam {
  using TakeRecord = absl::FunctionRef<absl::Status(const log::StreamId&, const log::Record&)>;

  log::Board* board = nullptr;
  // An empty one, of this life; the logger knows it already.
  std::function<absl::StatusOr<std::shared_ptr<log::Ring>>(const log::StreamId&)> make_ring;
  // All that the island's lives before have left from this position on, in order.
  std::function<absl::Status(uint32_t island, const log::LogPosition& begin, TakeRecord take)> read;
  std::vector<log::EpochCut> cuts;
  uint64_t cluster = 0;
  std::string log_directory;   // of the deployment
  std::string data_directory;  // of the island's files; empty: see above
  // What waits for EPOCH, as worker_shared.h has it: answers with durability `sync`, and not with `lazy`;
  // messages of two-phase commit with `votes: forced`.
  bool answers_wait = false;
  bool votes_wait = false;
  // Durability `command`: on islands of one worker, whose rows are all in memory, what can be repeated is
  // logged by what its procedure was given (recovery/command_replay.h).
  bool commands = false;
};

class Keeper {
 public:
  struct Options {
    uint32_t island = 0;
    uint64_t life = 0;
    uint32_t workers = 1;
    bool alone = true;                       // nobody takes latches: there is one worker
    recovery::WorkloadOpener open_workload;  // whose commands are in the log
    std::function<void(std::string)> say;    // how far Recover is; may be empty
  };
  Keeper(const LogSeam& log, runtime::FileSystem& files, const runtime::Clock& clock, Options options)
      : log_(log), files_(files), clock_(clock), options_(options) {}

  // `generation` 0: there is no data yet, and the store stays as it is. DATA_LOSS, FAILED_PRECONDITION,
  // RESOURCE_EXHAUSTED: as island_data.h, recovery.h say.
  absl::Status Recover(const storage::Catalog& catalog, storage::Store& store, uint64_t generation);
  // What the lives before have promised.
  const recovery::Unsettled& unsettled() const { return recovery_->unsettled(); }
  bool has_files() const { return !log_.data_directory.empty(); }
  uint64_t generation() const { return generation_; }

  // What the last Recover took.
  struct Recovered {
    double seconds = 0;
    uint64_t records = 0;  // repeated
    uint64_t undone = 0;   // transactions
  };

  // What metrics tell.
  const Recovered& recovered() const { return recovered_; }
  const log::Board& board() const { return *log_.board; }
  const log::Ring& ring(uint32_t worker) const { return *rings_[worker]; }
  // As log::CommitEpoch has it.
  uint64_t commit_epoch() const { return journals_.front()->commit_epoch(); }

  // Null: it has none.
  log::Journal* journal(uint32_t worker) { return journals_[worker].get(); }

  // Store::MakeTrees, with its pages in the log. DEADLINE_EXCEEDED: the ring stays full.
  absl::Status MakeTrees(const storage::Catalog& catalog, storage::Store& store);

  // Of a paged store, before its pages change for a load (recovery/island_data.h).
  absl::Status BeginGeneration(storage::Store& store, uint64_t generation);
  // DEADLINE_EXCEEDED: the log does not become durable. The files of another attempt are no obstacle.
  absl::Status WriteGeneration(const storage::Catalog& catalog, storage::Store& store, uint64_t generation,
                               recovery::Progress progress = recovery::NoProgress);
  // The generation that was written last counts; those before it are removed.
  absl::Status Switch();
  // Which pages are in memory, for the next life, once no worker runs any more. A list of this life that is
  // still being read stays as it is.
  void SaveWarmPages(const storage::Store& store);
  const recovery::WarmingUp& warming_up() const { return warming_up_; }
  // Once after Recover, and after each Switch. Null without data files.
  absl::StatusOr<std::unique_ptr<recovery::Cleaner>> TakeCleaner(storage::Store& store,
                                                                 recovery::Cleaner::OldestOpen oldest_open);

 private:
  recovery::WarmPages WarmPagesOf(uint64_t generation) const;
  recovery::IslandDataOptions DataOptions(const storage::Store& store, uint64_t generation) const;
  absl::StatusOr<recovery::IslandData> ReadFiles(const storage::Catalog& catalog, storage::Store& store,
                                                 uint64_t generation);
  absl::Status Repeat(const storage::Catalog& catalog, storage::Store& store, uint64_t generation);
  void Say(std::string progress) const;
  recovery::WorkloadOpener OpenerFor(const storage::Store& store) const;
  bool TakesSnapshots(const storage::Store& store) const {
    return options_.alone && store.pager() == nullptr;
  }
  absl::Status MakeJournals();
  void Undo(const storage::Catalog& catalog, storage::Store& store);
  absl::StatusOr<recovery::LogBegin> WaitUntilDurable();

  const LogSeam& log_;
  runtime::FileSystem& files_;
  const runtime::Clock& clock_;
  const Options options_;
  std::vector<std::shared_ptr<log::Ring>> rings_;  // by worker
  std::optional<log::IslandLog> shared_;
  std::vector<std::unique_ptr<log::Journal>> journals_;
  std::optional<recovery::Recovery> recovery_;
  Recovered recovered_;
  recovery::WarmingUp warming_up_;
  uint64_t generation_ = 0;                    // that counts
  uint64_t written_ = 0;                       // that does not yet
  std::shared_ptr<storage::DataFiles> begun_;  // by BeginGeneration
  std::optional<recovery::IslandData> data_;   // of the cleaner to be taken
};

}  // namespace islands::instance
