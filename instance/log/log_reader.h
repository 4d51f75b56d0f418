// Reads what counts of an island's log: from its oldest segment to where EPOCH says that it ends.
//
// Whatever is not whole before that end is damage: it had been synced before EPOCH said so. What is behind is
// not looked at; after a loss of power it may be anything.
//
// Records that a logger has written again, because the one before it died between writing them and saying so,
// come once.
//
// Thread safety: none.
//
// Invariant: 1. the records of a stream come in the order in which they were appended, without gaps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/record.h"
#include "instance/log/segment.h"
#include "runtime/file_system.h"

namespace islands::log {

class LogReader {
 public:
  struct Options {
    std::string directory;  // of the island
    uint64_t cluster = 0;
    uint32_t island = 0;
    LogPosition begin;  // of a checkpoint: what is before it is not needed, and may be gone
  };
  // `end`: of the island's log, from EPOCH.
  LogReader(runtime::FileSystem& files, Options options, const LogPosition& end)
      : files_(files), options_(std::move(options)), end_(end) {}

  // From their headers: the segments that count, oldest first, each with the offset where it ends. What is
  // older than the oldest that is there has been removed, because nobody needed it any more.
  absl::StatusOr<std::vector<LogPosition>> Segments();

  // Every record, segment by segment. A status other than OK from `visit` ends it. Once only.
  absl::Status Read(absl::FunctionRef<absl::Status(const StreamId&, const Record&)> visit);

 private:
  absl::StatusOr<SegmentHeader> CheckSegment(runtime::FileSystem::Queue& queue, const LogPosition& end);
  absl::Status ReadFrames(const std::string& content, const LogPosition& end,
                          absl::FunctionRef<absl::Status(const StreamId&, const Record&)> visit);
  absl::Status ReadRecords(const Frame& frame,
                           absl::FunctionRef<absl::Status(const StreamId&, const Record&)> visit);
  std::string PathOf(uint64_t number) const;

  runtime::FileSystem& files_;
  const Options options_;
  const LogPosition end_;
  std::map<StreamId, uint64_t> next_;  // offset of the next record of each stream
};

}  // namespace islands::log
