// Pipes, FIFOs, TCP over loopback and Unix-domain sockets: how their descriptors come to be.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "experiments/ipc/descriptor_channel.h"
#include "experiments/ipc/mechanisms.h"

namespace islands::experiments {
namespace {

using Kind = DescriptorChannel::Kind;

struct OneWay {
  Descriptor read;
  Descriptor write;
};

absl::StatusOr<ChannelEnds> MakeEnds(const ChannelOptions& options, Kind kind, OneWay first, OneWay second) {
  auto near = DescriptorChannel::Make(options, kind, std::move(first.read), std::move(first.write));
  if (!near.ok()) return near.status();
  auto far = DescriptorChannel::Make(options, kind, std::move(second.read), std::move(second.write));
  if (!far.ok()) return far.status();
  return ChannelEnds{*std::move(near), *std::move(far)};
}

// `there` leads to the second end, `back` from it.
absl::StatusOr<ChannelEnds> EndsOfTwoPipes(const ChannelOptions& options, OneWay there, OneWay back) {
  return MakeEnds(options, Kind::kPipe, {std::move(back.read), std::move(there.write)},
                  {std::move(there.read), std::move(back.write)});
}

// A FIFO is a pipe once both sides have opened it, and needs its name no longer.
absl::StatusOr<OneWay> OpenFifo(const std::string& path, const ChannelOptions& options) {
  if (mkfifo(path.c_str(), 0600) != 0) return ErrnoError(options.mechanism, "mkfifo " + path, errno);
  // Reading first, as opening to write fails where nobody reads; without O_NONBLOCK each would wait for the
  // other.
  OneWay fifo{Descriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)), {}};
  fifo.write = Descriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  const int error = errno;
  unlink(path.c_str());
  if (!fifo.read.ok() || !fifo.write.ok()) return ErrnoError(options.mechanism, "open " + path, error);
  if (fcntl(fifo.read.get(), F_SETFL, O_RDONLY) != 0) return ErrnoError(options.mechanism, "fcntl", errno);
  return fifo;
}

}  // namespace

absl::StatusOr<ChannelEnds> MakePipe(const ChannelOptions& options) {
  OneWay ways[2];
  for (OneWay& way : ways) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoError(options.mechanism, "pipe2", errno);
    way = {Descriptor(fds[0]), Descriptor(fds[1])};
  }
  return EndsOfTwoPipes(options, std::move(ways[0]), std::move(ways[1]));
}

absl::StatusOr<ChannelEnds> MakeFifo(const ChannelOptions& options) {
  std::error_code ignored;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(ignored);
  std::string directory =
      (ignored ? std::filesystem::path(".") : temporary) / fmt::format("islands-ipc-{}-XXXXXX", getpid());
  if (mkdtemp(directory.data()) == nullptr)
    return ErrnoError(options.mechanism, "mkdtemp " + directory, errno);
  absl::StatusOr<OneWay> there = OpenFifo(directory + "/there", options);
  absl::StatusOr<OneWay> back = OpenFifo(directory + "/back", options);
  rmdir(directory.c_str());
  if (!there.ok()) return there.status();
  if (!back.ok()) return back.status();
  return EndsOfTwoPipes(options, *std::move(there), *std::move(back));
}

absl::StatusOr<ChannelEnds> MakeUnixSocket(const ChannelOptions& options) {
  const bool stream = options.mechanism == "uds-stream";
  const int type = stream ? SOCK_STREAM : options.mechanism == "uds-seqpacket" ? SOCK_SEQPACKET : SOCK_DGRAM;
  int fds[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0)
    return ErrnoError(options.mechanism, "socketpair", errno);
  return MakeEnds(options, stream ? Kind::kStreamSocket : Kind::kPacketSocket, {Descriptor(fds[0]), {}},
                  {Descriptor(fds[1]), {}});
}

absl::StatusOr<ChannelEnds> MakeTcp(const ChannelOptions& options) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t address_bytes = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Descriptor near(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.ok() || !near.ok()) return ErrnoError(options.mechanism, "socket", errno);
  if (bind(listener.get(), raw, address_bytes) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), raw, &address_bytes) != 0) {
    return ErrnoError(options.mechanism, "listen on 127.0.0.1", errno);
  }
  if (connect(near.get(), raw, address_bytes) != 0)
    return ErrnoError(options.mechanism, "connect to 127.0.0.1", errno);
  Descriptor far(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!far.ok()) return ErrnoError(options.mechanism, "accept", errno);
  sockaddr_in mine{}, peer{};
  socklen_t mine_bytes = sizeof(mine), peer_bytes = sizeof(peer);
  getsockname(near.get(), reinterpret_cast<sockaddr*>(&mine), &mine_bytes);
  getpeername(far.get(), reinterpret_cast<sockaddr*>(&peer), &peer_bytes);
  if (mine.sin_port != peer.sin_port)
    return absl::UnavailableError("tcp: some other process connected first");
  const int on = 1;
  for (const Descriptor* end : {&near, &far}) {
    if (setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
      return ErrnoError(options.mechanism, "TCP_NODELAY", errno);
  }
  return MakeEnds(options, Kind::kStreamSocket, {std::move(near), {}}, {std::move(far), {}});
}

}  // namespace islands::experiments
