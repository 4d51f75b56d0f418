// The classes behind MakeChannels: private to ipc/.
//
// Thread safety: as of Channel.
#pragma once

#include "absl/status/statusor.h"
#include "experiments/ipc/channel.h"

namespace islands::experiments {

absl::StatusOr<ChannelEnds> MakePipe(const ChannelOptions& options);
absl::StatusOr<ChannelEnds> MakeFifo(const ChannelOptions& options);
absl::StatusOr<ChannelEnds> MakeTcp(const ChannelOptions& options);
absl::StatusOr<ChannelEnds> MakeUnixSocket(const ChannelOptions& options);  // stream, seqpacket, datagram
absl::StatusOr<ChannelEnds> MakeMessageQueue(const ChannelOptions& options);
absl::StatusOr<ChannelEnds> MakeZmq(const ChannelOptions& options);
absl::StatusOr<ChannelEnds> MakeSharedMemory(const ChannelOptions& options);

}  // namespace islands::experiments
