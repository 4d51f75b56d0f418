// What the records of an island's log must be besides whole: of lives that there were, each stream's in the
// order of their LSNs, and none of an epoch that EPOCH does not reach. Recovery puts streams into one order
// itself, and would not see it.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "instance/log/record.h"
#include "instance/log/ring.h"

namespace islands::verify {

class StreamCheck {
 public:
  // `life`: the last one of the island that was started. `reaches`: as EPOCH has it.
  StreamCheck(uint64_t life, uint64_t reaches) : life_(life), reaches_(reaches) {}

  // In the order of the log. DATA_LOSS: what is wrong with the record.
  absl::Status Take(const log::StreamId& stream, const log::Record& record);

 private:
  const uint64_t life_;
  const uint64_t reaches_;
  std::map<log::StreamId, uint64_t> last_;  // LSN
};

}  // namespace islands::verify
