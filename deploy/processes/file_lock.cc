#include "deploy/processes/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "runtime/descriptor.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

// Somebody who only looks (LockHolder) takes the lock for an instant; we try again before we believe it is
// held.
constexpr int kAttempts = 10;
constexpr std::chrono::milliseconds kAttemptInterval{20};
constexpr size_t kMostBytes = 64 * 1024;  // of a lock file: a note may have several paths in it

std::string ReadStart(int file) {
  std::string text(kMostBytes, '\0');
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

pid_t PidIn(const std::string& text) {
  const long pid = std::strtol(text.c_str(), nullptr, 10);
  return pid > 0 ? static_cast<pid_t>(pid) : 0;
}

bool IsStillAt(const std::string& path, int file) {
  struct stat opened {
  }, named{};
  return fstat(file, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

absl::StatusOr<runtime::UniqueFd> OpenLocked(const std::string& path) {
  absl::StatusOr<runtime::UniqueFd> opened = runtime::OpenPrivateFile(path, O_RDWR | O_CREAT);
  if (!opened.ok()) return opened;
  const int file = opened->get();
  for (int attempt = 1; flock(file, LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::ErrnoToStatus(errno, fmt::format("cannot lock {}", path));
    }
    if (attempt >= kAttempts) {
      const pid_t holder = PidIn(ReadStart(file));
      const std::string who = holder > 0 ? fmt::format("process {}", holder) : std::string("another process");
      return absl::AlreadyExistsError(fmt::format("{} is held by {}", path, who));
    }
    std::this_thread::sleep_for(kAttemptInterval);
  }
  return opened;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path, std::string_view note) {
  absl::StatusOr<runtime::UniqueFd> file = OpenLocked(path);
  // Invariant 1: `destroy` removes the file before it lets the lock go.
  while (file.ok() && !IsStillAt(path, file->get())) file = OpenLocked(path);
  if (!file.ok()) return file.status();
  FileLock lock(*std::move(file), path);
  absl::Status written = lock.WriteNote(note);
  if (!written.ok()) return written;
  return lock;
}

absl::Status FileLock::WriteNote(std::string_view note) {
  const std::string text = fmt::format("{}\n{}\n", getpid(), note);
  if (runtime::Uninterrupted([&] { return ftruncate(file_.get(), 0); }) != 0 ||
      lseek(file_.get(), 0, SEEK_SET) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot empty {}", path_));
  }
  return runtime::WriteAll(file_.get(), text, path_);
}

bool FileLock::IsAt(const std::string& path) const { return IsStillAt(path, file_.get()); }

absl::StatusOr<std::optional<LockState>> ReadLock(const std::string& path, uid_t owner) {
  const absl::StatusOr<runtime::UniqueFd> file = runtime::OpenFileOf(owner, path, O_RDONLY);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  LockState state{.held = flock(file->get(), LOCK_SH | LOCK_NB) != 0};
  const std::string text = ReadStart(file->get());
  state.pid = PidIn(text);
  if (const size_t first = text.find('\n'); first != std::string::npos)
    state.note = text.substr(first + 1, text.find('\n', first + 1) - first - 1);
  return state;
}

absl::StatusOr<std::optional<pid_t>> LockHolder(const std::string& path) {
  const absl::StatusOr<std::optional<LockState>> state = ReadLock(path);
  if (!state.ok()) return state.status();
  return *state && (*state)->held ? std::optional((*state)->pid) : std::nullopt;
}

std::string LockNote(const std::string& path) {
  const absl::StatusOr<std::optional<LockState>> state = ReadLock(path);
  return state.ok() && *state ? (*state)->note : "";
}

}  // namespace islands::deploy
