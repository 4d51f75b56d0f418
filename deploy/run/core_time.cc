#include "deploy/run/core_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace islands::deploy {

CoreTime CoreTime::Since(const CoreTime& before) const {
  return {.ran_ns = ran_ns - std::min(ran_ns, before.ran_ns),
          .waited_ns = waited_ns - std::min(waited_ns, before.waited_ns)};
}

void CoreTime::Add(const CoreTime& other) {
  ran_ns += other.ran_ns;
  waited_ns += other.waited_ns;
}

std::optional<CoreTime> ReadCoreTime(int32_t pid, const std::string& proc) {
  CoreTime sum;
  bool any = false;
  std::error_code error;
  std::filesystem::directory_iterator threads(fmt::format("{}/{}/task", proc, pid), error);
  for (; !error && threads != std::filesystem::directory_iterator(); threads.increment(error)) {
    std::ifstream file(threads->path() / "schedstat");
    CoreTime of_thread;
    if (file >> of_thread.ran_ns >> of_thread.waited_ns) {  // else it has just ended
      sum.Add(of_thread);
      any |= of_thread.ran_ns > 0;
    }
  }
  return any ? std::optional(sum) : std::nullopt;
}

double MachineTime::StolenSince(const MachineTime& before) const {
  if (all <= before.all || stolen < before.stolen) return 0;
  return static_cast<double>(stolen - before.stolen) / static_cast<double>(all - before.all);
}

std::optional<MachineTime> ParseMachineTime(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string name;
  words >> name;
  std::vector<uint64_t> ticks;  // user nice system idle iowait irq softirq steal; guests are in user and nice
  for (uint64_t value = 0; ticks.size() < 8 && words >> value;) ticks.push_back(value);
  if (name != "cpu" || ticks.size() < 8) return std::nullopt;
  MachineTime time{.stolen = ticks[7]};
  for (const uint64_t value : ticks) time.all += value;
  return time;
}

std::optional<MachineTime> ReadMachineTime() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  return ParseMachineTime(line);
}

}  // namespace islands::deploy
