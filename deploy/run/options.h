// What `islands run` was asked to do, checked before anything happens.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace islands::deploy {

struct RunOptions {
  std::string file;
  std::string workload;                           // micro, or any object of lib/islands
  std::map<std::string, std::string> parameters;  // of workloads other than micro, which has these five:
  std::string op = "read";
  std::optional<double> update_percent;    // of transactions; only of op mix
  uint32_t rows = 10;                      // per transaction, distinct
  double multisite = 0;                    // percent of transactions
  double zipf = 0;                         // skew; 0 = uniform
  std::vector<std::string> micro_options;  // those of micro that were given, as typed
  uint32_t mpl = 4;                        // transactions in flight per worker
  double duration_s = 5;
  double warmup_s = 1;
  uint64_t seed = 1;
  std::optional<int64_t> rows_total;  // of micro's table
  std::string results = "results";
};

// "customers=30" -> {"customers", "30"}, added to `parameters`. INVALID_ARGUMENT: no '=', or named before.
absl::Status AddParameter(const std::string& text, std::map<std::string, std::string>* parameters);

// INVALID_ARGUMENT names the option, the value and what is expected. What another workload than micro makes
// of its parameters is its own business: it is asked when the run starts.
absl::Status CheckRunOptions(const RunOptions& options);

// The shared object of a workload. INVALID_ARGUMENT when there is none: names those there are.
absl::StatusOr<std::string> FindWorkload(const std::string& workload, const std::string& binary_directory);

// A run as it is carried out: options joined with what the running deployment says.
struct RunPlan {
  RunOptions options;
  std::string object;                 // of the workload
  std::optional<int64_t> rows_total;  // to be found by every audit; unknown where a workload inserts rows
  uint64_t run_id = 0;
  control::v1::LoadSpec load;
  std::map<std::string, std::string> parameters;  // of StartRun
};

// `config`: any island's. Errors (INVALID_ARGUMENT): there is no such workload, the deployment has no table
// for micro, or too few rows.
absl::StatusOr<RunPlan> PlanRun(const RunOptions& options, const control::v1::IslandConfig& config,
                                const std::string& binary_directory);

control::v1::Request StartRequest(const RunPlan& plan);
control::v1::Request AuditRequestOf(const RunPlan& plan);

// Field by field, wherever the messages came from.
bool SameLoad(const control::v1::LoadSpec& a, const control::v1::LoadSpec& b);

}  // namespace islands::deploy
