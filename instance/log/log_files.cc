#include "instance/log/log_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "instance/log/record.h"
#include "runtime/check.h"

namespace islands::log {
namespace {

// Some are let go of at once when a checkpoint moves on; as many are made until it does so again.
constexpr size_t kMostSpares = 4;

// Of the whole records at the beginning of `records` that need at most `most` bytes: each begins with its
// length. DATA_LOSS: it cannot; they lie in memory that an island can write to.
absl::StatusOr<size_t> WholeRecords(std::span<const std::byte> records, size_t most) {
  if (records.size() <= most) return records.size();
  size_t taken = 0;
  for (;;) {
    uint32_t bytes;
    std::memcpy(&bytes, records.data() + taken, sizeof(bytes));
    if (bytes < kRecordHeaderBytes || bytes > records.size() - taken || bytes % kRecordAlignment != 0)
      return absl::DataLossError(fmt::format("a record of {} bytes is in a log ring", bytes));
    if (taken + bytes > most) return taken;
    taken += bytes;
  }
}

}  // namespace

absl::Status RemoveSegmentsBefore(runtime::FileSystem& files, const std::string& directory,
                                  const LogPosition& begin) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const uint64_t number = SegmentNumber(name);
    if (number == 0 || number >= begin.segment) continue;
    if (absl::Status removed = files.Remove(directory + "/" + name); !removed.ok()) return removed;
  }
  return absl::OkStatus();  // names that come back after a loss of power harm nobody
}

absl::StatusOr<LogFiles> LogFiles::Open(runtime::FileSystem& files, Options options, const LogPosition& end) {
  ISLANDS_CHECK(options.segment_bytes >= kLeastSegmentBytes && options.segment_bytes <= kMostSegmentBytes);
  LogFiles log(files, std::move(options));
  if (absl::Status made = files.MakeDirectories(log.options_.directory); !made.ok()) return made;
  absl::StatusOr<std::vector<std::string>> names = files.List(log.options_.directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) log.last_number_ = std::max(log.last_number_, SegmentNumber(name));
  log.others_ = log.last_number_;
  log.end_ = end;
  if (absl::Status removed = log.RemovePrepared(*names); !removed.ok()) return removed;
  return log;
}

// Who may still write there, because the one before us has died with writes in flight, does so without a
// name. What has a header of its own stays: its records are beyond EPOCH, but after an accident with that
// file they may be all that is left.
absl::Status LogFiles::RemovePrepared(const std::vector<std::string>& names) {
  const std::unique_ptr<runtime::FileSystem::Queue> queue = files_->MakeQueue();
  for (const std::string& name : names) {
    if (SegmentNumber(name) <= end_.segment) continue;
    const std::string path = options_.directory + "/" + name;
    uint64_t bytes = 0;
    const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(*files_, *queue, path, &bytes);
    if (header.ok() && header->number == SegmentNumber(name)) continue;
    if (!header.ok() && !absl::IsDataLoss(header.status())) return header.status();
    if (absl::Status removed = files_->Remove(path); !removed.ok()) return removed;
  }
  return absl::OkStatus();
}

absl::StatusOr<LogFiles::Segment> LogFiles::MakeSegment() {
  short_ = true;
  const uint64_t number = ++last_number_;  // used up, whatever comes: its name may stay and not be durable
  const std::string path = options_.directory + "/" + SegmentName(number);
  const absl::StatusOr<runtime::FileHandle> file = OpenNew(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<uint64_t> bytes = AllocateSegment(*file);
  absl::Status status = bytes.status();
  if (status.ok()) status = files_->SyncDirectory(options_.directory);
  if (!status.ok()) {
    files_->Close(*file).IgnoreError();
    files_->Remove(path).IgnoreError();
    return status;
  }
  short_ = false;
  return Segment{*file, number, *bytes};
}

absl::StatusOr<runtime::FileHandle> LogFiles::OpenNew(const std::string& path) {
  while (!spares_.empty()) {
    const absl::Status renamed = files_->Rename(options_.directory + "/" + SegmentName(spares_.back()), path);
    if (!renamed.ok() && !absl::IsNotFound(renamed)) return renamed;
    spares_.pop_back();
    if (renamed.ok()) return files_->Open(path, /*create=*/false, /*direct=*/false);
  }
  return files_->Open(path, /*create=*/true, /*direct=*/false);
}

// How many. A logger that begins on a full disk needs what the one before it had kept for what is under way
// (Logger::Reserve): without it nothing would become durable, so that no checkpoint would make room.
absl::StatusOr<uint64_t> LogFiles::AllocateSegment(runtime::FileHandle file) {
  absl::Status status = files_->Allocate(file, options_.segment_bytes);
  if (status.ok()) return options_.segment_bytes;
  if (!absl::IsResourceExhausted(status) || current_.number != 0) return status;
  const absl::StatusOr<uint64_t> tail = CutOffTail();
  if (!tail.ok()) return tail.status();
  const uint64_t bytes = std::min(*tail, options_.segment_bytes);
  if (bytes < 2 * kSegmentHeaderBytes) return status;
  if (absl::Status allocated = files_->Allocate(file, bytes); !allocated.ok()) return allocated;
  shortage_ = std::move(status);
  return bytes;
}

// The last segment of the log loses what is behind the log's end, of which nobody reads anything, and which
// nobody writes but a logger that has died. Returns how much that was; in whole blocks, so that those of the
// log are not written again.
absl::StatusOr<uint64_t> LogFiles::CutOffTail() {
  if (end_.segment == 0) return 0;
  const std::string path = options_.directory + "/" + SegmentName(end_.segment);
  if (!files_->Exists(path)) return 0;
  const absl::StatusOr<runtime::FileHandle> file = files_->Open(path, /*create=*/false, /*direct=*/false);
  if (!file.ok()) return file.status();
  const uint64_t end = (end_.offset + kSegmentHeaderBytes - 1) / kSegmentHeaderBytes * kSegmentHeaderBytes;
  absl::StatusOr<uint64_t> bytes = files_->Size(*file);
  const bool some = bytes.ok() && *bytes > end;
  if (absl::Status cut = some ? files_->Truncate(*file, end) : bytes.status(); !cut.ok()) {
    bytes = cut;
  } else {
    *bytes = some ? (*bytes - end) / kSegmentHeaderBytes * kSegmentHeaderBytes : 0;
  }
  files_->Close(*file).IgnoreError();
  return bytes;
}

absl::Status LogFiles::Release(uint64_t needed, bool keep) {
  const absl::StatusOr<std::vector<std::string>> names = files_->List(options_.directory);
  if (!names.ok()) return names.status();
  spares_.clear();
  uint64_t oldest = needed;
  for (auto name = names->rbegin(); name != names->rend(); ++name) {
    const uint64_t number = SegmentNumber(*name);
    const bool ours = number > others_;  // invariant 3
    if (!keep || !ours || number >= needed || spares_.size() == kMostSpares) continue;
    spares_.push_back(number);
    oldest = number;
  }
  return RemoveSegmentsBefore(*files_, options_.directory, {.segment = oldest});
}

absl::Status LogFiles::PrepareNext(uint64_t reserve) {
  const bool low =
      current_.number == 0 || current_.bytes - end_.offset <= std::max(options_.segment_bytes / 2, reserve);
  if (next_.number != 0 || !(low || short_)) return absl::OkStatus();
  absl::StatusOr<Segment> made = MakeSegment();
  if (made.ok()) next_ = *made;
  return made.status();
}

absl::Status LogFiles::NextSegment() {
  if (next_.number == 0) {
    absl::StatusOr<Segment> made = MakeSegment();
    if (!made.ok()) return made.status();
    next_ = *made;
  }
  if (current_.number != 0) full_.push_back(current_);
  current_ = std::exchange(next_, {});
  pending_.push_back({current_, 0,
                      EncodeSegmentHeader({.cluster = options_.cluster,
                                           .island = options_.island,
                                           .number = current_.number,
                                           .bytes = current_.bytes,
                                           .previous = end_})});
  end_ = {current_.number, kSegmentHeaderBytes};
  return absl::OkStatus();
}

absl::Status LogFiles::Add(const StreamId& stream, uint64_t offset, std::span<const std::byte> records,
                           uint64_t settled, size_t* added) {
  *added = 0;
  while (*added < records.size()) {
    const uint64_t room = current_.number == 0 ? 0 : current_.bytes - end_.offset;
    const std::span<const std::byte> rest = records.subspan(*added);
    const size_t most = room <= kFrameHeaderBytes ? 0 : room - kFrameHeaderBytes;
    const absl::StatusOr<size_t> taken = WholeRecords(rest, most);
    if (!taken.ok()) return taken.status();
    if (*taken == 0) {
      if (absl::Status status = NextSegment(); !status.ok()) return status;
      continue;
    }
    if (pending_.empty()) pending_.push_back({current_, end_.offset, {}});
    EncodeFrame({stream, offset + *added, settled, rest.first(*taken)}, end_, &pending_.back().bytes);
    end_.offset += kFrameHeaderBytes + *taken;
    *added += *taken;
  }
  return absl::OkStatus();
}

std::vector<runtime::IoRequest> LogFiles::Writes() {
  std::vector<runtime::IoRequest> requests;
  for (Pending& pending : pending_) {
    requests.push_back({.kind = runtime::IoKind::kWrite,
                        .file = pending.segment.file,
                        .offset = pending.offset,
                        .buffer = std::span(pending.bytes)});
  }
  return requests;
}

std::vector<runtime::IoRequest> LogFiles::Syncs() const {
  std::vector<runtime::IoRequest> requests;
  for (const Pending& pending : pending_) {
    requests.push_back({.kind = runtime::IoKind::kSync, .file = pending.segment.file});
  }
  return requests;
}

void LogFiles::OnSynced() {
  for (const Segment& segment : full_) files_->Close(segment.file).IgnoreError();
  full_.clear();
  pending_.clear();
}

void LogFiles::Close() {
  OnSynced();
  for (Segment* segment : {&current_, &next_}) {
    if (segment->number != 0) files_->Close(segment->file).IgnoreError();
    *segment = {};
  }
}

}  // namespace islands::log
