// What the kernel says of the cores' time while a run measures: how long an island's threads had a core, how
// long they were ready but others had it, and how much a hypervisor took from the whole machine.
//
// Workers' own clocks (busy_fraction) cannot see any of it: a thread that is stopped counts as busy with what
// it was doing. And a worker that looks for messages without sleeping is idle by its own clock, but has its
// core: CPU utilisation as the papers measure it is the kernel's.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace islands::deploy {

// Of all threads of a process, since it began.
struct CoreTime {
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // ready, but without a core

  // What happened since `before`; nothing goes back where a thread has ended meanwhile.
  CoreTime Since(const CoreTime& before) const;
  void Add(const CoreTime& other);
};

// Nothing if there is no such process, or the kernel counts nothing (no CONFIG_SCHED_INFO).
std::optional<CoreTime> ReadCoreTime(int32_t pid, const std::string& proc = "/proc");

// Of all CPUs, in ticks.
struct MachineTime {
  uint64_t all = 0;
  uint64_t stolen = 0;  // by other virtual machines

  double StolenSince(const MachineTime& before) const;  // share of the time; 0 when none has passed
};

// The first line of /proc/stat; nothing if it is none.
std::optional<MachineTime> ParseMachineTime(std::string_view line);
std::optional<MachineTime> ReadMachineTime();

}  // namespace islands::deploy
