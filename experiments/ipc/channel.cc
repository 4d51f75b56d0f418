#include "experiments/ipc/channel.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "experiments/ipc/mechanisms.h"

namespace islands::experiments {
namespace {

using Maker = absl::StatusOr<ChannelEnds> (*)(const ChannelOptions&);

constexpr std::pair<const char*, Maker> kMechanisms[] = {
    {"pipe", MakePipe},
    {"fifo", MakeFifo},
    {"posix-mq", MakeMessageQueue},
    {"tcp", MakeTcp},
    {"uds-stream", MakeUnixSocket},
    {"uds-seqpacket", MakeUnixSocket},
    {"uds-datagram", MakeUnixSocket},
    {"zmq-ipc", MakeZmq},
    {"shared-memory", MakeSharedMemory},
};

}  // namespace

const std::vector<std::string>& MechanismNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, maker] : kMechanisms) all.emplace_back(name);
    return all;
  }();
  return names;
}

absl::StatusOr<ChannelEnds> MakeChannels(const ChannelOptions& options) {
  if (options.bytes < kMinMessageBytes || options.bytes > kMaxMessageBytes || options.batch == 0 ||
      options.batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes, {} in flight: expected {} to {} bytes, 1 to {} in flight", options.bytes,
                    options.batch, kMinMessageBytes, kMaxMessageBytes, kMaxBatch));
  }
  for (const auto& [name, maker] : kMechanisms) {
    if (options.mechanism == name) return maker(options);
  }
  return absl::InvalidArgumentError(
      fmt::format("no mechanism '{}': expected {}", options.mechanism, fmt::join(MechanismNames(), ", ")));
}

absl::Status ErrnoError(std::string_view mechanism, std::string_view call, int error) {
  const std::string message = fmt::format("{}: {}: {}", mechanism, call, std::strerror(error));
  switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ENOTCONN:
      return absl::UnavailableError(message);
    case ENOSYS:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace islands::experiments
