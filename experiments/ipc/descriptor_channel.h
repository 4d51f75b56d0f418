// An end whose messages go through file descriptors: pipes, FIFOs and sockets. Asleep, it waits in the read
// itself, one system call per message; writes never block, so that an end may go on receiving when there is
// no room.
//
// Thread safety: as of Channel.
#pragma once

#include <string>
#include <vector>

#include "experiments/ipc/channel.h"
#include "experiments/ipc/descriptor.h"

namespace islands::experiments {

class DescriptorChannel final : public Channel {
 public:
  enum class Kind { kPipe, kStreamSocket, kPacketSocket };

  // `write_to` not open: one socket for both directions. Puts the descriptors into the mode that it needs.
  static absl::StatusOr<std::unique_ptr<Channel>> Make(const ChannelOptions& options, Kind kind,
                                                       Descriptor read_from, Descriptor write_to);

  // Use Make.
  DescriptorChannel(const ChannelOptions& options, Kind kind, Descriptor read_from, Descriptor write_to);

  absl::StatusOr<bool> TrySend(Message message) override;
  absl::Status Send(Message message) override;
  absl::Status Receive(MessageBuffer message) override;

 private:
  int read_fd() const { return read_.get(); }
  int write_fd() const { return write_.ok() ? write_.get() : read_.get(); }
  ssize_t Write(Message bytes);
  ssize_t Read(MessageBuffer bytes, int flags);
  absl::Status FinishSend(Message rest);
  absl::Status ReadAhead();
  size_t TakeReadAhead(MessageBuffer message);
  absl::Status Closed() const;

  const ChannelOptions options_;
  const Kind kind_;
  const Descriptor read_;
  const Descriptor write_;
  std::vector<std::byte> ahead_;  // came in while a message was half written; see FinishSend
  size_t taken_ = 0;              // of ahead_
};

}  // namespace islands::experiments
