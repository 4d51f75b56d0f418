// File descriptors: who owns one, and reading and writing all of what is behind it.
//
// Blocking calls, for start-up and for files of a few kilobytes (configurations, locks, manifests); what
// happens while transactions run goes through file_system.h.
//
// Thread safety: a UniqueFd belongs to one thread; the functions may be called from any.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace islands::runtime {

// Again, as long as a signal has come in between; the kernel has not done anything then. Of calls that return
// -1 for an error, with it in errno.
template <typename Call>
auto Uninterrupted(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

// Owns a file descriptor; -1 = none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// From where it stands to its end. `what` names it in errors.
absl::StatusOr<std::string> ReadAll(int fd, std::string_view what);
absl::Status WriteAll(int fd, std::string_view bytes, std::string_view what);

// As many as the system lets this process have: data files stay open, one for each site, and links need some.
// The usual soft limit is that of shells.
void AllowManyFiles();

}  // namespace islands::runtime
