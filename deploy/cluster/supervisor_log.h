// The log of a running deployment, as its supervisor keeps it: what must be known before anything of it is
// read, the rings, and the logger's process.
//
//   Open         was power lost? Then the manifest gets a cut, before anybody reads the log. The logger
//                begins, and is told of all lives that have ended without it
//   OnDead       a life's process is gone. Its rings are drained; until then MayBegin says no
//   Begin        the rings of a life are made, and the logger is told
//   IsReady      the manifest names the life: its process may start
//   Step         hears the logger, and starts another one when it was killed
//   Stop         no process is left: all is drained, the log is closed, rings are removed
//
// The order of these things is that of instance/log/box_manifest.h and logger_process.h; nothing here waits
// for the logger.
//
// Thread safety: the supervisor's main thread, but for what is const.
//
// A data directory that was copied beside its original has the same cluster, and with it the same log, if the
// deployment's file names an absolute directory for it, and the same place for rings. So before anything of
// either is looked at or changed, both are locked, by this process, for as long as there is a BoxLog; and
// rings are of one log directory only (instance/log/ring_directory.h says what becomes of the others).
//
// Invariants:
//  1. The process of a life starts only when the manifest names the life, and the logger knows its rings.
//  2. A life begins only when what the lives before it have appended is in EPOCH.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/file/deployment.h"
#include "deploy/processes/file_lock.h"
#include "deploy/processes/restart.h"
#include "instance/log/board.h"
#include "instance/log/box_manifest.h"
#include "instance/log/epoch_file.h"
#include "instance/log/ring_directory.h"
#include "runtime/descriptor.h"
#include "runtime/file_system.h"

namespace islands::deploy {

class BoxLog {
 public:
  struct Options {
    std::string program;   // absolute path of islands-logger
    std::string log_path;  // of what it says
    std::string cluster_id;
    std::string log_directory;
    bool keeps_rows = false;        // there are data files that this log belongs to
    std::vector<uint64_t> lives;    // of every island, the last one that its data knows; empty: not looked at
    std::string ring_directory;     // empty: in shared memory, else in the log's directory
    std::vector<uint32_t> workers;  // of every island
    uint64_t ring_bytes = 8 << 20;
    int64_t interval_us = 100'000;
    RestartLimits restarts;
  };
  // The caller has the deployment's lock, and no island of it lives. `workers_before`: of every island, when
  // this log was used last; empty: never. FAILED_PRECONDITION, DATA_LOSS, RESOURCE_EXHAUSTED: what to do is
  // in the message. `files`: where manifest and EPOCH are; a test may have some that fail.
  static absl::StatusOr<std::unique_ptr<BoxLog>> Open(
      Options options, const std::vector<uint32_t>& workers_before,
      std::unique_ptr<runtime::FileSystem> files = runtime::MakePosixFileSystem());
  ~BoxLog();
  BoxLog(const BoxLog&) = delete;
  BoxLog& operator=(const BoxLog&) = delete;

  // From one round of the logger to the next: how long somebody waits who waits for the disk, or how much a
  // loss of power may take.
  static int64_t IntervalUs(const Deployment& deployment) {
    const bool waits = deployment.durability == Durability::kSync || deployment.forced_votes;
    return waits ? 1'000 : 100'000;
  }
  // Where they are if there is no room in shared memory.
  static std::string RingsBeside(const std::string& log_directory) { return log_directory + "/rings"; }

  int board_fd() const { return board_fd_.get(); }
  const std::string& ring_directory() const { return rings_->path(); }
  const std::vector<log::EpochCut>& cuts() const { return manifest_.cuts; }
  pid_t logger_pid() const { return pid_; }                      // any thread; 0: none runs
  uint32_t logger_restarts() const { return logger_restarts_; }  // any thread
  bool waits() const;                                            // for an answer
  // For people; any thread. Why nothing can be changed, and what was dropped by Open; empty: it can, nothing.
  std::string full() const;
  const std::string& lost() const { return lost_; }

  void OnDead(uint32_t island);
  bool MayBegin(uint32_t island) const { return islands_[island].state == State::kDrained; }
  absl::Status Begin(uint32_t island, uint64_t life);
  bool IsReady(uint32_t island) const { return islands_[island].state == State::kReady; }
  // An error: the deployment has to be stopped. Either nothing becomes durable any more, or a kill would take
  // what is acknowledged, since somebody has removed rings; then Stop brings all of it to disk.
  absl::Status Step();
  // Again and again, until it says true.
  bool Stop();

 private:
  enum class State : uint8_t { kDrained, kDying, kBeginning, kAdded, kReady };
  struct Island {
    State state = State::kDrained;
    uint64_t life = 0;  // of the state
  };

  BoxLog(Options options, std::unique_ptr<runtime::FileSystem> files)
      : options_(std::move(options)), restarts_(options_.restarts), files_(std::move(files)) {}
  absl::Status Prepare(const std::vector<uint32_t>& workers_before);
  absl::Status ReadManifest(uint64_t cluster);
  absl::Status CheckLives() const;
  absl::Status ChooseRings(uint64_t cluster);
  absl::Status FindOutWhatWasLost(const std::vector<uint32_t>& workers_before);
  absl::Status MakeCut();
  absl::StatusOr<log::EpochBlock> ReadLastEpoch(const std::string& path);
  absl::Status SpawnLogger();
  void Say(std::string line);
  void Tell(const char* what, uint32_t island);
  absl::Status Hear();
  absl::Status HearLine(const std::string& line);
  absl::Status WriteLives();
  absl::Status LookAfterLogger();
  void Close();

  const Options options_;
  RestartPolicy restarts_;
  const std::unique_ptr<runtime::FileSystem> files_;
  uint64_t cluster_ = 0;
  std::optional<FileLock> lock_;  // of the log's directory
  log::BoxManifest manifest_;     // as on disk
  std::unique_ptr<log::RingDirectory> rings_;
  runtime::UniqueFd board_fd_;
  std::unique_ptr<log::Board> board_;
  std::string lost_;
  std::vector<Island> islands_;
  std::atomic<pid_t> pid_ = 0;
  std::atomic<uint32_t> logger_restarts_ = 0;
  int64_t restart_at_ms_ = 0;  // while there is no logger
  runtime::UniqueFd socket_;
  std::string heard_;  // of a line that is not whole
  uint64_t log_begin_ = 0;
  bool full_ = false;      // the disk with the manifest
  bool stopping_ = false;  // the logger was told to end
  int64_t kill_at_ms_ = 0;
  absl::Status failure_;  // the log does not go on
  absl::Status exposed_;  // it does, without the names of its rings
};

inline constexpr const char* kLogLockName = "LOG.LOCK";  // the data directory, with its LOCK, may be the same
// FAILED_PRECONDITION: data that belongs to a log finds none there; says what to do.
absl::Status NoLogIn(const std::string& log_directory);
// Where the rings of a log may be: the first that is there has them.
std::vector<std::string> RingPaths(const std::string& ring_directory, const std::string& log_directory,
                                   uint64_t cluster);
// FAILED_PRECONDITION: rings that `manifest` knows are at none of these paths, but where they were made, and
// have what was acknowledged last.
absl::Status CheckNoRingsElsewhere(const log::BoxManifest& manifest, const log::BoxId& boot,
                                   const std::vector<std::string>& paths, const std::string& log_directory);
// Of a directory that is there. FAILED_PRECONDITION: somebody else has it; says who.
absl::StatusOr<FileLock> LockLog(const std::string& log_directory);

}  // namespace islands::deploy
