// What becomes of the tables that a deployment names: loads shape them, clients add and drop some.
//
// Thread safety: plain functions.
#pragma once

#include "absl/status/status.h"
#include "instance/storage/catalog.h"

namespace islands::storage {

// Puts specifications over those of the same name, and new ones behind them. True when one changed: catalog
// and store have to be built anew.
bool ReplaceTables(const Catalog::TableSpecs& wanted, Catalog::TableSpecs* tables);

// Adds and drops what is not added or dropped already; none changes its place. ALREADY_EXISTS: another table
// has the name of one that is to be added.
absl::Status ChangeTables(const control::v1::TablesRequest& request, Catalog::TableSpecs* tables);

// Null: there is none of that name, or it was dropped.
const control::v1::TableSpec* FindTable(const Catalog::TableSpecs& tables, std::string_view name);

}  // namespace islands::storage
