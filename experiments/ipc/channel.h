// A way for two processes to exchange messages of one size, as one class per mechanism behind one interface
// (OLTP on Hardware Islands, Figure 6). A channel has two ends. Both are made before the fork; then each
// process destroys the end that is not its own, and attaches its own.
//
// Thread safety: an end belongs to one thread; the two ends may be used by different threads or processes.
//
// Invariants:
//  1. Whatever has a name in the system (FIFO, message queue, listening port) has lost it before MakeChannels
//     returns, or it has none: however processes end, nothing stays behind.
//  2. Messages arrive whole, once, and in order. One call of the system per message and direction, so that
//     mechanisms can be compared: no reading ahead, no sending of several at once (ZeroMQ decides for
//     itself).
//  3. An end whose peer is gone says UNAVAILABLE where the kernel tells (pipe, fifo, tcp, uds-stream,
//     uds-seqpacket). It waits forever on the others: whoever starts the peer watches it (peer_process.h).
#pragma once

#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace islands::experiments {

inline constexpr uint32_t kMinMessageBytes = 16;
inline constexpr uint32_t kMaxMessageBytes = 4096;  // PIPE_BUF: what a pipe takes whole or not at all
inline constexpr uint32_t kMaxBatch = 65536;

using Message = std::span<const std::byte>;
using MessageBuffer = std::span<std::byte>;

class Channel {
 public:
  virtual ~Channel() = default;
  // Once, in the process and thread that uses this end.
  virtual absl::Status Attach() { return absl::OkStatus(); }
  // False: no room now. TCP may take a part of a message: then this waits until the rest is taken too, and
  // reads meanwhile, so that the peer comes to it.
  virtual absl::StatusOr<bool> TrySend(Message message) = 0;
  virtual absl::Status Send(Message message) = 0;  // waits for room
  virtual absl::Status Receive(MessageBuffer message) = 0;
};

struct ChannelOptions {
  std::string mechanism;
  uint32_t bytes = 64;
  uint32_t batch = 1;  // how many messages should find room in each direction
  bool spin = false;   // wait by asking again and again; else asleep in the kernel
  // A spinning end gives its CPU away between two looks: with both ends on one CPU each would otherwise spin
  // through its whole time slice before the other could answer.
  bool yield = false;
};

const std::vector<std::string>& MechanismNames();

// The two ends. UNIMPLEMENTED: this kernel has no such mechanism. Writing to a pipe whose reader is gone
// raises SIGPIPE, which the process must ignore.
using ChannelEnds = std::array<std::unique_ptr<Channel>, 2>;
absl::StatusOr<ChannelEnds> MakeChannels(const ChannelOptions& options);

// "posix-mq: mq_open: Too many open files"; UNAVAILABLE if the peer is gone, UNIMPLEMENTED if the kernel
// lacks it.
absl::Status ErrnoError(std::string_view mechanism, std::string_view call, int error);

// Between two looks of a spinning end.
inline void SpinPause(const ChannelOptions& options) {
  if (options.yield) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace islands::experiments
