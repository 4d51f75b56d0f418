// Shared memory without a name: mapped before the fork, a ring for each direction. A ring's pages come from
// the NUMA node of whoever writes to them first: its writer.
#include <sys/mman.h>

#include <cerrno>

#include "experiments/ipc/mechanisms.h"
#include "experiments/ipc/message_ring.h"

namespace islands::experiments {
namespace {

class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes),
        address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapping() {
    if (ok()) munmap(address_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  bool ok() const { return address_ != MAP_FAILED; }
  // Fresh pages are zeroes, which is an empty ring; constructing one would touch them.
  RingHeader* ring() const { return static_cast<RingHeader*>(address_); }

 private:
  const size_t bytes_;
  void* const address_;
};

class SharedMemoryChannel final : public Channel {
 public:
  SharedMemoryChannel(const ChannelOptions& options, RingShape shape, std::shared_ptr<Mapping> from,
                      std::shared_ptr<Mapping> to)
      : from_(std::move(from)),
        to_(std::move(to)),
        reader_(from_->ring(), shape, options),
        writer_(to_->ring(), shape, options) {}

  absl::StatusOr<bool> TrySend(Message message) override { return writer_.TryPush(message); }
  absl::Status Send(Message message) override {
    writer_.Push(message);
    return absl::OkStatus();
  }
  absl::Status Receive(MessageBuffer message) override {
    reader_.Pop(message);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Mapping> from_, to_;
  RingReader reader_;
  RingWriter writer_;
};

}  // namespace

absl::StatusOr<ChannelEnds> MakeSharedMemory(const ChannelOptions& options) {
  const RingShape shape(options.batch, options.bytes);
  const auto there = std::make_shared<Mapping>(shape.TotalBytes());
  const auto back = std::make_shared<Mapping>(shape.TotalBytes());
  if (!there->ok() || !back->ok()) return ErrnoError(options.mechanism, "mmap", errno);
  return ChannelEnds{std::make_unique<SharedMemoryChannel>(options, shape, back, there),
                     std::make_unique<SharedMemoryChannel>(options, shape, there, back)};
}

}  // namespace islands::experiments
