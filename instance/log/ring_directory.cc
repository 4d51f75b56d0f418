#include "instance/log/ring_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "instance/log/ring_check.h"
#include "runtime/private_files.h"

namespace islands::log {
namespace {

constexpr char kIdName[] = "id";
constexpr char kOwnerName[] = "owner";
constexpr char kUnfinished[] = ".new";
// Between a fork and its exec, a child has its parent's lock for an instant.
constexpr int kLockTries = 10;
constexpr int kLockRetryMs = 20;
constexpr int kMakeTries = 10;

absl::Status Failed(const char* action, const std::string& path) {
  return absl::ErrnoToStatus(errno, fmt::format("cannot {} {}", action, path));
}

absl::Status Contested(const std::string& path) {
  return absl::PermissionDeniedError(
      fmt::format("{} is not this user's alone; somebody changes it: choose another "
                  "storage.log.ring_directory",
                  path));
}

// The records too.
absl::StatusOr<std::shared_ptr<Ring>> OpenWhole(const std::string& path, const StreamId& stream) {
  absl::StatusOr<std::unique_ptr<Ring>> ring = Ring::Open(path);
  if (!ring.ok()) return ring.status();
  if ((*ring)->stream() != stream) {
    return absl::DataLossError(fmt::format("{} is not the log ring that its name says", path));
  }
  const absl::StatusOr<uint64_t> whole = HighestLsn(**ring, (*ring)->tail());
  if (!whole.ok()) {
    return absl::DataLossError(fmt::format("{} is damaged: {}", path, std::string(whole.status().message())));
  }
  return std::shared_ptr<Ring>(*std::move(ring));
}

}  // namespace

std::string RingName(const StreamId& stream) {
  return fmt::format("island-{}.worker-{}.life-{}.ring", stream.island, stream.worker, stream.life);
}

std::optional<StreamId> ParseRingName(const std::string& name) {
  unsigned island = 0, worker = 0;
  unsigned long life = 0;
  if (std::sscanf(name.c_str(), "island-%9u.worker-%9u.life-%19lu.ring", &island, &worker, &life) != 3)
    return std::nullopt;
  const StreamId stream{life, island, worker};
  if (RingName(stream) != name) return std::nullopt;
  return stream;
}

std::string DefaultRingDirectory(uint64_t cluster) {
  return fmt::format("/dev/shm/islands-{:016x}", cluster);
}

absl::StatusOr<std::unique_ptr<RingDirectory>> RingDirectory::OpenWithoutId(const std::string& path) {
  if (absl::Status checked = runtime::CheckPrivateDirectory(path); !checked.ok()) return checked;
  runtime::UniqueFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return Failed("open directory", path);
  // Invariant 1 of what was opened, and not only of what was there a moment ago.
  struct stat info {};
  if (fstat(directory.get(), &info) != 0) return Failed("look at", path);
  if (info.st_uid != geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) return Contested(path);
  return std::unique_ptr<RingDirectory>(new RingDirectory(path, std::move(directory)));
}

absl::StatusOr<std::unique_ptr<RingDirectory>> RingDirectory::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<RingDirectory>> directory = OpenWithoutId(path);
  if (!directory.ok()) return directory;
  if (absl::Status read = (*directory)->ReadId(); !read.ok()) return read;
  return directory;
}

absl::StatusOr<std::unique_ptr<RingDirectory>> RingDirectory::Make(const std::string& path,
                                                                   const std::string& log_directory) {
  absl::StatusOr<std::unique_ptr<RingDirectory>> directory = absl::InternalError("no directory");
  // Who had the lock before us may have removed the directory in the end; then this is another one.
  for (int tries = 1;; ++tries) {
    if (absl::Status made = runtime::MakePrivateDirectory(path); !made.ok()) return made;
    directory = OpenWithoutId(path);
    if (absl::IsNotFound(directory.status()) && tries < kMakeTries) continue;
    if (!directory.ok()) return directory;
    if (absl::Status locked = (*directory)->Lock(); !locked.ok()) return locked;
    if (!(*directory)->Gone()) break;
    if (tries == kMakeTries) return Contested(path);
  }
  absl::Status status = (*directory)->Own(log_directory);
  if (status.ok()) status = (*directory)->ReadId();
  // Without an id, rings that are there belong to nobody: the manifest will know no such directory.
  if (absl::IsNotFound(status) || absl::IsDataLoss(status)) status = (*directory)->MakeId();
  if (!status.ok()) return status;
  return directory;
}

absl::StatusOr<std::unique_ptr<RingDirectory>> RingDirectory::Choose(const Choice& choice,
                                                                     std::string* warning) {
  for (const std::string& path : {choice.path, choice.fallback}) {
    if (path.empty() || choice.known == BoxId{}) continue;
    absl::StatusOr<std::unique_ptr<RingDirectory>> there = Open(path);
    if (there.ok() && (*there)->id() == choice.known) return Make(path, choice.log_directory);
  }
  absl::StatusOr<std::unique_ptr<RingDirectory>> directory = Make(choice.path, choice.log_directory);
  if (!directory.ok()) return directory;
  const absl::Status room = (*directory)->CheckRoom(choice.bytes);
  if (room.ok()) return directory;
  if (choice.fallback.empty()) return room;
  directory = Make(choice.fallback, choice.log_directory);
  if (!directory.ok()) return directory;
  if (absl::Status second = (*directory)->CheckRoom(choice.bytes); !second.ok()) return second;
  *warning = fmt::format("{}; the log's rings are in {} instead, which is slower when memory is short",
                         std::string(room.message()), choice.fallback);
  return directory;
}

// ---- Whose it is ----

absl::Status RingDirectory::Lock() const {
  for (int tries = 1; flock(directory_.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Failed("lock", path_);
    if (tries == kLockTries) {
      const auto owner = ReadOwner();
      if (!owner.ok()) return owner.status();
      const std::string who =
          *owner ? fmt::format("process {}, for the log in {}", (*owner)->process, (*owner)->log.path)
                 : std::string("another process");
      return absl::FailedPreconditionError(fmt::format(
          "the log rings in {} are in use by {}; take that deployment down, or, if this one is a copy of its "
          "data, name another storage.log.ring_directory here",
          path_, who));
    }
    poll(nullptr, 0, kLockRetryMs);
  }
  return absl::OkStatus();
}

// Nobody's, if it has none, or has one that was copied with its rings.
absl::StatusOr<std::optional<RingOwner>> RingDirectory::ReadOwner() const {
  const absl::StatusOr<std::string> text = runtime::ReadPrivateFile(PathOf(kOwnerName));
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  std::optional<RingOwner> owner = ParseRingOwner(*text);
  struct stat info {};
  if (fstat(directory_.get(), &info) != 0) return Failed("look at", path_);
  if (owner && (owner->device != info.st_dev || owner->inode != info.st_ino)) owner.reset();
  return owner;
}

absl::Status RingDirectory::CheckIsOf(const std::string& log_directory) const {
  const absl::StatusOr<Place> place = PlaceOf(log_directory);
  if (!place.ok()) return place.status();
  const absl::StatusOr<std::optional<RingOwner>> owner = ReadOwner();
  if (!owner.ok()) return owner.status();
  if (!*owner || (*owner)->IsAt(*place)) return absl::OkStatus();
  if ((*owner)->log.path == place->path) {
    return absl::FailedPreconditionError(fmt::format(
        "{0} has log rings of another directory that was {1}: the data was restored from a copy, or moved, "
        "and not taken down before. If it was moved, and nothing else has changed: remove {0}/owner, and it "
        "goes on. If it is a copy: remove {0}; what was acknowledged after the copy was made, and what it "
        "had "
        "not on disk, is lost then. Or put the directory back that was there",
        path_, place->path));
  }
  return absl::FailedPreconditionError(
      fmt::format("{0} has log rings of another place, {1}, which was not taken down since it made them, and "
                  "this log is in {2}: it is a copy, or was moved from another file system. `up` and `down` "
                  "the deployment of {1}: what it acknowledged last may be in those rings only. If that is "
                  "no more: remove {0}/owner, and {2} takes the rings, if nothing but its place has changed; "
                  "or remove {0}, which is a loss of power. A copy of what had been taken down may name "
                  "another storage.log.ring_directory",
                  path_, (*owner)->log.path, place->path));
}

// Invariant 2.
absl::Status RingDirectory::Own(const std::string& log_directory) const {
  const absl::StatusOr<Place> place = PlaceOf(log_directory);
  if (!place.ok()) return place.status();
  struct stat info {};
  if (fstat(directory_.get(), &info) != 0) return Failed("look at", path_);
  if (absl::Status ours = CheckIsOf(log_directory); !ours.ok()) {
    const absl::StatusOr<std::vector<std::string>> names = Names();
    if (!names.ok()) return names.status();
    if (std::any_of(names->begin(), names->end(), [](const auto& name) { return !!ParseRingName(name); }))
      return ours;
    // What the other one's manifest knows shall not be what we fill.
    if (absl::Status removed = RemoveFile(kIdName); !removed.ok()) return removed;
  }
  if (absl::Status removed = RemoveUnfinished(); !removed.ok()) return removed;
  return Write(
      kOwnerName,
      ToText(RingOwner{.log = *place, .device = info.st_dev, .inode = info.st_ino, .process = getpid()}));
}

absl::Status RingDirectory::ReadId() {
  const std::string path = PathOf(kIdName);
  const absl::StatusOr<std::string> text = runtime::ReadPrivateFile(path);
  if (!text.ok()) return text.status();
  const absl::StatusOr<BoxId> id = ParseBoxId(*text);
  if (!id.ok()) {
    return absl::DataLossError(fmt::format("{} is damaged: {}", path, std::string(id.status().message())));
  }
  id_ = *id;
  return absl::OkStatus();
}

absl::Status RingDirectory::MakeId() {
  const absl::StatusOr<BoxId> id = MakeBoxId();
  if (!id.ok()) return id.status();
  absl::Status written = Write(kIdName, ToText(*id) + "\n");
  if (written.ok()) id_ = *id;
  return written;
}

absl::Status RingDirectory::Write(const char* name, const std::string& text) const {
  const std::string path = PathOf(name), unfinished = path + kUnfinished;
  absl::Status written = runtime::WritePrivateFile(unfinished, text);
  if (written.ok() && rename(unfinished.c_str(), path.c_str()) != 0) written = Failed("name", path);
  return written;
}

absl::Status RingDirectory::CheckRoom(uint64_t bytes) const {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  uint64_t taken = 0;
  for (const std::string& name : *names) {
    struct stat info {};
    if (!ParseRingName(name)) continue;
    if (fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
      taken += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return CheckRoomForMore(bytes - std::min(bytes, taken));
}

absl::Status RingDirectory::CheckRoomForMore(uint64_t bytes) const {
  struct statvfs disk {};
  if (fstatvfs(directory_.get(), &disk) != 0) return Failed("ask for the room at", path_);
  const uint64_t room = disk.f_bavail * disk.f_frsize;
  if (room >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{} has room for {} MiB, and the log's rings need {}; choose another "
                  "storage.log.ring_directory, make its file system larger (containers have 64 MiB unless "
                  "told otherwise), or take fewer ring_bytes",
                  path_, room >> 20, (bytes + (1 << 20) - 1) >> 20));
}

absl::StatusOr<std::vector<std::string>> RingDirectory::Names() const {
  const int fd = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const directory = fd < 0 ? nullptr : fdopendir(fd);
  if (directory == nullptr) return Failed("list", path_);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory)) names.emplace_back(entry->d_name);
  const int error = errno;
  closedir(directory);
  if (error != 0) return absl::ErrnoToStatus(error, fmt::format("cannot list {}", path_));
  return names;
}

absl::StatusOr<std::vector<RingDirectory::Found>> RingDirectory::List() const {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  std::vector<Found> rings;
  for (const std::string& name : *names) {
    const std::optional<StreamId> stream = ParseRingName(name);
    if (stream) rings.push_back({*stream, OpenWhole(PathOf(name), *stream)});
  }
  std::sort(rings.begin(), rings.end(), [](const Found& a, const Found& b) { return a.stream < b.stream; });
  return rings;
}

absl::StatusOr<std::shared_ptr<Ring>> RingDirectory::OpenRing(const StreamId& stream) const {
  return OpenWhole(PathOf(RingName(stream)), stream);
}

absl::StatusOr<std::shared_ptr<Ring>> RingDirectory::MakeRing(const StreamId& stream, size_t capacity) const {
  absl::StatusOr<std::unique_ptr<Ring>> ring = Ring::Create(PathOf(RingName(stream)), stream, capacity);
  if (!ring.ok()) return ring.status();
  return std::shared_ptr<Ring>(*std::move(ring));
}

absl::Status RingDirectory::RemoveFile(const std::string& name) const {
  if (unlinkat(directory_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return Failed("remove", PathOf(name));
}

absl::Status RingDirectory::RemoveEarlier(uint32_t island, uint64_t life) const {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::optional<StreamId> stream = ParseRingName(name);
    if (!stream || stream->island != island || stream->life >= life) continue;
    if (absl::Status removed = RemoveFile(name); !removed.ok()) return removed;
  }
  return absl::OkStatus();
}

absl::Status RingDirectory::RemoveRings() const {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!ParseRingName(name)) continue;
    if (absl::Status removed = RemoveFile(name); !removed.ok()) return removed;
  }
  return absl::OkStatus();
}

absl::Status RingDirectory::Remove() const {
  absl::Status removed = RemoveRings();
  if (removed.ok()) removed = RemoveFile(kIdName);
  if (removed.ok()) removed = RemoveFile(kOwnerName);
  if (!removed.ok() || rmdir(path_.c_str()) == 0 || errno == ENOENT) return removed;
  return Failed("remove", path_);
}

absl::Status RingDirectory::RemoveUnfinished() const {
  const absl::StatusOr<std::vector<std::string>> names = Names();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!name.ends_with(kUnfinished)) continue;
    if (absl::Status removed = RemoveFile(name); !removed.ok()) return removed;
  }
  return absl::OkStatus();
}

bool RingDirectory::Gone() const {
  struct stat opened {
  }, named{};
  if (fstat(directory_.get(), &opened) != 0 || opened.st_nlink == 0) return true;
  if (lstat(path_.c_str(), &named) != 0) return true;
  return opened.st_dev != named.st_dev || opened.st_ino != named.st_ino;
}

uint64_t RingDirectory::Inode(const StreamId& stream) const {
  struct stat info {};
  const bool there = fstatat(directory_.get(), RingName(stream).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  return there && S_ISREG(info.st_mode) ? info.st_ino : 0;
}

}  // namespace islands::log
