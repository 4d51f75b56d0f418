#include "instance/messaging/uds_transport.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "instance/messaging/connection_table.h"
#include "instance/messaging/frame_scan.h"
#include "instance/messaging/ring_pair.h"
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
// While there are hot ones, or rings, epoll is asked after this many polls and frames, or twice as many if a
// poll has just found something: what was found is better answered first.
constexpr size_t kPollsAndFramesPerEpoll = 16;
constexpr size_t kRingsPerPoll = 64;  // that are read; the others are the first of the next

struct Connection : QueuedOutput {
  UniqueFd fd;  // none: the dial failed, OnClosed is due
  InputBuffer in;
  std::unique_ptr<RingPair> rings;  // frames go through them, and doorbells alone through the socket
  bool awaits_rings = false;        // accepted; the peer has not offered them yet
  bool wants_writable = false;      // EPOLLOUT is armed, or listed in full_; Flush leaves it alone until then
  bool hot = false;                 // listed in hot_, not in the epoll set
  bool broken = false;              // it has ended; OnClosed follows once its input has been handed out
  uint32_t deliveries = 0;          // not hot: in close succession
  uint64_t last_delivery = 0;       // not hot: number of that poll
  uint32_t empty_polls = 0;         // hot: since the last delivery
};

class UdsTransport final : public Transport {
 public:
  UdsTransport(std::string path, std::string directory, WithRings rings)
      : path_(std::move(path)), directory_(std::move(directory)), with_rings_(rings) {}
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
  size_t PollRings(TransportHandler& handler);
  size_t PollHot(TransportHandler& handler);
  size_t PollWatched(TransportHandler& handler);
  // Counts a delivery that epoll has told of.
  void NoteDelivery(ConnectionId id, Connection& connection);
  // Gives a hot connection back to epoll; the caller takes it from hot_.
  void Cool(ConnectionId id, Connection& connection);
  absl::Status EndOf(const char* action, int error) const;
  void Break(ConnectionId id, Connection& connection, absl::Status why);
  size_t Accept(TransportHandler& handler);
  size_t Serve(ConnectionId id, uint32_t events, TransportHandler& handler);
  // The socket of a connection that has rings, or is to have some, can be read.
  size_t ServeRings(ConnectionId id, Connection& connection, TransportHandler& handler);
  void BeginRings(ConnectionId id, Connection& connection, std::unique_ptr<RingPair> rings);
  // Wakes a peer who sleeps.
  void RingDoorbell(ConnectionId id, Connection& connection);
  // One recv, or look into a ring. `*more` tells whether it found something and the connection lives: another
  // may find more.
  size_t Receive(ConnectionId id, Connection& connection, TransportHandler& handler, bool* more);
  size_t ReceiveFromRing(ConnectionId id, Connection& connection, TransportHandler& handler, bool* more);
  // Hands out the whole frames of what has been received.
  size_t HandOut(ConnectionId id, Connection& connection, size_t received, TransportHandler& handler,
                 bool* more);
  void SendQueued(ConnectionId id, Connection& connection);
  void WriteQueued(ConnectionId id, Connection& connection);
  void RetryFull();
  void ArmWritable(ConnectionId id, Connection& connection, bool armed);
  size_t ReportFailures(TransportHandler& handler);
  size_t ReportClosed(ConnectionId id, const absl::Status& why, TransportHandler& handler);

  // Constant after construction.
  const std::string path_;
  const std::string directory_;
  const WithRings with_rings_;

  EpollWaker waker_;
  UniqueFd listener_;
  bool accepting_ = false;  // false while we are out of file descriptors
  ConnectionTable<Connection> connections_;
  SendQueue<Connection> queue_{connections_};
  // Of connections with rings: where their arrivals are told, and what was told last.
  struct Arrivals {
    ConnectionId id;
    const std::atomic<uint64_t>* told;
    uint64_t seen;
  };
  std::vector<Arrivals> arrivals_;
  size_t first_arrivals_ = 0;       // looked at by the next Poll
  std::vector<ConnectionId> full_;  // with rings that were full when there was more to send
  std::vector<ConnectionId> hot_;
  uint64_t polls_ = 0;
  uint64_t last_sleep_ = 0;                                      // number of the poll before it
  size_t since_epoll_ = 0;                                       // polls and frames since epoll was asked
  std::vector<std::pair<ConnectionId, absl::Status>> failures_;  // reported by the next Poll
  // Closed by a handler during this Poll: the frame that it is looking at lies in such a connection's buffer,
  // and arrivals_ points to its rings.
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
  absl::StatusOr<std::unique_ptr<RingPair>> rings = nullptr;
  if (status.ok() && with_rings_.dialled) {
    rings = OfferRings(fd->get());
    status = rings.status();
  }
  if (status.ok()) {
    Connection& connection = *connections_.Find(id);
    connection.fd = std::move(*fd);
    if (*rings != nullptr) BeginRings(id, connection, *std::move(rings));
  } else {
    failures_.emplace_back(id, std::move(status));
  }
  return id;
}

void UdsTransport::BeginRings(ConnectionId id, Connection& connection, std::unique_ptr<RingPair> rings) {
  arrivals_.push_back({id, rings->arrivals, 0});
  connection.rings = std::move(rings);
  connection.awaits_rings = false;
}

void UdsTransport::Send(ConnectionId id, FrameType type, std::span<const std::byte> payload) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr || !connection->fd || connection->broken) return;
  queue_.Append(id, *connection, type, payload);
}

void UdsTransport::Flush() {
  queue_.Flush([this](ConnectionId id, Connection& connection) {
    if (!connection.wants_writable && connection.released > 0) SendQueued(id, connection);
  });
}

void UdsTransport::WriteQueued(ConnectionId id, Connection& connection) {
  const std::optional<size_t> written = connection.rings->out.Write(connection.Released());
  if (!written) {
    Break(id, connection, absl::InvalidArgumentError("the peer has taken more than was sent to it"));
    connection.Drop();
    connection.wants_writable = false;
    return;
  }
  connection.Sent(*written);
  if (*written > 0 && connection.rings->out.MustWakeReader()) RingDoorbell(id, connection);
  const bool full = connection.released > 0;
  if (full && !connection.wants_writable) full_.push_back(id);
  connection.wants_writable = full;
}

void UdsTransport::RetryFull() {
  std::erase_if(full_, [this](ConnectionId id) {
    Connection* connection = connections_.Find(id);
    if (connection == nullptr) return true;
    WriteQueued(id, *connection);
    return !connection->wants_writable;
  });
}

void UdsTransport::RingDoorbell(ConnectionId id, Connection& connection) {
  const ssize_t sent = runtime::Uninterrupted(
      [&] { return send(connection.fd.get(), &kDoorbell, sizeof(kDoorbell), MSG_NOSIGNAL | MSG_DONTWAIT); });
  // A socket that takes no more is full of what has not been heard yet, and wakes its owner.
  if (sent >= 0 || errno == EAGAIN) return;
  Break(id, connection, EndOf("wake", errno));
}

void UdsTransport::SendQueued(ConnectionId id, Connection& connection) {
  if (connection.awaits_rings) return;
  if (connection.rings != nullptr) return WriteQueued(id, connection);
  const std::span<const std::byte> bytes = connection.Released();
  ssize_t sent;
  do {
    sent = send(connection.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) {
    // What the peer said before it went is still in our receive buffer; Poll hands it out before it reports
    // the end.
    Break(id, connection, EndOf("send to", errno));
    connection.Drop();
    return;
  }
  if (sent > 0) connection.Sent(static_cast<size_t>(sent));
  ArmWritable(id, connection, connection.released > 0);
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

// A peer that goes with something unread resets the connection; it has closed it all the same.
absl::Status UdsTransport::EndOf(const char* action, int error) const {
  if (error == 0 || error == ECONNRESET || error == EPIPE)
    return absl::UnavailableError("the peer closed the connection");
  return absl::ErrnoToStatus(error, fmt::format("cannot {} a peer of {}", action, path_));
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
  // All of them say so, whoever has something: after a sleep of no length, too, they are awake again.
  bool may_sleep = failures_.empty();
  for (const Arrivals& arrivals : arrivals_)
    may_sleep &= connections_.Find(arrivals.id)->rings->in.MaySleep();
  for (const ConnectionId id : full_) {
    const Connection* connection = connections_.Find(id);
    may_sleep &= connection == nullptr || connection->rings->out.MaySleep();
  }
  waker_.Sleep(may_sleep ? timeout_ns : 0);
  for (const Arrivals& arrivals : arrivals_) connections_.Find(arrivals.id)->rings->in.Awake();
  since_epoll_ = 2 * kPollsAndFramesPerEpoll;  // it may have been a doorbell
}

size_t UdsTransport::Poll(TransportHandler& handler) {
  ISLANDS_CHECK(!polling_);
  polling_ = true;
  ++polls_;
  if (!full_.empty()) RetryFull();
  size_t handled = failures_.empty() ? 0 : ReportFailures(handler);
  if (!arrivals_.empty()) handled += PollRings(handler);
  if (!hot_.empty()) handled += PollHot(handler);
  since_epoll_ += 1 + handled;
  const size_t due = handled == 0 ? kPollsAndFramesPerEpoll : 2 * kPollsAndFramesPerEpoll;
  if ((hot_.empty() && arrivals_.empty()) || since_epoll_ >= due) {
    since_epoll_ = 0;
    handled += PollWatched(handler);
  }
  polling_ = false;
  if (!graveyard_.empty()) {
    std::erase_if(arrivals_, [this](const Arrivals& each) { return connections_.Find(each.id) == nullptr; });
    graveyard_.clear();
  }
  return handled;
}

// Handlers may close connections, which stay in the graveyard meanwhile, and dial others, behind the rest.
size_t UdsTransport::PollRings(TransportHandler& handler) {
  size_t handled = 0;
  size_t looked_at = 0;
  const size_t size = arrivals_.size();
  for (size_t served = 0; looked_at < size && served < kRingsPerPoll; ++looked_at) {
    const size_t i = (first_arrivals_ + looked_at) % size;
    const Arrivals each = arrivals_[i];
    const uint64_t told = each.told->load(std::memory_order_relaxed);
    if (told == each.seen) continue;
    Connection* connection = connections_.Find(each.id);
    if (connection == nullptr) continue;
    bool more = false;
    handled += Receive(each.id, *connection, handler, &more);
    ++served;
    connection = connections_.Find(each.id);
    // What did not fit into the buffer is for the next round.
    if (connection != nullptr) arrivals_[i].seen = connection->rings->in.read();
  }
  first_arrivals_ = looked_at < size ? (first_arrivals_ + looked_at) % size : 0;
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
    connection->awaits_rings = with_rings_.accepted;
    const ConnectionId id = connections_.Add(std::move(connection));
    if (!Watch(EPOLL_CTL_ADD, raw_fd, EPOLLIN | EPOLLRDHUP, id).ok()) {
      connections_.Remove(id);
      break;
    }
    ++accepted;
    handler.OnAccepted(id, uid);
    Connection* open = connections_.Find(id);
    if (open != nullptr && open->awaits_rings) ServeRings(id, *open, handler);  // mostly they are there
  }
  return accepted;
}

size_t UdsTransport::Serve(ConnectionId id, uint32_t events, TransportHandler& handler) {
  Connection* connection = connections_.Find(id);
  if (connection == nullptr) return 0;  // closed by a handler earlier in this round
  if ((events & EPOLLOUT) != 0 && !connection->broken) SendQueued(id, *connection);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) == 0) return 0;
  if (connection->awaits_rings || connection->rings != nullptr) return ServeRings(id, *connection, handler);
  bool found = false;
  const size_t handled = Receive(id, *connection, handler, &found);
  if (found) NoteDelivery(id, *connection);
  return handled;
}

size_t UdsTransport::ServeRings(ConnectionId id, Connection& connection, TransportHandler& handler) {
  if (connection.awaits_rings) {
    absl::StatusOr<std::unique_ptr<RingPair>> rings = TakeOfferedRings(connection.fd.get());
    if (!rings.ok()) return ReportClosed(id, rings.status(), handler);
    if (*rings == nullptr) return 0;
    BeginRings(id, connection, *std::move(rings));
    if (connection.released > 0) SendQueued(id, connection);
    return 0;
  }
  std::array<char, 64> heard;
  const ssize_t count = recv(connection.fd.get(), heard.data(), heard.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  absl::Status why;
  if (count <= 0) {
    why = EndOf("receive from", count == 0 ? 0 : errno);
  } else if (std::count(heard.begin(), heard.begin() + count, kDoorbell) != count) {
    why = absl::InvalidArgumentError("the peer sent bytes that are no doorbell");
  }
  // The rings are looked at in every round. What a peer has said before it went is handed out before its end.
  if (!why.ok()) Break(id, connection, std::move(why));
  return 0;
}

size_t UdsTransport::ReceiveFromRing(ConnectionId id, Connection& connection, TransportHandler& handler,
                                     bool* more) {
  RingPair& rings = *connection.rings;
  const std::optional<size_t> read = rings.in.Read(connection.in.Room());
  if (!read) {
    return ReportClosed(id, absl::InvalidArgumentError("the peer has sent more than there is room for"),
                        handler);
  }
  if (*read == 0) return 0;
  if (rings.in.MustWakeWriter()) RingDoorbell(id, connection);
  return HandOut(id, connection, *read, handler, more);
}

size_t UdsTransport::Receive(ConnectionId id, Connection& connection, TransportHandler& handler, bool* more) {
  *more = false;
  if (connection.rings != nullptr) return ReceiveFromRing(id, connection, handler, more);
  const std::span<std::byte> room = connection.in.Room();
  const ssize_t received = recv(connection.fd.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (received == 0) return ReportClosed(id, EndOf("receive from", 0), handler);
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) return 0;
    return ReportClosed(id, EndOf("receive from", errno), handler);
  }
  return HandOut(id, connection, static_cast<size_t>(received), handler, more);
}

size_t UdsTransport::HandOut(ConnectionId id, Connection& connection, size_t received,
                             TransportHandler& handler, bool* more) {
  connection.in.Received(received);
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
  if (polling_) {
    graveyard_.push_back(std::move(connection));
  } else if (connection->rings != nullptr) {
    std::erase_if(arrivals_, [id](const Arrivals& each) { return each.id == id; });
  }
  if (listener_ && !accepting_) accepting_ = Watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN, kListenTag).ok();
}

}  // namespace

std::string UdsSocketPath(const std::string& directory, Address address) {
  return fmt::format("{}/island-{}.w{}.sock", directory, address.island, address.worker);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeUdsTransport(const std::string& directory, Address self,
                                                            std::string path, WithRings rings) {
  if (path.empty()) path = UdsSocketPath(directory, self);
  if (absl::StatusOr<sockaddr_un> address = UnixAddress(path); !address.ok()) return address.status();
  auto transport = std::make_unique<UdsTransport>(path, directory, rings);
  if (absl::Status status = transport->Open(); !status.ok()) return status;
  return transport;
}

}  // namespace islands::messaging
