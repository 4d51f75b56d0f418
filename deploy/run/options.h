// What `islands run` was asked to do, checked before anything happens.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/run/describe.h"
#include "instance/workload/parameters.h"
#include "proto/control.pb.h"

namespace islands::deploy {

inline constexpr const char* kReloadFlag = "--reload";
inline constexpr const char* kEvenFlag = "--even";
inline constexpr const char* kNoDoctorFlag = "--no-doctor";

// Who the clients of a run belong to: an island's stay there, the deployment's go where each of their
// transactions begins (instance/worker/arrivals.h).
inline constexpr const char* kClientsOfIsland = "island";
inline constexpr const char* kClientsOfDeployment = "deployment";

struct RunOptions {
  std::string file;
  std::string workload;  // an object of lib/islands
  instance::Parameters parameters;
  uint32_t mpl = 4;  // transactions in flight per worker
  double duration_s = 5;
  double warmup_s = 1;
  uint64_t seed = 1;
  std::string clients = kClientsOfIsland;
  double rate_per_s = 0;              // of the whole deployment; 0: as fast as they are done
  bool even = false;                  // with a rate: no Poisson process
  bool find_rate = false;             // rate_per_s is to be found: the knee (rate_search.h)
  std::optional<double> p99_ms;       // of the rate that is found, at most; without it by the rule of knee.h
  std::optional<int64_t> rows_total;  // of the table that the description names
  bool reload = false;                // replace rows that outlive the deployment
  bool no_doctor = false;             // the machine is not looked at
  std::string results = "results";
};

// A rate, or auto, as the command line has it.
absl::Status ReadRate(const std::string& text, RunOptions* options);

// The same with every parameter that has a preset, in one spelling. INVALID_ARGUMENT names the option, the
// value and what is expected. Whether parameters and tables fit each other the workload says when it is
// opened.
absl::StatusOr<RunOptions> CheckRunOptions(RunOptions options, const instance::Description& description);

// A run as it is carried out: options joined with what the running deployment says.
struct RunPlan {
  RunOptions options;  // checked
  DescribedWorkload workload;
  std::optional<int64_t> rows_total;  // to be found by every audit; unknown where a workload inserts rows
  uint64_t run_id = 0;
  int64_t began_ns = 0;  // by the machine's monotonic clock
  control::v1::LoadSpec load;
};

// `options`: checked. `config`: any island's. INVALID_ARGUMENT: the deployment lacks a table of the workload.
absl::StatusOr<RunPlan> PlanRun(const RunOptions& options, const DescribedWorkload& workload,
                                const control::v1::IslandConfig& config);

control::v1::Request StartRequest(const RunPlan& plan);
control::v1::Request AuditRequestOf(const RunPlan& plan);

// Whether rows of `there` will do for `wanted`, wherever the messages came from: of the parameters only those
// count that shape them; and, if they do not outlive the deployment, those that say how many runs leave.
bool SameLoad(const control::v1::LoadSpec& there, const control::v1::LoadSpec& wanted,
              const instance::Description& description, bool durable);
// Of two that do not: what it is about the rows that are there, for people.
std::string DifferenceOf(const control::v1::LoadSpec& there, const control::v1::LoadSpec& wanted,
                         const instance::Description& description);

}  // namespace islands::deploy
