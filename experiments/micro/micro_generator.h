// Makes up the microbenchmark's transactions: which rows (see micro.h for the distribution).
//
// With drift the law moves on by so many rows a second, and begins anew where it meets the end of the table,
// or of the site that it is the law of. All generators of a run read the same clock and count from the same
// moment, so they agree where the hot rows are.
//
// Thread safety: none; a generator belongs to one worker.
//
// Invariants:
//  1. After construction Next allocates nothing, given a request of MakeRequest.
//  2. The chance of each set of rows is that of drawing rows one after the other and skipping those drawn
//     before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "experiments/micro/key_set.h"
#include "experiments/micro/micro.h"
#include "experiments/micro/zipf_rows.h"
#include "partitioner/site_map.h"
#include "runtime/clock.h"

namespace islands::experiments {

// INVALID_ARGUMENT where a transaction's distinct rows are not there: a local one takes all of them from one
// site, a multisite one its first.
absl::Status CheckRowsFit(const MicroOptions& options, const partitioner::RangePartition& partition,
                          uint32_t sites);
// The same where a local one takes them from an island: this one.
absl::Status CheckRowsFit(const MicroOptions& options, const partitioner::RangePartition& partition,
                          partitioner::SiteRun island);

class MicroGenerator final : public instance::Generator {
 public:
  // `options` have passed CheckRowsFit. `clock`: of the run, which has begun at `began_ns`; null: it stands
  // still.
  MicroGenerator(const MicroOptions& options, const partitioner::RangePartition& partition,
                 partitioner::SiteRun sites, const runtime::Clock* clock = nullptr, int64_t began_ns = 0);

  std::unique_ptr<instance::Request> MakeRequest() override;
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override;

 private:
  // Rows with keys [begin, begin + rows), and the law by which they are drawn, as it was at `shift`.
  struct Range {
    uint64_t begin;
    uint64_t rows;
    uint64_t shift;
    ZipfRows law;
  };

  // Keys [begin, end), which are not none.
  Range RangeOf(int64_t begin, int64_t end) const;
  ZipfRows LawOf(uint64_t begin, uint64_t rows) const;
  const ZipfRows& LawNow(Range& range) const;
  // Where the hot rows are by now.
  void Drift();
  uint64_t DrawKey(runtime::Random& random, Range& range) const;

  void Take(uint64_t key, MicroRequest& request);
  void TakeUniform(runtime::Random& random, const Range& range, size_t up_to, MicroRequest& request);
  void TakeZipf(runtime::Random& random, Range& range, size_t up_to, MicroRequest& request);
  // Fills the request up to so many rows from `range`.
  void Fill(runtime::Random& random, Range& range, size_t up_to, MicroRequest& request);
  // Likewise, up to N, from as many sites as it is to touch: the one of its first row and others.
  void FillSites(runtime::Random& random, uint32_t home, MicroRequest& request);

  const MicroOptions options_;
  const partitioner::RangePartition partition_;
  const runtime::Clock* const clock_;
  const int64_t began_ns_;
  uint64_t shift_ = 0;  // of the law, in rows
  Range all_;
  Range own_;                 // this island's
  std::vector<Range> sites_;  // likewise; of all islands where sites are counted
  uint32_t first_site_;       // of them
  const partitioner::SiteRun home_;
  std::vector<uint32_t> order_;  // of all sites, where they are counted
  KeySet taken_;
};

}  // namespace islands::experiments
