// Makes up TPC-C's transactions: which one, where, for whom, with what (tpcc.h; clauses 2.4.1 to 2.8.1).
//
// Thread safety: none; a generator belongs to one worker.
//
// Invariant: Next allocates nothing.
#pragma once

#include <memory>
#include <optional>

#include "experiments/payment/payment_generator.h"
#include "experiments/tpcc/tpcc.h"

namespace islands::experiments {

class TpccGenerator final : public instance::Generator {
 public:
  // Error when the island has no warehouse.
  static absl::StatusOr<std::unique_ptr<TpccGenerator>> Create(const TpccOptions& options,
                                                               const partitioner::RangePartition& partition,
                                                               const instance::GeneratorContext& context);

  std::unique_ptr<instance::Request> MakeRequest() override {
    ++made_;
    return std::make_unique<TpccRequest>();
  }
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override { return payments_->DrawSite(random); }

 private:
  TpccGenerator(const TpccOptions& options, std::unique_ptr<PaymentGenerator> payments);
  TpccTransaction DrawTransaction(runtime::Random& random) const;
  int64_t DrawPause(runtime::Random& random, TpccTransaction transaction);
  void DrawOrder(runtime::Random& random, TpccRequest& request) const;
  CustomerChoice DrawCustomer(runtime::Random& random, const TpccRequest& request) const;

  const TpccOptions options_;
  const std::unique_ptr<PaymentGenerator> payments_;
  const uint32_t total_share_;
  const NonUniform customers_;
  const NonUniform last_names_;
  const NonUniform items_;
  uint64_t made_ = 0;     // requests: as many slots, at least, begin with one
  uint64_t thought_ = 0;  // pauses
};

}  // namespace islands::experiments
