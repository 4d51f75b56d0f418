#include "experiments/tpcc/tpcc_population.h"

#include <numeric>
#include <utility>

#include "experiments/payment/payment_loader.h"
#include "experiments/payment/tpcc_random.h"
#include "experiments/tpcc/tpcc_keys.h"

namespace islands::experiments {
namespace {

using runtime::Random;

constexpr uint64_t kItemSeed = 0x6974656d73;
constexpr uint64_t kStockSeed = 0x73746f636b;
constexpr uint64_t kOrderSeed = 0x6f7264657273;

// From `least` to `most`.
uint32_t Between(Random& random, uint32_t least, uint32_t most) {
  return least + static_cast<uint32_t>(random.Below(most - least + 1));
}

absl::Status LoadStock(const TpccTables& tables, const TpccOptions& options, uint32_t warehouse,
                       instance::Loader& loader) {
  Random random = Random::Stream(kStockSeed, warehouse);
  for (uint32_t item = 1; item <= options.items; ++item) {
    StockRow row{};
    row.account.quantity = static_cast<int32_t>(Between(random, 10, 100));
    for (char(&district)[24] : row.districts) FillLetters(random, district);
    FillData(random, row.data);
    absl::Status status = loader.Insert(tables.stock, StockKey(warehouse, item), BytesOf(row));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

class OrderMaker {
 public:
  OrderMaker(const TpccTables& tables, const TpccOptions& options, uint32_t warehouse, uint32_t district,
             Random& random, instance::Loader& loader)
      : tables_(tables),
        options_(options),
        warehouse_(warehouse),
        district_(district),
        random_(random),
        loader_(loader) {}

  absl::Status Make(uint32_t number, uint32_t customer) {
    const bool delivered = number <= options_.loaded_delivered();
    OrderRow row{};
    row.carrier = static_cast<uint8_t>(delivered ? Between(random_, 1, 10) : 0);
    row.lines = static_cast<uint8_t>(Between(random_, kFewestLines, kMostLines));
    row.all_local = 1;
    row.customer = customer;
    row.entered = kLoadedDate;
    const auto key = OrderKey(warehouse_, district_, number);
    absl::Status status = loader_.Insert(tables_.orders, key, BytesOf(row));
    if (status.ok() && !delivered) status = loader_.Insert(tables_.new_order, key, BytesOf(NewOrderRow{}));
    const LastOrderRow last{number};
    if (status.ok()) {
      status =
          loader_.Insert(tables_.last_order, CustomerKey(warehouse_, district_, customer), BytesOf(last));
    }
    for (uint8_t line = 1; status.ok() && line <= row.lines; ++line)
      status = MakeLine(number, line, delivered);
    return status;
  }

 private:
  absl::Status MakeLine(uint32_t order, uint8_t line, bool delivered) {
    OrderLineRow row{};
    row.delivered = delivered ? kLoadedDate : 0;
    row.amount_cents = delivered ? 0 : Between(random_, 1, 9999'99);
    row.item = Between(random_, 1, options_.items);
    row.supply_warehouse = warehouse_;
    row.quantity = 5;
    FillLetters(random_, row.district_info);
    return loader_.Insert(tables_.order_line, LineKey(warehouse_, district_, order, line), BytesOf(row));
  }

  const TpccTables& tables_;
  const TpccOptions& options_;
  const uint32_t warehouse_;
  const uint32_t district_;
  Random& random_;
  instance::Loader& loader_;
};

}  // namespace

absl::Status LoadItems(const TpccTables& tables, const TpccOptions& options, instance::Loader& loader) {
  Random random(kItemSeed);
  for (uint32_t item = 1; item <= options.items; ++item) {
    ItemRow row{};
    row.price_cents = Between(random, 1'00, 100'00);
    row.image = Between(random, 1, 10'000);
    FillLetters(random, 14, row.name);
    FillData(random, row.data);
    absl::Status status = loader.Insert(tables.item, ItemKey(item), BytesOf(row));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LoadTpccWarehouse(const TpccTables& tables, const TpccOptions& options, uint32_t warehouse,
                               instance::Loader& loader) {
  absl::Status status = LoadWarehouse(tables.payment, options.payment, warehouse, loader);
  if (status.ok()) status = LoadStock(tables, options, warehouse, loader);
  Random random = Random::Stream(kOrderSeed, warehouse);
  std::vector<uint32_t> customers(options.loaded_orders());
  for (uint32_t district = 1; status.ok() && district <= kDistricts; ++district) {
    OrderMaker maker(tables, options, warehouse, district, random, loader);
    std::iota(customers.begin(), customers.end(), 1);
    for (uint32_t i = 0; status.ok() && i < customers.size(); ++i) {  // a permutation of them
      std::swap(customers[i], customers[i + random.Below(customers.size() - i)]);
      status = maker.Make(i + 1, customers[i]);
    }
  }
  return status;
}

}  // namespace islands::experiments
