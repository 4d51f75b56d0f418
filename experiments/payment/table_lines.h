// Tables that a workload needs: the lines of data.tables that describe them, and whether a deployment has
// just these.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/catalog.h"

namespace islands::experiments {

struct TableLine {
  std::string name;
  std::string line;  // {name: warehouse, key: [uint32], range: [0, 24], row_bytes: 93}
};

// Of a table's first key component.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};
std::string RangeText(const KeyRange& range);  // range: [0, 24]

// As an item each of data.tables.
std::string TablesYaml(std::span<const TableLine> tables);

// Errors say which table is absent or of another shape, and show the lines; `hint` stands before them.
absl::Status CheckTables(const storage::Catalog& catalog, const std::string& workload,
                         std::span<const TableLine> tables, const std::string& hint);

}  // namespace islands::experiments
