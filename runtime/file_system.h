// Files as a seam: submit and complete, so that io_uring, a plain thread and the simulated disk fit behind
// the same calls.
//
// A request is submitted, and its completion is handed out by Poll on the same thread later, never from
// inside Submit. Submit never waits, however much is in flight. The other calls block: they are for start-up,
// for shutdown and for threads that may wait for a disk.
//
// Thread safety: a FileSystem::Queue belongs to one thread, which outlives its requests; with nothing in
// flight another thread may take it over. FileSystem itself may be shared, and outlives its queues.
//
// Invariants:
//  1. Every submitted request completes exactly once, in any order. Destroying a queue waits for what it has
//     in flight: nobody writes into a buffer afterwards.
//  2. A completion carries the error of its own request, which names the file, where in it, and the reason.
//     Without an error all bytes were moved; only a read past the end moves fewer.
//  3. What a write changed is durable only after a kSync of the same file that was submitted after the write
//     completed. The same holds of Allocate and Truncate. A sync that failed is not tried again: the kernel
//     may have dropped what it could not write, and a later sync would succeed without it.
//  4. A name that was created, renamed or removed is durable only after SyncDirectory of its directory.
//     MakeDirectories and ReplaceFile see to that themselves.
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

// A file that is open, from Open to Close; never used again for another one.
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
    // The same, but it need not begin before the next Submit, Poll or Wait: many go to the kernel together.
    virtual void Enqueue(const IoRequest& request) { Submit(request); }
    // Appends finished requests; returns how many. With PosixOptions::Engine::kCaller it waits for them.
    virtual size_t Poll(std::vector<IoCompletion>* completions) = 0;
    // Sleeps until Poll has something to hand out, or the time is over. Returns at once if nothing is in
    // flight. On a simulated disk it never sleeps.
    virtual void Wait(int64_t timeout_ns) = 0;
  };

  virtual ~FileSystem() = default;
  // `direct`: past the page cache; offsets, lengths and buffers are then multiples of the device's block.
  virtual absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) = 0;
  // Requests in flight still complete; the file is closed, and its lock falls, after the last of them.
  virtual absl::Status Close(FileHandle file) = 0;
  virtual std::unique_ptr<Queue> MakeQueue() = 0;

  // Room on disk for bytes [0, bytes): the file is at least that long, zeros where nothing was written, and
  // writes there do not run out of space. RESOURCE_EXHAUSTED when the disk is full; the file is then as long
  // as before. Nothing of the file may be in flight.
  virtual absl::Status Allocate(FileHandle file, uint64_t bytes) = 0;
  // Cuts the file off at `bytes`, or lengthens it with zeros for which there need not be room.
  virtual absl::Status Truncate(FileHandle file, uint64_t bytes) = 0;
  virtual absl::StatusOr<uint64_t> Size(FileHandle file) = 0;
  // Makes the file this handle's alone among those who ask: UNAVAILABLE, at once, while another
  // handle or process holds it. It falls when the handle is closed, or its process dead, and the last request
  // in flight is over: whoever gets it may trust what the file says.
  virtual absl::Status Lock(FileHandle file) = 0;

  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // Writes path.tmp, syncs it, renames it over path, syncs the directory: after OK the new content survives
  // power loss; after a crash at any moment the file holds the old content or the new, whole.
  virtual absl::Status ReplaceFile(const std::string& path, std::string_view content) = 0;
  // Those above it too; durable when it returns, also where a process that has died had made them.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // Within one directory; what was named `to` is replaced. After power loss `to` is the old file or the new.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // The names in a directory, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
};

struct PosixOptions {
  enum class Engine : uint8_t {
    kAuto,     // io_uring where the kernel lets us, else threads
    kIoUring,  // or nothing: where the kernel refuses, every request fails with its reason
    kThreads,  // one thread per queue, which carries out one request after the other
    kCaller,   // the same in Poll, so that nobody is woken: for who has only a disk to wait for
  };
  Engine engine = Engine::kAuto;
};

// The operating system's files. Names are not followed through links in a file's place.
std::unique_ptr<FileSystem> MakePosixFileSystem(const PosixOptions& options = {});

// OK if a queue gets io_uring, else why it gets a thread: an old kernel, a sandbox, a limit on locked memory.
absl::Status CheckIoUring();

// Files in memory, for tests and simulation. With faults and power loss: file_system_memory.h.
std::unique_ptr<FileSystem> MakeMemoryFileSystem();

}  // namespace islands::runtime
