#include "experiments/counters/measure.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "absl/status/status.h"
#include "experiments/counters/spin_lock.h"
#include "topology/binding.h"

namespace islands::experiments {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kIntervals = 10;
constexpr size_t kLineBytes = 64;

enum class Phase { kStarting, kWarmup, kMeasure, kStop };

template <typename Lock>
struct alignas(kLineBytes) Counter {
  Lock lock;
  std::atomic<uint64_t> value{
      0};  // changed under `lock` only; atomic for the main thread that watches it grow
};
static_assert(sizeof(Counter<SpinLock>) == kLineBytes && sizeof(Counter<std::mutex>) == kLineBytes);

// Sleeps that SIGINT and SIGTERM end.
class SignalSleep {
 public:
  SignalSleep() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~SignalSleep() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalSleep(const SignalSleep&) = delete;
  SignalSleep& operator=(const SignalSleep&) = delete;

  // False: a signal came.
  bool Until(Clock::time_point end) {
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - now).count();
      const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
      if (sigtimedwait(&signals_, nullptr, &timeout) > 0) return false;
    }
    return true;
  }

 private:
  sigset_t signals_, before_;
};

// One page per counter, bound to the counter's node before it is touched.
class CounterMemory {
 public:
  CounterMemory(size_t counters, size_t page_bytes) : bytes_(counters * page_bytes), page_bytes_(page_bytes) {
    address_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~CounterMemory() {
    if (ok()) munmap(address_, bytes_);
  }
  CounterMemory(const CounterMemory&) = delete;
  CounterMemory& operator=(const CounterMemory&) = delete;
  bool ok() const { return address_ != MAP_FAILED; }
  size_t page_bytes() const { return page_bytes_; }
  void* page(size_t i) const { return static_cast<std::byte*>(address_) + i * page_bytes_; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
  size_t page_bytes_ = 0;
};

struct alignas(kLineBytes) ThreadCount {
  uint64_t warmup = 0;
  uint64_t measured = 0;
  absl::Status bound;
};

template <typename Lock>
uint64_t CountDuring(Phase phase, const std::atomic<Phase>& now, Counter<Lock>& counter) {
  uint64_t count = 0;
  for (; now.load(std::memory_order_relaxed) == phase; ++count) {
    std::lock_guard lock(counter.lock);
    counter.value.store(counter.value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  return count;
}

template <typename Lock>
class Measurement {
 public:
  Measurement(const CountersPlan& plan, const CountersRun& run)
      : plan_(plan),
        run_(run),
        memory_(plan.counter_nodes.size(), static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        counts_(plan.threads.size()),
        ready_(static_cast<std::ptrdiff_t>(plan.threads.size())) {}

  absl::StatusOr<CountersResult> Run() {
    if (!memory_.ok()) return absl::ResourceExhaustedError("no memory for the counters");
    MakeCounters();
    SignalSleep sleep;
    std::vector<std::jthread> threads;
    try {
      for (uint32_t t = 0; t < plan_.threads.size(); ++t) threads.emplace_back([this, t] { RunThread(t); });
    } catch (const std::system_error& error) {
      Enter(Phase::kStop);
      return absl::ResourceExhaustedError(
          fmt::format("thread {} of {} could not be started: {}; ask for fewer --threads", threads.size() + 1,
                      plan_.threads.size(), error.what()));
    }
    ready_.wait();
    const bool finished = Watch(sleep);
    Enter(Phase::kStop);
    threads.clear();  // joins
    if (!finished) return absl::CancelledError("interrupted");
    return Finish();
  }

 private:
  void MakeCounters() {
    for (size_t c = 0; c < plan_.counter_nodes.size(); ++c) {
      if (const auto node = plan_.counter_nodes[c]) {
        const absl::Status bound = topology::BindMemory(memory_.page(c), memory_.page_bytes(), {&*node, 1},
                                                        topology::MemoryPolicy::kBind);
        if (!bound.ok()) result_.unbound.push_back(std::string(bound.message()));
      }
      counters_.push_back(std::construct_at(static_cast<Counter<Lock>*>(memory_.page(c))));
    }
  }

  void Enter(Phase phase) {
    phase_.store(phase);
    phase_.notify_all();
  }

  void RunThread(uint32_t t) {
    ThreadCount& count = counts_[t];
    count.bound = topology::BindThreadToCpus(plan_.threads[t].cpus);
    Counter<Lock>& counter = *counters_[plan_.threads[t].counter];
    ready_.count_down();
    phase_.wait(Phase::kStarting);
    count.warmup = CountDuring(Phase::kWarmup, phase_, counter);
    count.measured = CountDuring(Phase::kMeasure, phase_, counter);
  }

  uint64_t Sum() const {
    uint64_t sum = 0;
    for (const Counter<Lock>* counter : counters_) sum += counter->value.load(std::memory_order_relaxed);
    return sum;
  }

  // Lets the threads run for warm-up and measurement; false if a signal came.
  bool Watch(SignalSleep& sleep) {
    const auto Seconds = [](double s) {
      return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
    };
    Enter(Phase::kWarmup);
    if (!sleep.Until(Clock::now() + Seconds(run_.warmup_s))) return false;
    const auto begin = Clock::now();
    Enter(Phase::kMeasure);
    auto last = begin;
    uint64_t last_sum = Sum();
    for (int i = 1; i <= kIntervals; ++i) {
      if (!sleep.Until(begin + Seconds(run_.seconds * i / kIntervals))) return false;
      const auto now = Clock::now();
      const uint64_t sum = Sum();
      result_.interval_rates.push_back(static_cast<double>(sum - last_sum) /
                                       std::chrono::duration<double>(now - last).count());
      last = now;
      last_sum = sum;
    }
    result_.seconds = std::chrono::duration<double>(last - begin).count();
    return true;
  }

  absl::StatusOr<CountersResult> Finish() {
    std::vector<uint64_t> expected(counters_.size(), 0);
    for (uint32_t t = 0; t < counts_.size(); ++t) {
      expected[plan_.threads[t].counter] += counts_[t].warmup + counts_[t].measured;
      result_.per_thread.push_back(counts_[t].measured);
      if (!counts_[t].bound.ok()) result_.unbound.push_back(std::string(counts_[t].bound.message()));
    }
    for (size_t c = 0; c < counters_.size(); ++c) {
      const uint64_t value = counters_[c]->value.load();
      if (value != expected[c]) {
        return absl::DataLossError(
            fmt::format("sum check failed: counter {} is {}, its threads counted {}", c, value, expected[c]));
      }
    }
    return std::move(result_);
  }

  const CountersPlan& plan_;
  const CountersRun& run_;
  CounterMemory memory_;
  std::vector<Counter<Lock>*> counters_;  // in memory_, which unmaps them
  std::vector<ThreadCount> counts_;       // each written by its thread, read after the join
  std::latch ready_;
  alignas(kLineBytes) std::atomic<Phase> phase_{Phase::kStarting};
  alignas(kLineBytes) CountersResult result_;
};

}  // namespace

double CountersResult::IncrementsPerSecond() const {
  return static_cast<double>(std::accumulate(per_thread.begin(), per_thread.end(), uint64_t{0})) / seconds;
}

double CountersResult::ThreadMinPerSecond() const {
  return static_cast<double>(*std::min_element(per_thread.begin(), per_thread.end())) / seconds;
}

double CountersResult::ThreadMaxPerSecond() const {
  return static_cast<double>(*std::max_element(per_thread.begin(), per_thread.end())) / seconds;
}

double CountersResult::StdDevPercent() const {
  if (interval_rates.size() < 2) return 0;
  const auto count = static_cast<double>(interval_rates.size());
  const double mean = std::accumulate(interval_rates.begin(), interval_rates.end(), 0.0) / count;
  double squares = 0;
  for (double rate : interval_rates) squares += (rate - mean) * (rate - mean);
  return mean == 0 ? 0 : 100 * std::sqrt(squares / (count - 1)) / mean;
}

absl::StatusOr<CountersResult> MeasureCounters(const CountersPlan& plan, const CountersRun& run) {
  if (run.lock == CounterLock::kMutex) return Measurement<std::mutex>(plan, run).Run();
  return Measurement<SpinLock>(plan, run).Run();
}

}  // namespace islands::experiments
