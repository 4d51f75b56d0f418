// Files as a seam: submit and complete, so that io_uring and the simulated disk fit behind the same calls.
//
// A request is submitted, and its completion is handed out by Poll on the same thread later, never from
// inside Submit. Synchronous helpers exist for start-up and shutdown only (manifest, directories).
//
// Thread safety: a FileSystem::Queue belongs to one thread; FileSystem itself may be shared.
//
// Invariants:
//  1. Every submitted request completes exactly once.
//  2. A completion carries the error of its own request.
//  3. Data of a write is durable only after a kSync of the same file that was submitted after the write
//     completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace islands::runtime {

using FileHandle = int;

enum class IoKind : uint8_t { kRead, kWrite, kSync };

struct IoRequest {
  IoKind kind = IoKind::kRead;
  FileHandle file = -1;
  uint64_t offset = 0;          // bytes
  std::span<std::byte> buffer;  // must live until completion
  uint64_t token = 0;           // handed back
};

struct IoCompletion {
  uint64_t token = 0;
  absl::Status status;
  size_t bytes = 0;  // moved; a read past the end moves fewer
};

class FileSystem {
 public:
  // Requests in flight of one thread.
  class Queue {
   public:
    virtual ~Queue() = default;
    virtual void Submit(const IoRequest& request) = 0;
    // Appends finished requests; returns how many.
    virtual size_t Poll(std::vector<IoCompletion>* completions) = 0;
  };

  virtual ~FileSystem() = default;
  virtual absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) = 0;
  virtual absl::Status Close(FileHandle file) = 0;
  virtual std::unique_ptr<Queue> MakeQueue() = 0;

  // Synchronous.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // Writes path.tmp, syncs it, renames it over path, syncs the directory: after OK the new content survives
  // power loss; after a crash at any moment the file holds the old content or the new, whole.
  virtual absl::Status ReplaceFile(const std::string& path, std::string_view content) = 0;
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The operating system's files. Requests are carried out by pread, pwrite and fdatasync when polled.
std::unique_ptr<FileSystem> MakePosixFileSystem();

// Files in memory, for tests and simulation.
std::unique_ptr<FileSystem> MakeMemoryFileSystem();

}  // namespace islands::runtime
