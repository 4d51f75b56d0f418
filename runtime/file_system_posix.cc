// The calls that block. Queues: file_system_uring.cc, file_system_threads.cc.
#include "runtime/file_system_posix.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace islands::runtime {
namespace {

// A file's name is its own: a link in its place is an error. Directories may be linked to.
int OpenRetrying(const std::string& path, int flags) {
  const int links = (flags & O_DIRECTORY) != 0 ? 0 : O_NOFOLLOW;
  return Uninterrupted([&] { return open(path.c_str(), flags | links | O_CLOEXEC, 0644); });
}

int Resize(int fd, uint64_t bytes) {
  return Uninterrupted([&] { return ftruncate(fd, static_cast<off_t>(bytes)); });
}

// One that was interrupted has not failed: nothing was dropped.
int Sync(int fd) {
  return Uninterrupted([&] { return fsync(fd); });
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<uint64_t> SizeOf(const OpenFile& file) {
  struct stat now {};
  if (fstat(file.fd.get(), &now) != 0) return Failed("ask for the size of", file.path, errno);
  return static_cast<uint64_t>(now.st_size);
}

// The file has no handle on it, or none whose requests are in flight.
absl::Status WriteZeros(int fd, uint64_t begin, uint64_t end, const std::string& path) {
  static constexpr size_t kBlock = size_t{1} << 20;
  const std::string zeros(std::min<uint64_t>(kBlock, end - begin), '\0');
  while (begin < end) {
    const size_t bytes = std::min<uint64_t>(zeros.size(), end - begin);
    const ssize_t now =
        Uninterrupted([&] { return pwrite(fd, zeros.data(), bytes, static_cast<off_t>(begin)); });
    if (now <= 0) return Failed("allocate", path, now < 0 ? errno : ENOSPC);
    begin += static_cast<uint64_t>(now);
  }
  return absl::OkStatus();
}

// All requests of a queue that has no engine.
class RefusedQueue final : public FileSystem::Queue {
 public:
  explicit RefusedQueue(absl::Status reason) : reason_(std::move(reason)) {}
  void Submit(const IoRequest& request) override {
    refused_.push_back({.token = request.token, .status = reason_});
  }
  size_t Poll(std::vector<IoCompletion>* completions) override {
    completions->insert(completions->end(), refused_.begin(), refused_.end());
    return std::exchange(refused_, {}).size();
  }
  void Wait(int64_t /*timeout_ns*/) override {}

 private:
  const absl::Status reason_;
  std::vector<IoCompletion> refused_;
};

class PosixFileSystem final : public FileSystem {
 public:
  explicit PosixFileSystem(const PosixOptions& options) : options_(options) {}

  absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) override {
    const int fd = OpenRetrying(path, O_RDWR | (create ? O_CREAT : 0) | (direct ? O_DIRECT : 0));
    if (fd < 0) return Failed(create ? "create" : "open", path, errno);
    auto file = std::make_shared<OpenFile>(OpenFile{.fd = UniqueFd(fd), .path = path, .direct = direct});
    return files_->Add(std::move(file));
  }

  absl::Status Close(FileHandle handle) override {
    const OpenFilePtr file = files_->Take(handle);
    if (!file) return NotOpen("close", handle);
    // No new transfers of it begin, so that a count of one stays one. Otherwise the last transfer closes it.
    if (file.use_count() > 1 || close(file->fd.Release()) == 0) return absl::OkStatus();
    return Failed("close", file->path, errno);
  }

  std::unique_ptr<Queue> MakeQueue() override {
    if (options_.engine == PosixOptions::Engine::kCaller) return MakeCallerQueue(files_);
    if (options_.engine == PosixOptions::Engine::kThreads) return MakeThreadQueue(files_);
    absl::StatusOr<std::unique_ptr<Queue>> ring = MakeUringQueue(files_);
    if (ring.ok()) return *std::move(ring);
    if (options_.engine == PosixOptions::Engine::kAuto) return MakeThreadQueue(files_);
    return std::make_unique<RefusedQueue>(ring.status());
  }

  absl::Status Allocate(FileHandle handle, uint64_t bytes) override {
    const OpenFilePtr file = files_->Find(handle);
    if (!file) return NotOpen("allocate", handle);
    if (bytes == 0) return absl::OkStatus();
    const absl::StatusOr<uint64_t> before = SizeOf(*file);
    if (!before.ok()) return before.status();
    const int result =
        Uninterrupted([&] { return fallocate(file->fd.get(), 0, 0, static_cast<off_t>(bytes)); });
    if (result == 0) return absl::OkStatus();
    absl::Status status = errno == EOPNOTSUPP || errno == ENOSYS ? FillHoles(*file, bytes)
                                                                 : Failed("allocate", file->path, errno);
    // What was got on the way to a full disk is given back; the error is about the way there.
    if (!status.ok() && bytes > *before) (void)Resize(file->fd.get(), *before);
    return status;
  }

  absl::Status Truncate(FileHandle handle, uint64_t bytes) override {
    const OpenFilePtr file = files_->Find(handle);
    if (!file) return NotOpen("truncate", handle);
    if (Resize(file->fd.get(), bytes) == 0) return absl::OkStatus();
    return Failed("truncate", file->path, errno);
  }

  absl::StatusOr<uint64_t> Size(FileHandle handle) override {
    const OpenFilePtr file = files_->Find(handle);
    if (!file) return NotOpen("ask for the size of", handle);
    return SizeOf(*file);
  }

  absl::Status Lock(FileHandle handle) override {
    const OpenFilePtr file = files_->Find(handle);
    if (!file) return NotOpen("lock", handle);
    if (Uninterrupted([&] { return flock(file->fd.get(), LOCK_EX | LOCK_NB); }) == 0) return absl::OkStatus();
    if (errno != EWOULDBLOCK) return Failed("lock", file->path, errno);
    return absl::UnavailableError(fmt::format("cannot lock {}: somebody else holds it", file->path));
  }

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
    if (Sync(file.get()) != 0) return Failed("sync", temporary, errno);
    if (close(file.Release()) != 0) return Failed("close", temporary, errno);
    if (rename(temporary.c_str(), path.c_str()) != 0) return Failed("rename to", path, errno);
    return SyncDirectory(ParentOf(path));
  }

  absl::Status MakeDirectories(const std::string& path) override {
    if (path.empty()) return absl::InvalidArgumentError("cannot make a directory without a name");
    struct stat existing {};
    if (stat(path.c_str(), &existing) == 0) {
      if (!S_ISDIR(existing.st_mode)) return Failed("make directory", path, ENOTDIR);
      return SyncName(path, existing.st_dev);
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
    return unlink(path.c_str()) == 0 ? absl::OkStatus() : Failed("remove", path, errno);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (ParentOf(from) != ParentOf(to)) {
      return absl::InvalidArgumentError(
          fmt::format("cannot rename {} to {}: it would change its directory", from, to));
    }
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return Failed("rename", fmt::format("{} to {}", from, to), errno);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const UniqueFd directory(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
    if (directory.get() < 0) return Failed("open directory", path, errno);
    return Sync(directory.get()) == 0 ? absl::OkStatus() : Failed("sync directory", path, errno);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
    if (!directory) return Failed("list directory", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) return Failed("list directory", path, errno);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  // Of a directory that is there. Whoever made it may have died before it came to that; those above it had
  // been synced before.
  absl::Status SyncName(const std::string& path, dev_t device) {
    const std::string parent = ParentOf(path);
    struct stat above {};
    // Where something is mounted, the name is not on this disk. What we may not look into, we have not
    // changed.
    if (stat(parent.c_str(), &above) != 0 || above.st_dev != device) return absl::OkStatus();
    return access(parent.c_str(), R_OK) == 0 ? SyncDirectory(parent) : absl::OkStatus();
  }

  const PosixOptions options_;
  const std::shared_ptr<OpenFiles> files_ = std::make_shared<OpenFiles>();
};

}  // namespace

absl::Status FillHoles(const OpenFile& file, uint64_t bytes) {
  // A descriptor through the page cache, which takes buffers of any alignment, and of a file that may be
  // nameless by now.
  const UniqueFd fd(open(fmt::format("/proc/self/fd/{}", file.fd.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return Failed("open", file.path, errno);
  uint64_t hole = 0;
  while (hole < bytes) {
    // Beyond the last data there is nothing but a hole.
    const off_t data = lseek(fd.get(), static_cast<off_t>(hole), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return Failed("allocate", file.path, errno);
    const uint64_t end = data < 0 ? bytes : std::min(bytes, static_cast<uint64_t>(data));
    if (absl::Status zeros = WriteZeros(fd.get(), hole, end, file.path); !zeros.ok() || end == bytes)
      return zeros;
    const off_t next = lseek(fd.get(), data, SEEK_HOLE);
    if (next < 0) return Failed("allocate", file.path, errno);
    hole = static_cast<uint64_t>(next);
  }
  return absl::OkStatus();
}

std::unique_ptr<FileSystem> MakePosixFileSystem(const PosixOptions& options) {
  return std::make_unique<PosixFileSystem>(options);
}

}  // namespace islands::runtime
