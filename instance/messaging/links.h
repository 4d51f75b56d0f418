// A worker's links to every other island: dialled, introduced, re-dialled when lost.
//
// Over a bare Transport, Links adds the handshake (cluster id, island id, boot epoch, peer uid), the map from islands to
// connections, and re-dialling with back-off. Requests and phase-two messages go out on the link this worker dialled
// (Send); a participant answers the coordinator's worker on the link that worker dialled to us (SendBack).
//
// Thread safety: owned by one worker.
//
// Invariants:
//  1. OnMessage is only called for peers whose handshake was accepted, and with the boot epoch they showed then.
//  2. OnPeerUp and OnPeerLost alternate per peer island, starting with OnPeerUp. They speak of the dialled link.
//  3. A peer of another cluster, another uid, or an unexpected island number is refused with a reason and counted.
//  4. A message is sent to the incarnation whose OnPeerUp was last reported, or dropped: never to a later one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "instance/messaging/transport.h"
#include "instance/runtime/clock.h"

namespace islands::messaging {

// Where a message came from.
struct Origin {
  Address peer;
  uint64_t boot_epoch = 0;
};

class LinksHandler {
 public:
  virtual ~LinksHandler() = default;
  virtual void OnPeerUp(uint32_t island, uint64_t boot_epoch) = 0;
  virtual void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) = 0;
  virtual void OnMessage(const Origin& origin, FrameType type, std::span<const std::byte> payload) = 0;
};

// Written by the worker, read by metrics threads: relaxed atomics without read-modify-write.
struct PeerTraffic {
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> messages_received{0};
  std::atomic<uint64_t> bytes_sent{0};  // frames with headers
  std::atomic<uint64_t> bytes_received{0};
};

struct LinksOptions {
  std::string cluster_id;
  Address self;
  uint64_t boot_epoch = 0;
  int64_t uid = -1;                        // peers must have it; -1 = not checked
  std::vector<uint32_t> workers_per_island;  // index = island; its size = number of islands
  int64_t redial_min_ns = 20 * runtime::kNsPerMs;
  int64_t redial_max_ns = 500 * runtime::kNsPerMs;
  int64_t handshake_timeout_ns = 5 * runtime::kNsPerSecond;
};

class Links final : private TransportHandler {
 public:
  Links(LinksOptions options, Transport& transport, const runtime::Clock& clock, LinksHandler& handler);
  ~Links() override;

  // Listens and dials every peer.
  absl::Status Start();
  // Polls the transport and re-dials what is due. Returns the number of events handled.
  size_t Poll();
  void Flush() { transport_.Flush(); }
  // When Poll has something to do by itself (a re-dial), in clock time; INT64_MAX if never.
  int64_t NextDeadlineNs() const;

  // To the worker of `island` that serves us. False when that island is not up: nothing was queued.
  bool Send(uint32_t island, FrameType type, const google::protobuf::MessageLite& message);
  // To exactly that worker, over the link it dialled; false when it has none.
  bool SendBack(Address to, FrameType type, const google::protobuf::MessageLite& message);
  // Bytes queued towards `island` on the dialled link: back-pressure for new transactions.
  size_t QueuedBytes(uint32_t island) const;

  bool IsUp(uint32_t island) const;
  uint64_t BootEpoch(uint32_t island) const;  // of the last OnPeerUp
  uint32_t PeersUp() const;
  const PeerTraffic& Traffic(uint32_t island) const;
  uint64_t HandshakesRefused() const;
  // The worker of `island` that serves links dialled by `worker`.
  uint32_t ServingWorker(uint32_t island, uint32_t worker) const;
};

}  // namespace islands::messaging
