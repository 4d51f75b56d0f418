#include "instance/storage/table_specs.h"

#include <fmt/format.h>

namespace islands::storage {
namespace {

bool IsSame(const control::v1::TableSpec& one, const control::v1::TableSpec& other) {
  return one.SerializeAsString() == other.SerializeAsString();
}

}  // namespace

bool ReplaceTables(const Catalog::TableSpecs& wanted, Catalog::TableSpecs* tables) {
  bool changed = false;
  for (const control::v1::TableSpec& each : wanted) {
    control::v1::TableSpec* table = nullptr;
    for (control::v1::TableSpec& known : *tables) {
      if (known.name() == each.name() && known.dropped() == each.dropped()) table = &known;
    }
    if (table == nullptr) table = tables->Add();
    changed |= !IsSame(*table, each);
    *table = each;
  }
  return changed;
}

absl::Status ChangeTables(const control::v1::TablesRequest& request, Catalog::TableSpecs* tables) {
  for (const control::v1::TableSpec& wanted : request.add()) {
    const control::v1::TableSpec* there = FindTable(*tables, wanted.name());
    if (there != nullptr && !IsSame(*there, wanted))
      return absl::AlreadyExistsError(fmt::format("there is another table '{}'", wanted.name()));
    if (there == nullptr) *tables->Add() = wanted;
  }
  for (int number = 0; !request.drop().empty() && number < tables->size(); ++number) {
    control::v1::TableSpec& table = *tables->Mutable(number);
    if (table.name() == request.drop() && table.dropped() == 0)
      table.set_dropped(static_cast<uint32_t>(number) + 1);
  }
  return absl::OkStatus();
}

const control::v1::TableSpec* FindTable(const Catalog::TableSpecs& tables, std::string_view name) {
  for (const control::v1::TableSpec& table : tables) {
    if (table.name() == name && table.dropped() == 0) return &table;
  }
  return nullptr;
}

}  // namespace islands::storage
