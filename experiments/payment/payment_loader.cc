#include "experiments/payment/payment_loader.h"

#include <algorithm>

#include "experiments/payment/payment_keys.h"
#include "experiments/payment/tpcc_random.h"

namespace islands::experiments {
namespace {

constexpr uint64_t kSeed = 0x7470632d63;
constexpr int64_t kFirstPaymentCents = 10'00;

template <size_t N>
void SetText(std::string_view text, char (&field)[N]) {
  std::fill(std::copy(text.begin(), text.end(), field), field + N, '\0');
}

Address MakeAddress(runtime::Random& random) {
  Address address;
  FillLetters(random, 10, address.street_1);
  FillLetters(random, 10, address.street_2);
  FillLetters(random, 10, address.city);
  FillLetters(random, address.state);
  SetText("000011111", address.zip);
  FillDigits(random, std::span(address.zip, 4));
  return address;
}

int32_t MakeTax(runtime::Random& random) { return static_cast<int32_t>(random.Below(2001)); }

// Every last name is somebody's: the first customers take one each.
class CustomerMaker {
 public:
  CustomerMaker(uint32_t customers, runtime::Random& random)
      : random_(random), names_(LastNames(customers)), more_names_(kLastNameLoadC, 0, names_ - 1) {}

  CustomerRow Make(uint32_t number) {
    CustomerRow row{};
    row.account = {
        .balance_cents = -kFirstPaymentCents, .ytd_payment_cents = kFirstPaymentCents, .payments = 1};
    row.discount = static_cast<int32_t>(random_.Below(5001));
    row.credit_limit_cents = 50'000'00;
    SetText(random_.Below(10) == 0 ? "BC" : "GC", row.credit);
    FillLetters(random_, 300, row.data);
    FillLetters(random_, 8, row.first);
    SetText("OE", row.middle);
    SetText(LastName(number <= names_ ? number - 1 : more_names_.Draw(random_)).view(), row.last);
    row.address = MakeAddress(random_);
    FillDigits(random_, row.phone);
    return row;
  }

 private:
  runtime::Random& random_;
  const uint32_t names_;
  const NonUniform more_names_;
};

absl::Status LoadDistrict(const PaymentTables& tables, const PaymentOptions& options, uint32_t warehouse,
                          uint32_t district, runtime::Random& random, instance::Loader& loader) {
  DistrictRow row{};
  row.ytd_cents = kFirstPaymentCents * options.customers;
  row.tax = MakeTax(random);
  row.next_order = options.customers + 1;
  FillLetters(random, 6, row.name);
  row.address = MakeAddress(random);
  absl::Status status = loader.Insert(tables.district, DistrictKey(warehouse, district), BytesOf(row));
  CustomerMaker maker(options.customers, random);
  for (uint32_t number = 1; status.ok() && number <= options.customers; ++number) {
    const CustomerRow customer = maker.Make(number);
    status = loader.Insert(tables.customer, CustomerKey(warehouse, district, number), BytesOf(customer));
  }
  return status;
}

absl::Status LoadHistory(const PaymentTables& tables, const PaymentOptions& options, uint32_t warehouse,
                         runtime::Random& random, instance::Loader& loader) {
  HistoryRow row{};
  row.paid_cents = row.amount_cents = kFirstPaymentCents;
  row.customer_warehouse = warehouse;
  for (uint64_t slot = 0; slot < options.loaded_history(); ++slot) {
    row.customer_district = row.district = 1 + static_cast<uint32_t>(slot / options.customers);
    row.customer = 1 + static_cast<uint32_t>(slot % options.customers);
    FillLetters(random, 12, row.data);
    absl::Status status =
        loader.Insert(tables.history, HistoryKey(warehouse, kLoaderWrote, slot), BytesOf(row));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadWarehouse(const PaymentTables& tables, const PaymentOptions& options, uint32_t warehouse,
                           instance::Loader& loader) {
  runtime::Random random = runtime::Random::Stream(kSeed, warehouse);
  WarehouseRow row{};
  row.ytd_cents = kFirstPaymentCents * static_cast<int64_t>(options.loaded_history());
  row.tax = MakeTax(random);
  FillLetters(random, 6, row.name);
  row.address = MakeAddress(random);
  absl::Status status = loader.Insert(tables.warehouse, WarehouseKey(warehouse), BytesOf(row));
  for (uint32_t district = 1; status.ok() && district <= kDistricts; ++district) {
    status = LoadDistrict(tables, options, warehouse, district, random, loader);
  }
  return status.ok() ? LoadHistory(tables, options, warehouse, random, loader) : status;
}

}  // namespace islands::experiments
