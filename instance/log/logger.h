// Brings the records of all rings of the box to disk, and says how far everything is there: the one writer of
// log files and of EPOCH.
//
// It goes in rounds: G is raised; the holds are read, then the tails; what is before them goes to the
// islands' files, which are synced; then EPOCH is written and synced; then the board says so and the rings
// have room again. RunOnce is a step of it, and requests are under way between two steps. It waits for the
// disk only where a segment is made: once in segment_bytes, a file is made and preallocated, and its
// directory synced, while rings fill up; and where old ones are removed. A round in which nothing has moved,
// because a hold stands still, writes nothing.
//
// An error of the disk ends it: what a failed sync has not made durable may be gone without a trace, so
// trying again would prove nothing. Nothing becomes durable any more, and Failure says why. Only a full disk
// is waited for: it is noticed where the next segment is made, while the one in use has room for all that is
// under way. The board says so, and nobody begins more; what there is gets durable, so that checkpoints move
// on, and the segments that they let go of make room.
//
// Thread safety: owned by one thread; board and rings are shared as they say.
//
// Invariants:
//  1. EPOCH names only what has been synced before, and the board only what EPOCH says.
//  2. A ring's room is free only when EPOCH covers what was there.
//  3. The records of a stream reach the files in their order, without gaps; twice only behind what EPOCH
//     covered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/board.h"
#include "instance/log/epoch_file.h"
#include "instance/log/log_files.h"
#include "instance/log/ring.h"
#include "runtime/clock.h"
#include "runtime/file_system.h"

namespace islands::log {

// Where the files of an island are, in the log directory of a deployment.
std::string IslandDirectory(const std::string& log_directory, uint32_t island);

class Logger {
 public:
  struct Options {
    std::string directory;
    uint64_t cluster = 0;  // fingerprint of its id
    uint64_t segment_bytes = 64 << 20;
    // G is at least this: the epoch with which the box went on after its last cut. EPOCH alone would not do:
    // until it is written again it is below the cut, and what is stamped within a cut never counts.
    uint64_t first_epoch = 1;
    int64_t interval_ns = runtime::kNsPerMs;  // from the beginning of a round to the next
  };

  // Goes on where EPOCH ends, or makes it. G begins above the EPOCH of the file and all that is in the log's
  // files, if it is not there already. UNAVAILABLE: another logger holds the file, or one that has died
  // has still writes in flight. FAILED_PRECONDITION: the log is of other data. DATA_LOSS: EPOCH is damaged,
  // an old copy, or gone.
  static absl::StatusOr<std::unique_ptr<Logger>> Open(runtime::FileSystem& files, const runtime::Clock& clock,
                                                      Board& board, Options options);

  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  // From now on its records are drained. EPOCH passes over rings that nobody has named, so:
  //  - before Start all rings that there are come here, dead lives' too. What is in them was left by another
  //    logger or box: G goes above it; DATA_LOSS: it is not whole;
  //  - afterwards only those of a life that begins, before any of its workers stamps or appends: the ring is
  //    empty, and the worker's hold is infinity. An earlier life's hold that is still there is let go by
  //    OnIslandDead, which must have been called; later it would take it for the new life's.
  // FAILED_PRECONDITION: it is not so, or there is no such worker. ALREADY_EXISTS: it is here.
  absl::Status Add(std::shared_ptr<Ring> ring);
  // All rings that there are have been added, and OnIslandDead was called for what is known to be dead. Once,
  // before the first RunOnce. FAILED_PRECONDITION: somebody holds an epoch whose ring is not here.
  absl::Status Start();
  // The process of this life is dead, and its locks are free: nobody stamps or appends for it any more. Says
  // nothing of a later life, whose rings may be here already.
  void OnIslandDead(uint32_t island, uint64_t life);
  // Whether everything that a dead island has appended is in EPOCH; then its rings are let go.
  bool ReleaseDrained(uint32_t island);

  // Does what can be done without waiting. False: nothing, until something completes or the next deadline.
  bool RunOnce();
  // When something is to be done next; INT64_MAX: not before somebody appends.
  int64_t NextDeadlineNs() const;
  bool busy() const { return state_ != State::kIdle; }
  // All that was appended is durable, as far as holds allow to tell.
  bool drained() const { return !busy() && !HasWork(); }
  // For whoever sleeps until something completes.
  runtime::FileSystem::Queue& queue() { return *queue_; }

  // OK as long as the log can go on.
  const absl::Status& failure() const { return failure_; }
  // Why there is no room for a next segment: the disk is full. OK otherwise.
  const absl::Status& full() const { return full_; }
  // Once, why an island's log goes on in the room that was kept for this: the disk was full, even if only for
  // a moment, when this logger began. OK otherwise.
  absl::Status TakeShortage();
  const EpochBlock& epoch_block() const { return block_; }

 private:
  enum class State : uint8_t { kIdle, kRaised, kWriting, kSyncing, kWritingEpoch, kSyncingEpoch };
  struct Stream {
    std::shared_ptr<Ring> ring;
    uint64_t added = 0;   // to the files; synced if no round is under way
    uint64_t covers = 0;  // once this epoch is durable, so is everything that was added
    bool dead = false;
  };

  Logger(runtime::FileSystem& files, const runtime::Clock& clock, Board& board, Options options);
  absl::Status OpenEpoch();
  absl::Status SecureEpoch();
  absl::Status OpenLogs();
  absl::Status DoNow(const runtime::IoRequest& request);  // waits for it
  absl::Status CheckNewLife(const Ring& ring) const;
  bool HasRing(uint32_t island, uint32_t worker) const;
  // When the next one is due, however little there is.
  int64_t RoundNs() const;
  bool Due() const;
  bool HasWork() const;
  // DATA_LOSS: another process has written into its ring's header.
  static absl::Status Unsound(const Stream& stream);
  // What the stream has added was stamped with the epoch of now at most.
  void Cover(Stream* stream);
  void BeginRound();
  void Collect();
  // Whether the round under way has anything to write.
  bool Moved() const;
  // What is in the rings goes into the files' buffers. Returns whether all of it did.
  bool Drain();
  void Advance();
  void Submit(std::vector<runtime::IoRequest> requests, State state);
  runtime::IoRequest EpochWrite(uint64_t number);
  void WriteEpoch();
  void Finish();
  void FreeRings();
  // Whether segments that nobody needs are kept; not while log or pages find no room.
  bool KeepsSpares() const;
  // Those that no checkpoint needs (Board::needed_segment), and that are not kept.
  void RemoveOldSegments();
  // Next ones, where they will be needed soon.
  void PrepareSegments();
  // Room in its segment in use with which a next one is to be made: what a round, its rings and the undo of
  // what is open may take.
  uint64_t Reserve(uint32_t island) const;
  void SetFull(absl::Status why);
  void Fail(absl::Status why);

  runtime::FileSystem& files_;
  const runtime::Clock& clock_;
  Board& board_;
  const Options options_;
  std::unique_ptr<runtime::FileSystem::Queue> queue_;
  std::vector<LogFiles> logs_;    // by island
  std::vector<uint64_t> needed_;  // by island: the segment before which none is left
  std::vector<Stream> streams_;
  runtime::FileHandle epoch_file_ = -1;
  EpochBlock block_;       // as on disk
  EpochBlock next_block_;  // of the round under way
  std::vector<std::byte> epoch_bytes_;

  bool started_ = false;
  State state_ = State::kIdle;
  size_t under_way_ = 0;  // requests
  uint64_t covers_ = 0;   // of all streams, those that were let go among them
  int64_t begun_ns_ = 0;  // the round under way, or the last one
  int64_t next_round_ns_ = 0;
  int64_t next_prepare_ns_ = 0;  // after the disk was full
  absl::Status failure_;
  absl::Status full_;
  std::vector<runtime::IoCompletion> completions_;
};

}  // namespace islands::log
