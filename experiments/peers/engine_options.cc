#include "experiments/peers/engine_options.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace islands::experiments {

const std::map<std::string, PeerDurability>& Durabilities() {
  static const std::map<std::string, PeerDurability> names = {
      {"none", PeerDurability::kNone}, {"lazy", PeerDurability::kLazy}, {"sync", PeerDurability::kSync}};
  return names;
}

const std::string& NameOf(PeerDurability durability) {
  return std::ranges::find_if(Durabilities(), [&](const auto& named) { return named.second == durability; })
      ->first;
}

void DropRepeated(std::vector<std::string>* names) {
  std::vector<std::string> once;
  for (const std::string& name : *names) {
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  }
  *names = once;
}

absl::Status RunOnCpu(int cpu) {
  if (cpu < 0) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--cpu {}: {}; choose a CPU that `islands machine` shows", cpu, std::strerror(errno)));
}

}  // namespace islands::experiments
