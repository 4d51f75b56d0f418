#include "instance/storage/table_specs.h"

namespace islands::storage {

bool ReplaceTables(const Catalog::TableSpecs& wanted, Catalog::TableSpecs* tables) {
  bool changed = false;
  for (const control::v1::TableSpec& each : wanted) {
    control::v1::TableSpec* table = nullptr;
    for (control::v1::TableSpec& known : *tables) {
      if (known.name() == each.name()) table = &known;
    }
    if (table == nullptr) table = tables->Add();
    changed |= table->SerializeAsString() != each.SerializeAsString();
    *table = each;
  }
  return changed;
}

}  // namespace islands::storage
