#include "runtime/private_files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "fmt/format.h"

namespace islands::runtime {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
constexpr mode_t kPermissions = S_IRWXU | kOthers;
constexpr std::string_view kOrMove = "move it away if it should not be there";

absl::Status Denied(const std::string& path, std::string_view why) {
  return absl::PermissionDeniedError(fmt::format("{} {}", path, why));
}

absl::Status CheckOwner(uid_t owner, const std::string& path, const struct stat& info,
                        std::string_view or_else) {
  if (info.st_uid == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format(
      "not permitted: owned by {} (user {}), and this is {} (user {}): {}; act as that user, or {}",
      UserName(info.st_uid), info.st_uid, UserName(geteuid()), geteuid(), path, or_else));
}

}  // namespace

absl::Status CheckPrivateDirectory(const std::string& path) { return CheckDirectoryOf(geteuid(), path); }

absl::Status CheckDirectoryOf(uid_t user, const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot look at directory {}", path));
  }
  if (S_ISLNK(info.st_mode)) {
    return Denied(path, "is a symbolic link, which can be turned elsewhere; name the directory itself");
  }
  if (!S_ISDIR(info.st_mode)) return Denied(path, "is no directory; choose another name");
  if (absl::Status owner = CheckOwner(user, path, info, "choose another directory"); !owner.ok()) {
    return owner;
  }
  if ((info.st_mode & kOthers) == 0) return absl::OkStatus();
  if ((info.st_mode & S_ISVTX) != 0)
    return Denied(
        path, fmt::format("is shared with other users; name a directory in it, such as {}/islands", path));
  return Denied(path, fmt::format("has mode {:04o} and is open to other users; close it with `chmod 700 {}`",
                                  info.st_mode & kPermissions, path));
}

absl::Status MakePrivateDirectory(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (!error && mkdir(path.c_str(), S_IRWXU) != 0) error.assign(errno, std::generic_category());
  if (error && error != std::errc::file_exists) {
    return absl::ErrnoToStatus(error.value(), fmt::format("cannot make directory {}", path));
  }
  return CheckPrivateDirectory(path);
}

absl::StatusOr<UniqueFd> OpenPrivateFile(const std::string& path, int flags) {
  return OpenFileOf(geteuid(), path, flags);
}

absl::StatusOr<UniqueFd> OpenFileOf(uid_t user, const std::string& path, int flags) {
  // O_NONBLOCK: a pipe in the file's place would have us wait for its other end. To files it means nothing.
  constexpr int kAlways = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  UniqueFd file(Uninterrupted([&] { return open(path.c_str(), flags | kAlways, S_IRUSR | S_IWUSR); }));
  if (!file && errno == ELOOP) return Denied(path, "is a symbolic link; move it away");
  const int error = errno;
  struct stat info {};
  if (!file) {
    const bool closed = error == EACCES && lstat(path.c_str(), &info) == 0;
    const absl::Status owner = closed ? CheckOwner(user, path, info, kOrMove) : absl::OkStatus();
    return owner.ok() ? absl::ErrnoToStatus(error, fmt::format("cannot open {}", path)) : owner;
  }
  if (fstat(file.get(), &info) != 0)
    return absl::ErrnoToStatus(errno, fmt::format("cannot look at {}", path));
  if (!S_ISREG(info.st_mode)) return Denied(path, "is no regular file; move it away");
  if (absl::Status owner = CheckOwner(user, path, info, kOrMove); !owner.ok()) return owner;
  if (info.st_nlink > 1) return Denied(path, "is a file that has another name as well; move it away");
  return file;
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  const absl::StatusOr<UniqueFd> file = OpenPrivateFile(path, O_RDONLY);
  if (!file.ok()) return file.status();
  return ReadAll(file->get(), path);
}

absl::Status WritePrivateFile(const std::string& path, std::string_view content) {
  const absl::StatusOr<UniqueFd> file = OpenPrivateFile(path, O_WRONLY | O_CREAT);
  if (!file.ok()) return file.status();
  if (Uninterrupted([&] { return ftruncate(file->get(), 0); }) != 0)
    return absl::ErrnoToStatus(errno, fmt::format("cannot empty {}", path));
  return WriteAll(file->get(), content, path);
}

std::string UserName(uid_t user) {
  std::vector<char> buffer(16 * 1024);
  passwd entry{};
  passwd* found = nullptr;
  getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? found->pw_name : fmt::format("user {}", user);
}

}  // namespace islands::runtime
