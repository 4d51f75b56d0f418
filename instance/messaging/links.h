// A worker's links to every other island: dialled, introduced, re-dialled when lost.
//
// Over a bare Transport, Links adds the handshake (cluster id, island id, boot epoch, peer uid), the map from
// islands to connections, and re-dialling with back-off. Requests and phase-two messages go out on the link
// this worker dialled (Send); a participant answers the coordinator's worker on the link that worker dialled
// to us (SendBack). So a transaction has one link to each participant, and both ends of it learn of its loss.
//
// Thread safety: owned by one worker.
//
// Invariants:
//  1. OnMessage is only called for peers whose handshake was accepted, and with the boot epoch they showed
//     then.
//  2. OnPeerUp and OnPeerLost alternate per peer island, starting with OnPeerUp; they speak of the dialled
//     link. OnOriginUp and OnOriginLost speak of the links that others have dialled: one of each per link.
//     A worker has one at a time; its next life may introduce itself before the last words of the one before
//     it have been read.
//  3. A peer of another cluster, another uid, or an unexpected island number is refused with a reason and
//     counted.
//  4. A message is sent to the incarnation whose OnPeerUp was last reported, or dropped: never to a later
//     one. SendBack to an Origin goes to that incarnation or nowhere.
//  5. Of an incarnation everything is taken that it has sent, until its links end, whoever else is there by
//     then: OnPeerLost and OnOriginLost mean that nothing more of it will come on that link. But a link that
//     its dialler has replaced ends at once, and once an incarnation has been seen none before it is let in.
//  6. A gateway dials like a worker and is none: it says requests of clients, and is answered on that link.
//  7. No more than most_queued_bytes wait for one peer on one link: a peer that does not take them is lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "instance/messaging/transport.h"
#include "runtime/clock.h"

namespace islands::data::v1 {
class Hello;
class HelloReply;
}  // namespace islands::data::v1

namespace islands::messaging {

// Where a message came from.
struct Origin {
  Address peer;
  uint64_t boot_epoch = 0;
  friend bool operator==(const Origin&, const Origin&) = default;
};

class LinksHandler {
 public:
  virtual ~LinksHandler() = default;
  virtual void OnPeerUp(uint32_t island, uint64_t boot_epoch) = 0;
  virtual void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) = 0;
  // A worker of another island can be answered (SendBack), or not any more.
  virtual void OnOriginUp(const Origin&) {}
  virtual void OnOriginLost(const Origin&, const absl::Status&) {}
  virtual void OnMessage(const Origin& origin, FrameType type, std::span<const std::byte> payload) = 0;
  // What a gateway says on a link, and that nothing more will come on it.
  virtual void OnClientRequest(ConnectionId, std::span<const std::byte>) {}
  virtual void OnGatewayLost(ConnectionId) {}
};

// Written by the worker, read by metrics threads: relaxed atomics without read-modify-write.
struct PeerTraffic {
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> messages_received{0};
  std::atomic<uint64_t> bytes_sent{0};  // frames with headers
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> bytes_queued{0};  // on all links with it, as of the last PublishQueues
};

struct LinksOptions {
  std::string cluster_id;
  Address self;
  uint64_t boot_epoch = 0;
  int64_t uid = -1;                          // peers must have it; -1 = not checked
  std::vector<uint32_t> workers_per_island;  // index = island; its size = number of islands
  int64_t redial_min_ns = 20 * runtime::kNsPerMs;
  int64_t redial_max_ns = 500 * runtime::kNsPerMs;
  int64_t handshake_timeout_ns = 5 * runtime::kNsPerSecond;
  size_t most_queued_bytes = 256u << 20;
};

class Links final : private TransportHandler {
 public:
  Links(LinksOptions options, Transport& transport, const runtime::Clock& clock, LinksHandler& handler);
  ~Links() override;

  // Listens and dials every peer.
  absl::Status Start();
  // Polls the transport and re-dials what is due. Returns the number of events handled.
  size_t Poll();
  void Flush() {
    unsent_ = false;
    transport_.Flush();
  }
  bool unsent() const { return unsent_; }  // something is queued that no Flush has seen
  // When Poll has something to do by itself (a re-dial), in clock time; INT64_MAX if never.
  int64_t NextDeadlineNs() const;

  // To the worker of `island` that serves us. False when that island is not up, or the message is larger than
  // a frame may be: nothing was queued.
  bool Send(uint32_t island, FrameType type, const google::protobuf::MessageLite& message);
  // To exactly that worker, over the link it dialled; false when it has none. By Address: to the incarnation
  // that dialled last. By Origin: to that incarnation only, which is how a message is answered.
  bool SendBack(Address to, FrameType type, const google::protobuf::MessageLite& message);
  bool SendBack(const Origin& to, FrameType type, const google::protobuf::MessageLite& message);
  // To a gateway whose loss was not reported; otherwise false, and nothing was queued.
  bool SendToGateway(ConnectionId connection, FrameType type, const google::protobuf::MessageLite& message);
  // Bytes queued towards `island` on the dialled link: back-pressure for new transactions.
  size_t QueuedBytes(uint32_t island) const;

  // Brings PeerTraffic::bytes_queued up to date; now and then, it looks at every link.
  void PublishQueues();

  bool IsUp(uint32_t island) const;
  uint64_t BootEpoch(uint32_t island) const;  // of the last OnPeerUp
  // The latest incarnation that has shown itself, on whichever link; 0 = none has. All before it are dead: an
  // island takes its kernel lock before it speaks.
  uint64_t NewestEpoch(uint32_t island) const { return peers_[island].newest_epoch; }
  // Whether a link that this incarnation has dialled is there: more of it may come.
  bool Hears(const Origin& origin) const;
  uint32_t PeersUp() const;
  const PeerTraffic& Traffic(uint32_t island) const;
  // By us, as acceptor or as dialler. Any thread.
  uint64_t HandshakesRefused() const { return refused_.load(std::memory_order_relaxed); }
  // Why the link to `island` is not up, or was lost the last time.
  const absl::Status& LastFailure(uint32_t island) const { return peers_[island].last_failure; }
  Address self() const { return options_.self; }
  // Between two polls.
  void CheckInvariants() const;
  std::span<const uint32_t> workers_per_island() const { return options_.workers_per_island; }
  // The worker of `island` that serves links dialled by `worker`.
  uint32_t ServingWorker(uint32_t island, uint32_t worker) const {
    return worker % options_.workers_per_island[island];
  }

 private:
  enum class DialState : uint8_t { kWaiting, kIntroducing, kUp };

  // Another island, and the link we dial to it. Links' own island has an entry that stays unused.
  struct Peer {
    DialState state = DialState::kWaiting;
    ConnectionId connection = 0;  // 0 while waiting
    uint64_t up_epoch = 0;        // of the last OnPeerUp
    uint64_t newest_epoch = 0;    // ever shown by this island, on either link
    int64_t deadline_ns = 0;      // waiting: when to dial; introducing: when to give up
    int64_t backoff_ns = 0;
    absl::Status last_failure;
  };

  // A link that somebody dialled to us.
  struct Accepted {
    bool introduced = false;  // Hello was accepted
    bool gateway = false;     // and said so; `origin` means nothing then
    bool refused = false;     // told so; waits for the dialler to hang up
    int64_t uid = -1;
    int64_t deadline_ns = 0;  // until introduced
    Origin origin;
  };

  // The link that a peer's worker dialled last.
  struct Introduced {
    ConnectionId connection = 0;  // 0 = none
    uint64_t boot_epoch = 0;
  };

  // TransportHandler
  void OnAccepted(ConnectionId connection, int64_t peer_uid) override;
  void OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) override;
  void OnClosed(ConnectionId connection, const absl::Status& why) override;

  void Dial(uint32_t island);
  // Ends the dialled link, reports it if it was up, and has it dialled again after `wait_ns`.
  void LoseDialled(uint32_t island, const absl::Status& why);
  void RunDeadlines();
  void UpdateDeadline();

  void OnHello(ConnectionId connection, Accepted& accepted, std::span<const std::byte> payload);
  // OK, or why the dialler is refused.
  absl::Status CheckHello(const data::v1::Hello& hello, int64_t uid) const;
  void Introduce(ConnectionId connection, Accepted& accepted, const Origin& origin);
  void OnHelloReply(uint32_t island, std::span<const std::byte> payload);
  absl::Status CheckHelloReply(uint32_t island, const data::v1::HelloReply& reply) const;
  void SawEpoch(uint32_t island, uint64_t epoch);
  // Ends a link that was dialled to us; reports it if its dialler had introduced itself.
  void CloseAccepted(ConnectionId connection, const absl::Status& why);
  // Ends the links to peers that do not take what is sent to them.
  void EndOverfull();
  // Nullptr when that worker has no link to us.
  const Introduced* FindIntroduced(Address peer) const;
  // Sorted: hash order differs from run to run, and a simulation must not.
  template <typename Predicate>
  std::vector<ConnectionId> AcceptedWhere(Predicate&& predicate) const;
  void Deliver(const Origin& origin, FrameType type, std::span<const std::byte> payload);
  void CountRefusal() {
    refused_.store(refused_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // False if the message does not fit into a frame.
  bool SendOn(ConnectionId connection, FrameType type, const google::protobuf::MessageLite& message);
  bool SendCounted(ConnectionId connection, uint32_t island, FrameType type,
                   const google::protobuf::MessageLite& message);

  const LinksOptions options_;
  Transport& transport_;
  const runtime::Clock& clock_;
  LinksHandler& handler_;

  // Owned by the worker.
  std::vector<Peer> peers_;                              // index = island
  absl::flat_hash_map<ConnectionId, uint32_t> dialled_;  // to the island
  absl::flat_hash_map<ConnectionId, Accepted> accepted_;
  std::vector<std::vector<Introduced>> introduced_;  // by island and worker
  uint32_t peers_up_ = 0;
  int64_t next_deadline_ns_;
  std::vector<std::byte> buffer_;  // a message being sent
  bool unsent_ = false;
  std::vector<ConnectionId> overfull_;

  // Written by the worker, read by any thread.
  std::vector<PeerTraffic> traffic_;  // index = island
  std::atomic<uint64_t> refused_{0};
};

}  // namespace islands::messaging
