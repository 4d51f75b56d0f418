#include "runtime/hardware_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <vector>

namespace islands::runtime {
namespace {

using testing::HasSubstr;

constexpr int32_t kThread = 1, kOther = 2;

// What a counter has said, one reading after the other: count, ns enabled, ns running.
using Readings = std::vector<std::array<uint64_t, 3>>;

int Recorded(const Readings& readings) {
  const int fd = memfd_create("recorded", MFD_CLOEXEC);
  for (const auto& reading : readings) EXPECT_EQ(write(fd, reading.data(), sizeof(reading)), 24);
  EXPECT_EQ(lseek(fd, 0, SEEK_SET), 0);
  return fd;
}

// Plays recorded counters back, by type and config; all others are not there.
class Machine {
 public:
  void Has(uint32_t type, uint64_t config, Readings readings) {
    readings_[{type, config}] = std::move(readings);
  }
  HardwareCounters::Open Open() {
    return [this](perf_event_attr* event, int32_t) {
      if (refuse_kernel && event->exclude_kernel == 0) return -EACCES;
      const auto found = readings_.find({event->type, event->config});
      return found == readings_.end() ? -ENOENT : Recorded(found->second);
    };
  }
  bool refuse_kernel = false;

 private:
  std::map<std::pair<uint32_t, uint64_t>, Readings> readings_;
};

std::optional<uint64_t> Of(const HardwareCounters::Counts& counts, HardwareEvent event) {
  return counts[static_cast<size_t>(event)];
}

TEST(HardwareCounters, Read_ScalesWhatHadToTakeTurns) {
  Machine machine;
  machine.Has(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, {{1000, 100, 100}, {3000, 300, 300}});
  machine.Has(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, {{500, 100, 50}, {900, 300, 150}});
  HardwareCounters counters(machine.Open());
  HardwareCounters::Counts counts = counters.Read(kThread);
  EXPECT_EQ(Of(counts, HardwareEvent::kCycles), 1000);
  EXPECT_EQ(Of(counts, HardwareEvent::kInstructions), 1000);
  counts = counters.Read(kThread);
  EXPECT_EQ(Of(counts, HardwareEvent::kCycles), 3000);
  EXPECT_EQ(Of(counts, HardwareEvent::kInstructions), 1800);
  EXPECT_EQ(counters.problem(), "");
}

// What is not counted is absent: an event that the processor lacks, and one that has not had its turn yet.
TEST(HardwareCounters, Read_SaysNothingOfWhatIsNotCounted) {
  Machine machine;
  machine.Has(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, {{0, 100, 0}, {70, 200, 100}});
  HardwareCounters counters(machine.Open());
  EXPECT_EQ(counters.Read(kThread), HardwareCounters::Counts{});
  EXPECT_EQ(Of(counters.Read(kThread), HardwareEvent::kCycles), 140);
  EXPECT_EQ(Of(counters.Read(kThread), HardwareEvent::kInstructions), std::nullopt);
}

// A worker's thread is another one after a load; and scaling is a guess that may be less than the last.
TEST(HardwareCounters, Read_NeverFalls) {
  Machine machine;
  machine.Has(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, {{100, 10, 10}, {100, 20, 19}, {104, 30, 30}});
  HardwareCounters counters(machine.Open());
  EXPECT_EQ(Of(counters.Read(kThread), HardwareEvent::kCycles), 100);
  EXPECT_EQ(Of(counters.Read(kThread), HardwareEvent::kCycles), 105);
  EXPECT_EQ(Of(counters.Read(kThread), HardwareEvent::kCycles), 105);
  EXPECT_EQ(Of(counters.Read(kOther), HardwareEvent::kCycles), 205);
}

TEST(HardwareCounters, Follow_DoesWithoutTheKernelWhereThatIsForbidden) {
  Machine machine;
  machine.Has(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, {{100, 10, 10}});
  machine.refuse_kernel = true;
  HardwareCounters counters(machine.Open());
  EXPECT_EQ(Of(counters.Read(kThread), HardwareEvent::kCycles), 100);
}

TEST(HardwareCounters, Problem_SaysWhyNothingIsCounted) {
  HardwareCounters nowhere([](perf_event_attr*, int32_t) { return -ENOENT; });
  nowhere.Read(kThread);
  EXPECT_THAT(nowhere.problem(), HasSubstr("no counters"));
  HardwareCounters forbidden([](perf_event_attr*, int32_t) { return -EACCES; });
  forbidden.Read(kThread);
  EXPECT_THAT(forbidden.problem(), HasSubstr("perf_event_paranoid"));
}

// Whatever this machine has: all that it counts goes on, or there is a reason.
TEST(HardwareCounters, OfThisMachine) {
  HardwareCounters counters;
  const HardwareCounters::Counts before = counters.Read(gettid());
  const HardwareCounters::Counts after = counters.Read(gettid());
  EXPECT_EQ(counters.problem().empty(), after != HardwareCounters::Counts{});
  for (size_t i = 0; i < kHardwareEvents; ++i) {
    EXPECT_GE(after[i], before[i]) << kHardwareEventNames[i];  // nothing is less than any number
  }
}

}  // namespace
}  // namespace islands::runtime
