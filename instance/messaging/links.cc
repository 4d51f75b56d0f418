#include "instance/messaging/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/data.pb.h"
#include "runtime/check.h"

namespace islands::messaging {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr size_t kKeptBufferBytes = 1 << 20;

void Add(std::atomic<uint64_t>& counter, uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

Links::Links(LinksOptions options, Transport& transport, const runtime::Clock& clock, LinksHandler& handler)
    : options_(std::move(options)),
      transport_(transport),
      clock_(clock),
      handler_(handler),
      peers_(options_.workers_per_island.size()),
      next_deadline_ns_(kNever),
      traffic_(options_.workers_per_island.size()) {
  ISLANDS_CHECK(options_.self.island < peers_.size());
  introduced_.resize(peers_.size());
  for (size_t island = 0; island < peers_.size(); ++island) {
    introduced_[island].resize(options_.workers_per_island[island]);
    ISLANDS_CHECK(island == options_.self.island || options_.workers_per_island[island] > 0);
    peers_[island].backoff_ns = options_.redial_min_ns;
    peers_[island].last_failure = absl::UnavailableError("not dialled yet");
  }
}

Links::~Links() {
  for (const Peer& peer : peers_) transport_.Close(peer.connection);
  for (const ConnectionId connection : AcceptedWhere([](const Accepted&) { return true; }))
    transport_.Close(connection);
}

absl::Status Links::Start() {
  if (absl::Status status = transport_.Listen(); !status.ok()) return status;
  for (uint32_t island = 0; island < peers_.size(); ++island) {
    if (island != options_.self.island) Dial(island);
  }
  return absl::OkStatus();
}

size_t Links::Poll() {
  if (!overfull_.empty()) EndOverfull();
  const size_t handled = transport_.Poll(*this);
  // Every link up and introduced: no deadline, no look at the clock.
  if (next_deadline_ns_ == kNever || clock_.NowNs() < next_deadline_ns_) return handled;
  RunDeadlines();
  return handled + 1;
}

int64_t Links::NextDeadlineNs() const { return next_deadline_ns_; }

void Links::RunDeadlines() {
  const int64_t now = clock_.NowNs();
  for (uint32_t island = 0; island < peers_.size(); ++island) {
    const Peer& peer = peers_[island];
    if (island == options_.self.island || peer.state == DialState::kUp || peer.deadline_ns > now) continue;
    if (peer.state == DialState::kWaiting) {
      Dial(island);
    } else {
      LoseDialled(island,
                  absl::DeadlineExceededError(fmt::format("island {} does not answer hello", island)));
    }
  }
  const auto overdue = [now](const Accepted& link) { return !link.introduced && link.deadline_ns <= now; };
  for (const ConnectionId connection : AcceptedWhere(overdue)) {
    if (!accepted_.find(connection)->second.refused) CountRefusal();
    CloseAccepted(connection, absl::DeadlineExceededError("no hello"));
  }
  UpdateDeadline();
}

void Links::UpdateDeadline() {
  next_deadline_ns_ = kNever;
  for (uint32_t island = 0; island < peers_.size(); ++island) {
    if (island == options_.self.island || peers_[island].state == DialState::kUp) continue;
    next_deadline_ns_ = std::min(next_deadline_ns_, peers_[island].deadline_ns);
  }
  for (const auto& [connection, accepted] : accepted_) {
    if (!accepted.introduced) next_deadline_ns_ = std::min(next_deadline_ns_, accepted.deadline_ns);
  }
}

void Links::Dial(uint32_t island) {
  Peer& peer = peers_[island];
  peer.connection = transport_.Dial({island, ServingWorker(island, options_.self.worker)});
  peer.state = DialState::kIntroducing;
  peer.deadline_ns = clock_.NowNs() + options_.handshake_timeout_ns;
  next_deadline_ns_ = std::min(next_deadline_ns_, peer.deadline_ns);
  dialled_[peer.connection] = island;
  data::v1::Hello hello;
  hello.set_cluster_id(options_.cluster_id);
  hello.set_island(options_.self.island);
  hello.set_worker(options_.self.worker);
  hello.set_boot_epoch(options_.boot_epoch);
  hello.set_to_island(island);
  SendOn(peer.connection, FrameType::kHello, hello);
}

void Links::LoseDialled(uint32_t island, const absl::Status& why) {
  Peer& peer = peers_[island];
  transport_.Close(peer.connection);
  dialled_.erase(peer.connection);
  const bool was_up = peer.state == DialState::kUp;
  if (was_up) peer.backoff_ns = options_.redial_min_ns;
  peer.state = DialState::kWaiting;
  peer.connection = 0;
  peer.last_failure = why;
  peer.deadline_ns = clock_.NowNs() + peer.backoff_ns;
  peer.backoff_ns = std::min(2 * peer.backoff_ns, options_.redial_max_ns);
  next_deadline_ns_ = std::min(next_deadline_ns_, peer.deadline_ns);
  if (!was_up) return;  // invariant 2: no OnPeerLost without an OnPeerUp
  --peers_up_;
  handler_.OnPeerLost(island, peer.up_epoch, why);
}

void Links::OnAccepted(ConnectionId connection, int64_t peer_uid) {
  Accepted& accepted = accepted_[connection];
  accepted.uid = peer_uid;
  accepted.deadline_ns = clock_.NowNs() + options_.handshake_timeout_ns;
  next_deadline_ns_ = std::min(next_deadline_ns_, accepted.deadline_ns);
}

void Links::OnClosed(ConnectionId connection, const absl::Status& why) {
  if (const auto it = dialled_.find(connection); it != dialled_.end()) {
    LoseDialled(it->second, why);
  } else {
    // A transport that could not make anything of what it said, or would not listen to it.
    if (absl::IsInvalidArgument(why) || absl::IsPermissionDenied(why)) CountRefusal();
    CloseAccepted(connection, why);
  }
}

void Links::EndOverfull() {
  for (const ConnectionId connection : std::exchange(overfull_, {})) {
    OnClosed(connection, absl::ResourceExhaustedError(fmt::format("{} MiB wait for it to take them",
                                                                  options_.most_queued_bytes >> 20)));
  }
}

void Links::OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) {
  if (const auto it = dialled_.find(connection); it != dialled_.end()) {
    const uint32_t island = it->second;
    const Peer& peer = peers_[island];
    if (peer.state == DialState::kIntroducing && type == FrameType::kHelloReply) {
      OnHelloReply(island, payload);
    } else if (peer.state == DialState::kUp && IsData(type)) {  // invariant 1
      Deliver({{island, ServingWorker(island, options_.self.worker)}, peer.up_epoch}, type, payload);
    } else {
      CountRefusal();
      LoseDialled(island,
                  absl::InvalidArgumentError(fmt::format("island {} sent an unexpected frame of type {}",
                                                         island, static_cast<int>(type))));
    }
    return;
  }
  const auto it = accepted_.find(connection);
  if (it == accepted_.end() || it->second.refused) return;  // invariants 1, 3
  if (!it->second.introduced && type == FrameType::kHello) {
    OnHello(connection, it->second, payload);
  } else if (it->second.gateway && type == FrameType::kClientRequest) {  // invariant 6
    handler_.OnClientRequest(connection, payload);
  } else if (it->second.introduced && !it->second.gateway && IsData(type)) {  // invariant 1
    const Origin origin = it->second.origin;
    Deliver(origin, type, payload);
  } else {
    CountRefusal();
    CloseAccepted(connection, absl::InvalidArgumentError(fmt::format("sent an unexpected frame of type {}",
                                                                     static_cast<int>(type))));
  }
}

void Links::Deliver(const Origin& origin, FrameType type, std::span<const std::byte> payload) {
  PeerTraffic& traffic = traffic_[origin.peer.island];
  Add(traffic.messages_received, 1);
  Add(traffic.bytes_received, kFrameHeaderBytes + payload.size());
  handler_.OnMessage(origin, type, payload);
}

void Links::OnHello(ConnectionId connection, Accepted& accepted, std::span<const std::byte> payload) {
  data::v1::Hello hello;
  if (!hello.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    CountRefusal();
    CloseAccepted(connection, absl::InvalidArgumentError("sent a broken hello"));
    return;
  }
  const absl::Status status = CheckHello(hello, accepted.uid);
  data::v1::HelloReply reply;
  reply.set_accepted(status.ok());
  reply.set_reason(std::string(status.message()));
  reply.set_island(options_.self.island);
  reply.set_worker(options_.self.worker);
  reply.set_boot_epoch(options_.boot_epoch);
  SendOn(connection, FrameType::kHelloReply, reply);
  if (status.ok() && hello.gateway()) {
    accepted.introduced = accepted.gateway = true;
    UpdateDeadline();
    return;
  }
  if (status.ok()) {
    Introduce(connection, accepted, {{hello.island(), hello.worker()}, hello.boot_epoch()});
    return;
  }
  // Not closed here: on some transports that could overtake the reason. The dialler hangs up, or the deadline
  // does.
  CountRefusal();
  accepted.refused = true;
}

absl::Status Links::CheckHello(const data::v1::Hello& hello, int64_t uid) const {
  const uint32_t self = options_.self.island;
  if (options_.uid >= 0 && uid != options_.uid) {
    return absl::PermissionDeniedError(
        fmt::format("island {} runs as user {}, the dialler as user {}", self, options_.uid, uid));
  }
  if (hello.cluster_id() != options_.cluster_id) {
    return absl::PermissionDeniedError(
        fmt::format("island {} is of cluster '{}', the dialler of cluster '{}'", self, options_.cluster_id,
                    hello.cluster_id()));
  }
  if (hello.to_island() != self) {
    return absl::InvalidArgumentError(
        fmt::format("this is island {}, not island {}", self, hello.to_island()));
  }
  if (hello.gateway()) return absl::OkStatus();
  if (hello.island() == self || hello.island() >= peers_.size()) {
    return absl::InvalidArgumentError(fmt::format(
        "island {} does not expect an island {}: it knows {} islands", self, hello.island(), peers_.size()));
  }
  if (hello.worker() >= options_.workers_per_island[hello.island()] ||
      ServingWorker(self, hello.worker()) != options_.self.worker) {
    return absl::InvalidArgumentError(
        fmt::format("worker {} of island {} does not serve worker {} of island {}", options_.self.worker,
                    self, hello.worker(), hello.island()));
  }
  if (hello.boot_epoch() == 0) return absl::InvalidArgumentError("boot epoch 0: lives are counted from 1");
  if (hello.boot_epoch() < peers_[hello.island()].newest_epoch) {  // invariant 5
    return absl::FailedPreconditionError(
        fmt::format("island {} has booted again since: epoch {} was seen after epoch {}", hello.island(),
                    peers_[hello.island()].newest_epoch, hello.boot_epoch()));
  }
  return absl::OkStatus();
}

void Links::Introduce(ConnectionId connection, Accepted& accepted, const Origin& origin) {
  accepted.introduced = true;
  accepted.origin = origin;
  Introduced& latest = introduced_[origin.peer.island][origin.peer.worker];
  const Introduced replaced = std::exchange(latest, {connection, origin.boot_epoch});
  SawEpoch(origin.peer.island, origin.boot_epoch);
  // The dialler found an earlier link of its own broken before we did: nothing on it counts any more. What an
  // earlier incarnation said counts to its end, which the kernel will tell us of.
  if (replaced.connection != 0 && replaced.boot_epoch == origin.boot_epoch) {  // invariant 5
    CloseAccepted(replaced.connection, absl::UnavailableError("its worker has dialled again"));
  }
  UpdateDeadline();
  handler_.OnOriginUp(origin);
}

void Links::OnHelloReply(uint32_t island, std::span<const std::byte> payload) {
  data::v1::HelloReply reply;
  if (!reply.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    CountRefusal();
    LoseDialled(island,
                absl::InvalidArgumentError(fmt::format("island {} sent a broken answer to hello", island)));
    return;
  }
  if (!reply.accepted()) {
    LoseDialled(island,
                absl::PermissionDeniedError(fmt::format("refused by island {}: {}", island, reply.reason())));
    return;
  }
  if (absl::Status status = CheckHelloReply(island, reply); !status.ok()) {
    CountRefusal();
    LoseDialled(island, status);
    return;
  }
  Peer& peer = peers_[island];
  peer.state = DialState::kUp;
  peer.up_epoch = reply.boot_epoch();
  peer.backoff_ns = options_.redial_min_ns;
  ++peers_up_;
  UpdateDeadline();
  SawEpoch(island, reply.boot_epoch());
  handler_.OnPeerUp(island, reply.boot_epoch());
}

absl::Status Links::CheckHelloReply(uint32_t island, const data::v1::HelloReply& reply) const {
  if (reply.island() != island || reply.worker() != ServingWorker(island, options_.self.worker)) {
    return absl::InvalidArgumentError(fmt::format("dialled island {} worker {}, reached island {} worker {}",
                                                  island, ServingWorker(island, options_.self.worker),
                                                  reply.island(), reply.worker()));
  }
  if (reply.boot_epoch() == 0) {
    return absl::InvalidArgumentError(
        fmt::format("island {} answered with boot epoch 0: lives are counted from 1", island));
  }
  if (reply.boot_epoch() < peers_[island].newest_epoch) {  // invariant 5
    return absl::UnavailableError(fmt::format("an older incarnation of island {} answered", island));
  }
  return absl::OkStatus();
}

void Links::SawEpoch(uint32_t island, uint64_t epoch) {
  peers_[island].newest_epoch = std::max(peers_[island].newest_epoch, epoch);
}

template <typename Predicate>
std::vector<ConnectionId> Links::AcceptedWhere(Predicate&& predicate) const {
  std::vector<ConnectionId> found;
  for (const auto& [connection, accepted] : accepted_) {
    if (predicate(accepted)) found.push_back(connection);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void Links::CloseAccepted(ConnectionId connection, const absl::Status& why) {
  const auto it = accepted_.find(connection);
  if (it == accepted_.end()) return;
  const bool introduced = it->second.introduced;
  const bool gateway = it->second.gateway;
  const Origin origin = it->second.origin;
  accepted_.erase(it);
  transport_.Close(connection);
  if (gateway) return handler_.OnGatewayLost(connection);
  if (!introduced) return;  // invariant 2: OnOriginUp was never said
  Introduced& latest = introduced_[origin.peer.island][origin.peer.worker];
  if (latest.connection == connection) latest = {};  // invariant 2: the next life may be there already
  handler_.OnOriginLost(origin, why);
}

bool Links::Hears(const Origin& origin) const {
  const Introduced* latest = FindIntroduced(origin.peer);
  if (latest != nullptr && latest->boot_epoch == origin.boot_epoch) return true;
  return std::any_of(accepted_.begin(), accepted_.end(), [&](const auto& entry) {
    return entry.second.introduced && entry.second.origin == origin;
  });
}

bool Links::SendToGateway(ConnectionId connection, FrameType type,
                          const google::protobuf::MessageLite& message) {
  const auto it = accepted_.find(connection);
  return it != accepted_.end() && it->second.gateway && SendOn(connection, type, message);
}

bool Links::SendOn(ConnectionId connection, FrameType type, const google::protobuf::MessageLite& message) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes > kMaxFrameBytes) return false;
  buffer_.resize(bytes);
  if (bytes != 0) message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(buffer_.data()));
  transport_.Send(connection, type, buffer_);
  unsent_ = true;
  if (buffer_.capacity() > kKeptBufferBytes) buffer_ = {};
  // Not here: whoever sends does not expect a peer to be lost meanwhile.
  if (transport_.QueuedBytes(connection) > options_.most_queued_bytes) overfull_.push_back(connection);
  return true;
}

bool Links::SendCounted(ConnectionId connection, uint32_t island, FrameType type,
                        const google::protobuf::MessageLite& message) {
  if (!SendOn(connection, type, message)) return false;
  PeerTraffic& traffic = traffic_[island];
  Add(traffic.messages_sent, 1);
  Add(traffic.bytes_sent, kFrameHeaderBytes + static_cast<size_t>(message.GetCachedSize()));
  return true;
}

bool Links::Send(uint32_t island, FrameType type, const google::protobuf::MessageLite& message) {
  const Peer& peer = peers_[island];
  return peer.state == DialState::kUp && SendCounted(peer.connection, island, type, message);  // invariant 4
}

const Links::Introduced* Links::FindIntroduced(Address peer) const {
  if (peer.island >= introduced_.size() || peer.worker >= introduced_[peer.island].size()) return nullptr;
  const Introduced& link = introduced_[peer.island][peer.worker];
  return link.connection != 0 ? &link : nullptr;
}

bool Links::SendBack(Address to, FrameType type, const google::protobuf::MessageLite& message) {
  const Introduced* link = FindIntroduced(to);
  return link != nullptr && SendCounted(link->connection, to.island, type, message);
}

bool Links::SendBack(const Origin& to, FrameType type, const google::protobuf::MessageLite& message) {
  const Introduced* link = FindIntroduced(to.peer);
  return link != nullptr && link->boot_epoch == to.boot_epoch &&  // invariant 4
         SendCounted(link->connection, to.peer.island, type, message);
}

size_t Links::QueuedBytes(uint32_t island) const {
  const Peer& peer = peers_[island];
  return peer.connection == 0 ? 0 : transport_.QueuedBytes(peer.connection);
}

void Links::PublishQueues() {
  for (uint32_t island = 0; island < peers_.size(); ++island) {
    size_t bytes = QueuedBytes(island);
    for (const Introduced& link : introduced_[island]) {
      if (link.connection != 0) bytes += transport_.QueuedBytes(link.connection);
    }
    traffic_[island].bytes_queued.store(bytes, std::memory_order_relaxed);
  }
}

bool Links::IsUp(uint32_t island) const { return peers_[island].state == DialState::kUp; }
uint64_t Links::BootEpoch(uint32_t island) const { return peers_[island].up_epoch; }
void Links::CheckInvariants() const {
  uint32_t up = 0;
  for (uint32_t island = 0; island < peers_.size(); ++island) {
    const Peer& peer = peers_[island];
    ISLANDS_CHECK((peer.connection == 0) == (peer.state == DialState::kWaiting));
    if (peer.connection != 0)
      ISLANDS_CHECK(dialled_.contains(peer.connection) && dialled_.at(peer.connection) == island);
    if (peer.state != DialState::kUp) continue;
    ISLANDS_CHECK(peer.up_epoch != 0 && peer.up_epoch <= peer.newest_epoch);
    ++up;
  }
  ISLANDS_CHECK(up == peers_up_ && dialled_.size() >= up);
  for (uint32_t island = 0; island < introduced_.size(); ++island) {
    for (uint32_t worker = 0; worker < introduced_[island].size(); ++worker) {
      const Introduced& latest = introduced_[island][worker];
      if (latest.connection == 0) continue;
      const auto link = accepted_.find(latest.connection);
      ISLANDS_CHECK(link != accepted_.end() && link->second.introduced);
      ISLANDS_CHECK((link->second.origin == Origin{{island, worker}, latest.boot_epoch}));
    }
  }
}

uint32_t Links::PeersUp() const { return peers_up_; }
const PeerTraffic& Links::Traffic(uint32_t island) const { return traffic_[island]; }

}  // namespace islands::messaging
