// Makes up YCSB's transactions: what they do, with which rows (see ycsb.h).
//
// Thread safety: none; a generator belongs to one worker.
//
// Invariant: Next and OnEnd allocate nothing, given a request of MakeRequest.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "experiments/micro/key_set.h"
#include "experiments/ycsb/ycsb.h"
#include "experiments/zipf.h"
#include "partitioner/site_map.h"

namespace islands::experiments {

// How many of 100 operations of this mix are of each kind.
const std::array<uint32_t, kYcsbKinds>& YcsbShares(char mix);

class YcsbGenerator final : public instance::Generator {
 public:
  static constexpr size_t kRemembered = 256;  // inserts of a site

  // Every site has as many places as a transaction has rows, at least.
  YcsbGenerator(const YcsbOptions& options, const partitioner::RangePartition& partition,
                partitioner::SiteRun sites);

  std::unique_ptr<instance::Request> MakeRequest() override;
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override;
  void OnEnd(const coordinator::TransactionId& id, const instance::Request& request,
             coordinator::Outcome outcome) override;

 private:
  // The latest inserts into a site, in a ring.
  struct Latest {
    std::vector<YcsbRow> rows;
    uint64_t count = 0;  // ever

    uint64_t size() const { return std::min<uint64_t>(count, rows.size()); }
    const YcsbRow& at(uint64_t age) const { return rows[(count - 1 - age) % rows.size()]; }
    void Add(const YcsbRow& row) { rows[count++ % rows.size()] = row; }
  };

  uint64_t Begin(uint32_t site) const { return static_cast<uint64_t>(partition_.SiteBegin(site)); }
  uint64_t Places(uint32_t site) const { return Begin(site + 1) - Begin(site); }
  Latest* LatestOf(uint32_t site);
  YcsbKind DrawKind(runtime::Random& random) const;
  YcsbRow DrawRow(runtime::Random& random, uint32_t site);
  // `row`, or a loaded one of the site whose place is not taken yet.
  YcsbRow Take(YcsbRow row, uint32_t site);

  const YcsbOptions options_;
  const partitioner::RangePartition partition_;
  const partitioner::SiteRun own_;
  const uint64_t fewest_;           // places of a site; all have so many, or one more
  const std::array<Zipf, 2> laws_;  // of the ones and the others
  std::vector<Latest> latest_;      // of own sites, if rows are drawn by age
  KeySet taken_;
};

}  // namespace islands::experiments
