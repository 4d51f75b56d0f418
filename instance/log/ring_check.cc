#include "instance/log/ring_check.h"

#include <algorithm>

#include "instance/log/record.h"

namespace islands::log {

absl::StatusOr<uint64_t> HighestLsn(const Ring& ring, uint64_t tail) {
  uint64_t lsn = 0;
  for (size_t at = ring.head(), taken = 0; at < tail; at += taken) {
    const absl::StatusOr<Record> record = ParseRecord(ring.stream(), at, ring.Bytes(at, tail), &taken);
    if (!record.ok()) return record.status();
    lsn = std::max(lsn, record->lsn);
  }
  return lsn;
}

}  // namespace islands::log
