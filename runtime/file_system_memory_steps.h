// The steps of a simulated disk - whatever changes it - and what is planned to go wrong with them.
//
// Thread safety: none; MemoryFileSystem guards it.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "absl/status/status.h"

namespace islands::runtime {

enum class DiskFault : uint8_t {
  kEio,     // the step fails with an input/output error and changes nothing
  kEnospc,  // the same, with no space left
  kLost,    // the step reports success, and shows until power is lost, but no sync makes it durable; a lost
            // sync makes nothing durable
  kShort,   // of a write: a part is done by this step, the rest by one more. Others are not touched by it
};

class DiskSteps {
 public:
  struct Step {
    absl::Status status;
    bool lost = false;
    bool short_write = false;
  };

  // Counts a step and says how it goes. `action` and `what` are for its error.
  Step Next(std::string_view action, std::string_view what);

  void FailAfter(uint64_t steps) { power_fails_at_ = count_ + steps; }
  void Inject(uint64_t steps, DiskFault fault) { faults_[count_ + steps] = fault; }
  // Forgets what is planned.
  void Clear();

  uint64_t count() const { return count_; }
  // A step has failed for want of power.
  bool without_power() const { return count_ > power_fails_at_; }

 private:
  uint64_t count_ = 0;
  uint64_t power_fails_at_ = UINT64_MAX;  // the first step that fails
  std::map<uint64_t, DiskFault> faults_;  // by step
};

}  // namespace islands::runtime
