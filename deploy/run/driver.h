// Carries out one run on a running cluster: load if needed, audit, start, warm up, measure, stop, audit
// again.
//
// A lost island does not end the run: the others go on, and when it is back it is told to run again. Its
// counters start anew with each life; what it did after its last snapshot is not counted, and the sum check
// is skipped.
//
// Thread safety: main thread only. Calls to islands go out in parallel, each with a timeout.
//
// Invariants:
//  1. Once StartRun has been sent to any island, StopRun is sent to all before Run returns, whatever
//     happened.
//  2. Measuring takes warmup + duration, and no more than two call timeouts longer, even if islands hang; the
//     last sample is taken at its end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/cluster/client.h"
#include "deploy/processes/interrupts.h"
#include "deploy/run/core_time.h"
#include "deploy/run/options.h"
#include "deploy/run/result.h"
#include "deploy/run/traffic.h"
#include "proto/control.pb.h"

namespace islands::deploy {

class RunDriver {
 public:
  // Called about once a second with what happened in it; `elapsed_s` < 0 while warming up.
  using Progress =
      std::function<void(double elapsed_s, double committed_per_s, double aborted_per_s, size_t lost)>;

  // `status` was just asked for; every island in it is ready.
  RunDriver(const ClusterClient& client, const control::v1::ClusterStatus& status, RunPlan plan,
            Progress progress);

  // Ends a run that a killed command left behind; its id, or 0 if that is not known.
  absl::Status StopStale(uint64_t run_id);
  // Loads the workload's rows unless the very same load is in place, complete; says whether it did.
  absl::StatusOr<bool> Load();
  // Of the workload's tables, as every island finds them when it audits them.
  absl::StatusOr<uint64_t> CountRows() const;
  // CANCELLED when interrupted.
  absl::StatusOr<RunResult> Run(Interrupts& interrupts);

 private:
  struct Island {
    uint64_t epoch = 0;   // at the beginning
    bool lost = false;    // unreachable or restarted at any time
    bool silent = false;  // did not answer a sample of the measured window in time
    IslandMeter meter;
    Sums sums;                            // of the measured window
    std::optional<CoreTime> core_before;  // at the sample before
    CoreTime core_time;                   // of the measured window
    bool core_time_known = true;          // throughout
    double seconds = 0;
    int64_t audit_committed = 0;  // at the beginning
    int64_t audit_unknown = 0;
  };
  struct AuditSum {
    int64_t value = 0;
    uint64_t rows = 0;
    size_t empty_islands = 0;
  };
  enum class Phase { kBase, kWarmup, kMeasure };

  bool LoadInPlace() const;
  absl::Status LoadAnew();
  absl::StatusOr<AuditSum> Audit() const;
  absl::Status TakeBase();
  absl::Status StartAll();
  absl::Status Drive(Interrupts& interrupts);
  void Sample(Phase phase, double elapsed_s);
  void Rejoin(uint32_t island, const control::v1::Snapshot& snapshot);
  // Since the sample before; nothing if it is not known.
  std::optional<CoreTime> CoreTimePassed(Island& island, int32_t pid);
  void StopAll();
  void Drain();
  void CheckSum(const AuditSum& before);
  void Collect();
  absl::Status CheckStillUp() const;
  size_t LostNow() const;
  uint32_t WorkersOf(uint32_t island) const;
  bool AnyLost() const;
  std::vector<ClusterClient::Reply> CallAll(const control::v1::Request& request, int64_t timeout_ms) const;

  const ClusterClient& client_;
  const control::v1::ClusterStatus status_;
  const Progress progress_;
  std::vector<uint32_t> all_;  // 0, 1, ...
  std::vector<Island> islands_;
  std::vector<bool> unreached_;  // at the last sample
  int64_t window_begin_ms_ = 0;
  std::optional<MachineTime> machine_before_;  // at window_begin_ms_
  std::optional<CoreTime> logger_before_;      // the same
  RunResult result_;
};

}  // namespace islands::deploy
