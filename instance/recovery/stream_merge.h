// Puts the records of an island's workers into one order, that of their LSNs: in it each page was changed
// (journal.h). In the log each worker's are in order, but one worker's come after the other's, by rounds of
// the logger. Frames say up to which epoch nothing comes any more; so what is held is a few rounds' records,
// however long the log is.
//
// Thread safety: none.
//
// Invariant: 1. held_bytes() is at most kLeastHeld more than twice what the frames had not settled when it
// was visited last; or the log does not settle.
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

  // From so many bytes on what can be visited is.
  static constexpr size_t kLeastHeld = 128 << 10;  // stays in a cache

  // The next record of the log. Those of earlier lives are visited when a later one begins at the latest. A
  // status other than OK from `visit` ends it.
  absl::Status Add(const log::StreamId& stream, const log::Record& record, Visit visit);
  // After the last one: visits the rest.
  absl::Status Finish(Visit visit);
  size_t held_bytes() const { return held_bytes_; }

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
  using Streams = std::map<log::StreamId, std::vector<Kept>>;
  void Keep(std::vector<Kept>* stream, uint64_t lsn, uint8_t kind, std::span<const std::byte> body);
  // Those of epochs up to this one; the others are kept.
  absl::Status VisitUpTo(uint64_t epoch, Visit visit);

  uint64_t life_ = 0;
  uint64_t settled_ = 0;  // an epoch, of the frames so far
  uint64_t visited_ = 0;  // the same, when records were visited last
  size_t held_bytes_ = 0;
  size_t enough_bytes_ = kLeastHeld;  // then records are visited
  Streams streams_;
  std::vector<std::vector<std::byte>> blocks_;  // never moved: each has its whole capacity from the beginning
};

}  // namespace islands::recovery
