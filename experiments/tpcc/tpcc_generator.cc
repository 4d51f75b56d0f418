#include "experiments/tpcc/tpcc_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace islands::experiments {

absl::StatusOr<std::unique_ptr<TpccGenerator>> TpccGenerator::Create(
    const TpccOptions& options, const partitioner::RangePartition& partition,
    const instance::GeneratorContext& context) {
  absl::StatusOr<std::unique_ptr<PaymentGenerator>> payments =
      PaymentGenerator::Create(options.payment, partition, context);
  if (!payments.ok()) return payments.status();
  return std::unique_ptr<TpccGenerator>(new TpccGenerator(options, *std::move(payments)));
}

TpccGenerator::TpccGenerator(const TpccOptions& options, std::unique_ptr<PaymentGenerator> payments)
    : options_(options),
      payments_(std::move(payments)),
      total_share_(std::accumulate(options.mix.begin(), options.mix.end(), 0u)),
      customers_(kCustomerC, 1, options.payment.customers),
      last_names_(kLastNameRunC, 0, LastNames(options.payment.customers) - 1),
      items_(kItemC, 1, options.items, NonUniform::kSixteenth) {}

TpccTransaction TpccGenerator::DrawTransaction(runtime::Random& random) const {
  uint64_t left = random.Below(total_share_);
  size_t i = 0;
  while (left >= options_.mix[i]) left -= options_.mix[i++];
  return static_cast<TpccTransaction>(i);
}

// Clauses 5.2.5.2, 5.2.5.4 and 5.2.5.7.
int64_t TpccGenerator::DrawPause(runtime::Random& random, TpccTransaction transaction) {
  struct Times {
    double keying_s;
    double mean_thinking_s;
  };
  static constexpr std::array<Times, kTpccTransactions> kTimes = {
      {{18, 12}, {3, 12}, {2, 10}, {2, 5}, {2, 5}}};
  constexpr double kMostMeans = 10;
  if (options_.think_percent <= 0) return 0;
  const Times& times = kTimes[static_cast<size_t>(transaction)];
  const double means = std::min(-std::log(1 - random.Unit()), kMostMeans);
  double seconds = (times.keying_s + means * times.mean_thinking_s) * options_.think_percent / 100;
  if (thought_ < made_) seconds *= random.Unit();  // a terminal that has been at it before the run
  ++thought_;
  return static_cast<int64_t>(seconds * static_cast<double>(runtime::kNsPerSecond));
}

CustomerChoice TpccGenerator::DrawCustomer(runtime::Random& random, const TpccRequest& request) const {
  const bool by_name = request.transaction == TpccTransaction::kOrderStatus &&
                       Chance(random, options_.payment.by_name_percent);
  return {.warehouse = request.warehouse,
          .district = request.district,
          .customer = by_name ? 0 : customers_.Draw(random),
          .last_name = by_name ? last_names_.Draw(random) : 0};
}

void TpccGenerator::DrawOrder(runtime::Random& random, TpccRequest& request) const {
  request.lines = kFewestLines + static_cast<uint32_t>(random.Below(kMostLines - kFewestLines + 1));
  for (uint32_t i = 0; i < request.lines; ++i) {
    const bool remote = Chance(random, options_.remote_lines_percent);
    request.line[i] = {.item = items_.Draw(random),
                       .supply_warehouse = remote
                                               ? OtherWarehouse(random, payments_->all(), request.warehouse)
                                               : request.warehouse,
                       .quantity = static_cast<uint8_t>(1 + random.Below(10))};
  }
  if (Chance(random, options_.rollback_percent)) {
    request.line[request.lines - 1].item = options_.items + 1;  // there is none of that number
  }
  std::sort(request.line.begin(), request.line.begin() + request.lines,
            [](const RequestedLine& a, const RequestedLine& b) {
              return std::tie(a.supply_warehouse, a.item) < std::tie(b.supply_warehouse, b.item);
            });
}

void TpccGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& tpcc = static_cast<TpccRequest&>(request);
  tpcc.transaction = DrawTransaction(random);
  tpcc.pause_ns = DrawPause(random, tpcc.transaction);
  if (tpcc.transaction == TpccTransaction::kPayment) {
    payments_->Next(random, tpcc.payment);
    return;
  }
  const WarehouseRange home = payments_->home();
  tpcc.warehouse = home.begin + static_cast<uint32_t>(random.Below(home.size()));
  tpcc.district = 1 + static_cast<uint32_t>(random.Below(kDistricts));
  switch (tpcc.transaction) {
    case TpccTransaction::kNewOrder:
      tpcc.customer = DrawCustomer(random, tpcc);
      DrawOrder(random, tpcc);
      return;
    case TpccTransaction::kOrderStatus:
      tpcc.customer = DrawCustomer(random, tpcc);
      return;
    case TpccTransaction::kDelivery:
      tpcc.carrier = static_cast<uint8_t>(1 + random.Below(10));
      return;
    case TpccTransaction::kStockLevel:
      tpcc.threshold = 10 + static_cast<int32_t>(random.Below(11));
      return;
    case TpccTransaction::kPayment:
      return;
  }
}

}  // namespace islands::experiments
