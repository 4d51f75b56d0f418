#include "instance/log/log_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "instance/log/segment_file.h"

namespace islands::log {
namespace {

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(
      fmt::format("{} is damaged: {}; it had been written to disk whole: restore data and log from a copy",
                  path, std::string(what)));
}

}  // namespace

std::string LogReader::PathOf(uint64_t number) const {
  return options_.directory + "/" + SegmentName(number);
}

absl::StatusOr<SegmentHeader> LogReader::CheckSegment(runtime::FileSystem::Queue& queue,
                                                      const LogPosition& end) {
  const std::string path = PathOf(end.segment);
  uint64_t bytes = 0;
  const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(files_, queue, path, &bytes);
  if (absl::IsDataLoss(header.status())) return Damaged(path, header.status().message());
  if (!header.ok()) return header.status();
  if (header->cluster != options_.cluster || header->island != options_.island ||
      header->number != end.segment) {
    return absl::FailedPreconditionError(
        fmt::format("{} is segment {} of island {} of other data; put the right file in its place", path,
                    header->number, header->island));
  }
  if (header->previous.segment >= end.segment) return Damaged(path, "it goes on from a later one");
  if (bytes < end.offset) return Damaged(path, fmt::format("it has {} of {} bytes", bytes, end.offset));
  return header;
}

absl::StatusOr<std::vector<LogPosition>> LogReader::Segments() {
  const std::unique_ptr<runtime::FileSystem::Queue> queue = files_.MakeQueue();
  std::vector<LogPosition> segments;
  const LogPosition& begin = options_.begin;
  if (end_ < begin) {
    return absl::DataLossError(fmt::format(
        "the log in {} ends at {}:{}, but a checkpoint goes on from {}:{}: it is an old copy; restore "
        "data and log from one time",
        options_.directory, end_.segment, end_.offset, begin.segment, begin.offset));
  }
  for (LogPosition end = end_; end.segment != 0 && end.segment >= begin.segment;) {
    if (!files_.Exists(PathOf(end.segment)) && (end != end_ || begin.segment != 0)) {
      if (begin.segment == 0) break;  // the oldest ones have been removed: nobody needs them any more
      return absl::DataLossError(
          fmt::format("{} is gone, and it is needed from {}:{} on: restore it from a copy",
                      PathOf(end.segment), begin.segment, begin.offset));
    }
    const absl::StatusOr<SegmentHeader> header = CheckSegment(*queue, end);
    if (!header.ok()) return header.status();
    segments.push_back(end);
    end = header->previous;
  }
  std::reverse(segments.begin(), segments.end());
  const LogPosition oldest = segments.empty() ? LogPosition() : segments.front();
  if (begin.segment == 0 || (oldest.segment == begin.segment && oldest.offset >= begin.offset))
    return segments;
  return Damaged(options_.directory, fmt::format("a checkpoint goes on from {}:{}, where no record begins",
                                                 begin.segment, begin.offset));
}

absl::Status LogReader::Read(absl::FunctionRef<absl::Status(const StreamId&, const Record&)> visit) {
  const absl::StatusOr<std::vector<LogPosition>> segments = Segments();
  if (!segments.ok()) return segments.status();
  for (const LogPosition& end : *segments) {
    const absl::StatusOr<std::string> content = files_.ReadFile(PathOf(end.segment));
    if (!content.ok()) return content.status();
    if (content->size() < end.offset) return Damaged(PathOf(end.segment), "it has become shorter");
    if (absl::Status read = ReadFrames(*content, end, visit); !read.ok()) return read;
  }
  return absl::OkStatus();
}

absl::Status LogReader::ReadFrames(const std::string& content, const LogPosition& end,
                                   absl::FunctionRef<absl::Status(const StreamId&, const Record&)> visit) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(content)).first(end.offset);
  const bool first = end.segment == options_.begin.segment;
  for (size_t at = first ? options_.begin.offset : kSegmentHeaderBytes, taken = 0; at < bytes.size();
       at += taken) {
    const absl::StatusOr<Frame> frame =
        DecodeFrame(options_.island, {end.segment, at}, bytes.subspan(at), &taken);
    if (!frame.ok()) return Damaged(PathOf(end.segment), frame.status().message());
    if (absl::Status read = ReadRecords(*frame, visit); !read.ok()) return read;
  }
  return absl::OkStatus();
}

absl::Status LogReader::ReadRecords(const Frame& frame,
                                    absl::FunctionRef<absl::Status(const StreamId&, const Record&)> visit) {
  // A stream whose beginning is in a segment that was removed begins where it is found first.
  uint64_t& next = next_.try_emplace(frame.stream, frame.offset).first->second;
  if (frame.offset > next) {
    return Damaged(options_.directory,
                   fmt::format("worker {} of life {} has records from offset {} on, but "
                               "not from {} on",
                               frame.stream.worker, frame.stream.life, frame.offset, next));
  }
  for (size_t at = 0, taken = 0; at < frame.records.size(); at += taken) {
    const uint64_t offset = frame.offset + at;
    absl::StatusOr<Record> record = ParseRecord(frame.stream, offset, frame.records.subspan(at), &taken);
    if (!record.ok()) return Damaged(options_.directory, record.status().message());
    record->settled = frame.settled;
    if (offset != next) continue;  // written again: invariant 1
    next = offset + taken;
    if (absl::Status visited = visit(frame.stream, *record); !visited.ok()) return visited;
  }
  return absl::OkStatus();
}

}  // namespace islands::log
