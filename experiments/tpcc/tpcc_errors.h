// How procedures say that rows are not what they have to be.
//
// Thread safety: pure functions.
#pragma once

#include <fmt/format.h>

#include <string>

#include "absl/status/status.h"
#include "instance/workload/operation.h"

namespace islands::experiments {

// Rows of another load.
inline absl::Status MissingRow(const std::string& row) {
  return absl::FailedPreconditionError(
      fmt::format("tpcc: {} is missing; load the workload again, with the same parameters", row));
}

// Nobody may ever see this: the run fails.
inline absl::Status Contradiction(const std::string& what) {
  return absl::DataLossError(fmt::format("tpcc: {}", what));
}

// The first operation from `first` on that did not do what it should; the number of them if all did.
inline size_t FirstFailed(const instance::Batch& batch, size_t first = 0) {
  size_t i = first;
  while (i < batch.size() && batch.code(i) == absl::StatusCode::kOk) ++i;
  return i;
}

}  // namespace islands::experiments
