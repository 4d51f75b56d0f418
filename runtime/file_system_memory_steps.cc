#include "runtime/file_system_memory_steps.h"

#include <cerrno>

#include "fmt/format.h"

namespace islands::runtime {

DiskSteps::Step DiskSteps::Next(std::string_view action, std::string_view what) {
  const uint64_t step = count_++;
  if (step >= power_fails_at_) {
    return {.status = absl::UnavailableError(
                fmt::format("cannot {} {}: the simulated machine has lost power", action, what))};
  }
  const auto fault = faults_.find(step);
  if (fault == faults_.end()) return {};
  const auto failed = [&](int error) {
    return Step{.status = absl::ErrnoToStatus(error, fmt::format("cannot {} {}", action, what))};
  };
  switch (fault->second) {
    case DiskFault::kEio:
      return failed(EIO);
    case DiskFault::kEnospc:
      return failed(ENOSPC);
    case DiskFault::kLost:
      return {.lost = true};
    case DiskFault::kShort:
      return {.short_write = true};
  }
  return {};
}

void DiskSteps::Clear() {
  power_fails_at_ = UINT64_MAX;
  faults_.clear();
}

}  // namespace islands::runtime
