// What a load makes of the tables that a deployment names.
//
// Thread safety: plain functions.
#pragma once

#include "instance/storage/catalog.h"

namespace islands::storage {

// Puts specifications over those of the same name, and new ones behind them. True when one changed: catalog
// and store have to be built anew.
bool ReplaceTables(const Catalog::TableSpecs& wanted, Catalog::TableSpecs* tables);

}  // namespace islands::storage
