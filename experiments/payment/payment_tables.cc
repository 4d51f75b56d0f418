#include "experiments/payment/payment_tables.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "experiments/payment/payment_rows.h"

namespace islands::experiments {
namespace {

using storage::IndexComponent;
using storage::TableDefinition;

constexpr std::array<const char*, 4> kNames = {"warehouse", "district", "customer", "history"};

std::string RangeText(int64_t begin, int64_t end) { return fmt::format("[{}, {}]", begin, end); }

// What the table `name` has to be.
std::string Wanted(std::string_view name, const std::string& range) {
  if (name == "warehouse") {
    return fmt::format("{{name: warehouse, key: [uint32], range: {}, row_bytes: {}}}", range,
                       sizeof(WarehouseRow));
  }
  if (name == "district") {
    return fmt::format("{{name: district, key: [uint32, uint32], range: {}, row_bytes: {}}}", range,
                       sizeof(DistrictRow));
  }
  if (name == "customer") {
    return fmt::format(
        "{{name: customer, key: [uint32, uint32, uint32], range: {}, row_bytes: {}, indexes: [{{name: "
        "by_name, "
        "key: ['key:0', 'key:1', 'row:{}:string:16', 'row:{}:string:16']}}]}}",
        range, sizeof(CustomerRow), offsetof(CustomerRow, last), offsetof(CustomerRow, first));
  }
  return fmt::format("{{name: history, key: [uint32, uint32, uint64], range: {}, row_bytes: {}}}", range,
                     sizeof(HistoryRow));
}

std::string ComponentText(const IndexComponent& component) {
  if (component.from_key) return fmt::format("'key:{}'", component.component);
  const std::string bytes =
      component.type == partitioner::KeyType::kString ? fmt::format(":{}", component.string_bytes) : "";
  return fmt::format("'row:{}:{}{}'", component.offset, partitioner::KeyTypeName(component.type), bytes);
}

std::string IndexesText(const TableDefinition& table) {
  std::string text;
  for (const storage::IndexDefinition& index : table.indexes) {
    text += fmt::format("{}{{name: {}, key: [", text.empty() ? ", indexes: [" : ", ", index.name);
    for (size_t i = 0; i < index.components.size(); ++i) {
      text += (i == 0 ? "" : ", ") + ComponentText(index.components[i]);
    }
    text += "]}";
  }
  return text.empty() ? text : text + "]";
}

// What a table is, in the words of the deployment file: equal texts are equal tables.
std::string Found(const TableDefinition& table) {
  std::string key;
  for (const partitioner::KeyType type : table.key) {
    key += fmt::format("{}{}", key.empty() ? "" : ", ", partitioner::KeyTypeName(type));
  }
  const std::string range = table.replicated()
                                ? "replicated: true"
                                : "range: " + RangeText(table.partition->begin(), table.partition->end());
  const std::string bytes = table.row_bytes == 0 ? "" : fmt::format(", row_bytes: {}", table.row_bytes);
  return fmt::format("{{name: {}, key: [{}], {}{}{}}}", table.name, key, range, bytes, IndexesText(table));
}

absl::Status CheckTable(const storage::Catalog& catalog, std::string_view name, int64_t begin, int64_t end) {
  const TableDefinition* table = catalog.Find(name);
  const std::string wanted = Wanted(name, RangeText(begin, end));
  if (table == nullptr) {
    return absl::NotFoundError(
        fmt::format("payment: the deployment has no table '{}'; its data.tables need (the range counts the "
                    "warehouses, all four the same):\n{}",
                    name, PaymentTablesYaml(begin, end)));
  }
  if (Found(*table) == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "payment: the deployment's table '{}' is\n- {}\nbut has to be\n- {}", name, Found(*table), wanted));
}

}  // namespace

std::string PaymentTablesYaml(int64_t first_warehouse, int64_t end_warehouse) {
  std::string yaml;
  for (const char* name : kNames) {
    yaml += fmt::format("{}    - {}", yaml.empty() ? "" : "\n",
                        Wanted(name, RangeText(first_warehouse, end_warehouse)));
  }
  return yaml;
}

absl::StatusOr<PaymentTables> FindPaymentTables(const storage::Catalog& catalog) {
  int64_t begin = 0, end = kExampleWarehouses;
  const TableDefinition* warehouse = catalog.Find(kNames[0]);
  if (warehouse != nullptr && warehouse->partition.has_value()) {
    begin = warehouse->partition->begin();
    end = warehouse->partition->end();
  }
  for (const char* name : kNames) {
    if (absl::Status status = CheckTable(catalog, name, begin, end); !status.ok()) return status;
  }
  return PaymentTables{.warehouse = catalog.Find(kNames[0])->id,
                       .district = catalog.Find(kNames[1])->id,
                       .customer = catalog.Find(kNames[2])->id,
                       .history = catalog.Find(kNames[3])->id};
}

}  // namespace islands::experiments
