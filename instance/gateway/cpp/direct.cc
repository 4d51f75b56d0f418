#include "instance/gateway/cpp/direct.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "instance/gateway/direct_socket.h"
#include "instance/messaging/frame.h"

namespace islands::internal {

namespace pb = client::v1;
using messaging::FrameCheck;
using messaging::FrameHeader;
using messaging::FrameType;
using messaging::kFrameHeaderBytes;

namespace {

constexpr size_t kMostSentBytes = 8 << 20;  // a gateway takes no more
constexpr size_t kFirstReadBytes = 4096;
constexpr size_t kKeptBytes = 1 << 20;  // of a line that is idle
constexpr size_t kMostIdle = 256;

// Until the descriptor is ready, or the deadline.
bool Await(int fd, short events, const Deadline& deadline) {
  for (;;) {
    const auto left = std::max(deadline.left(), std::chrono::nanoseconds(0));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec wait{seconds.count(), (left - seconds).count()};
    pollfd ready{fd, events, 0};
    const int found = ppoll(&ready, 1, &wait, nullptr);
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

std::string PathOf(std::string_view address) {
  address.remove_prefix(std::min(address.size(), std::string_view("unix:").size()));
  if (address.starts_with("///")) address.remove_prefix(2);
  return std::string(address) + gateway::kDirectSuffix;
}

}  // namespace

Line::~Line() { close(fd_); }

bool Line::IsThere() const {
  char byte;
  return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

absl::Status Line::Ask(pb::DirectCall* call, Effect effect, const Deadline& deadline,
                       pb::DirectAnswer* answer) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline.left()).count();
  call->set_timeout_us(static_cast<uint64_t>(std::max<int64_t>(left, 1)));
  absl::Status status = Send(*call, deadline);
  if (status.ok()) status = Receive(effect, deadline, answer);
  if (buffer_.size() > kKeptBytes) std::vector<std::byte>().swap(buffer_);
  return status;
}

// What a gateway has not read to its end it has not carried out.
absl::Status Line::Send(const pb::DirectCall& call, const Deadline& deadline) {
  FrameHeader header;
  const size_t bytes = call.ByteSizeLong();
  if (bytes > kMostSentBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("gateways take no request of that size, and nothing was sent; send less at a time (",
                     bytes, " bytes, at most ", kMostSentBytes, ")"));
  }
  header.payload_bytes = static_cast<uint32_t>(bytes);
  header.type = static_cast<uint8_t>(FrameType::kDirectCall);
  if (buffer_.size() < kFrameHeaderBytes + bytes) buffer_.resize(kFrameHeaderBytes + bytes);
  std::memcpy(buffer_.data(), &header, kFrameHeaderBytes);
  call.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(buffer_.data() + kFrameHeaderBytes));
  for (size_t sent = 0; sent < kFrameHeaderBytes + bytes;) {
    const ssize_t some =
        send(fd_, buffer_.data() + sent, kFrameHeaderBytes + bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (some > 0) sent += static_cast<size_t>(some);
    if (some >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN)
      return absl::UnavailableError(
          "the gateway has ended the connection, and nothing was carried out; try again");
    if (!Await(fd_, POLLOUT, deadline))
      return absl::DeadlineExceededError(
          "the gateway has not read the call in time, and has not carried it out");
  }
  return absl::OkStatus();
}

absl::Status Line::Receive(Effect effect, const Deadline& deadline, pb::DirectAnswer* answer) {
  const auto lost = [effect](grpc::StatusCode code, const char* why) {
    return FromGrpc({code, why}, effect);
  };
  if (buffer_.size() < kFirstReadBytes) buffer_.resize(kFirstReadBytes);
  std::string parts;
  size_t have = 0;
  for (;;) {
    FrameHeader header;
    const FrameCheck check = messaging::PeekFrame(std::span(buffer_).first(have), &header);
    if (check == FrameCheck::kOk) {
      const auto type = static_cast<FrameType>(header.type);
      const auto* payload = reinterpret_cast<const char*>(buffer_.data() + kFrameHeaderBytes);
      const size_t frame = kFrameHeaderBytes + header.payload_bytes;
      if (parts.size() + header.payload_bytes > gateway::kMostAnswerBytes)
        return lost(grpc::StatusCode::UNKNOWN, "the gateway has given an answer that is too large");
      if (type == FrameType::kDirectAnswerPart) {
        parts.append(payload, header.payload_bytes);
        std::memmove(buffer_.data(), buffer_.data() + frame, have - frame);
        have -= frame;
        continue;
      }
      bool parsed = type == FrameType::kDirectAnswer && have == frame;
      if (parsed && parts.empty())
        parsed = answer->ParseFromArray(payload, static_cast<int>(header.payload_bytes));
      else if (parsed)
        parsed = answer->ParseFromString(parts.append(payload, header.payload_bytes));
      if (parsed) return absl::OkStatus();
      return lost(grpc::StatusCode::UNKNOWN, "the gateway has given no answer that this library can read");
    }
    if (check == FrameCheck::kBad)
      return lost(grpc::StatusCode::UNKNOWN, "the gateway has given no answer that this library can read");
    const size_t wanted =
        have < kFrameHeaderBytes ? kFrameHeaderBytes : kFrameHeaderBytes + header.payload_bytes;
    // It grows with what has come, not with what a header announces.
    if (wanted > buffer_.size() && have == buffer_.size()) buffer_.resize(std::min(wanted, 2 * have));
    const ssize_t some = recv(fd_, buffer_.data() + have, buffer_.size() - have, MSG_DONTWAIT);
    if (some > 0) have += static_cast<size_t>(some);
    if (some == 0) return lost(grpc::StatusCode::UNAVAILABLE, "the gateway has ended the connection");
    if (some > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return lost(grpc::StatusCode::UNAVAILABLE, "the connection to the gateway broke");
    if (!Await(fd_, POLLIN, deadline))
      return lost(grpc::StatusCode::DEADLINE_EXCEEDED, "the gateway has not answered in time");
  }
}

absl::Status StatusOf(const pb::DirectAnswer& answer, Effect effect) {
  if (answer.code() == 0) return absl::OkStatus();
  const auto code = static_cast<int>(answer.code());
  if (answer.has_failure()) return FromFailure(code, answer.message(), answer.failure(), effect);
  return FromGrpc({static_cast<grpc::StatusCode>(code), answer.message()}, effect);
}

Direct::Direct(std::string_view address) : path_(PathOf(address)), process_(getpid()) {}

std::unique_ptr<Line> Direct::Take() {
  for (;;) {
    std::unique_ptr<Line> line;
    {
      const std::scoped_lock lock(mutex_);
      if (const int64_t process = getpid(); process != std::exchange(process_, process)) idle_.clear();
      if (idle_.empty()) break;
      line = std::move(idle_.back());
      idle_.pop_back();
    }
    if (line->IsThere()) return line;
  }
  return Dial();
}

void Direct::Give(std::unique_ptr<Line> line) {
  const std::scoped_lock lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(line));
}

std::unique_ptr<Line> Direct::Dial() const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof(address.sun_path)) return nullptr;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  auto line = std::make_unique<Line>(fd);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return nullptr;
  return line;
}

}  // namespace islands::internal
