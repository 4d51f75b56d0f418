#include "instance/messaging/control_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "instance/messaging/frame_scan.h"
#include "instance/messaging/unix_socket.h"
#include "runtime/mutex.h"

namespace islands::messaging {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

constexpr size_t kMaxSessions = 16;
constexpr auto kPeerPatience =
    std::chrono::seconds(10);  // with a client that stalls in the middle of a frame
constexpr auto kBacklogRetry = std::chrono::milliseconds(10);

int MillisecondsLeft(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

// Waits until `fd` is ready for `events`. CANCELLED when `stop_fd` (if any) becomes readable first.
absl::Status Await(int fd, int16_t events, int stop_fd, Deadline deadline) {
  pollfd fds[2] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
  while (true) {
    const int ready = poll(fds, stop_fd >= 0 ? 2 : 1, MillisecondsLeft(deadline));
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "cannot poll");
    if (ready == 0) return absl::DeadlineExceededError("no answer in time");
    if (ready > 0) return fds[1].revents != 0 ? absl::CancelledError("stopping") : absl::OkStatus();
  }
}

absl::Status SendFrame(int fd, FrameType type, const google::protobuf::MessageLite& message,
                       Deadline deadline) {
  if (message.ByteSizeLong() > kMaxFrameBytes) {
    return absl::ResourceExhaustedError(fmt::format("a control message of {} bytes is larger than {} bytes",
                                                    message.ByteSizeLong(), kMaxFrameBytes));
  }
  const std::string payload = message.SerializeAsString();
  std::vector<std::byte> bytes;
  AppendFrame(&bytes, type, std::as_bytes(std::span(payload)));
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t result = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result >= 0) {
      sent += static_cast<size_t>(result);
    } else if (errno == EAGAIN) {
      if (absl::Status status = Await(fd, POLLOUT, -1, deadline); !status.ok()) return status;
    } else if (errno != EINTR) {
      return absl::UnavailableError("the other side closed the control connection");
    }
  }
  return absl::OkStatus();
}

absl::Status ReceiveFrame(int fd, FrameType expected, google::protobuf::MessageLite* message, int stop_fd,
                          Deadline deadline) {
  InputBuffer in;
  while (true) {
    bool parsed = false;
    const ScanResult scan = ScanFrames(in.Unread(), [&](FrameType type, std::span<const std::byte> payload) {
      parsed = type == expected && message->ParseFromArray(payload.data(), static_cast<int>(payload.size()));
      return false;
    });
    if (scan.frames > 0 && parsed) return absl::OkStatus();
    if (scan.frames > 0 || scan.end == FrameCheck::kBad) {
      return absl::InvalidArgumentError("not a control message of this version of islands");
    }
    in.Consumed(0, scan.next_bytes);
    if (absl::Status status = Await(fd, POLLIN, stop_fd, deadline); !status.ok()) return status;
    const std::span<std::byte> room = in.Room();
    const ssize_t received = recv(fd, room.data(), room.size(), MSG_DONTWAIT);
    if (received > 0) {
      in.Received(static_cast<size_t>(received));
    } else if (received == 0 || (errno != EAGAIN && errno != EINTR)) {
      return absl::UnavailableError("the other side closed the control connection");
    }
  }
}

absl::StatusOr<UniqueFd> ConnectPatiently(const std::string& path, Deadline deadline) {
  while (true) {
    absl::StatusOr<UniqueFd> fd = ConnectTo(path);
    if (fd.ok() || fd.status().code() != absl::StatusCode::kResourceExhausted) return fd;
    if (std::chrono::steady_clock::now() >= deadline)
      return absl::DeadlineExceededError(fd.status().message());
    std::this_thread::sleep_for(kBacklogRetry);
  }
}

}  // namespace

absl::StatusOr<control::v1::Reply> ControlCall(const std::string& socket_path,
                                               const control::v1::Request& request, int64_t timeout_ms) {
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const auto in_context = [&](const absl::Status& status) {
    return absl::Status(status.code(), fmt::format("{}: {}", socket_path, std::string(status.message())));
  };
  absl::StatusOr<UniqueFd> fd = ConnectPatiently(socket_path, deadline);
  if (fd.status().code() == absl::StatusCode::kUnavailable) {
    return absl::UnavailableError(fmt::format("nobody answers at {}: it is not running", socket_path));
  }
  if (!fd.ok()) return fd.status();
  // A server that refuses may close before it has read the request: its reason is still there to be read.
  const absl::Status sent = SendFrame(fd->get(), FrameType::kControlRequest, request, deadline);
  control::v1::Reply reply;
  const absl::Status received = ReceiveFrame(fd->get(), FrameType::kControlReply, &reply, -1, deadline);
  if (!received.ok()) return in_context(sent.ok() ? received : sent);
  if (reply.code() != 0) return absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message());
  return reply;
}

control::v1::Reply ErrorReply(const absl::Status& status) {
  control::v1::Reply reply;
  reply.set_code(static_cast<uint32_t>(status.code()));
  reply.set_message(std::string(status.message()));
  return reply;
}

struct ControlServer::Impl {
  struct Session {
    UniqueFd fd;
    bool done = false;  // guarded by mutex
    std::thread thread;
  };

  // Constant while threads run.
  std::string path;
  Handler handler;
  UniqueFd listener;
  UniqueFd stop;  // an eventfd that stays readable once we are to stop
  std::thread acceptor;

  runtime::Mutex mutex;
  std::condition_variable_any session_done;
  std::list<Session> sessions ABSL_GUARDED_BY(mutex);

  // Removes threads that have finished.
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (auto it = sessions.begin(); it != sessions.end();) {
      if (it->done) it->thread.join();
      it = it->done ? sessions.erase(it) : std::next(it);
    }
  }

  void AcceptLoop() {
    while (Await(listener.get(), POLLIN, stop.get(), Deadline::max()).code() !=
           absl::StatusCode::kCancelled) {
      UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const bool exhausted = !fd && errno != EAGAIN;
      const runtime::MutexLock lock(mutex);
      Reap();
      // Out of descriptors, most likely: a little patience instead of a spin.
      if (exhausted) session_done.wait_for(mutex, kBacklogRetry);
      if (!fd) continue;
      session_done.wait(mutex, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
        Reap();
        return sessions.size() < kMaxSessions;
      });
      Session& session = sessions.emplace_back();
      session.fd = std::move(fd);
      session.thread = std::thread([this, &session] { Serve(session); });
    }
  }

  void Serve(Session& session) {
    Answer(session.fd.get());
    session.fd.Reset();
    // Notified under the lock: once it is released the server may be gone.
    const runtime::MutexLock lock(mutex);
    session.done = true;
    session_done.notify_one();
  }

  void Answer(int fd) {
    control::v1::Reply reply;
    control::v1::Request request;
    const int64_t uid = PeerUid(fd);
    if (uid != static_cast<int64_t>(geteuid())) {
      reply = ErrorReply(absl::PermissionDeniedError(
          fmt::format("{} serves user {} only, not user {}", path, geteuid(), uid)));
    } else {
      const Deadline deadline = std::chrono::steady_clock::now() + kPeerPatience;
      const absl::Status status =
          ReceiveFrame(fd, FrameType::kControlRequest, &request, stop.get(), deadline);
      if (status.code() == absl::StatusCode::kUnavailable) return;  // hung up
      reply = status.ok() ? handler(request) : ErrorReply(status);
    }
    const Deadline deadline = std::chrono::steady_clock::now() + kPeerPatience;
    const absl::Status sent = SendFrame(fd, FrameType::kControlReply, reply, deadline);
    if (sent.code() != absl::StatusCode::kResourceExhausted) return;
    (void)SendFrame(fd, FrameType::kControlReply, ErrorReply(sent),
                    deadline);  // the client may be gone: its affair
  }
};

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& socket_path,
                                                                    Handler handler, int32_t cpu) {
  absl::StatusOr<UniqueFd> listener = ListenOn(socket_path);
  if (!listener.ok()) return listener.status();
  auto impl = std::make_unique<Impl>();
  impl->path = socket_path;
  impl->handler = std::move(handler);
  impl->listener = std::move(*listener);
  impl->stop.Reset(eventfd(0, EFD_CLOEXEC));
  if (!impl->stop) {
    unlink(socket_path.c_str());
    return absl::ErrnoToStatus(errno, "cannot create an eventfd");
  }
  impl->acceptor = std::thread([server = impl.get(), cpu] {
    if (cpu >= 0 && cpu < CPU_SETSIZE) {
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      CPU_SET(cpu, &cpus);
      pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);  // best effort; sessions inherit it
    }
    server->AcceptLoop();
  });
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::~ControlServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(impl_->stop.get(), &one, sizeof(one));
  impl_->acceptor.join();
  impl_->listener.Reset();
  RemoveStaleSocket(impl_->path).IgnoreError();                          // the name may be another's by now
  for (Impl::Session& session : impl_->sessions) session.thread.join();  // handlers that run, finish
}

}  // namespace islands::messaging
