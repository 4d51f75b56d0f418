// Finding a workload's tables in a deployment, and saying which lines it lacks.
//
// Thread safety: pure functions.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"

namespace islands::experiments {

struct WantedTable {
  const char* name = "";
  partitioner::KeySchema key;
  size_t row_bytes = 0;  // which the deployment may leave open
  bool replicated = false;
};

// The tables, in this order; those that are not replicated have one range, which begins at 0 or above. An
// error says what is wrong, and shows `lines`, with which it would be right.
inline absl::StatusOr<std::vector<const storage::TableDefinition*>> FindTables(
    const storage::Catalog& catalog, std::string_view workload, std::initializer_list<WantedTable> wanted,
    std::string_view lines) {
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}; data.tables of the deployment must hold\n{}", workload, what, lines));
  };
  std::vector<const storage::TableDefinition*> found;
  const storage::TableDefinition* first = nullptr;  // that has a range
  for (const WantedTable& want : wanted) {
    const storage::TableDefinition* table = catalog.Find(want.name);
    if (table == nullptr) return wrong(fmt::format("there is no table '{}'", want.name));
    if (table->key != want.key || table->replicated() != want.replicated ||
        (table->row_bytes != 0 && table->row_bytes != want.row_bytes)) {
      return wrong(fmt::format("table '{}' has another key, row_bytes other than {}, or {}", want.name,
                               want.row_bytes, want.replicated ? "a range" : "no range"));
    }
    found.push_back(table);
    if (want.replicated) continue;
    if (first == nullptr) first = table;
    if (table->partition->begin() < 0)
      return wrong(fmt::format("the range of table '{}' begins below 0", want.name));
    if (table->partition->begin() != first->partition->begin() ||
        table->partition->end() != first->partition->end()) {
      return wrong(fmt::format("tables '{}' and '{}' have different ranges", first->name, want.name));
    }
  }
  return found;
}

}  // namespace islands::experiments
