#include "experiments/payment/payment_generator.h"

#include <fmt/format.h>

namespace islands::experiments {
namespace {

constexpr int64_t kLeastCents = 1'00;
constexpr int64_t kMostCents = 5000'00;

WarehouseRange RangeOf(int64_t begin, int64_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

}  // namespace

WarehouseRange ShareOf(WarehouseRange all, uint32_t worker, uint32_t workers) {
  const uint64_t count = all.size();
  const auto begin = static_cast<uint32_t>(count * worker / workers);
  const auto end = static_cast<uint32_t>(count * (worker + 1) / workers);
  return {all.begin + begin, all.begin + (count >= workers ? end : begin + 1)};
}

uint32_t OtherWarehouse(runtime::Random& random, WarehouseRange all, uint32_t home) {
  const auto drawn = all.begin + static_cast<uint32_t>(random.Below(all.size() - 1));
  return drawn < home ? drawn : drawn + 1;
}

absl::StatusOr<std::unique_ptr<PaymentGenerator>> PaymentGenerator::Create(
    const PaymentOptions& options, const partitioner::RangePartition& partition,
    const instance::GeneratorContext& context) {
  const WarehouseRange all = RangeOf(partition.begin(), partition.end());
  const WarehouseRange island = RangeOf(partition.SiteBegin(context.sites.first),
                                        partition.SiteBegin(context.sites.first + context.sites.count));
  if (island.size() == 0) {
    return absl::FailedPreconditionError(fmt::format(
        "payment: island {} has no warehouse: its sites {} to {} of {} hold none of the {}; give the tables "
        "a "
        "range of as many warehouses as there are sites, or make `sites` as many as the warehouses",
        context.island, context.sites.first, context.sites.first + context.sites.count - 1,
        context.catalog.sites(), all.size()));
  }
  const WarehouseRange home =
      options.own_warehouses ? ShareOf(island, context.worker, context.workers) : island;
  // Workers that share a warehouse begin at different places of its history.
  const uint64_t first_slot = options.loaded_history() * context.worker / context.workers;
  return std::unique_ptr<PaymentGenerator>(new PaymentGenerator(options, partition, home, first_slot));
}

PaymentGenerator::PaymentGenerator(const PaymentOptions& options,
                                   const partitioner::RangePartition& partition, WarehouseRange home,
                                   uint64_t first_slot)
    : options_(options),
      partition_(partition),
      all_(RangeOf(partition.begin(), partition.end())),
      home_(home),
      customers_(kCustomerC, 1, options.customers),
      last_names_(kLastNameRunC, 0, LastNames(options.customers) - 1),
      next_slot_(first_slot) {}

void PaymentGenerator::ChooseCustomer(runtime::Random& random, PaymentRequest& payment) const {
  payment.customer_warehouse = payment.warehouse;
  payment.customer_district = payment.district;
  if (Chance(random, options_.remote_percent)) {
    payment.customer_warehouse = OtherWarehouse(random, all_, payment.warehouse);
    payment.customer_district = 1 + static_cast<uint32_t>(random.Below(kDistricts));
  }
  const bool by_name = Chance(random, options_.by_name_percent);
  payment.customer = by_name ? 0 : customers_.Draw(random);
  payment.last_name = by_name ? last_names_.Draw(random) : 0;
}

std::optional<uint32_t> PaymentGenerator::DrawSite(runtime::Random& random) {
  return partition_.Find(all_.begin + static_cast<int64_t>(random.Below(all_.size())));
}

void PaymentGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& payment = static_cast<PaymentRequest&>(request);
  payment.warehouse = home_.begin + static_cast<uint32_t>(random.Below(home_.size()));
  payment.district = 1 + static_cast<uint32_t>(random.Below(kDistricts));
  ChooseCustomer(random, payment);
  payment.amount_cents = kLeastCents + static_cast<int64_t>(random.Below(kMostCents - kLeastCents + 1));
  payment.audit_delta = PaymentAuditDelta(payment.amount_cents);
  payment.history_slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % options_.loaded_history();
}

}  // namespace islands::experiments
