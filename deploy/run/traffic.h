// What memory controllers and the links between sockets have carried while a run measured: the machine's
// uncore counters (perf_event_open on the devices that sysfs lists), of whoever caused it.
//
//   memory: data read and written by the memory controllers, as sysfs describes cas_count_read and
//           cas_count_write of uncore_imc* (Intel), with their unit
//   links:  data that sockets have sent to others: TxL_FLITS.ALL_DATA of uncore_upi* (Intel, Skylake-SP and
//           later): 9 of its flits carry 64 bytes
//
// Their ratio is what section 7.2 of the paper looks at ("QPI/IMC"). Other processors have no such device, or
// one that says nothing of what it counts: what is not known is absent, with the reason, never 0. Virtual
// machines have none.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

struct perf_event_attr;

namespace islands::deploy {

// One counter of one device, counted on one CPU of each socket.
struct UncoreEvent {
  enum class Carrier : uint8_t { kMemory, kLink };
  Carrier carrier = Carrier::kMemory;
  std::string name;  // "uncore_imc_0/cas_count_read/"
  uint32_t type = 0;
  uint64_t config = 0;
  double bytes_each = 0;
  std::vector<uint32_t> cpus;
};

// What the devices below `sysfs` (/sys/bus/event_source/devices) can count; a device that cannot be
// understood is left out.
std::vector<UncoreEvent> FindUncoreEvents(const std::string& sysfs);

// The value of perf_event_attr::config for "event=0x04,umask=0x03", by a device's format files.
// INVALID_ARGUMENT: it names what they do not describe, or that lies outside of config.
absl::StatusOr<uint64_t> ConfigOf(std::string_view terms, const std::string& device);

class Traffic {
 public:
  struct Bytes {
    std::optional<double> memory;
    std::optional<double> links;

    Bytes Since(const Bytes& before) const;
  };
  // A descriptor from which three numbers are read: count, ns enabled, ns running; or -errno.
  using Open = std::function<int(perf_event_attr* event, uint32_t cpu)>;

  // Counts from now on.
  explicit Traffic(const std::string& sysfs = "/sys/bus/event_source/devices", const Open& open = OpenOnCpu);

  // Since the beginning.
  Bytes Read() const;
  // Why one of them, or both, are not known; empty: both are.
  const std::string& problem() const { return problem_; }

  static int OpenOnCpu(perf_event_attr* event, uint32_t cpu);

 private:
  struct Counter {
    UncoreEvent::Carrier carrier;
    double bytes_each;
    runtime::UniqueFd descriptor;
  };
  std::vector<Counter> counters_;
  bool memory_ = false;
  bool links_ = false;
  std::string problem_;
};

}  // namespace islands::deploy
