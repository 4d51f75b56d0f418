#include "runtime/descriptor.h"

#include <sys/resource.h>

#include <cerrno>

#include "fmt/format.h"

namespace islands::runtime {

absl::StatusOr<std::string> ReadAll(int fd, std::string_view what) {
  std::string content;
  char buffer[16384];
  while (true) {
    const ssize_t got = Uninterrupted([&] { return read(fd, buffer, sizeof(buffer)); });
    if (got < 0) return absl::ErrnoToStatus(errno, fmt::format("cannot read {}", what));
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status WriteAll(int fd, std::string_view bytes, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t now = Uninterrupted([&] { return write(fd, bytes.data(), bytes.size()); });
    if (now < 0) return absl::ErrnoToStatus(errno, fmt::format("cannot write {}", what));
    bytes.remove_prefix(static_cast<size_t>(now));
  }
  return absl::OkStatus();
}

void AllowManyFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace islands::runtime
