#include "partitioner/site_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace islands::partitioner {
namespace {

using uint128 = unsigned __int128;

// Where part `part` of `parts` begins, counted from the start of a whole of `size`.
uint64_t PartBegin(uint64_t part, uint64_t size, uint64_t parts) {
  return static_cast<uint64_t>(static_cast<uint128>(part) * size / parts);
}

// The part that holds `offset` < size: the largest p with floor(p * size / parts) <= offset, which is the
// largest p with p * size < (offset + 1) * parts. Division is in 64 bits when the product fits, since every
// routed operation comes here.
uint64_t PartOf(uint64_t offset, uint64_t size, uint64_t parts) {
  const uint128 product = (static_cast<uint128>(offset) + 1) * parts - 1;
  if (product >> 64 == 0) return static_cast<uint64_t>(product) / size;
  return static_cast<uint64_t>(product / size);
}

// end - begin as unsigned: exact even for [INT64_MIN, INT64_MAX).
uint64_t Distance(int64_t begin, int64_t end) {
  return static_cast<uint64_t>(end) - static_cast<uint64_t>(begin);
}

}  // namespace

absl::StatusOr<SiteMap> SiteMap::Create(uint32_t sites, uint32_t islands) {
  if (sites == 0 || islands == 0) {
    return absl::InvalidArgumentError(
        fmt::format("{} sites on {} islands: both must be at least 1", sites, islands));
  }
  if (sites < islands) {
    return absl::InvalidArgumentError(
        fmt::format("{} sites cannot be spread over {} islands: use at least {} sites or at most {} islands",
                    sites, islands, islands, sites));
  }
  return SiteMap(sites, islands);
}

uint32_t SiteMap::IslandOf(uint32_t site) const {
  assert(site < sites_);
  return static_cast<uint32_t>(PartOf(site, sites_, islands_));
}

SiteRun SiteMap::SitesOf(uint32_t island) const {
  assert(island < islands_);
  const uint64_t first = PartBegin(island, sites_, islands_);
  const uint64_t end = PartBegin(uint64_t{island} + 1, sites_, islands_);
  return SiteRun{static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)};
}

absl::StatusOr<RangePartition> RangePartition::Create(int64_t begin, int64_t end, uint32_t sites) {
  if (begin >= end) {
    return absl::InvalidArgumentError(fmt::format("range [{}, {}) is {}: its end must be above its begin",
                                                  begin, end, begin == end ? "empty" : "reversed"));
  }
  if (sites == 0) return absl::InvalidArgumentError("a range needs at least 1 site");
  return RangePartition(begin, end, sites);
}

uint32_t RangePartition::SiteWithin(int64_t value) const {
  return static_cast<uint32_t>(PartOf(Distance(begin_, value), Distance(begin_, end_), sites_));
}

absl::StatusOr<uint32_t> RangePartition::SiteOf(int64_t value) const {
  if (const std::optional<uint32_t> site = Find(value)) return *site;
  return absl::OutOfRangeError(
      fmt::format("first key component {} is outside the table's range [{}, {})", value, begin_, end_));
}

int64_t RangePartition::SiteBegin(uint32_t site) const {
  assert(site <= sites_);
  const uint64_t offset = PartBegin(site, Distance(begin_, end_), sites_);
  return static_cast<int64_t>(static_cast<uint64_t>(begin_) + offset);
}

uint32_t AutoSites(uint32_t cores) { return std::max<uint32_t>(24, cores); }

}  // namespace islands::partitioner
