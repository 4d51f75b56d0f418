// The initial rows of one warehouse, as TPC-C clause 4.3.3 has them: a district begins with 10.00 from each
// of its customers, and a history row of each.
//
// Thread safety: pure function.
//
// Invariant: the same warehouse and options give the same rows, on whichever island.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "experiments/payment/payment.h"

namespace islands::experiments {

absl::Status LoadWarehouse(const PaymentTables& tables, const PaymentOptions& options, uint32_t warehouse,
                           instance::Loader& loader);

}  // namespace islands::experiments
