// Frames between workers: the seam that shm, uds, zmq, the in-memory transport and the simulation implement
// alike.
//
// Every (worker, peer island) pair dials one connection of its own; the far side serves it on its worker
// (dialler's worker mod its worker count). So each worker owns one Transport with one listening address, and
// nothing is handed between threads (design: "worker to worker").
//
// Thread safety: a Transport belongs to one worker; only Wake() may be called from other threads.
//
// Invariants, checked by the conformance test that every implementation passes:
//  1. Frames of one connection and direction arrive whole, once, in order, or the connection is reported
//     closed.
//  2. Send never blocks and never fails: what the peer cannot take now is queued; QueuedBytes tells how much.
//     Frames given to Send are on their way only after Flush (at most one system call per connection and
//     round).
//  3. After OnClosed(c) nothing more is reported for c; sending to it is a no-op. Ids are never used twice.
//  4. Bytes from a peer that are not a frame (cap, version) close that connection, nothing else.
//  5. Poll never blocks. Wait returns at once if something is ready or Wake was called since the last Wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "instance/messaging/frame.h"

namespace islands::messaging {

struct Address {
  uint32_t island = 0;
  uint32_t worker = 0;
  friend auto operator<=>(const Address&, const Address&) = default;
};

using ConnectionId = uint64_t;  // 0 = none

// Receives what Poll finds. Called on the owning worker's thread, from inside Poll only. It may call Send,
// Close and Dial, but not Poll.
class TransportHandler {
 public:
  virtual ~TransportHandler() = default;
  // Somebody dialled us. `peer_uid` is the kernel's word for who (SO_PEERCRED), or -1 where the transport
  // cannot know.
  virtual void OnAccepted(ConnectionId connection, int64_t peer_uid) = 0;
  // `payload` is valid during the call only.
  virtual void OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) = 0;
  virtual void OnClosed(ConnectionId connection, const absl::Status& why) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Opens this worker's listening address.
  virtual absl::Status Listen() = 0;
  // Starts connecting; returns at once. Failure arrives later as OnClosed. Sending right away is allowed.
  virtual ConnectionId Dial(Address peer) = 0;
  // Copies the payload. At most kMaxFrameBytes; larger is a bug of ours.
  virtual void Send(ConnectionId connection, FrameType type, std::span<const std::byte> payload) = 0;
  virtual size_t QueuedBytes(ConnectionId connection) const = 0;
  virtual void Flush() = 0;
  // Handles what is ready now; returns the number of frames and connection events handled.
  virtual size_t Poll(TransportHandler& handler) = 0;
  // Closes without a report.
  virtual void Close(ConnectionId connection) = 0;
  // Sleeps until something is ready, Wake, or the timeout.
  virtual void Wait(int64_t timeout_ns) = 0;
  virtual void Wake() = 0;
};

}  // namespace islands::messaging
