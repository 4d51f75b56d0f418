// POSIX message queues, one for each direction. On Linux a queue is a file descriptor.
#include <fcntl.h>
#include <fmt/format.h>
#include <mqueue.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "experiments/ipc/descriptor.h"
#include "experiments/ipc/mechanisms.h"

namespace islands::experiments {
namespace {

class MessageQueueChannel final : public Channel {
 public:
  MessageQueueChannel(const ChannelOptions& options, Descriptor read_from, Descriptor write_to)
      : options_(options), read_(std::move(read_from)), write_(std::move(write_to)) {}

  absl::StatusOr<bool> TrySend(Message message) override {
    for (;;) {
      if (mq_send(write_.get(), Chars(message), message.size(), 0) == 0) return true;
      if (errno == EAGAIN) return false;
      if (errno != EINTR) return ErrnoError(options_.mechanism, "mq_send", errno);
    }
  }

  absl::Status Send(Message message) override {
    for (;;) {
      const absl::StatusOr<bool> sent = TrySend(message);
      if (!sent.ok()) return sent.status();
      if (*sent) return absl::OkStatus();
      if (options_.spin) {
        SpinPause(options_);
        continue;
      }
      pollfd room{write_.get(), POLLOUT, 0};
      if (poll(&room, 1, -1) < 0 && errno != EINTR) return ErrnoError(options_.mechanism, "poll", errno);
    }
  }

  absl::Status Receive(MessageBuffer message) override {
    for (;;) {
      const ssize_t n =
          mq_receive(read_.get(), reinterpret_cast<char*>(message.data()), message.size(), nullptr);
      if (n == static_cast<ssize_t>(message.size())) return absl::OkStatus();
      if (n >= 0) return absl::DataLossError(fmt::format("posix-mq: a message of {} bytes", n));
      if (errno == EAGAIN) SpinPause(options_);
      if (errno != EAGAIN && errno != EINTR) return ErrnoError(options_.mechanism, "mq_receive", errno);
    }
  }

 private:
  static const char* Chars(Message message) { return reinterpret_cast<const char*>(message.data()); }

  const ChannelOptions options_;
  const Descriptor read_;
  const Descriptor write_;
};

// What processes without privileges may ask for: 10 messages by default. A smaller window takes its place.
long MessagesAllowed() {
  long allowed = 10;
  std::ifstream("/proc/sys/fs/mqueue/msg_max") >> allowed;
  return std::max(allowed, 1l);
}

struct Queue {
  Descriptor read;
  Descriptor write;
};

absl::StatusOr<Queue> OpenQueue(const std::string& name, const ChannelOptions& options) {
  mq_attr attributes{};
  attributes.mq_maxmsg = std::min<long>(options.batch, MessagesAllowed());
  attributes.mq_msgsize = options.bytes;
  const int flags = O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC | (options.spin ? O_NONBLOCK : 0);
  Queue queue{Descriptor(mq_open(name.c_str(), flags, 0600, &attributes)), {}};
  if (!queue.read.ok()) return ErrnoError(options.mechanism, "mq_open", errno);
  queue.write = Descriptor(mq_open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  const int error = errno;
  mq_unlink(name.c_str());
  if (!queue.write.ok()) return ErrnoError(options.mechanism, "mq_open", error);
  return queue;
}

}  // namespace

absl::StatusOr<ChannelEnds> MakeMessageQueue(const ChannelOptions& options) {
  absl::StatusOr<Queue> there = OpenQueue(fmt::format("/islands-ipc-{}-there", getpid()), options);
  if (!there.ok()) return there.status();
  absl::StatusOr<Queue> back = OpenQueue(fmt::format("/islands-ipc-{}-back", getpid()), options);
  if (!back.ok()) return back.status();
  return ChannelEnds{
      std::make_unique<MessageQueueChannel>(options, std::move(back->read), std::move(there->write)),
      std::make_unique<MessageQueueChannel>(options, std::move(there->read), std::move(back->write))};
}

}  // namespace islands::experiments
