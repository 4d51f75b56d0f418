// Makes up the microbenchmark's transactions: which rows (see micro.h for the distribution).
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
#include "experiments/zipf.h"
#include "partitioner/site_map.h"

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
  // `options` have passed CheckRowsFit.
  MicroGenerator(const MicroOptions& options, const partitioner::RangePartition& partition,
                 partitioner::SiteRun sites);

  std::unique_ptr<instance::Request> MakeRequest() override;
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override;

 private:
  // Rows with keys [begin, begin + rows), and the law by which they are drawn: the first one has rank
  // `first`.
  struct Range {
    Range(uint64_t begin_key, uint64_t row_count, uint64_t first, double s)
        : begin(begin_key), rows(row_count), first(first), zipf(first, first + row_count - 1, s) {}
    uint64_t begin;
    uint64_t rows;
    uint64_t first;
    Zipf zipf;
  };

  // Keys [begin, end), which are not none.
  Range RangeOf(int64_t begin, int64_t end) const;
  uint64_t DrawKey(runtime::Random& random, const Range& range) const;

  void Take(uint64_t key, MicroRequest& request);
  void TakeUniform(runtime::Random& random, const Range& range, MicroRequest& request);
  void TakeZipf(runtime::Random& random, const Range& range, MicroRequest& request);
  // Fills the request up to N rows from `range`.
  void Fill(runtime::Random& random, const Range& range, MicroRequest& request);

  const MicroOptions options_;
  const partitioner::RangePartition partition_;
  const Range all_;
  const Range own_;           // this island's
  std::vector<Range> sites_;  // likewise
  uint32_t first_site_;       // of them
  KeySet taken_;
};

}  // namespace islands::experiments
