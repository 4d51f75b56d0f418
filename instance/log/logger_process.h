// The logger as a process: it drains the rings that lie in the ring directory, and is told the rest by lines
// on a socket. Its parent, the supervisor, may kill it at any time and start another one, which it tells the
// same things again; nothing else is remembered by either side.
//
//   parent says        and hears            when
//   dead ISLAND LIFE   drained ISLAND LIFE  its process is dead and its locks are free; all that it has
//                                           appended is in EPOCH: the next life may begin, and its rings may
//                                           go
//   life ISLAND LIFE   added ISLAND LIFE    its rings are there, all workers', made after the life before it
//                                           was drained; before its process starts
//   start              ready EPOCH          after every `dead` that was not answered by `drained` yet
//                      exposed PATH         the ring directory, or the ring of a life that is not drained
//                                           yet, is no longer in its place: a kill would take what is in it,
//                                           but as long as nobody is killed all of it gets to disk
//                      vanished PATH        EPOCH is no longer in its place: nothing is safe any more
//                      error TEXT           what was said makes no sense
//
// It drains nothing before `start`. Rings that are there when it begins it finds itself. `life` is for those
// that come later, and, before `start`, for those that must be there: if one is not, somebody has removed it
// while no logger had it open, and what was in it is lost. Then it ends with an error, before EPOCH passes
// over that.
//
// SIGTERM, or the end of the socket: it drains what there is, as far as holds let it, and ends. Any error
// ends it with a status: a sync that failed above all, which is not tried again.
//
// How it learns of appends: while there is nothing to do it sleeps on its socket, for an interval at most
// (and 10 ms), and looks at the rings. So a worker that appends pays nothing and wakes nobody, and a logger
// that has nothing to do costs a look at every ring in an interval.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/logger.h"
#include "instance/log/ring_directory.h"

namespace islands::log {

class LoggerProcess {
 public:
  struct Options {
    Logger::Options log;
    std::string ring_directory;
    std::vector<uint32_t> workers;  // of every island
    int64_t lock_wait_ns = 0;       // for the locks of a logger that has just died
    int64_t stop_wait_ns = 0;       // for what is still held when it shall end
  };
  // Has the log's lock and all rings that there are. As Logger::Open and Add; DATA_LOSS: a ring is damaged.
  static absl::StatusOr<std::unique_ptr<LoggerProcess>> Open(runtime::FileSystem& files,
                                                             const runtime::Clock& clock, Board& board,
                                                             Options options);

  // Until it is told to end by `signals`, a signalfd, or by the end of `commands`. DEADLINE_EXCEEDED: then
  // something was still held; what the log could not go on for otherwise.
  absl::Status Run(int commands, int signals);

 private:
  LoggerProcess(const runtime::Clock& clock, Board& board, Options options)
      : clock_(clock), board_(board), options_(std::move(options)) {}
  absl::Status AddRings();
  // Waits at most so long for something to be said, and does it.
  absl::Status Listen(int commands, int signals, int64_t wait_ns);
  absl::Status Hear(std::string_view line);
  absl::Status AddLife(uint32_t island, uint64_t life);
  void Need(const StreamId& stream);
  // Of ours, the first that somebody has removed, moved or replaced; empty: none.
  std::string MissingRing() const;
  // Once of each kind that it is missing, if it is not empty.
  void Tell(bool nowhere, const std::string& missing);
  absl::Status Start();
  void Say(std::string line) { answers_ += line + "\n"; }
  void SendAnswers(int commands);
  void Work();
  void Report();
  int64_t WaitNs() const;
  absl::Status Stuck() const;

  const runtime::Clock& clock_;
  Board& board_;
  const Options options_;
  std::unique_ptr<RingDirectory> rings_;
  std::unique_ptr<Logger> logger_;
  std::map<uint32_t, uint64_t> dying_;  // island and life, until it is drained
  std::string heard_;                   // of a line that is not complete
  std::string answers_;                 // that the socket had no room for yet
  bool started_ = false;
  bool stopping_ = false;
  bool vanished_ = false, exposed_ = false;  // was said
  bool full_ = false;
  int64_t stop_by_ns_ = 0;
  // The rings that are needed if this process is killed: of every island those of its last life, until that
  // is drained; and the file of each.
  std::map<StreamId, uint64_t> needed_;
  uint64_t epoch_inode_ = 0;
  int64_t next_look_ns_ = 0;  // for what has vanished
};

}  // namespace islands::log
