// The hub and its transports in one file: both sides of every step share one mutex and its invariants.
#include "instance/messaging/memory_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "instance/messaging/connection_table.h"
#include "instance/messaging/frame_scan.h"
#include "instance/messaging/send_queue.h"
#include "runtime/check.h"
#include "runtime/mutex.h"

namespace islands::messaging {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

enum class EventKind : uint8_t { kAccept, kPacket, kClosed };

struct Endpoint;

// A connection as the network sees it; side 0 dialled side 1. All guarded by the hub's mutex, except `id[s]`,
// which belongs to side s's owner.
struct Link {
  uint64_t number = 0;  // in order of dialling
  Address address[2];
  Endpoint* side[2] = {nullptr, nullptr};  // nullptr: that side has let go
  ConnectionId id[2] = {0, 0};
  size_t under_way[2] = {0, 0};     // bytes towards side s
  int64_t last_due_ns[2] = {0, 0};  // towards side s: order is kept by never being due before this
};

struct Event {
  EventKind kind = EventKind::kPacket;
  std::shared_ptr<Link> link;
  int side = 0;  // that receives it
  std::vector<std::byte> bytes;
  absl::Status why;
};

// One transport's place in the network. Guarded by the hub's mutex, but for `alive`.
struct Endpoint {
  uint64_t number = 0;  // in order of creation
  Address self;
  std::atomic<bool> alive{true};  // written under the mutex, read by the owner between two events
  bool woken = false;             // Wake since the last Wait
  bool room_made = false;         // a peer took packets: Flush may get further
  std::condition_variable_any changed;
  std::map<std::pair<int64_t, uint64_t>, Event> inbox;  // by (due, order of sending)
};

}  // namespace

struct MemoryHub::Impl {
  Impl(const runtime::Clock* the_clock, MemoryHubOptions the_options)
      : clock(the_clock), options(the_options) {}

  const runtime::Clock* const clock;
  const MemoryHubOptions options;

  mutable runtime::Mutex mutex;
  Delay delay ABSL_GUARDED_BY(mutex);
  uint64_t sequence ABSL_GUARDED_BY(mutex) = 0;
  std::map<Address, Endpoint*> listening ABSL_GUARDED_BY(mutex);
  // By number, never by address: walks must come in the same order in every run.
  std::map<uint64_t, Endpoint*> endpoints ABSL_GUARDED_BY(mutex);
  std::map<uint64_t, std::shared_ptr<Link>> links ABSL_GUARDED_BY(mutex);
  std::set<std::pair<uint32_t, uint32_t>> partitions ABSL_GUARDED_BY(mutex);  // smaller island first
  std::set<uint32_t> severed ABSL_GUARDED_BY(mutex);

  int64_t Now() const { return clock == nullptr ? 0 : clock->NowNs(); }

  bool Separated(uint32_t a, uint32_t b) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return a != b && (severed.contains(a) || severed.contains(b) || partitions.contains(std::minmax(a, b)));
  }

  void Post(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Link& link = *event.link;
    Endpoint* to = link.side[event.side];
    if (to == nullptr) return;
    int64_t due = 0;
    if (delay)
      due = Now() + std::max<int64_t>(0, delay(link.address[1 - event.side], link.address[event.side]));
    due = std::max(due, link.last_due_ns[event.side]);
    link.last_due_ns[event.side] = due;
    link.under_way[event.side] += event.bytes.size();
    to->inbox.emplace(std::pair(due, ++sequence), std::move(event));
    to->changed.notify_one();
  }

  void PostClosed(const std::shared_ptr<Link>& link, int side, absl::Status why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Event event;
    event.kind = EventKind::kClosed;
    event.link = link;
    event.side = side;
    event.why = std::move(why);
    Post(std::move(event));
  }

  // Side `side` lets go; the other side hears of it after what was sent before.
  void LetGo(const std::shared_ptr<Link>& link, int side, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (link->side[side] == nullptr) return;
    link->side[side] = nullptr;
    PostClosed(link, 1 - side, why);
    if (link->side[1 - side] == nullptr) links.erase(link->number);
  }

  // The endpoint's process is gone.
  void Kill(Endpoint* endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!endpoint->alive) return;
    endpoint->alive = false;
    if (auto it = listening.find(endpoint->self); it != listening.end() && it->second == endpoint) {
      listening.erase(it);
    }
    const auto before = links;
    for (const auto& [number, link] : before) {
      for (int side = 0; side < 2; ++side) {
        if (link->side[side] == endpoint)
          LetGo(link, side, absl::UnavailableError("the peer closed the connection"));
      }
    }
    endpoint->inbox.clear();
    endpoint->changed.notify_one();
  }

  void CutSeparated() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Cut([this](const Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      return Separated(link.address[0].island, link.address[1].island);
    });
  }

  // Cuts the connections that `unlucky` names, and what is under way on them.
  template <typename Predicate>
  void Cut(Predicate&& unlucky) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto before = links;
    for (const auto& [number, link] : before) {
      if (!unlucky(*link)) continue;
      for (int side = 0; side < 2; ++side) {
        if (link->side[side] == nullptr) continue;
        // An accept stays, or the closure would speak of a connection that its owner never heard of.
        std::erase_if(link->side[side]->inbox, [&](const auto& entry) {
          return entry.second.link == link && entry.second.kind == EventKind::kPacket;
        });
        link->under_way[side] = 0;
        PostClosed(link, side, absl::UnavailableError("the network between the islands is cut"));
      }
      link->side[0] = link->side[1] = nullptr;
      links.erase(link->number);
    }
  }
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(MemoryHub::Impl* hub, Address self) : hub_(hub) {
    endpoint_.self = self;
    const runtime::MutexLock lock(hub_->mutex);
    endpoint_.number = ++hub_->sequence;
    hub_->endpoints.emplace(endpoint_.number, &endpoint_);
  }
  ~MemoryTransport() override {
    const runtime::MutexLock lock(hub_->mutex);
    hub_->Kill(&endpoint_);
    hub_->endpoints.erase(endpoint_.number);
  }

  absl::Status Listen() override;
  ConnectionId Dial(Address peer) override;
  void Send(ConnectionId id, FrameType type, std::span<const std::byte> payload) override;
  size_t QueuedBytes(ConnectionId id) const override { return queue_.QueuedBytes(id); }
  void Flush() override;
  size_t Poll(TransportHandler& handler) override;
  void Close(ConnectionId id) override;
  void Wait(int64_t timeout_ns) override;
  void Wake() override;

 private:
  struct Connection : QueuedOutput {
    std::shared_ptr<Link> link;
    int side = 0;
  };

  void SendBlocked();
  // What is due now, in order. Returns whether a peer made room.
  bool TakeDue(std::vector<Event>* due);
  size_t Handle(Event& event, TransportHandler& handler);
  size_t HandlePacket(ConnectionId id, std::span<const std::byte> bytes, TransportHandler& handler);

  MemoryHub::Impl* const hub_;
  Endpoint endpoint_;  // guarded by the hub's mutex
  // Owned by the worker.
  ConnectionTable<Connection> connections_;
  SendQueue<Connection> queue_{connections_};
  std::vector<ConnectionId> blocked_;  // flushed, but the connection was full
};

absl::Status MemoryTransport::Listen() {
  const runtime::MutexLock lock(hub_->mutex);
  const Address self = endpoint_.self;
  if (!endpoint_.alive) return absl::FailedPreconditionError("this transport was dropped");
  if (!hub_->listening.emplace(self, &endpoint_).second) {
    return absl::AlreadyExistsError(
        fmt::format("another transport is listening as island {} worker {}", self.island, self.worker));
  }
  return absl::OkStatus();
}

ConnectionId MemoryTransport::Dial(Address peer) {
  auto connection = std::make_unique<Connection>();
  auto link = std::make_shared<Link>();
  connection->link = link;
  const ConnectionId id = connections_.Add(std::move(connection));
  link->id[0] = id;

  const runtime::MutexLock lock(hub_->mutex);
  if (!endpoint_.alive) return id;
  link->address[0] = endpoint_.self;
  link->address[1] = peer;
  link->side[0] = &endpoint_;
  const auto target = hub_->listening.find(peer);
  if (target == hub_->listening.end() || hub_->Separated(endpoint_.self.island, peer.island)) {
    hub_->PostClosed(link, 0,
                     absl::UnavailableError(
                         fmt::format("nobody listens as island {} worker {}", peer.island, peer.worker)));
    link->side[0] = nullptr;
    return id;
  }
  link->side[1] = target->second;
  link->number = ++hub_->sequence;
  hub_->links.emplace(link->number, link);
  Event event;
  event.kind = EventKind::kAccept;
  event.link = link;
  event.side = 1;
  hub_->Post(std::move(event));
  return id;
}

void MemoryTransport::Send(ConnectionId id, FrameType type, std::span<const std::byte> payload) {
  if (Connection* connection = connections_.Find(id)) queue_.Append(id, *connection, type, payload);
}

void MemoryTransport::Flush() {
  queue_.Flush([this](ConnectionId id, Connection&) { blocked_.push_back(id); });
  SendBlocked();
}

void MemoryTransport::SendBlocked() {
  if (blocked_.empty()) return;
  const runtime::MutexLock lock(hub_->mutex);
  std::erase_if(blocked_, [&](ConnectionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) {
    Connection* connection = connections_.Find(id);
    if (connection == nullptr || connection->released == 0) return true;
    Link& link = *connection->link;
    const int to = 1 - connection->side;
    if (link.side[0] != nullptr && link.side[1] != nullptr) {
      if (link.under_way[to] >= hub_->options.connection_bytes) return false;
      const std::span<const std::byte> unsent = connection->Released();
      Event event;
      event.link = connection->link;
      event.side = to;
      event.bytes.assign(unsent.begin(), unsent.end());
      hub_->Post(std::move(event));
    }
    connection->Sent(connection->released);  // or its OnClosed is under way
    return true;
  });
}

bool MemoryTransport::TakeDue(std::vector<Event>* due) {
  const runtime::MutexLock lock(hub_->mutex);
  const int64_t now = hub_->Now();
  while (!endpoint_.inbox.empty() && endpoint_.inbox.begin()->first.first <= now) {
    Event event = std::move(endpoint_.inbox.begin()->second);
    endpoint_.inbox.erase(endpoint_.inbox.begin());
    Link& link = *event.link;
    link.under_way[event.side] -= std::min(link.under_way[event.side], event.bytes.size());
    if (Endpoint* sender = link.side[1 - event.side]; sender != nullptr && event.kind == EventKind::kPacket) {
      sender->room_made = true;
      sender->changed.notify_one();
    }
    due->push_back(std::move(event));
  }
  return std::exchange(endpoint_.room_made, false);
}

size_t MemoryTransport::Poll(TransportHandler& handler) {
  std::vector<Event> due;
  if (TakeDue(&due)) SendBlocked();
  size_t handled = 0;
  for (Event& event : due) {
    if (endpoint_.alive) handled += Handle(event, handler);
  }
  return handled;
}

size_t MemoryTransport::Handle(Event& event, TransportHandler& handler) {
  ConnectionId& id = event.link->id[event.side];
  if (event.kind == EventKind::kAccept) {
    auto connection = std::make_unique<Connection>();
    connection->link = event.link;
    connection->side = event.side;
    id = connections_.Add(std::move(connection));
    const int64_t uid = hub_->options.uid;
    handler.OnAccepted(id, uid == -2 ? static_cast<int64_t>(geteuid()) : uid);
    return 1;
  }
  if (connections_.Find(id) == nullptr) return 0;  // closed by its owner
  if (event.kind == EventKind::kPacket) return HandlePacket(id, event.bytes, handler);
  Close(id);
  handler.OnClosed(id, event.why);
  return 1;
}

size_t MemoryTransport::HandlePacket(ConnectionId id, std::span<const std::byte> bytes,
                                     TransportHandler& handler) {
  const ScanResult scan = ScanFrames(bytes, [&](FrameType type, std::span<const std::byte> payload) {
    handler.OnFrame(id, type, payload);
    return endpoint_.alive && connections_.Find(id) != nullptr;
  });
  return scan.frames;
}

void MemoryTransport::Close(ConnectionId id) {
  const std::unique_ptr<Connection> connection = connections_.Remove(id);
  if (connection == nullptr) return;
  const runtime::MutexLock lock(hub_->mutex);
  hub_->LetGo(connection->link, connection->side, absl::UnavailableError("the peer closed the connection"));
}

void MemoryTransport::Wait(int64_t timeout_ns) {
  const runtime::MutexLock lock(hub_->mutex);
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::max<int64_t>(timeout_ns, 0));
  while (!endpoint_.woken && !endpoint_.room_made) {
    auto until = deadline;
    if (!endpoint_.inbox.empty()) {
      const int64_t in_ns = endpoint_.inbox.begin()->first.first - hub_->Now();
      if (in_ns <= 0) break;
      until = std::min(until, std::chrono::steady_clock::now() + std::chrono::nanoseconds(in_ns));
    }
    endpoint_.changed.wait_until(hub_->mutex, until);
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  endpoint_.woken = false;
}

void MemoryTransport::Wake() {
  const runtime::MutexLock lock(hub_->mutex);
  endpoint_.woken = true;
  endpoint_.changed.notify_one();
}

MemoryHub::MemoryHub(const runtime::Clock* clock, MemoryHubOptions options)
    : impl_(std::make_unique<Impl>(clock, options)) {}

MemoryHub::~MemoryHub() { ISLANDS_CHECK(impl_->endpoints.empty()); }

std::unique_ptr<Transport> MemoryHub::MakeTransport(Address self) {
  return std::make_unique<MemoryTransport>(impl_.get(), self);
}

void MemoryHub::SetDelay(Delay delay) {
  ISLANDS_CHECK(impl_->clock != nullptr || !delay);
  const runtime::MutexLock lock(impl_->mutex);
  impl_->delay = std::move(delay);
}

void MemoryHub::Drop(uint32_t island) {
  const runtime::MutexLock lock(impl_->mutex);
  for (const auto& [number, endpoint] : impl_->endpoints) {
    if (endpoint->self.island == island) impl_->Kill(endpoint);
  }
}

void MemoryHub::Partition(uint32_t a, uint32_t b) {
  const runtime::MutexLock lock(impl_->mutex);
  impl_->partitions.insert(std::minmax(a, b));
  impl_->CutSeparated();
}

void MemoryHub::Break(Address dialler, uint32_t island) {
  const runtime::MutexLock lock(impl_->mutex);
  impl_->Cut(
      [&](const Link& link) { return link.address[0] == dialler && link.address[1].island == island; });
}

void MemoryHub::Heal(uint32_t a, uint32_t b) {
  const runtime::MutexLock lock(impl_->mutex);
  impl_->partitions.erase(std::minmax(a, b));
}

void MemoryHub::Sever(uint32_t island) {
  const runtime::MutexLock lock(impl_->mutex);
  impl_->severed.insert(island);
  impl_->CutSeparated();
}

void MemoryHub::Rejoin(uint32_t island) {
  const runtime::MutexLock lock(impl_->mutex);
  impl_->severed.erase(island);
}

void MemoryHub::HealAll() {
  const runtime::MutexLock lock(impl_->mutex);
  impl_->severed.clear();
  impl_->partitions.clear();
}

int64_t MemoryHub::NextDeliveryNs(int64_t after_ns) const {
  const runtime::MutexLock lock(impl_->mutex);
  int64_t next = kNever;
  for (const auto& [number, endpoint] : impl_->endpoints) {
    if (endpoint->inbox.empty()) continue;
    const int64_t due_ns = endpoint->inbox.begin()->first.first;
    if (due_ns > after_ns) next = std::min(next, due_ns);
  }
  return next;
}

}  // namespace islands::messaging
