#include "experiments/payment/table_lines.h"

#include <fmt/format.h>

namespace islands::experiments {
namespace {

using storage::IndexComponent;
using storage::TableDefinition;

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
  const std::string range =
      table.replicated() ? "replicated: true" : RangeText({table.partition->begin(), table.partition->end()});
  const std::string bytes = table.row_bytes == 0 ? "" : fmt::format(", row_bytes: {}", table.row_bytes);
  return fmt::format("{{name: {}, key: [{}], {}{}{}}}", table.name, key, range, bytes, IndexesText(table));
}

}  // namespace

std::string RangeText(const KeyRange& range) {
  return fmt::format("range: [{}, {}]", range.begin, range.end);
}

std::string TablesYaml(std::span<const TableLine> tables) {
  std::string yaml;
  for (const TableLine& table : tables)
    yaml += fmt::format("{}    - {}", yaml.empty() ? "" : "\n", table.line);
  return yaml;
}

absl::Status CheckTables(const storage::Catalog& catalog, const std::string& workload,
                         std::span<const TableLine> tables, const std::string& hint) {
  for (const TableLine& wanted : tables) {
    const TableDefinition* table = catalog.Find(wanted.name);
    if (table == nullptr) {
      return absl::NotFoundError(
          fmt::format("{}: the deployment has no table '{}'; its data.tables need ({}):\n{}", workload,
                      wanted.name, hint, TablesYaml(tables)));
    }
    if (const std::string found = Found(*table); found != wanted.line) {
      return absl::InvalidArgumentError(
          fmt::format("{}: the deployment's table '{}' is\n- {}\nbut has to be\n- {}", workload, wanted.name,
                      found, wanted.line));
    }
  }
  return absl::OkStatus();
}

}  // namespace islands::experiments
