// Payment's tables: what they have to be, and finding them in a deployment.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/payment/table_lines.h"
#include "instance/storage/catalog.h"

namespace islands::experiments {

struct PaymentTables {
  storage::TableId warehouse = 0;
  storage::TableId district = 0;
  storage::TableId customer = 0;
  storage::TableId history = 0;
};

inline constexpr storage::IndexId kByName = 0;  // of the customers

inline constexpr KeyRange kExampleWarehouses = {0, 24};

// Of a deployment, by its table 'warehouse'; of the example if it has none.
KeyRange WarehousesOf(const storage::Catalog& catalog);

std::vector<TableLine> PaymentTableLines(const KeyRange& warehouses);

// Errors say which table is absent or of another shape, and show the lines.
absl::StatusOr<PaymentTables> FindPaymentTables(const storage::Catalog& catalog);

}  // namespace islands::experiments
