// One class in one file, longer than most: what it must remember about its sockets, to neither lose a wake-up
// nor miss the end of a peer, concerns every function here.
#include "instance/messaging/zmq_transport.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "absl/container/flat_hash_map.h"
#include "instance/messaging/connection_table.h"
#include "instance/messaging/frame_scan.h"
#include "instance/messaging/send_queue.h"
#include "instance/messaging/unix_socket.h"
#include "instance/messaging/waker.h"
#include "runtime/check.h"
#include "runtime/clock.h"

namespace islands::messaging {
namespace {

// Tags in the epoll set. A connection's DEALER has tag 2 * id, its monitor the next one; ids are large
// enough.
constexpr uint64_t kRouterTag = 2;
constexpr uint64_t kRouterMonitorTag = 3;
constexpr int kEventsPerPoll = 64;
constexpr int kMessagesPerSocketAndPoll = 256;
// A yield costs more than a poll. A worker that is busy with transactions polls in vain, too, and should not
// pay for it every time.
constexpr uint32_t kEmptyPollsPerYield = 8;

constexpr char kOpen = 'O';
constexpr char kProbe = 'P';
constexpr char kBye = 'B';

// A message is cut after this many bytes, so that a backlog does not become one giant message.
constexpr size_t kBatchBytes = 128 << 10;
constexpr int64_t kMaxMessageBytes = kFrameHeaderBytes + kMaxFrameBytes;
static_assert(kMaxMessageBytes >= static_cast<int64_t>(kBatchBytes));
// The longest sleep while ZeroMQ owes us something that it does not reliably announce.
constexpr int64_t kRetryNs = 1 * runtime::kNsPerMs;

// Messages that ZeroMQ holds per connection at either end, before it pushes back.
constexpr int kHighWaterMark = 32;

struct Connection : QueuedOutput {
  // Dialled.
  zmq::socket_t dealer;
  zmq::socket_t monitor;
  bool trusted = false;  // the server's user is known to be ours; until then nothing goes out or is read
  // Accepted.
  std::string routing_id;
  int fd = -1;           // what the router's monitor will call it
  bool suspect = false;  // the monitor said that fd was closed

  bool blocked = false;  // listed in blocked_
  bool failed = false;   // listed in failures_
  bool dialled() const { return routing_id.empty(); }
};

enum class SendResult { kSent, kFull, kGone };

// `routing_id` is empty for a DEALER.
SendResult SendMessage(zmq::socket_t& socket, const std::string& routing_id,
                       std::span<const std::byte> bytes) {
  constexpr int kFlags = ZMQ_DONTWAIT;
  void* handle = socket.handle();
  int result;
  if (!routing_id.empty()) {
    do {
      result = zmq_send(handle, routing_id.data(), routing_id.size(), kFlags | ZMQ_SNDMORE);
    } while (result < 0 && errno == EINTR);
    if (result < 0) return errno == EAGAIN ? SendResult::kFull : SendResult::kGone;
  }
  do {
    result = zmq_send(handle, bytes.data(), bytes.size(), kFlags);
  } while (result < 0 && errno == EINTR);
  if (result >= 0) return SendResult::kSent;
  return errno == EAGAIN ? SendResult::kFull : SendResult::kGone;
}

SendResult SendMark(zmq::socket_t& socket, const std::string& routing_id, char mark) {
  return SendMessage(socket, routing_id, std::as_bytes(std::span(&mark, 1)));
}

bool ReceivePart(zmq::socket_t& socket, zmq::message_t* message) {
  int result;
  do {
    result = zmq_msg_recv(message->handle(), socket.handle(), ZMQ_DONTWAIT);
  } while (result < 0 && errno == EINTR);
  return result >= 0;
}

struct MonitorEvent {
  uint16_t type = 0;
  int32_t fd = -1;  // of most types
};

// The first part of what a monitor says: type and value, one after the other.
MonitorEvent ReadEvent(const zmq::message_t& message) {
  MonitorEvent event;
  if (message.size() < sizeof(event.type) + sizeof(event.fd)) return event;
  std::memcpy(&event.type, message.data(), sizeof(event.type));
  std::memcpy(&event.fd, static_cast<const char*>(message.data()) + sizeof(event.type), sizeof(event.fd));
  return event;
}

std::span<const std::byte> Bytes(const zmq::message_t& message) {
  return {static_cast<const std::byte*>(message.data()), message.size()};
}

bool IsMark(const zmq::message_t& message, char mark) {
  return message.size() == 1 && *static_cast<const char*>(message.data()) == mark;
}

// Whole frames from the start of `bytes` that make one message.
std::span<const std::byte> NextBatch(std::span<const std::byte> bytes) {
  if (bytes.size() <= kBatchBytes) return bytes;
  size_t size = 0;
  ScanFrames(bytes, [&](FrameType, std::span<const std::byte> payload) {
    const size_t frame = kFrameHeaderBytes + payload.size();
    if (size > 0 && size + frame > kBatchBytes) return false;
    size += frame;
    return true;
  });
  return bytes.first(size);
}

class ZmqTransport final : public Transport {
 public:
  ZmqTransport(std::string path, std::string directory)
      : path_(std::move(path)), directory_(std::move(directory)), context_(1) {}
  ~ZmqTransport() override;
  absl::Status Open();

  absl::Status Listen() override;
  ConnectionId Dial(Address peer) override;
  void Send(ConnectionId id, FrameType type, std::span<const std::byte> payload) override;
  size_t QueuedBytes(ConnectionId id) const override { return queue_.QueuedBytes(id); }
  void Flush() override;
  size_t Poll(TransportHandler& handler) override;
  void Close(ConnectionId id) override;
  void Wait(int64_t timeout_ns) override;
  void Wake() override { waker_.Wake(); }

 private:
  zmq::socket_t MakeSocket(zmq::socket_type type);
  zmq::socket_t MakeMonitor(zmq::socket_t& socket, int events, uint64_t number);
  void Watch(zmq::socket_t& socket, uint64_t tag);
  void Forget(zmq::socket_t& socket);
  // The only way to close a socket that has a monitor.
  void ForgetMonitored(zmq::socket_t& socket, zmq::socket_t& monitor);
  void Connect(Connection& connection, ConnectionId id, const std::string& path);

  // True while a message is ready that epoll will not tell of: sending consumed its signal.
  bool HasHiddenInput();
  void MarkTouched(ConnectionId id, const Connection& connection);

  void GiveWay();
  size_t ServeRouter(TransportHandler& handler);
  void ReadRouterMonitor();
  void SuspectDisconnected();
  void ProbeSuspects();
  size_t OnRouterMessage(const zmq::message_t& from, const zmq::message_t& message, bool whole,
                         TransportHandler& handler);
  size_t ServeDealer(ConnectionId id, TransportHandler& handler);
  size_t ServeDealerMonitor(ConnectionId id, TransportHandler& handler);
  void Trust(ConnectionId id, Connection& connection);
  size_t OnEnd(ConnectionId id, TransportHandler& handler);
  size_t HandOut(ConnectionId id, std::span<const std::byte> bytes, TransportHandler& handler);

  void SendQueued(ConnectionId id, Connection& connection);
  void RetryBlocked();
  void Fail(ConnectionId id, absl::Status why);
  size_t ReportFailures(TransportHandler& handler);
  size_t ReportClosed(ConnectionId id, const absl::Status& why, TransportHandler& handler);

  // Constant after construction.
  const std::string path_;
  const std::string directory_;

  EpollWaker waker_;
  zmq::context_t context_;
  zmq::socket_t router_;
  zmq::socket_t router_monitor_;
  int64_t peer_uid_ = -1;  // all accepted peers have it
  ConnectionTable<Connection> connections_;
  SendQueue<Connection> queue_{connections_};
  absl::flat_hash_map<std::string, ConnectionId> by_routing_id_;

  std::vector<ConnectionId> blocked_;  // flushed, but ZeroMQ took not all
  std::vector<std::string> byes_;      // routing ids still to be told
  std::vector<std::pair<ConnectionId, absl::Status>> failures_;
  std::vector<int> disconnected_fds_;  // reported by the router's monitor, not looked at yet
  std::vector<ConnectionId> suspects_;
  bool router_touched_ = false;  // sent on, or not read to its end, since it was last read to its end
  std::vector<ConnectionId> dealers_touched_;
  bool flushed_ = false;  // something, since the last yield
  uint32_t empty_polls_ = 0;
};

absl::Status ZmqTransport::Open() {
  if (absl::Status status = waker_.Open(); !status.ok()) return status;
  // Three per dialled connection: its DEALER and both ends of its monitor.
  zmq_ctx_set(context_.handle(), ZMQ_MAX_SOCKETS, 8192);
  return absl::OkStatus();
}

zmq::socket_t ZmqTransport::MakeSocket(zmq::socket_type type) {
  zmq::socket_t socket(context_, type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, kHighWaterMark);
  socket.set(zmq::sockopt::rcvhwm, kHighWaterMark);
  socket.set(zmq::sockopt::maxmsgsize, kMaxMessageBytes);
  return socket;
}

zmq::socket_t ZmqTransport::MakeMonitor(zmq::socket_t& socket, int events, uint64_t number) {
  const std::string endpoint = fmt::format("inproc://monitor-{}", number);
  if (zmq_socket_monitor(socket.handle(), endpoint.c_str(), events) != 0) throw zmq::error_t();
  zmq::socket_t monitor(context_, zmq::socket_type::pair);
  monitor.set(zmq::sockopt::linger, 0);
  monitor.set(zmq::sockopt::rcvhwm, 0);  // a full monitor would block the I/O thread
  monitor.connect(endpoint);
  // A pipe signals only a reader who has found it empty before. Nothing happens on the socket yet, so nothing
  // is lost.
  zmq::message_t nothing;
  ISLANDS_CHECK(!ReceivePart(monitor, &nothing));
  return monitor;
}

void ZmqTransport::Watch(zmq::socket_t& socket, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(waker_.epoll_fd(), EPOLL_CTL_ADD, socket.get(zmq::sockopt::fd), &event) != 0)
    throw zmq::error_t();
}

void ZmqTransport::Forget(zmq::socket_t& socket) {
  if (!socket) return;
  // ZeroMQ closes the descriptor later, on another thread.
  epoll_ctl(waker_.epoll_fd(), EPOLL_CTL_DEL, socket.get(zmq::sockopt::fd), nullptr);
  socket.close();
}

void ZmqTransport::ForgetMonitored(zmq::socket_t& socket, zmq::socket_t& monitor) {
  // In this order: while a socket is monitored, the I/O thread waits for ever to tell a monitor that is gone.
  if (socket) zmq_socket_monitor(socket.handle(), nullptr, 0);
  Forget(socket);
  Forget(monitor);
}

ZmqTransport::~ZmqTransport() {
  for (const ConnectionId id : connections_.Ids()) Close(id);
  ForgetMonitored(router_, router_monitor_);
}

absl::Status ZmqTransport::Listen() {
  ISLANDS_CHECK(!router_);
  // ZeroMQ would take the path away from whoever serves it.
  if (absl::Status status = RemoveStaleSocket(path_); !status.ok()) return status;
  try {
    router_ = MakeSocket(zmq::socket_type::router);
    router_.set(zmq::sockopt::router_mandatory, true);
    const uid_t uid = geteuid();
    // Not every build of libzmq has it.
    if (zmq_setsockopt(router_.handle(), ZMQ_IPC_FILTER_UID, &uid, sizeof(uid)) == 0) peer_uid_ = uid;
    router_monitor_ = MakeMonitor(router_, ZMQ_EVENT_DISCONNECTED, kRouterMonitorTag);
    router_.bind("ipc://" + path_);
    if (chmod(path_.c_str(), S_IRUSR | S_IWUSR) != 0)
      return absl::ErrnoToStatus(errno, "cannot set the mode of " + path_);
    Watch(router_, kRouterTag);
    Watch(router_monitor_, kRouterMonitorTag);
  } catch (const zmq::error_t& error) {
    return absl::ErrnoToStatus(error.num(), fmt::format("cannot listen on {}", path_));
  }
  // Some events may have come before epoll looked.
  router_touched_ = true;
  return absl::OkStatus();
}

ConnectionId ZmqTransport::Dial(Address peer) {
  const ConnectionId id = connections_.Add(std::make_unique<Connection>());
  const std::string path = ZmqSocketPath(directory_, peer);
  if (absl::StatusOr<sockaddr_un> address = UnixAddress(path); !address.ok()) {
    Fail(id, address.status());
    return id;
  }
  try {
    Connect(*connections_.Find(id), id, path);
  } catch (const zmq::error_t& error) {
    Fail(id, absl::ErrnoToStatus(error.num(), fmt::format("cannot connect to {}", path)));
  }
  return id;
}

void ZmqTransport::Connect(Connection& connection, ConnectionId id, const std::string& path) {
  constexpr int kBeginAndEnds = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |
                                ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  connection.dealer = MakeSocket(zmq::socket_type::dealer);
  connection.dealer.set(zmq::sockopt::reconnect_ivl, -1);
  connection.monitor = MakeMonitor(connection.dealer, kBeginAndEnds, id);
  Watch(connection.dealer, 2 * id);
  Watch(connection.monitor, 2 * id + 1);
  connection.dealer.connect("ipc://" + path);
}

void ZmqTransport::Send(ConnectionId id, FrameType type, std::span<const std::byte> payload) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr || connection->failed) return;
  queue_.Append(id, *connection, type, payload);
}

void ZmqTransport::Flush() {
  if (!queue_.empty()) flushed_ = true;
  queue_.Flush([this](ConnectionId id, Connection& connection) {
    if (connection.blocked) return;
    SendQueued(id, connection);
    if (connection.blocked) blocked_.push_back(id);
  });
}

void ZmqTransport::SendQueued(ConnectionId id, Connection& connection) {
  connection.blocked = false;
  if (connection.dialled() && !connection.trusted) return;
  while (connection.released > 0 && !connection.failed) {
    const std::span<const std::byte> batch = NextBatch(connection.Released());
    zmq::socket_t& socket = connection.dialled() ? connection.dealer : router_;
    const SendResult result = SendMessage(socket, connection.routing_id, batch);
    MarkTouched(id, connection);
    if (result == SendResult::kSent) {
      connection.Sent(batch.size());
    } else if (result == SendResult::kFull) {
      connection.blocked = true;
      return;
    } else {
      Fail(id, absl::UnavailableError("the peer closed the connection"));
    }
  }
}

void ZmqTransport::RetryBlocked() {
  std::erase_if(blocked_, [&](ConnectionId id) {
    Connection* connection = connections_.Find(id);
    if (connection == nullptr) return true;
    SendQueued(id, *connection);
    return !connection->blocked;
  });
  std::erase_if(byes_, [&](const std::string& routing_id) {
    router_touched_ = true;
    return SendMark(router_, routing_id, kBye) != SendResult::kFull;
  });
}

void ZmqTransport::MarkTouched(ConnectionId id, const Connection& connection) {
  if (!connection.dialled()) {
    router_touched_ = true;
  } else if (dealers_touched_.empty() || dealers_touched_.back() != id) {
    dealers_touched_.push_back(id);
  }
}

bool ZmqTransport::HasHiddenInput() {
  const auto readable = [](zmq::socket_t& socket) {
    return (socket.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
  };
  if (router_touched_ && router_) {
    if (readable(router_)) return true;
    router_touched_ = false;
  }
  while (!dealers_touched_.empty()) {
    Connection* connection = connections_.Find(dealers_touched_.back());
    if (connection != nullptr && readable(connection->dealer)) return true;
    dealers_touched_.pop_back();
  }
  return false;
}

void ZmqTransport::Wait(int64_t timeout_ns) {
  const bool ready = !failures_.empty() || !disconnected_fds_.empty() || HasHiddenInput();
  // Room in a full connection, and the end of a peer, are told by commands between ZeroMQ's threads. Any call
  // on the same socket takes them in and leaves no trace that we could look at, so we look again in time.
  const bool awaiting = !blocked_.empty() || !byes_.empty() || !suspects_.empty();
  if (awaiting) timeout_ns = std::min(timeout_ns, kRetryNs);
  waker_.Sleep(ready ? 0 : timeout_ns);
}

size_t ZmqTransport::Poll(TransportHandler& handler) {
  // First: what handlers send from here on waits for Flush.
  if (!blocked_.empty() || !byes_.empty()) RetryBlocked();
  size_t handled = failures_.empty() ? 0 : ReportFailures(handler);
  std::array<epoll_event, kEventsPerPoll> events;
  const int ready = epoll_wait(waker_.epoll_fd(), events.data(), kEventsPerPoll, 0);
  bool router_ready = std::exchange(router_touched_, false) || !suspects_.empty();
  for (int i = 0; i < ready; ++i) {
    // The monitor is read before the router, and looked at after it: see SuspectDisconnected.
    if (events[i].data.u64 == kRouterMonitorTag) ReadRouterMonitor();
    if (events[i].data.u64 == kRouterTag || events[i].data.u64 == kRouterMonitorTag) router_ready = true;
  }
  if (router_ready && router_) handled += ServeRouter(handler);
  for (const ConnectionId id : std::exchange(dealers_touched_, {})) handled += ServeDealer(id, handler);
  for (int i = 0; i < ready; ++i) {
    const uint64_t tag = events[i].data.u64;
    if (tag <= kRouterMonitorTag) continue;
    handled += tag % 2 == 0 ? ServeDealer(tag / 2, handler) : ServeDealerMonitor(tag / 2, handler);
  }
  if (handled == 0) GiveWay();
  return handled;
}

// ZeroMQ's I/O thread mostly lives on our core. While we spin it would have to wait for the end of our time
// slice, and with it the frames that we are spinning for.
void ZmqTransport::GiveWay() {
  if (!std::exchange(flushed_, false) && ++empty_polls_ % kEmptyPollsPerYield != 0) return;
  sched_yield();
}

size_t ZmqTransport::ServeRouter(TransportHandler& handler) {
  size_t handled = 0;
  zmq::message_t from;
  zmq::message_t message;
  for (int messages = 0; ReceivePart(router_, &from); ++messages) {
    // Parts of one message arrive together. Ours have two; whoever sends more is no peer of ours.
    int parts = 1;
    for (bool more = from.more(); more && ReceivePart(router_, &message); more = message.more()) ++parts;
    handled += OnRouterMessage(from, message, parts == 2, handler);
    if (messages == kMessagesPerSocketAndPoll) {
      router_touched_ = true;
      return handled;
    }
  }
  SuspectDisconnected();
  ProbeSuspects();
  return handled;
}

size_t ZmqTransport::OnRouterMessage(const zmq::message_t& from, const zmq::message_t& message, bool whole,
                                     TransportHandler& handler) {
  const auto known = by_routing_id_.find(from.to_string());
  if (known != by_routing_id_.end()) {
    const ConnectionId id = known->second;
    return whole ? HandOut(id, Bytes(message), handler)
                 : ReportClosed(id, absl::InvalidArgumentError("the peer sent a message of several parts"),
                                handler);
  }
  if (!whole || !IsMark(message, kOpen)) return 0;  // no peer, or a connection that we have closed
  auto connection = std::make_unique<Connection>();
  connection->routing_id = from.to_string();
  connection->fd = zmq_msg_get(message.handle(), ZMQ_SRCFD);
  const ConnectionId id = connections_.Add(std::move(connection));
  by_routing_id_[from.to_string()] = id;
  handler.OnAccepted(id, peer_uid_);
  return 1;
}

void ZmqTransport::ReadRouterMonitor() {
  zmq::message_t event;
  zmq::message_t address;
  while (ReceivePart(router_monitor_, &event) && ReceivePart(router_monitor_, &address)) {
    disconnected_fds_.push_back(ReadEvent(event).fd);
  }
}

// Everything that a peer sent before it hung up was put into the router before the monitor spoke. So when the
// router has been read to its end after the monitor was read, the connection that used a reported descriptor
// is known - if it ever was one of ours. Descriptors are used again, and events come in order: the oldest
// user not yet suspected is the one.
void ZmqTransport::SuspectDisconnected() {
  for (const int fd : std::exchange(disconnected_fds_, {})) {
    ConnectionId oldest = 0;
    for (const auto& [routing_id, id] : by_routing_id_) {
      const Connection& connection = *connections_.Find(id);
      // Ids grow with age in their upper bits, which is what decides here.
      if (connection.fd == fd && !connection.suspect && (oldest == 0 || id < oldest)) oldest = id;
    }
    if (oldest == 0) continue;
    connections_.Find(oldest)->suspect = true;
    suspects_.push_back(oldest);
  }
}

// The monitor speaks a little before the router has let go of the peer, so this is asked again until it has.
// A stranger who connects and never opens a connection can at worst make us suspect a living one, which then
// gets needless probes.
void ZmqTransport::ProbeSuspects() {
  std::erase_if(suspects_, [&](ConnectionId id) {
    const Connection* connection = connections_.Find(id);
    if (connection == nullptr) return true;
    router_touched_ = true;
    if (SendMark(router_, connection->routing_id, kProbe) != SendResult::kGone) return false;
    Fail(id, absl::UnavailableError("the peer closed the connection"));
    return true;
  });
}

size_t ZmqTransport::ServeDealer(ConnectionId id, TransportHandler& handler) {
  size_t handled = 0;
  zmq::message_t message;
  for (int messages = 0; Connection* connection = connections_.Find(id); ++messages) {
    if (!connection->trusted || !ReceivePart(connection->dealer, &message)) break;
    if (messages == kMessagesPerSocketAndPoll) dealers_touched_.push_back(id);
    if (IsMark(message, kProbe)) continue;
    if (IsMark(message, kBye)) {
      return handled + ReportClosed(id, absl::UnavailableError("the peer closed the connection"), handler);
    }
    handled += HandOut(id, Bytes(message), handler);
    if (messages == kMessagesPerSocketAndPoll) break;
  }
  return handled;
}

size_t ZmqTransport::ServeDealerMonitor(ConnectionId id, TransportHandler& handler) {
  size_t handled = 0;
  zmq::message_t event;
  zmq::message_t address;
  // To its end, or it would not signal again.
  while (Connection* connection = connections_.Find(id)) {
    // Both parts: ZeroMQ leaks what is left of a message that was read in part.
    if (!ReceivePart(connection->monitor, &event) || !ReceivePart(connection->monitor, &address)) break;
    const auto [type, fd] = ReadEvent(event);
    // Asks the very connection that ZeroMQ made. Should it be closed by now and its number be another's, then
    // nothing can go out any more whatever we find: a DEALER does not connect again.
    if (type != ZMQ_EVENT_CONNECTED) {
      handled += OnEnd(id, handler);
    } else if (absl::Status status = CheckServer(fd, address.to_string()); !status.ok()) {
      handled += ReportClosed(id, status, handler);
    } else {
      Trust(id, *connection);
    }
  }
  return handled;
}

void ZmqTransport::Trust(ConnectionId id, Connection& connection) {
  connection.trusted = true;
  SendMark(connection.dealer, {}, kOpen);
  MarkTouched(id, connection);
  SendQueued(id, connection);  // what was flushed in vain
  if (connection.blocked) blocked_.push_back(id);
}

size_t ZmqTransport::OnEnd(ConnectionId id, TransportHandler& handler) {
  // What came before it is in the dealer already.
  size_t handled = 0;
  size_t more;
  do {
    more = ServeDealer(id, handler);
    handled += more;
  } while (more > 0);
  if (connections_.Find(id) == nullptr) return handled;
  return handled +
         ReportClosed(id, absl::UnavailableError("nobody listens there, or the peer closed the connection"),
                      handler);
}

size_t ZmqTransport::HandOut(ConnectionId id, std::span<const std::byte> bytes, TransportHandler& handler) {
  const ScanResult scan = ScanFrames(bytes, [&](FrameType type, std::span<const std::byte> payload) {
    handler.OnFrame(id, type, payload);
    return connections_.Find(id) != nullptr;
  });
  if (connections_.Find(id) == nullptr) return scan.frames;
  if (scan.end == FrameCheck::kNeedMore && scan.consumed == bytes.size()) return scan.frames;
  return scan.frames +
         ReportClosed(id, absl::InvalidArgumentError("the peer sent bytes that are not frames"), handler);
}

void ZmqTransport::Fail(ConnectionId id, absl::Status why) {
  Connection* connection = connections_.Find(id);
  connection->failed = true;
  connection->Drop();
  failures_.emplace_back(id, std::move(why));
}

size_t ZmqTransport::ReportFailures(TransportHandler& handler) {
  size_t handled = 0;
  const auto failures = std::exchange(failures_, {});
  // What the peer said before it went is handed out before its end.
  if (router_) handled += ServeRouter(handler);
  for (const auto& [id, why] : failures) {
    if (connections_.Find(id) != nullptr) handled += ReportClosed(id, why, handler);
  }
  return handled;
}

size_t ZmqTransport::ReportClosed(ConnectionId id, const absl::Status& why, TransportHandler& handler) {
  Close(id);
  handler.OnClosed(id, why);
  return 1;
}

void ZmqTransport::Close(ConnectionId id) {
  const std::unique_ptr<Connection> connection = connections_.Remove(id);
  if (connection == nullptr) return;
  if (connection->dialled()) {
    ForgetMonitored(connection->dealer, connection->monitor);
    return;
  }
  by_routing_id_.erase(connection->routing_id);
  router_touched_ = true;
  if (SendMark(router_, connection->routing_id, kBye) == SendResult::kFull)
    byes_.push_back(connection->routing_id);
}

}  // namespace

std::string ZmqSocketPath(const std::string& directory, Address address) {
  return fmt::format("{}/island-{}.w{}.zmq", directory, address.island, address.worker);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeZmqTransport(const std::string& directory, Address self) {
  const std::string path = ZmqSocketPath(directory, self);
  if (absl::StatusOr<sockaddr_un> address = UnixAddress(path); !address.ok()) return address.status();
  auto transport = std::make_unique<ZmqTransport>(path, directory);
  if (absl::Status status = transport->Open(); !status.ok()) return status;
  return transport;
}

}  // namespace islands::messaging
