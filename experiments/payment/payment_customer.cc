#include "experiments/payment/payment_customer.h"

#include <fmt/format.h>

#include <cstring>

#include "experiments/payment/payment_keys.h"
#include "experiments/payment/tpcc_random.h"

namespace islands::experiments {

std::string CustomerText(const CustomerChoice& choice) {
  const std::string who = choice.customer == 0
                              ? fmt::format("called {}", std::string(LastName(choice.last_name).view()))
                              : fmt::format("{}", choice.customer);
  return fmt::format("customer {}/{} {}", choice.warehouse, choice.district, who);
}

void FindCustomer(const PaymentTables& tables, const CustomerChoice& choice, bool for_update,
                  instance::Batch& batch) {
  const auto customer = CustomerKey(choice.warehouse, choice.district, choice.customer);
  if (choice.customer != 0) {
    for_update ? batch.ReadForUpdate(tables.customer, customer) : batch.Read(tables.customer, customer);
    return;
  }
  const LastName last(choice.last_name);
  const auto bound = [&](bool end) { return NameBound(choice.warehouse, choice.district, last.view(), end); };
  batch.IndexScan(tables.customer, kByName, customer, bound(false), bound(true));
}

uint32_t FoundCustomer::number() const {
  uint32_t number = 0;
  std::memcpy(&number, key.data() + 2 * sizeof(number), sizeof(number));
  return __builtin_bswap32(number);
}

FoundCustomer CustomerIn(const CustomerChoice& choice, const instance::Batch& batch, size_t find) {
  if (choice.customer != 0) {
    if (batch.code(find) != absl::StatusCode::kOk) return {};
    return {batch.View(batch.operation(find).key), batch.row(find)};
  }
  const size_t found = batch.scanned_rows(find);
  if (found == 0) return {};
  const size_t middle = (found + 1) / 2 - 1;
  return {batch.scanned_key(find, middle), batch.scanned_row(find, middle)};
}

}  // namespace islands::experiments
