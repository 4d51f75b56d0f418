#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "runtime/descriptor.h"
#include "runtime/file_system.h"

namespace islands::runtime {
namespace {

// The one translator of errno: what was tried, on what, and the system's reason.
absl::Status Failed(std::string_view action, const std::string& what, int error) {
  return absl::ErrnoToStatus(error, fmt::format("cannot {} {}", action, what));
}

// A file's name is its own: a link in its place is an error. Directories may be linked to.
int OpenRetrying(const std::string& path, int flags) {
  const int links = (flags & O_DIRECTORY) != 0 ? 0 : O_NOFOLLOW;
  int fd;
  do {
    fd = open(path.c_str(), flags | links | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A new name survives power loss only once its directory is synced.
absl::Status SyncDirectory(const std::string& path) {
  const UniqueFd directory(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
  if (directory.get() < 0) return Failed("open directory", path, errno);
  if (fsync(directory.get()) != 0) return Failed("sync directory", path, errno);
  return absl::OkStatus();
}

// Moves up to buffer.size() bytes; fewer only at the end of a file that is read. Returns the bytes moved or
// -1 with errno.
ssize_t Transfer(const IoRequest& request) {
  size_t moved = 0;
  while (moved < request.buffer.size()) {
    std::byte* at = request.buffer.data() + moved;
    const size_t bytes = request.buffer.size() - moved;
    const off_t offset = static_cast<off_t>(request.offset + moved);
    const ssize_t now = request.kind == IoKind::kRead ? pread(request.file, at, bytes, offset)
                                                      : pwrite(request.file, at, bytes, offset);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return -1;
    if (now == 0) {
      if (request.kind == IoKind::kRead) break;
      errno = ENOSPC;
      return -1;
    }
    moved += static_cast<size_t>(now);
  }
  return static_cast<ssize_t>(moved);
}

// A failed fdatasync is reported once and never retried: the kernel may have dropped the pages.
IoCompletion CarryOut(const IoRequest& request) {
  IoCompletion done{.token = request.token, .status = absl::OkStatus()};
  if (request.kind == IoKind::kSync) {
    if (fdatasync(request.file) != 0) {
      done.status = Failed("sync", fmt::format("file {}", request.file), errno);
    }
    return done;
  }
  const ssize_t moved = Transfer(request);
  if (moved < 0) {
    done.status = Failed(request.kind == IoKind::kRead ? "read" : "write",
                         fmt::format("file {} at offset {}", request.file, request.offset), errno);
  } else {
    done.bytes = static_cast<size_t>(moved);
  }
  return done;
}

class PosixQueue final : public FileSystem::Queue {
 public:
  void Submit(const IoRequest& request) override { submitted_.push_back(request); }

  size_t Poll(std::vector<IoCompletion>* completions) override {
    const size_t finished = submitted_.size();
    for (const IoRequest& request : submitted_) completions->push_back(CarryOut(request));
    submitted_.clear();
    return finished;
  }

 private:
  std::vector<IoRequest> submitted_;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) override {
    const int flags = O_RDWR | (direct ? O_DIRECT : 0);
    int fd = OpenRetrying(path, flags);
    if (fd >= 0) return fd;
    if (errno != ENOENT || !create) return Failed("open", path, errno);
    fd = OpenRetrying(path, flags | O_CREAT);
    if (fd < 0) return Failed("create", path, errno);
    if (absl::Status synced = SyncDirectory(ParentOf(path)); !synced.ok()) {
      close(fd);
      return synced;
    }
    return fd;
  }

  absl::Status Close(FileHandle file) override {
    if (close(file) != 0) return Failed("close", fmt::format("file {}", file), errno);
    return absl::OkStatus();
  }

  std::unique_ptr<Queue> MakeQueue() override { return std::make_unique<PosixQueue>(); }

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    const UniqueFd file(OpenRetrying(path, O_RDONLY));
    if (file.get() < 0) return Failed("open", path, errno);
    return ReadAll(file.get(), path);
  }

  // A crash leaves at most path.tmp behind, which the next ReplaceFile overwrites.
  absl::Status ReplaceFile(const std::string& path, std::string_view content) override {
    const std::string temporary = path + ".tmp";
    UniqueFd file(OpenRetrying(temporary, O_WRONLY | O_CREAT | O_TRUNC));
    if (file.get() < 0) return Failed("create", temporary, errno);
    if (absl::Status written = WriteAll(file.get(), content, temporary); !written.ok()) return written;
    if (fsync(file.get()) != 0) return Failed("sync", temporary, errno);
    if (close(file.Release()) != 0) return Failed("close", temporary, errno);
    if (rename(temporary.c_str(), path.c_str()) != 0) return Failed("rename to", path, errno);
    return SyncDirectory(ParentOf(path));
  }

  absl::Status MakeDirectories(const std::string& path) override {
    if (path.empty()) return absl::InvalidArgumentError("cannot make a directory without a name");
    struct stat existing {};
    if (stat(path.c_str(), &existing) == 0) {
      return S_ISDIR(existing.st_mode) ? absl::OkStatus() : Failed("make directory", path, ENOTDIR);
    }
    const std::string parent = ParentOf(path);
    if (parent != path) {
      if (absl::Status made = MakeDirectories(parent); !made.ok()) return made;
    }
    // EEXIST: someone else made it just now, or the path ends with a slash.
    if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return Failed("make directory", path, errno);
    return SyncDirectory(parent);
  }

  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

  absl::Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return Failed("remove", path, errno);
    return SyncDirectory(ParentOf(path));
  }
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem() { return std::make_unique<PosixFileSystem>(); }

}  // namespace islands::runtime
