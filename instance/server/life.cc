#include "instance/server/life.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/private_files.h"

namespace islands::server {
namespace {

std::string PathOf(const std::string& control_directory, uint32_t island) {
  return fmt::format("{}/island-{}.lock", control_directory, island);
}

struct Note {
  long pid = 0;
  unsigned long long boot_epoch = 0;
};

// What the file says of its last holder; zeros if nothing.
Note ReadNote(int fd) {
  char text[64] = {};
  Note note;
  if (pread(fd, text, sizeof(text) - 1, 0) > 0) std::sscanf(text, "%ld %llu", &note.pid, &note.boot_epoch);
  return note;
}

}  // namespace

absl::Status LockIsland(const control::v1::IslandConfig& config) {
  absl::Status ours = runtime::CheckPrivateDirectory(config.control_directory());
  if (!ours.ok()) return ours;
  const std::string path = PathOf(config.control_directory(), config.island());
  absl::StatusOr<runtime::UniqueFd> file = runtime::OpenPrivateFile(path, O_RDWR | O_CREAT);
  if (!file.ok()) return file.status();
  // Whoever only asks whether the island lives takes a shared lock for an instant: try for a second.
  int tries = 100;
  while (flock(file->get(), LOCK_EX | LOCK_NB) != 0 && --tries != 0) poll(nullptr, 0, 10);
  if (tries == 0) {
    return absl::AlreadyExistsError(fmt::format("island {} is already running as process {} (it holds '{}')",
                                                config.island(), ReadNote(file->get()).pid, path));
  }
  // Always as long, and over the note before: whenever this process ends, the note is somebody's.
  const std::string note = fmt::format("{:<10}\n{:<20}\n", getpid(), config.boot_epoch());
  if (absl::Status written = runtime::WriteAll(file->get(), note, path); !written.ok()) return written;
  if (runtime::Uninterrupted([&] { return ftruncate(file->get(), static_cast<off_t>(note.size())); }) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot cut {}", path));
  }
  file->Release();  // the descriptor stays open, and with it the lock, until the process ends
  return absl::OkStatus();
}

bool ProvenDead(const std::string& control_directory, uint32_t island, uint64_t boot_epoch) {
  const auto file = runtime::OpenPrivateFile(PathOf(control_directory, island), O_RDONLY);
  if (!file.ok()) return false;
  const bool free = flock(file->get(), LOCK_SH | LOCK_NB) == 0;
  const uint64_t holder = ReadNote(file->get()).boot_epoch;
  // Free: the last holder is dead, and all before it. Held: those before the holder are.
  return free ? holder >= boot_epoch : holder > boot_epoch;
}

}  // namespace islands::server
