#include "instance/messaging/unix_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace islands::messaging {
namespace {

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return absl::ErrnoToStatus(errno, "cannot create a Unix-domain socket");
  return fd;
}

const sockaddr* Generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "socket path {} has {} bytes, at most {} are possible: choose a shorter control directory", path,
        path.size(), kMaxSocketPathBytes));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status RemoveStaleSocket(const std::string& path) {
  absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status();
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : absl::ErrnoToStatus(errno, fmt::format("cannot look at {}", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(fmt::format("{} exists and is not a socket: remove it", path));
  }
  absl::StatusOr<UniqueFd> probe = NewSocket();
  if (!probe.ok()) return probe.status();
  if (connect(probe->get(), Generic(*address), sizeof(*address)) == 0 || errno == EAGAIN) {
    return absl::AlreadyExistsError(fmt::format("another process is serving {}: stop it first", path));
  }
  if (errno != ECONNREFUSED && errno != ENOENT)
    return absl::ErrnoToStatus(errno, fmt::format("cannot try {}", path));
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot remove the stale socket {}", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ListenOn(const std::string& path) {
  absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status();
  if (absl::Status status = RemoveStaleSocket(path); !status.ok()) return status;
  absl::StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  if (bind(fd->get(), Generic(*address), sizeof(*address)) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot bind a socket to {}", path));
  }
  // Nobody can connect before listen(), so the mode is in place in time.
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || listen(fd->get(), SOMAXCONN) != 0) {
    const int error = errno;
    unlink(path.c_str());
    return absl::ErrnoToStatus(error, fmt::format("cannot listen on {}", path));
  }
  return fd;
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) return address.status();
  absl::StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  if (connect(fd->get(), Generic(*address), sizeof(*address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return absl::UnavailableError(fmt::format("nobody listens on {}", path));
    }
    if (errno == EAGAIN)
      return absl::ResourceExhaustedError(fmt::format("too many are waiting for {}", path));
    return absl::ErrnoToStatus(errno, fmt::format("cannot connect to {}", path));
  }
  if (absl::Status status = CheckServer(fd->get(), path); !status.ok()) return status;
  return fd;
}

int64_t PeerUid(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return -1;
  return credentials.uid;
}

absl::Status CheckServer(int fd, const std::string& name) {
  const int64_t uid = PeerUid(fd);
  if (uid < 0) return absl::UnavailableError(fmt::format("{} closed the connection", name));
  if (uid == static_cast<int64_t>(geteuid())) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("{} is served by user {}, not by user {} like this process", name, uid, geteuid()));
}

}  // namespace islands::messaging
