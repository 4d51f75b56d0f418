#include "experiments/ipc/descriptor_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace islands::experiments {
namespace {

constexpr size_t kReadAheadBytes = 16384;

bool SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

DescriptorChannel::DescriptorChannel(const ChannelOptions& options, Kind kind, Descriptor read_from,
                                     Descriptor write_to)
    : options_(options), kind_(kind), read_(std::move(read_from)), write_(std::move(write_to)) {}

absl::StatusOr<std::unique_ptr<Channel>> DescriptorChannel::Make(const ChannelOptions& options, Kind kind,
                                                                 Descriptor read_from, Descriptor write_to) {
  // What a socket sends does not block by a flag of each call; pipes have a descriptor for each direction.
  const bool made = (!options.spin || SetNonBlocking(read_from.get())) &&
                    (!write_to.ok() || SetNonBlocking(write_to.get()));
  if (!made) return ErrnoError(options.mechanism, "fcntl", errno);
  return std::make_unique<DescriptorChannel>(options, kind, std::move(read_from), std::move(write_to));
}

absl::Status DescriptorChannel::Closed() const {
  return absl::UnavailableError(fmt::format("{}: the peer closed its end", options_.mechanism));
}

ssize_t DescriptorChannel::Write(Message bytes) {
  ssize_t n = 0;
  do {
    n = kind_ == Kind::kPipe ? write(write_fd(), bytes.data(), bytes.size())
                             : send(write_fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n;
}

ssize_t DescriptorChannel::Read(MessageBuffer bytes, int flags) {
  ssize_t n = 0;
  do {
    n = kind_ == Kind::kPipe ? read(read_fd(), bytes.data(), bytes.size())
                             : recv(read_fd(), bytes.data(), bytes.size(), flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

absl::StatusOr<bool> DescriptorChannel::TrySend(Message message) {
  const ssize_t n = Write(message);
  if (n == static_cast<ssize_t>(message.size())) return true;
  if (n < 0 && WouldBlock(errno)) return false;
  if (n < 0) return ErrnoError(options_.mechanism, "send", errno);
  if (absl::Status status = FinishSend(message.subspan(static_cast<size_t>(n))); !status.ok()) return status;
  return true;
}

absl::Status DescriptorChannel::Send(Message message) {
  for (;;) {
    const absl::StatusOr<bool> sent = TrySend(message);
    if (!sent.ok()) return sent.status();
    if (*sent) return absl::OkStatus();
    if (options_.spin) {
      SpinPause(options_);
      continue;
    }
    pollfd room{write_fd(), POLLOUT, 0};
    if (poll(&room, 1, -1) < 0 && errno != EINTR) return ErrnoError(options_.mechanism, "poll", errno);
  }
}

// TCP may take a part of a message. The rest must follow before any other, and for that the peer must read,
// who may be waiting for this end to do so: what comes in meanwhile is kept.
absl::Status DescriptorChannel::FinishSend(Message rest) {
  while (!rest.empty()) {
    pollfd both{write_fd(), POLLOUT | POLLIN, 0};
    if (poll(&both, 1, -1) < 0 && errno != EINTR) return ErrnoError(options_.mechanism, "poll", errno);
    if (both.revents & POLLIN) {
      if (absl::Status status = ReadAhead(); !status.ok()) return status;
    }
    const ssize_t n = Write(rest);
    if (n < 0 && !WouldBlock(errno)) return ErrnoError(options_.mechanism, "send", errno);
    if (n > 0) rest = rest.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status DescriptorChannel::ReadAhead() {
  if (taken_ == ahead_.size()) {
    ahead_.clear();
    taken_ = 0;
  }
  const size_t before = ahead_.size();
  ahead_.resize(before + kReadAheadBytes);
  const ssize_t n = Read(MessageBuffer(ahead_).subspan(before), MSG_DONTWAIT);
  const int error = errno;
  ahead_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n == 0) return Closed();
  return n > 0 || WouldBlock(error) ? absl::OkStatus() : ErrnoError(options_.mechanism, "receive", error);
}

size_t DescriptorChannel::TakeReadAhead(MessageBuffer message) {
  const size_t n = std::min(message.size(), ahead_.size() - taken_);
  std::copy_n(ahead_.begin() + static_cast<std::ptrdiff_t>(taken_), n, message.begin());
  taken_ += n;
  return n;
}

absl::Status DescriptorChannel::Receive(MessageBuffer message) {
  size_t have = taken_ == ahead_.size() ? 0 : TakeReadAhead(message);
  const int flags = kind_ == Kind::kPacketSocket ? MSG_TRUNC : 0;  // tells a packet's whole size
  while (have < message.size()) {
    const ssize_t n = Read(message.subspan(have), flags);
    if (n == 0) return Closed();
    if (n < 0 && !WouldBlock(errno)) return ErrnoError(options_.mechanism, "receive", errno);
    if (n < 0) {
      SpinPause(options_);
      continue;
    }
    if (kind_ == Kind::kPacketSocket && n != static_cast<ssize_t>(message.size())) {
      return absl::DataLossError(
          fmt::format("{}: a message of {} bytes, expected {}", options_.mechanism, n, message.size()));
    }
    have += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace islands::experiments
