#include "deploy/supervisor_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace islands::deploy {
namespace {

// Somebody who only looks (LockHolder) takes the lock for an instant; we try again before we believe it is
// held.
constexpr int kAttempts = 10;
constexpr std::chrono::milliseconds kAttemptInterval{20};

absl::Status ErrnoStatus(std::string_view what, const std::string& path) {
  const int error = errno;
  const std::string text = fmt::format("cannot {} {}: {}", what, path, strerror(error));
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(text);
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  return absl::InternalError(text);
}

std::string ReadStart(int file) {
  char buffer[256];
  const ssize_t got = pread(file, buffer, sizeof(buffer), 0);
  return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : std::string();
}

pid_t PidIn(int file) {
  const long pid = std::strtol(ReadStart(file).c_str(), nullptr, 10);
  return pid > 0 ? static_cast<pid_t>(pid) : 0;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path, std::string_view note) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return ErrnoStatus("open lock file", path);
  FileLock lock(file);
  for (int attempt = 1; flock(file, LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus("lock", path);
    if (attempt >= kAttempts) {
      const pid_t holder = PidIn(file);
      const std::string who = holder > 0 ? fmt::format("process {}", holder) : std::string("another process");
      return absl::AlreadyExistsError(fmt::format("{} is held by {}", path, who));
    }
    std::this_thread::sleep_for(kAttemptInterval);
  }
  absl::Status written = lock.WriteNote(note);
  if (!written.ok()) return written;
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

FileLock::~FileLock() {
  if (file_ >= 0) close(file_);
}

absl::Status FileLock::WriteNote(std::string_view note) {
  const std::string text = fmt::format("{}\n{}\n", getpid(), note);
  if (ftruncate(file_, 0) != 0 ||
      pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return absl::InternalError(fmt::format("cannot write a lock file: {}", strerror(errno)));
  }
  return absl::OkStatus();
}

std::optional<pid_t> LockHolder(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::optional<pid_t> holder;
  if (flock(file, LOCK_SH | LOCK_NB) != 0) holder = PidIn(file);
  close(file);
  return holder;
}

std::string LockNote(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const std::string text = ReadStart(file);
  close(file);
  const size_t first = text.find('\n');
  if (first == std::string::npos) return "";
  return text.substr(first + 1, text.find('\n', first + 1) - first - 1);
}

}  // namespace islands::deploy
