// Makes up TATP's transactions: which one, for whom, with what (tatp.h).
//
// Thread safety: none; a generator belongs to one worker.
//
// Invariants:
//  1. Next allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "experiments/tatp/tatp.h"
#include "partitioner/site_map.h"

namespace islands::experiments {

// How many of 100 transactions of the standard mix.
inline constexpr std::array<uint32_t, kTatpTransactions> kTatpShares = {35, 10, 35, 2, 14, 2, 2};

class TatpGenerator final : public instance::Generator {
 public:
  static absl::StatusOr<std::unique_ptr<TatpGenerator>> Create(const TatpOptions& options,
                                                               const partitioner::RangePartition& partition,
                                                               partitioner::SiteRun sites);

  std::unique_ptr<instance::Request> MakeRequest() override;
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override;

 private:
  TatpGenerator(const TatpOptions& options, const partitioner::RangePartition& partition,
                partitioner::SiteRun sites);
  uint64_t Subscribers(uint32_t site) const;
  // One that has subscribers.
  uint32_t DrawSiteOf(runtime::Random& random, partitioner::SiteRun sites) const;
  TatpTransaction DrawTransaction(runtime::Random& random) const;
  uint64_t DrawSubscriber(runtime::Random& random) const;

  const TatpOptions options_;
  const partitioner::RangePartition partition_;
  const partitioner::SiteRun own_;
  const uint64_t mask_;  // TATP's A, of a site
  uint32_t total_share_ = 0;
  std::array<uint32_t, kTatpTransactions> shares_{};
};

}  // namespace islands::experiments
