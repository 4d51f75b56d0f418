// Makes up payments (see payment.h for what there is to choose; TPC-C clause 2.5.1).
//
// Thread safety: none; a generator belongs to one worker.
//
// Invariant: Next allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "experiments/payment/payment.h"
#include "experiments/payment/tpcc_random.h"
#include "partitioner/site_map.h"

namespace islands::experiments {

// Warehouses [begin, end).
struct WarehouseRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
  friend bool operator==(const WarehouseRange&, const WarehouseRange&) = default;
};

// What one of so many workers takes of its island's warehouses: a share of its own, or, with fewer warehouses
// than workers, one that it shares. `all` is not empty.
WarehouseRange ShareOf(WarehouseRange all, uint32_t worker, uint32_t workers);

// One of the others, of at least two.
uint32_t OtherWarehouse(runtime::Random& random, WarehouseRange all, uint32_t home);

inline bool Chance(runtime::Random& random, double percent) { return random.Unit() * 100 < percent; }

class PaymentGenerator final : public instance::Generator {
 public:
  // Error when the island has no warehouse.
  static absl::StatusOr<std::unique_ptr<PaymentGenerator>> Create(
      const PaymentOptions& options, const partitioner::RangePartition& partition,
      const instance::GeneratorContext& context);

  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<PaymentRequest>(); }
  void Next(runtime::Random& random, instance::Request& request) override;
  std::optional<uint32_t> DrawSite(runtime::Random& random) override;
  WarehouseRange home() const { return home_; }
  WarehouseRange all() const { return all_; }

 private:
  PaymentGenerator(const PaymentOptions& options, const partitioner::RangePartition& partition,
                   WarehouseRange home, uint64_t first_slot);
  void ChooseCustomer(runtime::Random& random, PaymentRequest& payment) const;

  const PaymentOptions options_;
  const partitioner::RangePartition partition_;
  const WarehouseRange all_;   // of the deployment
  const WarehouseRange home_;  // this worker's
  const NonUniform customers_;
  const NonUniform last_names_;
  uint64_t next_slot_;
};

}  // namespace islands::experiments
