#include "runtime/hardware_counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace islands::runtime {
namespace {

constexpr uint64_t kMissesOfNode =
    PERF_COUNT_HW_CACHE_NODE | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16;

struct Kind {
  uint32_t type;
  uint64_t config;
};
constexpr std::array<Kind, kHardwareEvents> kKinds = {
    {{PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
     {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
     {PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
     {PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
     {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
     {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
     {PERF_TYPE_HW_CACHE, kMissesOfNode}}};

}  // namespace

int HardwareCounters::OpenOfThread(perf_event_attr* event, int32_t tid) {
  const long opened =
      syscall(SYS_perf_event_open, event, tid, /*cpu=*/-1, /*group_fd=*/-1, PERF_FLAG_FD_CLOEXEC);
  return opened < 0 ? -errno : static_cast<int>(opened);
}

// Absent while the kernel has not let the event have a turn.
std::optional<uint64_t> HardwareCounters::ReadOne(int descriptor) {
  struct {
    uint64_t count, enabled_ns, running_ns;
  } now{};
  const ssize_t got = Uninterrupted([&] { return read(descriptor, &now, sizeof(now)); });
  if (got != sizeof(now) || now.running_ns == 0) return std::nullopt;
  if (now.running_ns >= now.enabled_ns) return now.count;
  return static_cast<uint64_t>(static_cast<double>(now.count) * static_cast<double>(now.enabled_ns) /
                               static_cast<double>(now.running_ns));
}

void HardwareCounters::Follow(int32_t tid) {
  tid_ = tid;
  error_ = 0;
  for (size_t i = 0; i < kHardwareEvents; ++i) {
    Event& event = events_[i];
    event.before = event.last;
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    attributes.type = kKinds[i].type;
    attributes.config = kKinds[i].config;
    attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    int opened = open_(&attributes, tid);
    if (opened == -EACCES ||
        opened == -EPERM) {  // what the kernel does for the thread may be nobody's business
      attributes.exclude_kernel = attributes.exclude_hv = 1;
      opened = open_(&attributes, tid);
    }
    if (opened < 0 && error_ == 0) error_ = -opened;
    event.descriptor.Reset(std::max(opened, -1));
  }
}

HardwareCounters::Counts HardwareCounters::Read(int32_t tid) {
  const MutexLock lock(mutex_, ISLANDS_LATCH("hardware.events"));
  if (tid != tid_) Follow(tid);
  Counts counts;
  for (size_t i = 0; i < kHardwareEvents; ++i) {
    Event& event = events_[i];
    const std::optional<uint64_t> now =
        event.descriptor ? ReadOne(event.descriptor.get()) : std::optional<uint64_t>();
    if (now) {
      event.last = std::max(event.last, event.before + *now);
      event.known = true;
    }
    if (event.known) counts[i] = event.last;
  }
  return counts;
}

std::string HardwareCounters::problem() const {
  const MutexLock lock(mutex_, ISLANDS_LATCH("hardware.events"));
  const bool any = std::any_of(events_.begin(), events_.end(),
                               [](const Event& event) { return static_cast<bool>(event.descriptor); });
  if (any || error_ == 0) return "";
  const bool forbidden = error_ == EACCES || error_ == EPERM;
  return fmt::format(
      "{}{}", std::strerror(error_),
      forbidden ? ": the kernel does not let this user count; sysctl kernel.perf_event_paranoid=2 does"
                : ": this machine has no counters, or a virtual machine does not pass them on");
}

}  // namespace islands::runtime
