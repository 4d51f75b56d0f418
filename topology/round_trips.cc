#include "topology/round_trips.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <set>
#include <thread>

#include "fmt/format.h"
#include "runtime/check.h"
#include "runtime/shared_memory.h"
#include "topology/binding.h"

namespace islands::topology {
namespace {

constexpr size_t kPageOfLine = 4096;
constexpr uint32_t kSpinsPerLook = 4096;  // at the clock and at `stop`

// One pair in one pass. `Run` is the first core's thread, which makes the second's.
class Pair {
 public:
  Pair(uint32_t first, uint32_t second, const RoundTripOptions& options)
      : first_(first), second_(second), options_(options) {}

  absl::StatusOr<uint32_t> Measure() {
    std::thread thread([this] { Run(); });
    thread.join();
    for (const absl::Status& status : {status_, answerer_status_}) {
      if (!status.ok()) return status;
    }
    if (batches_ns_.size() < options_.batches) {
      return absl::DeadlineExceededError(
          fmt::format("CPUs {} and {}: {} of {} batches of round trips in {} s: something else keeps them "
                      "busy, expected both to be "
                      "nearly idle",
                      first_, second_, batches_ns_.size(), options_.batches,
                      options_.pair_limit_ns / runtime::kNsPerSecond));
    }
    const auto middle = batches_ns_.begin() + batches_ns_.size() / 2;
    std::nth_element(batches_ns_.begin(), middle, batches_ns_.end());
    const int64_t ns = (*middle + options_.trips_per_batch / 2) / options_.trips_per_batch;
    return static_cast<uint32_t>(std::clamp<int64_t>(ns, 1, UINT32_MAX));
  }

 private:
  using Line = std::atomic_ref<uint64_t>;

  void Run() {
    status_ = BindThreadToCpu(first_);
    if (!status_.ok()) return;
    void* page = mmap(nullptr, kPageOfLine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
      status_ = absl::ErrnoToStatus(errno, "memory for a cache line");
      return;
    }
    const runtime::Mapping mapping(page, kPageOfLine);
    Line line(*static_cast<uint64_t*>(page));
    line.store(0);  // by this thread first: so the page comes from this core's node
    std::thread answerer([this, line] { Answer(line); });
    Ask(line);
    stop_.store(true);
    answerer.join();
  }

  void Ask(Line line) {
    const int64_t start_ns = clock_.NowNs();
    const int64_t end_ns = start_ns + options_.pair_limit_ns;
    uint64_t value = 0;
    while (batches_ns_.size() < options_.batches) {
      const int64_t from_ns = clock_.NowNs();
      for (uint32_t trip = 0; trip < options_.trips_per_batch; ++trip, value += 2) {
        line.store(value + 1, std::memory_order_release);
        if (!Await(line, value + 2, end_ns)) return;
      }
      if (from_ns - start_ns >= options_.warm_up_ns) batches_ns_.push_back(clock_.NowNs() - from_ns);
    }
  }

  void Answer(Line line) {
    answerer_status_ = BindThreadToCpu(second_);
    if (!answerer_status_.ok()) stop_.store(true);
    for (uint64_t value = 1; Await(line, value, INT64_MAX); value += 2) {
      line.store(value + 1, std::memory_order_release);
    }
  }

  // False: told to stop, or too late.
  bool Await(Line line, uint64_t value, int64_t end_ns) const {
    for (uint32_t spins = 1; line.load(std::memory_order_acquire) != value; ++spins) {
      if (spins % kSpinsPerLook == 0 && (stop_.load(std::memory_order_relaxed) || clock_.NowNs() >= end_ns))
        return false;
    }
    return true;
  }

  // Constant.
  const uint32_t first_, second_;
  const RoundTripOptions& options_;
  const runtime::MonotonicClock clock_;
  // The first core's thread's, then the caller's.
  absl::Status status_;
  std::vector<int64_t> batches_ns_;
  // The second core's thread's, then the caller's.
  absl::Status answerer_status_;
  // Of both; set once.
  std::atomic<bool> stop_ = false;
};

}  // namespace

absl::StatusOr<RoundTrips> MeasureRoundTrips(std::vector<uint32_t> cpus, const RoundTripOptions& options) {
  ISLANDS_CHECK(std::set(cpus.begin(), cpus.end()).size() == cpus.size());
  ISLANDS_CHECK(options.passes > 0 && options.batches > 0 && options.trips_per_batch > 0);
  const size_t size = cpus.size();
  const size_t all = options.passes * size * (size - std::min<size_t>(size, 1)) / 2;
  size_t done = 0;
  const auto report = [&] {
    if (options.progress) options.progress(done, all);
  };
  RoundTrips trips{.cpus = std::move(cpus), .ns = RoundTripMatrix(size, std::vector<uint32_t>(size, 0))};
  for (uint32_t pass = 0; pass < options.passes; ++pass) {
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = i + 1; j < size; ++j, ++done) {
        report();
        const absl::StatusOr<uint32_t> ns = Pair(trips.cpus[i], trips.cpus[j], options).Measure();
        if (!ns.ok()) return ns.status();
        const uint32_t least = pass == 0 ? *ns : std::min(*ns, trips.ns[i][j]);
        trips.ns[i][j] = trips.ns[j][i] = least;
      }
    }
  }
  report();
  return trips;
}

}  // namespace islands::topology
