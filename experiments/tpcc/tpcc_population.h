// TPC-C's initial rows, as clause 4.3.3 has them: what Payment loads of a warehouse, its stock, and an order
// of each customer, of which the newest three tenths wait for their delivery.
//
// Thread safety: pure functions.
//
// Invariant: the same warehouse and options give the same rows, on whichever island.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "experiments/tpcc/tpcc.h"

namespace islands::experiments {

// Every island has all of them.
absl::Status LoadItems(const TpccTables& tables, const TpccOptions& options, instance::Loader& loader);
absl::Status LoadTpccWarehouse(const TpccTables& tables, const TpccOptions& options, uint32_t warehouse,
                               instance::Loader& loader);

}  // namespace islands::experiments
