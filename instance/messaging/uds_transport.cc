#include "instance/messaging/uds_transport.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "instance/messaging/connection_table.h"
#include "instance/messaging/frame_scan.h"
#include "instance/messaging/send_queue.h"
#include "instance/messaging/unix_socket.h"
#include "instance/messaging/waker.h"
#include "runtime/check.h"

namespace islands::messaging {
namespace {

constexpr uint64_t kListenTag = 2;  // connection ids are larger
constexpr int kEventsPerPoll = 64;
constexpr int kAcceptsPerPoll = 64;
constexpr int kReadsOfBrokenConnection = 1024;

// Hot connections, see uds_transport.h. One becomes hot after this many deliveries with at most so many polls
// from one to the next and no sleep between, and cools down after so many polls that found nothing on it.
constexpr uint32_t kDeliveriesToHeat = 8;
constexpr uint64_t kPollsBetweenDeliveries = 32;
constexpr uint32_t kEmptyPollsToCool = 64;
constexpr size_t kMostHot = 8;
// While there are hot ones, epoll is asked after this many polls and frames, or twice as many if a poll has
// just found something: what was found is better answered first.
constexpr size_t kPollsAndFramesPerEpoll = 16;

struct Connection : QueuedOutput {
  UniqueFd fd;  // none: the dial failed, OnClosed is due
  InputBuffer in;
  bool wants_writable = false;  // EPOLLOUT is armed; Flush leaves it alone until then
  bool hot = false;             // listed in hot_, not in the epoll set
  bool broken = false;          // sending failed; OnClosed follows once its input has been handed out
  uint32_t deliveries = 0;      // not hot: in close succession
  uint64_t last_delivery = 0;   // not hot: number of that poll
  uint32_t empty_polls = 0;     // hot: since the last delivery
};

class UdsTransport final : public Transport {
 public:
  UdsTransport(std::string path, std::string directory, Address self)
      : path_(std::move(path)), directory_(std::move(directory)), self_(self) {}
  ~UdsTransport() override {
    if (!listener_) return;
    listener_.Reset();
    RemoveStaleSocket(path_).IgnoreError();  // the name may be another's by now
  }
  absl::Status Open() { return waker_.Open(); }

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
  absl::Status Watch(int operation, int fd, uint32_t events, uint64_t tag);
  size_t PollHot(TransportHandler& handler);
  size_t PollWatched(TransportHandler& handler);
  // Counts a delivery that epoll has told of.
  void NoteDelivery(ConnectionId id, Connection& connection);
  // Gives a hot connection back to epoll; the caller takes it from hot_.
  void Cool(ConnectionId id, Connection& connection);
  void Break(ConnectionId id, Connection& connection, absl::Status why);
  size_t Accept(TransportHandler& handler);
  size_t Serve(ConnectionId id, uint32_t events, TransportHandler& handler);
  // One recv. `*more` tells whether it found something and the connection lives: another may find more.
  size_t Receive(ConnectionId id, Connection& connection, TransportHandler& handler, bool* more);
  void SendQueued(ConnectionId id, Connection& connection);
  void ArmWritable(ConnectionId id, Connection& connection, bool armed);
  size_t ReportFailures(TransportHandler& handler);
  size_t ReportClosed(ConnectionId id, const absl::Status& why, TransportHandler& handler);

  // Constant after construction.
  const std::string path_;
  const std::string directory_;
  const Address self_;

  EpollWaker waker_;
  UniqueFd listener_;
  bool accepting_ = false;  // false while we are out of file descriptors
  ConnectionTable<Connection> connections_;
  SendQueue<Connection> queue_{connections_};
  std::vector<ConnectionId> hot_;
  uint64_t polls_ = 0;
  uint64_t last_sleep_ = 0;  // number of the poll before it
  size_t since_epoll_ = 0;   // polls and frames since epoll was asked
  std::vector<std::pair<ConnectionId, absl::Status>>
      failures_;  // found outside Poll, reported by the next one
  // Closed by a handler during this Poll: the frame that it is looking at lies in such a connection's buffer.
  std::vector<std::unique_ptr<Connection>> graveyard_;
  bool polling_ = false;
};

absl::Status UdsTransport::Watch(int operation, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (epoll_ctl(waker_.epoll_fd(), operation, fd, &event) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot watch a connection of {}", path_));
  }
  return absl::OkStatus();
}

absl::Status UdsTransport::Listen() {
  ISLANDS_CHECK(!listener_);
  absl::StatusOr<UniqueFd> listener = ListenOn(path_);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(*listener);
  accepting_ = true;
  return Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenTag);
}

ConnectionId UdsTransport::Dial(Address peer) {
  const ConnectionId id = connections_.Add(std::make_unique<Connection>());
  absl::StatusOr<UniqueFd> fd = ConnectTo(UdsSocketPath(directory_, peer));
  absl::Status status = fd.ok() ? Watch(EPOLL_CTL_ADD, fd->get(), EPOLLIN | EPOLLRDHUP, id) : fd.status();
  if (status.ok()) {
    connections_.Find(id)->fd = std::move(*fd);
  } else {
    failures_.emplace_back(id, std::move(status));
  }
  return id;
}

void UdsTransport::Send(ConnectionId id, FrameType type, std::span<const std::byte> payload) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr || !connection->fd || connection->broken) return;
  queue_.Append(id, *connection, type, payload, !connection->wants_writable);
}

void UdsTransport::Flush() {
  queue_.Flush([this](ConnectionId id, Connection& connection) {
    if (!connection.wants_writable && !connection.out.empty()) SendQueued(id, connection);
  });
}

void UdsTransport::SendQueued(ConnectionId id, Connection& connection) {
  const std::span<const std::byte> bytes = connection.out.Unsent();
  ssize_t sent;
  do {
    sent = send(connection.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) {
    // What the peer said before it went is still in our receive buffer; Poll hands it out before it reports
    // the end.
    Break(id, connection, absl::ErrnoToStatus(errno, fmt::format("cannot send to a peer of {}", path_)));
    connection.out.Clear();
    return;
  }
  if (sent > 0) connection.out.Sent(static_cast<size_t>(sent));
  ArmWritable(id, connection, !connection.out.empty());
}

void UdsTransport::ArmWritable(ConnectionId id, Connection& connection, bool armed) {
  if (connection.wants_writable == armed) return;
  if (connection.hot) {
    Cool(id, connection);
    std::erase(hot_, id);
  }
  connection.wants_writable = armed;
  const uint32_t events = EPOLLIN | EPOLLRDHUP | (armed ? EPOLLOUT : 0u);
  absl::Status status = Watch(EPOLL_CTL_MOD, connection.fd.get(), events, id);
  if (!status.ok()) Break(id, connection, std::move(status));
}

void UdsTransport::Break(ConnectionId id, Connection& connection, absl::Status why) {
  if (connection.broken) return;
  connection.broken = true;
  failures_.emplace_back(id, std::move(why));
}

void UdsTransport::Cool(ConnectionId id, Connection& connection) {
  connection.hot = false;
  connection.deliveries = 0;
  absl::Status status = Watch(EPOLL_CTL_ADD, connection.fd.get(), EPOLLIN | EPOLLRDHUP, id);
  if (!status.ok()) Break(id, connection, std::move(status));
}

void UdsTransport::NoteDelivery(ConnectionId id, Connection& connection) {
  const bool in_succession =
      connection.last_delivery > last_sleep_ && polls_ - connection.last_delivery <= kPollsBetweenDeliveries;
  connection.deliveries = in_succession ? connection.deliveries + 1 : 1;
  connection.last_delivery = polls_;
  if (connection.deliveries < kDeliveriesToHeat || hot_.size() == kMostHot || connection.wants_writable ||
      !Watch(EPOLL_CTL_DEL, connection.fd.get(), 0, id).ok()) {
    return;
  }
  connection.hot = true;
  connection.empty_polls = 0;
  hot_.push_back(id);
}

void UdsTransport::Wait(int64_t timeout_ns) {
  last_sleep_ = polls_;
  for (const ConnectionId id : hot_) {
    if (Connection* connection = connections_.Find(id)) Cool(id, *connection);
  }
  hot_.clear();
  waker_.Sleep(failures_.empty() ? timeout_ns : 0);
}

size_t UdsTransport::Poll(TransportHandler& handler) {
  ISLANDS_CHECK(!polling_);
  polling_ = true;
  ++polls_;
  size_t handled = failures_.empty() ? 0 : ReportFailures(handler);
  if (!hot_.empty()) handled += PollHot(handler);
  since_epoll_ += 1 + handled;
  const size_t due = handled == 0 ? kPollsAndFramesPerEpoll : 2 * kPollsAndFramesPerEpoll;
  if (hot_.empty() || since_epoll_ >= due) {
    since_epoll_ = 0;
    handled += PollWatched(handler);
  }
  polling_ = false;
  graveyard_.clear();
  return handled;
}

size_t UdsTransport::PollHot(TransportHandler& handler) {
  size_t handled = 0;
  // Handlers may close connections on the way; nothing else changes hot_ meanwhile.
  std::erase_if(hot_, [&](ConnectionId id) {
    Connection* connection = connections_.Find(id);
    if (connection == nullptr) return true;
    bool found = false;
    handled += Receive(id, *connection, handler, &found);
    connection = connections_.Find(id);
    if (connection == nullptr) return true;
    connection->empty_polls = found ? 0 : connection->empty_polls + 1;
    if (connection->empty_polls < kEmptyPollsToCool) return false;
    Cool(id, *connection);
    return true;
  });
  return handled;
}

size_t UdsTransport::PollWatched(TransportHandler& handler) {
  size_t handled = 0;
  std::array<epoll_event, kEventsPerPoll> events;
  const int ready = epoll_wait(waker_.epoll_fd(), events.data(), kEventsPerPoll, 0);
  for (int i = 0; i < ready; ++i) {
    const uint64_t tag = events[i].data.u64;
    if (tag == EpollWaker::kTag) continue;  // counts until the next Wait
    handled += tag == kListenTag ? Accept(handler) : Serve(tag, events[i].events, handler);
  }
  return handled;
}

size_t UdsTransport::Accept(TransportHandler& handler) {
  size_t accepted = 0;
  while (accepted < kAcceptsPerPoll) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // Without file descriptors the listener would stay ready and spin the worker: look away until one is
      // closed.
      const bool exhausted = errno == EMFILE || errno == ENFILE;
      if (exhausted && Watch(EPOLL_CTL_MOD, listener_.get(), 0, kListenTag).ok()) accepting_ = false;
      break;
    }
    const int raw_fd = fd.get();
    const int64_t uid = PeerUid(raw_fd);
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    const ConnectionId id = connections_.Add(std::move(connection));
    if (!Watch(EPOLL_CTL_ADD, raw_fd, EPOLLIN | EPOLLRDHUP, id).ok()) {
      connections_.Remove(id);
      break;
    }
    ++accepted;
    handler.OnAccepted(id, uid);
  }
  return accepted;
}

size_t UdsTransport::Serve(ConnectionId id, uint32_t events, TransportHandler& handler) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr) return 0;  // closed by a handler earlier in this round
  if ((events & EPOLLOUT) != 0 && !connection->broken) SendQueued(id, *connection);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) == 0) return 0;
  bool found = false;
  const size_t handled = Receive(id, *connection, handler, &found);
  if (found) NoteDelivery(id, *connection);
  return handled;
}

size_t UdsTransport::Receive(ConnectionId id, Connection& connection, TransportHandler& handler, bool* more) {
  *more = false;
  const std::span<std::byte> room = connection.in.Room();
  const ssize_t received = recv(connection.fd.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (received == 0)
    return ReportClosed(id, absl::UnavailableError("the peer closed the connection"), handler);
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) return 0;
    return ReportClosed(
        id, absl::ErrnoToStatus(errno, fmt::format("cannot receive from a peer of {}", path_)), handler);
  }
  connection.in.Received(static_cast<size_t>(received));
  const ScanResult scan =
      ScanFrames(connection.in.Unread(), [&](FrameType type, std::span<const std::byte> payload) {
        handler.OnFrame(id, type, payload);
        return connections_.Find(id) != nullptr;
      });
  if (connections_.Find(id) == nullptr) return scan.frames;  // in the graveyard now
  if (scan.end == FrameCheck::kBad) {
    return scan.frames +
           ReportClosed(id, absl::InvalidArgumentError("the peer sent bytes that are not a frame"), handler);
  }
  connection.in.Consumed(scan.consumed, scan.next_bytes);
  *more = true;
  return scan.frames;
}

size_t UdsTransport::ReportFailures(TransportHandler& handler) {
  size_t handled = 0;
  const auto failures = std::exchange(failures_, {});
  for (const auto& [id, why] : failures) {
    Connection* connection = connections_.Find(id);
    bool more = connection != nullptr && static_cast<bool>(connection->fd);
    for (int reads = 0; more && reads < kReadsOfBrokenConnection; ++reads) {
      handled += Receive(id, *connection, handler, &more);
    }
    if (connections_.Find(id) != nullptr) handled += ReportClosed(id, why, handler);
  }
  return handled;
}

size_t UdsTransport::ReportClosed(ConnectionId id, const absl::Status& why, TransportHandler& handler) {
  Close(id);
  handler.OnClosed(id, why);
  return 1;
}

void UdsTransport::Close(ConnectionId id) {
  std::unique_ptr<Connection> connection = connections_.Remove(id);
  if (connection == nullptr) return;
  connection->fd.Reset();
  if (polling_) graveyard_.push_back(std::move(connection));
  if (listener_ && !accepting_) accepting_ = Watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN, kListenTag).ok();
}

}  // namespace

std::string UdsSocketPath(const std::string& directory, Address address) {
  return fmt::format("{}/island-{}.w{}.sock", directory, address.island, address.worker);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeUdsTransport(const std::string& directory, Address self,
                                                            std::string path) {
  if (path.empty()) path = UdsSocketPath(directory, self);
  if (absl::StatusOr<sockaddr_un> address = UnixAddress(path); !address.ok()) return address.status();
  auto transport = std::make_unique<UdsTransport>(path, directory, self);
  if (absl::Status status = transport->Open(); !status.ok()) return status;
  return transport;
}

}  // namespace islands::messaging
