// TPC-C's tables: what they have to be, and finding them in a deployment.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/payment/payment_tables.h"

namespace islands::experiments {

struct TpccTables {
  PaymentTables payment;  // warehouse, district, customer, history
  storage::TableId orders = 0;
  storage::TableId new_order = 0;
  storage::TableId order_line = 0;
  storage::TableId stock = 0;
  storage::TableId last_order = 0;
  storage::TableId item = 0;  // replicated
};

// In the order in which they are loaded and audited.
std::vector<TableLine> TpccTableLines(const KeyRange& warehouses);

// Errors say which table is absent or of another shape, and show the lines.
absl::StatusOr<TpccTables> FindTpccTables(const storage::Catalog& catalog);

}  // namespace islands::experiments
