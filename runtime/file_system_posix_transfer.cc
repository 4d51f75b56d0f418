#include "fmt/format.h"
#include "runtime/file_system_posix.h"

namespace islands::runtime {

FileHandle OpenFiles::Add(OpenFilePtr file) {
  const MutexLock lock(mutex_);
  files_.emplace(++last_, std::move(file));
  return last_;
}

OpenFilePtr OpenFiles::Find(FileHandle handle) const {
  const MutexLock lock(mutex_);
  const auto found = files_.find(handle);
  return found == files_.end() ? nullptr : found->second;
}

OpenFilePtr OpenFiles::Take(FileHandle handle) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(handle);
  if (found == files_.end()) return nullptr;
  OpenFilePtr file = std::move(found->second);
  files_.erase(found);
  return file;
}

bool Transfer::Advance(int64_t result, IoCompletion* done) {
  const auto finish = [&](absl::Status status) {
    *done = {.token = request.token, .status = std::move(status), .bytes = moved};
    return true;
  };
  const auto where = [&] { return fmt::format("{} at offset {}", file->path, offset()); };
  if (result == -EINTR || result == -EAGAIN) return false;
  // A failed sync is reported once and never tried again: invariant 3 of file_system.h.
  if (request.kind == IoKind::kSync) {
    return finish(result < 0 ? Failed("sync", file->path, static_cast<int>(-result)) : absl::OkStatus());
  }
  const bool read = request.kind == IoKind::kRead;
  if (result < 0) return finish(Failed(read ? "read" : "write", where(), static_cast<int>(-result)));
  moved += static_cast<size_t>(result);
  if (moved == request.buffer.size()) return finish(absl::OkStatus());
  if (read) {
    // Past the page cache only the end of a file cuts a block off; asking on from there would be an error.
    const bool end = result == 0 || (file->direct && result % 512 != 0);
    return end ? finish(absl::OkStatus()) : false;
  }
  if (result > 0) return false;
  return finish(absl::UnavailableError(fmt::format("cannot write {}: the disk takes none of {} bytes",
                                                   where(), request.buffer.size() - moved)));
}

absl::Status Failed(std::string_view action, std::string_view what, int error) {
  return absl::ErrnoToStatus(error, fmt::format("cannot {} {}", action, what));
}

absl::Status NotOpen(std::string_view action, FileHandle file) {
  return absl::InvalidArgumentError(fmt::format("cannot {} file {}: it is not open", action, file));
}

IoCompletion NotOpen(const IoRequest& request) {
  const std::string_view action = request.kind == IoKind::kRead    ? "read"
                                  : request.kind == IoKind::kWrite ? "write"
                                                                   : "sync";
  return {.token = request.token, .status = NotOpen(action, request.file)};
}

}  // namespace islands::runtime
