// A commented deployment file for a machine, ready to run: what `islands template` writes.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/file/deployment.h"
#include "topology/machine.h"

namespace islands::deploy {

// Of a workload that says which tables it needs.
struct WorkloadTables {
  std::string workload;
  std::string yaml;               // lines for data.tables
  std::optional<uint64_t> scale;  // keys in the range of each; none: as the lines say, but one for each site
};

struct TemplateOptions {
  std::string layout = "auto";                          // 4ISL | auto
  std::optional<std::string> name = std::nullopt;       // else from the layout: "4isl"
  uint64_t rows_total = 240000;                         // of the microbenchmark's table
  std::optional<WorkloadTables> tables = std::nullopt;  // else the microbenchmark's, of rows_total
  TransportKind transport = TransportKind::kShm;
};

// The file's text. It has been parsed and resolved for `machine` before it is returned: an error means that
// the options ask for what cannot be, or the workload for what is no table.
absl::StatusOr<std::string> MakeTemplate(const TemplateOptions& options, const topology::Machine& machine);

}  // namespace islands::deploy
