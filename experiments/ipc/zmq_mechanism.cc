// ZeroMQ over its ipc transport, DEALER to DEALER. A context does not survive a fork: each process makes its
// own when it attaches its end. The endpoint is in Linux's abstract namespace, which leaves no file.
#include <fmt/format.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <chrono>

#include "experiments/ipc/mechanisms.h"

namespace islands::experiments {
namespace {

constexpr int kReconnectMs = 1;  // the peer may bind later than this end connects

class ZmqChannel final : public Channel {
 public:
  ZmqChannel(const ChannelOptions& options, std::string endpoint, bool binds)
      : options_(options), endpoint_(std::move(endpoint)), binds_(binds) {}
  ~ZmqChannel() override {
    if (socket_ != nullptr) zmq_close(socket_);
    if (context_ != nullptr) zmq_ctx_term(context_);
  }
  ZmqChannel(const ZmqChannel&) = delete;
  ZmqChannel& operator=(const ZmqChannel&) = delete;

  absl::Status Attach() override {
    context_ = zmq_ctx_new();
    if (context_ == nullptr) return Error("zmq_ctx_new");
    socket_ = zmq_socket(context_, ZMQ_DEALER);
    if (socket_ == nullptr) return Error("zmq_socket");
    // The last message may still be on its way when this end is closed; zmq_ctx_term gives it a second.
    const int linger_ms = 1000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
    zmq_setsockopt(socket_, ZMQ_RECONNECT_IVL, &kReconnectMs, sizeof(kReconnectMs));
    if (binds_) return zmq_bind(socket_, endpoint_.c_str()) == 0 ? absl::OkStatus() : Error("zmq_bind");
    return zmq_connect(socket_, endpoint_.c_str()) == 0 ? absl::OkStatus() : Error("zmq_connect");
  }

  absl::StatusOr<bool> TrySend(Message message) override { return SendOnce(message, ZMQ_DONTWAIT); }

  absl::Status Send(Message message) override {
    for (;;) {
      const absl::StatusOr<bool> sent = SendOnce(message, options_.spin ? ZMQ_DONTWAIT : 0);
      if (!sent.ok()) return sent.status();
      if (*sent) return absl::OkStatus();
      SpinPause(options_);
    }
  }

  absl::Status Receive(MessageBuffer message) override {
    for (;;) {
      const int n = zmq_recv(socket_, message.data(), message.size(), options_.spin ? ZMQ_DONTWAIT : 0);
      if (n == static_cast<int>(message.size())) return absl::OkStatus();
      if (n >= 0) return absl::DataLossError(fmt::format("zmq-ipc: a message of {} bytes", n));
      if (zmq_errno() == EAGAIN) SpinPause(options_);
      if (zmq_errno() != EAGAIN && zmq_errno() != EINTR) return Error("zmq_recv");
    }
  }

 private:
  absl::StatusOr<bool> SendOnce(Message message, int flags) {
    for (;;) {
      if (zmq_send(socket_, message.data(), message.size(), flags) >= 0) return true;
      if (zmq_errno() == EAGAIN) return false;
      if (zmq_errno() != EINTR) return Error("zmq_send");
    }
  }

  absl::Status Error(const char* call) const {
    return absl::InternalError(
        fmt::format("{}: {}: {}", options_.mechanism, call, zmq_strerror(zmq_errno())));
  }

  const ChannelOptions options_;
  const std::string endpoint_;
  const bool binds_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
};

}  // namespace

absl::StatusOr<ChannelEnds> MakeZmq(const ChannelOptions& options) {
  // The thread that does the sending shares its CPU with the one that spins, which must let it run.
  ChannelOptions yielding = options;
  yielding.yield = true;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string endpoint = fmt::format("ipc://@islands-ipc-{}-{}", getpid(), now);
  return ChannelEnds{std::make_unique<ZmqChannel>(yielding, endpoint, true),
                     std::make_unique<ZmqChannel>(yielding, endpoint, false)};
}

}  // namespace islands::experiments
