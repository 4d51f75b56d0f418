// The log files of one island, from the side that writes them: frames are put together in memory, written by
// one request per segment and synced.
//
// Files are called segment-0000000001 and so on. One is preallocated before the one in use is full, so that a
// full disk is noticed while there is still room in the log for all that is under way. If there is one that
// nobody needs any more it becomes the next: blocks that have been written cost half as much to write and
// sync as blocks that are only reserved, which a journal has to say of that they are in use.
//
// Thread safety: owned by the logger. Add and PrepareNext make blocking calls when they need a new file.
//
// Invariants:
//  1. Bytes at a position are written once. A writer begins in a segment that nobody has used. If the disk is
//     full that one takes the room that the segment before it has behind the log's end.
//  2. The name of a segment is durable before a frame goes into it.
//  3. What is written over was written, and synced, by this object: nothing is in flight to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/segment_file.h"
#include "runtime/file_system.h"

namespace islands::log {

// Removes the segments before that of `begin`: a checkpoint on disk says that an island's log is needed from
// there on. Segments go whole. The one of `begin` stays, so that no number is used again. A logger may do
// better (LogFiles::Release).
absl::Status RemoveSegmentsBefore(runtime::FileSystem& files, const std::string& directory,
                                  const LogPosition& begin);

class LogFiles {
 public:
  struct Options {
    std::string directory;
    uint64_t cluster = 0;
    uint32_t island = 0;
    uint64_t segment_bytes = 64 << 20;
  };

  // `end`: where the island's log ends according to EPOCH, on which the caller has the lock; the first
  // segment goes on from there. Makes the directory, and removes what an earlier logger had prepared and not
  // begun.
  static absl::StatusOr<LogFiles> Open(runtime::FileSystem& files, Options options, const LogPosition& end);

  // Records, whole ones, from `offset` of their stream on; `settled`: as in their frames (segment.h).
  // RESOURCE_EXHAUSTED: the disk is full; `*added` says how many bytes came in before that.
  absl::Status Add(const StreamId& stream, uint64_t offset, std::span<const std::byte> records,
                   uint64_t settled, size_t* added);
  // Behind everything that was added.
  const LogPosition& end() const { return end_; }
  // Makes the next segment, if there is none in use, that one is half full or has no room for `reserve` bytes
  // more, or if one could not be made.
  absl::Status PrepareNext(uint64_t reserve);

  // A checkpoint on disk says that segments before this one are not needed any more. They go, but for some
  // that become next ones, if `keep`. The one that is needed stays, so that no number is used again.
  absl::Status Release(uint64_t needed, bool keep);
  bool keeps_some() const { return !spares_.empty(); }
  // Once, why a segment was begun in the room of the one before it (invariant 1); OK: none was since the last
  // call.
  absl::Status TakeShortage() { return std::exchange(shortage_, absl::OkStatus()); }

  // Both: requests that the caller submits, with its tokens. Writes() hands out what was added since, Syncs()
  // the files that those were for; what Writes() names must live until they have completed.
  std::vector<runtime::IoRequest> Writes();
  std::vector<runtime::IoRequest> Syncs() const;
  // The syncs have completed.
  void OnSynced();
  // At the end; nothing is in flight.
  void Close();

 private:
  struct Segment {
    runtime::FileHandle file = -1;
    uint64_t number = 0;  // 0: none
    uint64_t bytes = 0;
  };
  // What goes to one segment, from `offset` on.
  struct Pending {
    Segment segment;
    uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };

  LogFiles(runtime::FileSystem& files, Options options) : files_(&files), options_(std::move(options)) {}
  absl::Status RemovePrepared(const std::vector<std::string>& names);
  absl::StatusOr<Segment> MakeSegment();
  absl::StatusOr<runtime::FileHandle> OpenNew(const std::string& path);
  absl::StatusOr<uint64_t> AllocateSegment(runtime::FileHandle file);
  absl::StatusOr<uint64_t> CutOffTail();
  absl::Status NextSegment();

  runtime::FileSystem* files_;
  Options options_;
  uint64_t last_number_ = 0;  // of any segment that ever was
  uint64_t others_ = 0;       // the last number that was not made here
  std::vector<uint64_t> spares_;
  Segment current_;
  Segment next_;
  std::vector<Segment> full_;  // closed once they are synced
  bool short_ = false;         // the last one that was wanted could not be made
  absl::Status shortage_;
  LogPosition end_;
  std::vector<Pending> pending_;  // the last one is for current_
};

}  // namespace islands::log
