// What the processor counts of one thread: cycles, instructions, stalls, cache misses (perf_event_open). It
// costs the thread nothing.
//
// Many machines do not count, or do not let us see it: virtual machines, containers, kernels that are told
// so (kernel.perf_event_paranoid). Each event that cannot be had is absent, never 0, and there is a reason.
// Where the processor has fewer counters than events the kernel lets them take turns; what is read is
// scaled to the whole time, as by `perf stat`.
//
// Counting begins when somebody asks: what nobody looks at is not counted.
//
// Thread safety: all of it, by any thread.
//
// Invariant: what Read gives of an event never falls, whatever threads are followed one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/descriptor.h"
#include "runtime/mutex.h"

struct perf_event_attr;

namespace islands::runtime {

enum class HardwareEvent : uint8_t {
  kCycles = 0,
  kInstructions = 1,
  kStalledFrontend = 2,  // cycles without anything to decode
  kStalledBackend = 3,   // cycles that waited for memory or units
  kCacheReferences = 4,  // of the last-level cache, as the kernel's generic event has it
  kCacheMisses = 5,
  kNodeMisses = 6,  // loads that another NUMA node's memory has answered
};
inline constexpr size_t kHardwareEvents = 7;
inline constexpr std::array<const char*, kHardwareEvents> kHardwareEventNames = {
    "cycles",           "instructions", "stalled_frontend", "stalled_backend",
    "cache_references", "cache_misses", "node_misses"};

class HardwareCounters {
 public:
  using Counts = std::array<std::optional<uint64_t>, kHardwareEvents>;
  // A descriptor from which three numbers are read: count, ns enabled, ns running; or -errno.
  using Open = std::function<int(perf_event_attr* event, int32_t tid)>;

  explicit HardwareCounters(Open open = OpenOfThread) : open_(std::move(open)) {}  // the kernel's

  // Of the thread `tid` of this process, which is counted from now on, and of those before it. 0: it has none
  // yet.
  Counts Read(int32_t tid);
  // Why nothing is counted, for people; empty: something is, or nobody has asked.
  std::string problem() const;

  static int OpenOfThread(perf_event_attr* event, int32_t tid);

 private:
  struct Event {
    UniqueFd descriptor;
    uint64_t before = 0;  // of threads that were followed before
    bool known = false;   // has been counted at some time
    uint64_t last = 0;    // scaling may be a little less than it was
  };
  static std::optional<uint64_t> ReadOne(int descriptor);
  void Follow(int32_t tid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Open open_;
  mutable Mutex mutex_;
  std::array<Event, kHardwareEvents> events_ ABSL_GUARDED_BY(mutex_);
  int32_t tid_ ABSL_GUARDED_BY(mutex_) = 0;
  int error_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace islands::runtime
