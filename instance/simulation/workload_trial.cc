#include "instance/simulation/workload_trial.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "instance/simulation/sim_cluster.h"

namespace islands::simulation {
namespace {

constexpr int64_t kLongestDrainNs = 10 * runtime::kNsPerSecond;
constexpr uint32_t kMost = 64;  // islands, and workers of each

absl::Status Check(const TrialOptions& options) {
  const auto expect = [](bool right, std::string_view name, int64_t found, std::string_view what) {
    if (right) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("TrialOptions: found {} {}, expected {}", name, found, what));
  };
  absl::Status status =
      expect(options.islands >= 1 && options.islands <= kMost, "islands", options.islands, "1 to 64");
  status.Update(
      expect(options.workers >= 1 && options.workers <= kMost, "workers", options.workers, "1 to 64"));
  status.Update(
      expect(options.sites >= options.islands, "sites", options.sites, "one for each island at least"));
  status.Update(expect(options.mpl >= 1 && options.mpl <= 1000, "mpl", options.mpl, "1 to 1000"));
  status.Update(expect(options.ms >= 1 && options.ms <= 60'000, "ms", options.ms, "1 to 60000"));
  return status;
}

absl::StatusOr<int64_t> Audit(const SimCluster& cluster) {
  int64_t sum = 0;
  for (uint32_t island = 0; island < cluster.islands(); ++island) {
    const absl::StatusOr<control::v1::AuditReply> audit = cluster.island(island).Audit({});
    if (!audit.ok()) return audit.status();
    sum += audit->value();
  }
  return sum;
}

}  // namespace

absl::StatusOr<Trial> TryWorkload(instance::OpenWorkloadFunction open, const TrialOptions& options) {
  if (absl::Status right = Check(options); !right.ok()) return right;
  SimOptions sim;
  sim.islands = options.islands;
  sim.workers = options.workers;
  sim.sites = options.sites;
  sim.seed = options.seed;
  *sim.config.mutable_tables() = options.tables;
  sim.open = [&](const storage::Catalog& catalog) -> absl::StatusOr<instance::OpenedWorkload> {
    std::string complaint;
    instance::Workload* workload = open(instance::kWorkloadAbi, &catalog, &options.parameters, &complaint);
    if (workload == nullptr) return absl::InvalidArgumentError(complaint);
    return instance::OpenedWorkload(workload);
  };
  SimCluster cluster(sim);
  if (absl::Status started = cluster.Start(); !started.ok()) return started;
  const absl::StatusOr<int64_t> before = Audit(cluster);
  if (!before.ok()) return before.status();
  if (absl::Status running = cluster.StartRun(options.mpl); !running.ok()) return running;
  cluster.RunFor(options.ms * runtime::kNsPerMs);
  if (!cluster.Drain(kLongestDrainNs)) {
    return absl::DeadlineExceededError("transactions did not end within ten seconds of simulated time");
  }
  const absl::StatusOr<int64_t> after = Audit(cluster);
  if (!after.ok()) return after.status();
  const SimCluster::Totals totals = cluster.Sum();
  Trial trial{.committed = totals.committed,
              .distributed = totals.distributed,
              .aborted = totals.aborted,
              .sum_before = *before,
              .sum_after = *after,
              .sum_committed = totals.audit_committed};
  for (uint32_t island = 0; island < options.islands; ++island) {
    for (const auto& worker : cluster.island(island).workers()) {
      const auto reason = static_cast<uint8_t>(instance::AbortReason::kContradiction);
      trial.contradictions += worker->counters().aborts[reason].Get();
    }
  }
  return trial;
}

}  // namespace islands::simulation
