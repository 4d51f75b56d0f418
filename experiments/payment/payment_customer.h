// Who a customer is, by number or by last name, and finding the row (TPC-C clauses 2.5.2.2 and 2.6.2.2).
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/payment/payment_tables.h"
#include "instance/workload/operation.h"

namespace islands::experiments {

struct CustomerChoice {
  uint32_t warehouse = 0;
  uint32_t district = 0;
  uint32_t customer = 0;   // 0: by name
  uint32_t last_name = 0;  // its number
};

std::string CustomerText(const CustomerChoice& choice);

// Reads the row; `for_update` under the lock that an update needs, if it is looked for by number.
void FindCustomer(const PaymentTables& tables, const CustomerChoice& choice, bool for_update,
                  instance::Batch& batch);

// Where the customer's row is, in the results of a batch.
struct FoundCustomer {
  instance::KeyView key;
  instance::RowView row;  // empty: there is none

  uint32_t number() const;
};

// By name: the middle one of those that share it, by first name (position ceil(n / 2)). `find`: the operation
// that looked for it.
FoundCustomer CustomerIn(const CustomerChoice& choice, const instance::Batch& batch, size_t find);

}  // namespace islands::experiments
