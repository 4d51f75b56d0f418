// A gateway's links to the workers of all islands: one to each, dialled, introduced, dialled again when
// lost; requests out, replies back.
//
// One thread has them, like a worker its own; who sends hands its request over. Programs that speak frames
// (direct.h) are served by the same thread: what they ask is on its way to an island, and what that says on
// its way back, without another thread's being woken.
//
// Thread safety: Send, IsUp, Traffic, Serve and Run from any thread; a Waiting is told on the channels'
// thread, or inside Send; Tell and HangUp on the channels' thread.
//
// Invariants:
//  1. Of every request exactly one is said to who waits for it: its reply, or that none will come.
//  2. A link that was lost answers nothing that was asked on it, whoever is dialled next.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "instance/messaging/transport.h"
#include "instance/worker/counters.h"
#include "proto/data.pb.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"
#include "runtime/pulse_board.h"

namespace islands::gateway {

// Whoever has sent a request.
class Waiting {
 public:
  virtual ~Waiting() = default;
  virtual void OnReply(const data::v1::ClientReply& reply) = 0;
  // No reply will come. `sent`: the island may have got the request, and carried it out.
  virtual void OnLost(bool sent, const absl::Status& why) = 0;

  // When the last request went to its island and when it came back, or was lost; 0: it never went. To a round
  // of the channels' loop: what waits for the channels themselves is the gateway's own time.
  int64_t sent_ns() const { return sent_ns_; }
  int64_t returned_ns() const { return returned_ns_; }
  int64_t waited_ns() const { return returned_ns_ - sent_ns_; }

 private:
  friend class Channels;
  int64_t sent_ns_ = 0;
  int64_t returned_ns_ = 0;
};

// What went to an island and came from it. Written by the channels' thread.
struct IslandTraffic {
  instance::Counter messages_sent, messages_received, bytes_sent, bytes_received;  // frame headers excluded
};

struct ChannelsOptions {
  std::string cluster_id;
  std::vector<uint32_t> workers;  // of each island
  int64_t redial_min_ns = 20 * runtime::kNsPerMs;
  int64_t redial_max_ns = 100 * runtime::kNsPerMs;
  int64_t handshake_timeout_ns = 5 * runtime::kNsPerSecond;
  // On the channels' thread: whether all links to an island are up, whenever that changes.
  std::function<void(uint32_t island, bool up)> on_island = [](uint32_t, bool) {};
  runtime::PulseBoard* pulse = nullptr;  // of one: raised by the channels' thread; null: nobody looks
};

class Channels final : private messaging::TransportHandler {
 public:
  Channels(ChannelsOptions options, std::unique_ptr<messaging::Transport> transport,
           const runtime::Clock& clock);
  ~Channels() override;  // whoever still waits is told that nothing will come

  // For a new transaction.
  uint64_t NextSession() { return next_session_.fetch_add(1, std::memory_order_relaxed); }
  bool IsUp(uint32_t island) const { return island_up_[island].load(std::memory_order_acquire); }
  const IslandTraffic& Traffic(uint32_t island) const { return traffic_[island]; }
  uint32_t islands() const { return static_cast<uint32_t>(options_.workers.size()); }
  // The worker that a transaction goes to: they take turns.
  messaging::Address WorkerFor(uint32_t island, uint64_t session) const {
    return {island, static_cast<uint32_t>(session % options_.workers[island])};
  }
  // `waiting` must live until it was told.
  void Send(messaging::Address to, const data::v1::ClientRequest& request, Waiting* waiting);

  // Listens at the transport's address; who dials there is `clients`' from then on, who must live until
  // EndServing.
  absl::Status Serve(messaging::TransportHandler& clients);
  // No client is heard any more, and all lose their connections.
  void EndServing();
  // To a client. Hanging up is not reported.
  void Tell(messaging::ConnectionId client, messaging::FrameType type, std::span<const std::byte> payload) {
    transport_->Send(client, type, payload);
  }
  void HangUp(messaging::ConnectionId client);
  bool IsThisThread() const { return std::this_thread::get_id() == thread_.get_id(); }
  // Soon, on the channels' thread; at once, if that is who calls. The channels live on.
  void Run(absl::AnyInvocable<void()> job);

 private:
  struct Posted {
    messaging::Address to;
    uint64_t session;
    size_t bytes;  // of the request
    Waiting* waiting;
  };
  // Requests one behind the other: what one thread allocates and another frees costs more than a copy.
  struct Post {
    std::vector<Posted> requests;
    std::string bytes;
  };
  enum class State : uint8_t { kWaiting, kIntroducing, kUp };
  struct Link {
    messaging::Address to;
    State state = State::kWaiting;
    messaging::ConnectionId connection = 0;  // 0 while waiting
    int64_t deadline_ns = 0;                 // waiting: when to dial; introducing: when to give up
    int64_t backoff_ns = 0;
    absl::Status last_failure;
    absl::flat_hash_map<uint64_t, Waiting*> asked;  // by session
  };

  void OnAccepted(messaging::ConnectionId connection, int64_t peer_uid) override;
  void OnFrame(messaging::ConnectionId connection, messaging::FrameType type,
               std::span<const std::byte> payload) override;
  void OnClosed(messaging::ConnectionId connection, const absl::Status& why) override;

  void Loop();
  bool TakePosted();
  void Ask(const Posted& posted, std::string_view request);
  void Dial(Link& link);
  void Lose(Link& link, const absl::Status& why);
  void OnHelloReply(Link& link, std::span<const std::byte> payload);
  void OnClientReply(Link& link, std::span<const std::byte> payload);
  void RunDeadlines();
  void PublishUp(uint32_t island);
  Link& LinkTo(messaging::Address to) { return links_[first_[to.island] + to.worker]; }

  const ChannelsOptions options_;
  const std::unique_ptr<messaging::Transport> transport_;
  const runtime::Clock& clock_;
  std::vector<size_t> first_;  // link of each island's first worker
  std::vector<std::atomic<bool>> island_up_;
  std::vector<IslandTraffic> traffic_;
  std::atomic<uint64_t> next_session_{1};

  // Owned by the thread.
  std::vector<Link> links_;
  absl::flat_hash_map<messaging::ConnectionId, Link*> dialled_;
  messaging::TransportHandler* clients_ = nullptr;  // null: nobody is served
  absl::flat_hash_set<messaging::ConnectionId> client_connections_;
  Post taken_;
  std::vector<absl::AnyInvocable<void()>> running_;
  data::v1::ClientReply reply_;
  std::string buffer_;
  int64_t next_deadline_ns_ = 0;
  int64_t asked_ns_ = 0;   // when the requests of this round were taken
  int64_t polled_ns_ = 0;  // when its first reply was; 0: there was none

  runtime::Mutex mutex_;
  Post posted_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace islands::gateway
