// Payment's tables: what they have to be, and finding them in a deployment.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"

namespace islands::experiments {

struct PaymentTables {
  storage::TableId warehouse = 0;
  storage::TableId district = 0;
  storage::TableId customer = 0;
  storage::TableId history = 0;
};

inline constexpr storage::IndexId kByName = 0;  // of the customers

inline constexpr int64_t kExampleWarehouses = 24;

// The lines of data.tables for these warehouses: what errors tell the user to write.
std::string PaymentTablesYaml(int64_t first_warehouse, int64_t end_warehouse);

// Errors say which table is absent or of another shape, and show the lines.
absl::StatusOr<PaymentTables> FindPaymentTables(const storage::Catalog& catalog);

}  // namespace islands::experiments
