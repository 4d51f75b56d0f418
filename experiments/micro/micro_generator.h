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

class MicroGenerator final : public instance::Generator {
 public:
  // `options` have passed CheckRowsFit.
  MicroGenerator(const MicroOptions& options, const partitioner::RangePartition& partition,
                 partitioner::SiteRun sites);

  std::unique_ptr<instance::Request> MakeRequest() override;
  void Next(runtime::Random& random, instance::Request& request) override;

 private:
  // Rows with keys [begin, begin + rows), and the law by which they are drawn.
  struct Range {
    Range(uint64_t begin_key, uint64_t row_count, double s)
        : begin(begin_key), rows(row_count), zipf(1, row_count, s) {}
    uint64_t begin;
    uint64_t rows;
    Zipf zipf;
  };

  void Take(uint64_t key, MicroRequest& request);
  void TakeUniform(runtime::Random& random, const Range& range, MicroRequest& request);
  void TakeZipf(runtime::Random& random, const Range& range, MicroRequest& request);
  // Fills the request up to N rows from `range`.
  void Fill(runtime::Random& random, const Range& range, MicroRequest& request);

  const MicroOptions options_;
  const Range all_;
  std::vector<Range> sites_;  // this island's
  KeySet taken_;
};

}  // namespace islands::experiments
