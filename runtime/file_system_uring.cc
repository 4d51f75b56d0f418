// io_uring: the kernel carries requests out side by side. What does not fit its ring waits here.
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "runtime/check.h"
#include "runtime/clock.h"
#include "runtime/file_system_posix.h"

namespace islands::runtime {
namespace {

constexpr unsigned kDepth = 128;  // requests that the kernel has at a time, per queue
// What has been completed waits until we enter the kernel, and interrupts nobody who computes; the ring says
// that it does.
constexpr unsigned kQuiet = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;

absl::Status Refused(std::string_view what, int error) {
  return absl::ErrnoToStatus(error, fmt::format("cannot use io_uring: {}", what));
}

// What Wait and the requests need came with Linux 5.6 and 5.11.
absl::Status CheckFeatures(io_uring* ring) {
  if ((ring->features & IORING_FEAT_EXT_ARG) == 0 || (ring->features & IORING_FEAT_NODROP) == 0) {
    return Refused("the kernel is older than 5.11", ENOSYS);
  }
  io_uring_probe* probe = io_uring_get_probe_ring(ring);
  if (probe == nullptr) return Refused("the kernel does not say what it can do", ENOSYS);
  const bool complete = io_uring_opcode_supported(probe, IORING_OP_READ) &&
                        io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
                        io_uring_opcode_supported(probe, IORING_OP_FSYNC);
  io_uring_free_probe(probe);
  return complete ? absl::OkStatus() : Refused("the kernel has no read, write or fsync for it", ENOSYS);
}

// A sandbox may let us make a ring and not use it: the first request does nothing.
absl::Status CheckEnter(io_uring* ring) {
  io_uring_prep_nop(io_uring_get_sqe(ring));
  const int entered = io_uring_submit(ring);
  if (entered < 0) return Refused("io_uring_enter", -entered);
  io_uring_cqe* entry = nullptr;
  const int seen = io_uring_peek_cqe(ring, &entry);
  if (seen < 0) return Refused("a request that does nothing", -seen);
  io_uring_cqe_seen(ring, entry);
  return absl::OkStatus();
}

// Invariants:
//  1. Slots in use = requests that the kernel has or is about to get; as many as the ring has entries, so
//     that there is always an entry for a slot, and completions never overflow.
//  2. A request is in waiting_, in one slot, or in finished_.
class UringQueue final : public FileSystem::Queue {
 public:
  explicit UringQueue(std::shared_ptr<OpenFiles> files) : files_(std::move(files)) {
    for (uint32_t slot = 0; slot < kDepth; ++slot) free_.push_back(slot);
  }

  absl::Status Init() {
    int made = io_uring_queue_init(kDepth, &ring_, kQuiet);
    if (made == -EINVAL) made = io_uring_queue_init(kDepth, &ring_, 0);  // older than Linux 5.19
    if (made < 0) return Refused("io_uring_queue_init", -made);
    ready_ = true;
    if (absl::Status features = CheckFeatures(&ring_); !features.ok()) return features;
    return CheckEnter(&ring_);
  }

  ~UringQueue() override {
    if (!ready_) return;
    while (in_flight() > 0) {
      Wait(kNsPerSecond);
      finished_.clear();
    }
    io_uring_queue_exit(&ring_);
  }

  void Submit(const IoRequest& request) override {
    Enqueue(request);
    Push();
  }

  void Enqueue(const IoRequest& request) override {
    OpenFilePtr file = files_->Find(request.file);
    if (!file) {
      finished_.push_back(NotOpen(request));
      return;
    }
    waiting_.push_back({.request = request, .file = std::move(file)});
  }

  size_t Poll(std::vector<IoCompletion>* completions) override {
    Push();  // takes what has been completed along
    Reap();
    const size_t count = finished_.size();
    std::move(finished_.begin(), finished_.end(), std::back_inserter(*completions));
    finished_.clear();
    return count;
  }

  void Wait(int64_t timeout_ns) override {
    const MonotonicClock clock;
    const int64_t start_ns = clock.NowNs();
    while (true) {
      Reap();
      const int64_t left_ns = std::max<int64_t>(timeout_ns, 0) - (clock.NowNs() - start_ns);
      if (!finished_.empty() || in_flight() == 0 || left_ns <= 0) return;
      __kernel_timespec left{.tv_sec = left_ns / kNsPerSecond, .tv_nsec = left_ns % kNsPerSecond};
      io_uring_cqe* first = nullptr;
      CheckEntered(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &left, nullptr));
    }
  }

 private:
  size_t in_flight() const { return waiting_.size() + kDepth - free_.size(); }

  // The kernel may be out of something, or interrupted: what it did not take stays in the ring for the next
  // call. Other errors mean that we have broken the ring.
  static void CheckEntered(int result) {
    ISLANDS_CHECK(result >= 0 || result == -EAGAIN || result == -EBUSY || result == -EINTR ||
                  result == -ENOMEM || result == -ETIME);
  }

  // Gives the kernel what waits, as far as it fits.
  void Push() {
    while (!waiting_.empty() && !free_.empty()) {
      const uint32_t slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(waiting_.front());
      waiting_.pop_front();
      Prepare(slot);
    }
    if (io_uring_sq_ready(&ring_) > 0) CheckEntered(io_uring_submit(&ring_));
  }

  void Prepare(uint32_t slot) {
    const Transfer& transfer = slots_[slot];
    const int fd = transfer.file->fd.get();
    const std::span<std::byte> piece = transfer.piece();
    const unsigned bytes = static_cast<unsigned>(piece.size());
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    ISLANDS_CHECK(entry != nullptr);  // invariant 1
    switch (transfer.request.kind) {
      case IoKind::kRead:
        io_uring_prep_read(entry, fd, piece.data(), bytes, transfer.offset());
        break;
      case IoKind::kWrite:
        io_uring_prep_write(entry, fd, piece.data(), bytes, transfer.offset());
        break;
      case IoKind::kSync:
        io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data64(entry, slot);
  }

  // Takes in what the kernel has completed. Pieces that are left go back to it.
  void Reap() {
    if ((IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_TASKRUN) != 0)
      CheckEntered(io_uring_get_events(&ring_));
    unsigned head = 0;
    unsigned count = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ++count;
      const uint32_t slot = static_cast<uint32_t>(io_uring_cqe_get_data64(entry));
      IoCompletion done;
      if (slots_[slot].Advance(entry->res, &done)) {
        finished_.push_back(std::move(done));
        slots_[slot] = {};  // closes the file if this was the last of a closed handle
        free_.push_back(slot);
      } else {
        Prepare(slot);
      }
    }
    if (count > 0) io_uring_cq_advance(&ring_, count);
    Push();
  }

  const std::shared_ptr<OpenFiles> files_;
  io_uring ring_{};
  bool ready_ = false;  // there is a ring
  std::array<Transfer, kDepth> slots_;
  std::vector<uint32_t> free_;
  std::deque<Transfer> waiting_;
  std::vector<IoCompletion> finished_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileSystem::Queue>> MakeUringQueue(std::shared_ptr<OpenFiles> files) {
  auto queue = std::make_unique<UringQueue>(std::move(files));
  if (absl::Status made = queue->Init(); !made.ok()) return made;
  return queue;
}

absl::Status CheckIoUring() { return MakeUringQueue(std::make_shared<OpenFiles>()).status(); }

}  // namespace islands::runtime
