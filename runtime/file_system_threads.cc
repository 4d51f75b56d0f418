// Requests that are carried out one after the other: by a thread per queue, for kernels without io_uring, or
// by whoever polls.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>

#include "runtime/file_system_posix.h"

namespace islands::runtime {
namespace {

int64_t Call(const Transfer& transfer) {
  const int fd = transfer.file->fd.get();
  const std::span<std::byte> piece = transfer.piece();
  const off_t offset = static_cast<off_t>(transfer.offset());
  ssize_t result = 0;
  switch (transfer.request.kind) {
    case IoKind::kRead:
      result = pread(fd, piece.data(), piece.size(), offset);
      break;
    case IoKind::kWrite:
      result = pwrite(fd, piece.data(), piece.size(), offset);
      break;
    case IoKind::kSync:
      result = fdatasync(fd);
      break;
  }
  return result < 0 ? -errno : result;
}

IoCompletion CarryOut(Transfer transfer) {
  IoCompletion done;
  if (!transfer.file) return NotOpen(transfer.request);
  while (!transfer.Advance(Call(transfer), &done)) {
  }
  return done;
}

class ThreadQueue final : public FileSystem::Queue {
 public:
  explicit ThreadQueue(std::shared_ptr<OpenFiles> files) : files_(std::move(files)) {}

  ~ThreadQueue() override {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void Submit(const IoRequest& request) override {
    {
      const MutexLock lock(mutex_);
      submitted_.push_back({.request = request, .file = files_->Find(request.file)});
      ++in_flight_;
    }
    // The thread of a queue that is never used is never started.
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    work_.notify_one();
  }

  size_t Poll(std::vector<IoCompletion>* completions) override {
    const MutexLock lock(mutex_);
    const size_t count = finished_.size();
    std::move(finished_.begin(), finished_.end(), std::back_inserter(*completions));
    finished_.clear();
    return count;
  }

  void Wait(int64_t timeout_ns) override {
    // Long enough for anybody, and no overflow when the clock is added.
    const std::chrono::nanoseconds limit = std::min<std::chrono::nanoseconds>(
        std::chrono::nanoseconds(timeout_ns), std::chrono::hours(24 * 365));
    const MutexLock lock(mutex_);
    done_.wait_for(mutex_, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !finished_.empty() || in_flight_ == 0;
    });
  }

 private:
  // Until told to stop and nothing is left to do.
  void Run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the process's own threads
    mutex_.lock();
    while (true) {
      work_.wait(mutex_,
                 [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || !submitted_.empty(); });
      if (submitted_.empty()) break;
      Transfer next = std::move(submitted_.front());
      submitted_.pop_front();
      mutex_.unlock();
      IoCompletion done = CarryOut(std::move(next));
      mutex_.lock();
      finished_.push_back(std::move(done));
      --in_flight_;
      done_.notify_one();
    }
    mutex_.unlock();
  }

  const std::shared_ptr<OpenFiles> files_;
  std::thread thread_;  // of the queue's owner

  Mutex mutex_;
  std::condition_variable_any work_, done_;
  std::deque<Transfer> submitted_ ABSL_GUARDED_BY(mutex_);
  std::vector<IoCompletion> finished_ ABSL_GUARDED_BY(mutex_);
  size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;  // submitted and not finished
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

class CallerQueue final : public FileSystem::Queue {
 public:
  explicit CallerQueue(std::shared_ptr<OpenFiles> files) : files_(std::move(files)) {}
  ~CallerQueue() override {
    std::vector<IoCompletion> unseen;
    Poll(&unseen);
  }

  void Submit(const IoRequest& request) override {
    submitted_.push_back({.request = request, .file = files_->Find(request.file)});
  }
  size_t Poll(std::vector<IoCompletion>* completions) override {
    const size_t count = submitted_.size();
    for (; !submitted_.empty(); submitted_.pop_front())
      completions->push_back(CarryOut(std::move(submitted_.front())));
    return count;
  }
  void Wait(int64_t /*timeout_ns*/) override {}

 private:
  const std::shared_ptr<OpenFiles> files_;
  std::deque<Transfer> submitted_;
};

}  // namespace

std::unique_ptr<FileSystem::Queue> MakeCallerQueue(std::shared_ptr<OpenFiles> files) {
  return std::make_unique<CallerQueue>(std::move(files));
}

std::unique_ptr<FileSystem::Queue> MakeThreadQueue(std::shared_ptr<OpenFiles> files) {
  return std::make_unique<ThreadQueue>(std::move(files));
}

}  // namespace islands::runtime
