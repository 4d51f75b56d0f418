// Puts the records of an island's workers into one order, that of their LSNs: in it each page was changed
// (journal.h). In the log each worker's are in order, but one worker's come after the other's, by rounds of
// the logger.
//
// Lives follow each other, so what is held is one life's records since the oldest segment that counts.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "instance/log/record.h"

namespace islands::recovery {

class StreamMerge {
 public:
  using Visit = absl::FunctionRef<absl::Status(const log::StreamId&, const log::Record&)>;

  // The next record of the log. Those of earlier lives are visited when a later one begins. A status other
  // than OK from `visit` ends it.
  absl::Status Add(const log::StreamId& stream, const log::Record& record, Visit visit);
  // After the last one: visits the rest.
  absl::Status Finish(Visit visit);

 private:
  struct Kept {
    uint64_t lsn;
    std::span<const std::byte> body;  // in `blocks_`
    uint8_t kind;
  };
  struct Rest {  // what has not been visited of a stream; never nothing
    const log::StreamId* stream;
    std::span<const Kept> kept;
  };
  std::span<const std::byte> Keep(std::span<const std::byte> body);

  uint64_t life_ = 0;
  std::map<log::StreamId, std::vector<Kept>> streams_;
  std::vector<std::vector<std::byte>> blocks_;  // never moved: each has its whole capacity from the beginning
};

}  // namespace islands::recovery
