#include "instance/log/ring_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "instance/log/lsn.h"
#include "instance/log/record.h"

namespace islands::log {
namespace {

// There are so many left for a logger that goes on above it: no box gets there.
constexpr uint64_t kMostEpoch = Lsn::kMostEpoch - (1 << 20);

}  // namespace

absl::StatusOr<uint64_t> HighestLsn(const Ring& ring, uint64_t tail) {
  uint64_t lsn = 0;
  for (size_t at = ring.head(), taken = 0; at < tail; at += taken) {
    const absl::StatusOr<Record> record = ParseRecord(ring.stream(), at, ring.Bytes(at, tail), &taken);
    if (!record.ok()) return record.status();
    if (Lsn::FromValue(record->lsn).epoch() > kMostEpoch)
      return absl::DataLossError(fmt::format("the record at offset {} names an epoch that cannot be", at));
    lsn = std::max(lsn, record->lsn);
  }
  return lsn;
}

}  // namespace islands::log
