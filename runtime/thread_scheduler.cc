#include <algorithm>

#include "runtime/scheduler.h"

namespace islands::runtime {
namespace {

constexpr int64_t kLongestSleepNs = 100 * kNsPerMs;  // bounds the delay of Stop and of coarse timers

class ThreadScheduler final : public Scheduler {
 public:
  ThreadScheduler(const Clock& clock, ThreadSchedulerOptions options) : clock_(clock), options_(options) {}
  ~ThreadScheduler() override { Stop(); }

  void Start(std::vector<Runnable*> workers) override {
    workers_ = std::move(workers);
    stopping_.store(false);
    for (Runnable* worker : workers_) threads_.emplace_back(&ThreadScheduler::Loop, this, worker);
  }

  void Stop() override {
    stopping_.store(true);
    for (Runnable* worker : workers_) worker->Wake();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    workers_.clear();
  }

 private:
  // Time is read only while there is no work, once per round.
  void Loop(Runnable* worker) {
    worker->OnThreadStart();
    while (!stopping_.load(std::memory_order_relaxed)) {
      if (!worker->RunOnce()) WaitForWork(worker);
    }
  }

  // Spins, then sleeps; returns when there was work or the scheduler stops.
  void WaitForWork(Runnable* worker) {
    int64_t now_ns = clock_.NowNs();
    const int64_t spin_until_ns = now_ns + options_.spin_ns;
    while (!stopping_.load(std::memory_order_relaxed)) {
      if (now_ns >= spin_until_ns) {
        const int64_t until_ns = std::min(worker->NextDeadlineNs(), now_ns + kLongestSleepNs);
        worker->Sleep(std::max<int64_t>(0, until_ns - now_ns));
      }
      if (worker->RunOnce()) return;
      now_ns = clock_.NowNs();
    }
  }

  const Clock& clock_;
  const ThreadSchedulerOptions options_;
  std::vector<Runnable*> workers_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_{false};
};

}  // namespace

std::unique_ptr<Scheduler> MakeThreadScheduler(const Clock& clock, ThreadSchedulerOptions options) {
  return std::make_unique<ThreadScheduler>(clock, options);
}

}  // namespace islands::runtime
