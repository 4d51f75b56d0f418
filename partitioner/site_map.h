// Key ranges -> sites -> islands.
//
// A site is a contiguous range of every table's first key component; an island holds a contiguous run of
// sites, and runs differ by at most one (design, "words"). Both divisions use the same rule: part p of n over
// [begin, end) starts at begin + floor(p * (end - begin) / n), in 128-bit arithmetic.
//
// Thread safety: immutable after construction.
//
// Invariants:
//  1. Every value of a range belongs to exactly one site; values outside are an error of the caller's input.
//  2. SiteOf(x) == s exactly when SiteBegin(s) <= x < SiteBegin(s + 1).
//  3. IslandOf(s) == i exactly when s is in SitesOf(i).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace islands::partitioner {

struct SiteRun {
  uint32_t first = 0;
  uint32_t count = 0;
  friend auto operator<=>(const SiteRun&, const SiteRun&) = default;
};

// Which island holds which site.
class SiteMap {
 public:
  // Error when sites < islands or either is 0.
  static absl::StatusOr<SiteMap> Create(uint32_t sites, uint32_t islands);

  uint32_t sites() const { return sites_; }
  uint32_t islands() const { return islands_; }
  uint32_t IslandOf(uint32_t site) const;
  SiteRun SitesOf(uint32_t island) const;

 private:
  SiteMap(uint32_t sites, uint32_t islands) : sites_(sites), islands_(islands) {}
  uint32_t sites_;
  uint32_t islands_;
};

// A table's range [begin, end) of first components, cut into sites.
class RangePartition {
 public:
  // Error when the range is empty or reversed. With fewer values than sites some sites are empty: allowed.
  static absl::StatusOr<RangePartition> Create(int64_t begin, int64_t end, uint32_t sites);

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  uint32_t sites() const { return sites_; }
  // `value` in [begin, end); outside is an error that names the range.
  absl::StatusOr<uint32_t> SiteOf(int64_t value) const;
  // The same; empty outside. Every routed operation comes here.
  std::optional<uint32_t> Find(int64_t value) const {
    if (value < begin_ || value >= end_) return {};
    return sites_ == 1 ? 0 : SiteWithin(value);
  }
  // First value of `site`; site == sites gives end.
  int64_t SiteBegin(uint32_t site) const;

 private:
  uint32_t SiteWithin(int64_t value) const;

  RangePartition(int64_t begin, int64_t end, uint32_t sites) : begin_(begin), end_(end), sites_(sites) {}
  int64_t begin_;
  int64_t end_;
  uint32_t sites_;
};

// "auto" in the deployment file: max(24, cores).
uint32_t AutoSites(uint32_t cores);

}  // namespace islands::partitioner
