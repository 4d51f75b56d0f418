// What the two engines of the operating system's files share: open files, and how a request goes on after
// each system call. Only runtime/file_system_*.cc include this.
//
// Thread safety: OpenFiles may be shared. A Transfer belongs to whoever carries it out.
//
// Invariants:
//  1. A descriptor stays open as long as a transfer of its file exists: numbers that the kernel gives away
//     again never hit another file, and the lock on it outlives the last write.
//  2. A transfer ends when everything was moved, with an error, or - reads only - at the end of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/descriptor.h"
#include "runtime/file_system.h"
#include "runtime/mutex.h"

namespace islands::runtime {

struct OpenFile {
  UniqueFd fd;
  std::string path;
  bool direct = false;
};
using OpenFilePtr = std::shared_ptr<OpenFile>;

class OpenFiles {
 public:
  FileHandle Add(OpenFilePtr file);
  OpenFilePtr Find(FileHandle handle) const;  // null if it is not open
  OpenFilePtr Take(FileHandle handle);        // the same, and it is open no longer

 private:
  mutable Mutex mutex_;
  FileHandle last_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<FileHandle, OpenFilePtr> files_ ABSL_GUARDED_BY(mutex_);
};

// A request on its way, maybe in several pieces.
struct Transfer {
  IoRequest request;
  OpenFilePtr file;
  size_t moved = 0;

  // The next piece; system calls take at most this many bytes at a time.
  static constexpr size_t kMaxPiece = size_t{1} << 30;
  std::span<std::byte> piece() const {
    const std::span<std::byte> rest = request.buffer.subspan(moved);
    return rest.first(rest.size() < kMaxPiece ? rest.size() : kMaxPiece);
  }
  uint64_t offset() const { return request.offset + moved; }

  // Takes in what a system call answered: bytes moved, or -errno. True if that was the last one; the
  // completion is then in *done.
  bool Advance(int64_t result, IoCompletion* done);
};

// What was tried, on what, and the system's reason.
absl::Status Failed(std::string_view action, std::string_view what, int error);
absl::Status NotOpen(std::string_view action, FileHandle file);
// Of a request whose handle is not open.
IoCompletion NotOpen(const IoRequest& request);

// Allocate where the file system cannot: zeros into every hole of [0, bytes).
absl::Status FillHoles(const OpenFile& file, uint64_t bytes);

// The engines. Without io_uring in the kernel: its reason.
absl::StatusOr<std::unique_ptr<FileSystem::Queue>> MakeUringQueue(std::shared_ptr<OpenFiles> files);
std::unique_ptr<FileSystem::Queue> MakeThreadQueue(std::shared_ptr<OpenFiles> files);
std::unique_ptr<FileSystem::Queue> MakeCallerQueue(std::shared_ptr<OpenFiles> files);

}  // namespace islands::runtime
