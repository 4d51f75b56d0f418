#include "deploy/run/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include "deploy/file/deployment.h"
#include "instance/worker/latency_histogram.h"

namespace islands::deploy {
namespace {

// Null: nothing was loaded. Those without a workload only shape tables.
const control::v1::LoadSpec* LastLoad(const control::v1::IslandConfig& config) {
  for (int i = config.loads_size() - 1; i >= 0; --i) {
    if (!config.loads(i).workload().empty()) return &config.loads(i);
  }
  return nullptr;
}

using control::v1::Request;
using control::v1::Snapshot;

constexpr int64_t kCallTimeoutMs = 30'000;       // start, snapshots: seconds on a crowded machine
constexpr int64_t kSampleTimeoutMs = 2'000;      // snapshots while measuring
constexpr int64_t kLoadTimeoutMs = 30 * 60'000;  // 120 million rows take a while
constexpr int64_t kAuditTimeoutMs = 10 * 60'000;
constexpr int64_t kStopSlackMs = 5'000;  // above the transactions' own timeout
constexpr int64_t kSlowStopMs = 25'000;  // above the time an island gives its transactions to end
constexpr int64_t kDrainMs = 5'000;
constexpr int64_t kSampleIntervalMs = 1'000;
constexpr const char* kNoDurability = "none";

Request SnapshotRequestOf() {
  Request request;
  request.mutable_snapshot();
  return request;
}

}  // namespace

RunDriver::RunDriver(const ClusterClient& client, const control::v1::ClusterStatus& status, RunPlan plan,
                     Progress progress)
    : client_(client), status_(status), progress_(std::move(progress)), islands_(status.islands_size()) {
  all_.resize(islands_.size());
  std::iota(all_.begin(), all_.end(), 0u);
  unreached_.assign(islands_.size(), false);
  for (uint32_t i : all_) islands_[i].epoch = status_.islands(static_cast<int>(i)).boot_epoch();
  result_.plan = std::move(plan);
  result_.deployment = status_.deployment();
  result_.layout = status_.layout();
  result_.transport = status_.configs(0).transport();
  result_.placement = status_.configs(0).placement();
  result_.durability = status_.configs(0).durability();
  result_.votes = std::string(VotesName(status_.configs(0).votes_wait()));
}

std::vector<ClusterClient::Reply> RunDriver::CallAll(const Request& request, int64_t timeout_ms) const {
  return client_.CallIslands(all_, request, timeout_ms);
}

absl::Status RunDriver::StopStale(uint64_t run_id) {
  Request request;
  request.mutable_stop_run()->set_run_id(run_id);
  absl::Status stopped = FirstError(CallAll(request, kCallTimeoutMs));
  if (stopped.ok()) return stopped;
  return absl::FailedPreconditionError(
      fmt::format("islands are still busy with an earlier run and do not stop it ({}); use `islands down` "
                  "and `islands up`",
                  std::string(stopped.message())));
}

// An island that died in the middle of it came back without rows.
bool RunDriver::LoadInPlace() const {
  const RunPlan& plan = result_.plan;
  const bool durable = status_.configs(0).durability() != kNoDurability;
  for (const control::v1::IslandConfig& config : status_.configs()) {
    const control::v1::LoadSpec* load = LastLoad(config);
    if (load == nullptr || !SameLoad(*load, plan.load, plan.workload.description, durable)) return false;
  }
  const absl::StatusOr<AuditSum> found = Audit();
  if (absl::IsDataLoss(found.status()))
    return true;  // they are there, and wrong: the run's own audit says so
  if (!found.ok() || found->empty_islands > 0) return false;
  return !plan.rows_total || found->rows == static_cast<uint64_t>(*plan.rows_total);
}

absl::StatusOr<bool> RunDriver::Load() {
  if (!result_.plan.options.reload && LoadInPlace()) return false;
  if (absl::Status loaded = LoadAnew(); !loaded.ok()) return loaded;
  return true;
}

absl::Status RunDriver::LoadAnew() {
  Request request;
  *request.mutable_load()->mutable_load() = result_.plan.load;
  if (status_.configs(0).durability() != kNoDurability) {
    const control::v1::LoadSpec* load = LastLoad(status_.configs(0));
    if (load != nullptr && !result_.plan.options.reload) {
      return absl::FailedPreconditionError(fmt::format(
          "the deployment has the rows of workload '{}', which outlive it, and they are not those of this "
          "run: {}; --reload replaces them",
          load->workload(), DifferenceOf(*load, result_.plan.load, result_.plan.workload.description)));
    }
    return client_.CallSupervisor(request, kLoadTimeoutMs).status();  // it has all islands load
  }
  const absl::Status possible = client_.MayLoad(all_, result_.plan.load, kLoadTimeoutMs);
  if (!possible.ok()) return possible;
  // An island that restarted with a load that does not fit would never come back: the supervisor keeps one
  // only when all have taken it, whatever becomes of this command meanwhile.
  if (absl::Status told = client_.CallSupervisor(request, kCallTimeoutMs).status(); !told.ok()) return told;
  if (absl::Status loaded = FirstError(CallAll(request, kLoadTimeoutMs)); !loaded.ok()) return loaded;
  request.mutable_load()->set_in_place(true);
  return client_.CallSupervisor(request, kCallTimeoutMs).status();
}

absl::StatusOr<uint64_t> RunDriver::CountRows() const {
  const absl::StatusOr<AuditSum> found = Audit();
  if (!found.ok()) return found.status();
  return found->rows;
}

absl::StatusOr<RunDriver::AuditSum> RunDriver::Audit() const {
  AuditSum sum;
  for (const ClusterClient::Reply& reply : CallAll(AuditRequestOf(result_.plan), kAuditTimeoutMs)) {
    if (!reply.ok()) return reply.status();
    sum.value += reply->audit().value();
    sum.rows += reply->audit().rows();
    if (reply->audit().rows() == 0) ++sum.empty_islands;
  }
  return sum;
}

absl::Status RunDriver::TakeBase() {
  const std::vector<ClusterClient::Reply> replies = CallAll(SnapshotRequestOf(), kCallTimeoutMs);
  absl::Status reached = FirstError(replies);
  if (!reached.ok()) return reached;
  for (uint32_t i : all_) {
    const Snapshot& snapshot = replies[i]->snapshot();
    islands_[i].audit_committed = snapshot.audit_committed();
    islands_[i].audit_unknown = snapshot.audit_unknown();
    islands_[i].meter.Observe(snapshot);
    if (snapshot.boot_epoch() != islands_[i].epoch) islands_[i].lost = true;
  }
  return absl::OkStatus();
}

absl::Status RunDriver::StartAll() {
  result_.plan.began_ns = MonotonicMs() * 1'000'000;
  const std::vector<ClusterClient::Reply> replies = CallAll(StartRequest(result_.plan), kCallTimeoutMs);
  for (uint32_t i : all_) {
    if (replies[i].ok()) continue;
    if (!absl::IsUnavailable(replies[i].status())) return replies[i].status();
    islands_[i].lost = true;  // just now; it is started when it is back
  }
  return absl::OkStatus();
}

absl::StatusOr<RunResult> RunDriver::Run(Interrupts& interrupts) {
  Drain();  // branches of a coordinator that was killed are in the sum, and may be undone
  absl::Status base = TakeBase();
  if (!base.ok()) return base;
  absl::StatusOr<AuditSum> before = Audit();
  if (!before.ok()) return before.status();
  absl::Status driven = StartAll();
  if (driven.ok()) driven = Drive(interrupts);
  StopAll();
  if (!driven.ok()) return driven;
  if (!AnyLost()) Drain();
  CheckSum(*before);
  Collect();
  return std::move(result_);
}

absl::Status RunDriver::Drive(Interrupts& interrupts) {
  const RunOptions& options = result_.plan.options;
  const auto cancelled = [] {
    return absl::CancelledError("interrupted; the run is stopped on every island");
  };
  const Traffic traffic;  // opened before anything is measured: large machines have hundreds of counters
  int64_t left_ms = std::llround(options.warmup_s * 1000);
  while (left_ms > 0) {
    const int64_t step_ms = std::min(left_ms, kSampleIntervalMs);
    if (interrupts.Sleep(step_ms) != Interrupts::Wake::kTimeout) return cancelled();
    left_ms -= step_ms;
    if (left_ms > 0) Sample(Phase::kWarmup, -1);
  }
  Sample(Phase::kBase, 0);
  window_begin_ms_ = MonotonicMs();
  machine_before_ = ReadMachineTime();
  logger_before_ = ReadCoreTime(status_.log().logger_pid());
  const Traffic::Bytes carried_before = traffic.Read();
  const int64_t end_ms = window_begin_ms_ + std::llround(options.duration_s * 1000);
  for (int64_t next_ms = window_begin_ms_; next_ms < end_ms;) {
    next_ms = std::min(next_ms + kSampleIntervalMs, end_ms);
    if (interrupts.Sleep(next_ms - MonotonicMs()) != Interrupts::Wake::kTimeout) return cancelled();
    // To where the answers speak of, not to where the last of them was waited for.
    result_.measured_s = static_cast<double>(MonotonicMs() - window_begin_ms_) / 1000;
    Sample(Phase::kMeasure, result_.measured_s);
    absl::Status up = CheckStillUp();
    if (!up.ok()) return up;
    // After a slow sample the ones that were missed are skipped, not made up for: all but the last.
    while (next_ms + kSampleIntervalMs <= std::min(MonotonicMs(), end_ms - 1)) next_ms += kSampleIntervalMs;
  }
  const std::optional<CoreTime> logger = ReadCoreTime(status_.log().logger_pid());
  if (logger && logger_before_) result_.logger_ran_ns = logger->Since(*logger_before_).ran_ns;
  result_.traffic = traffic.Read().Since(carried_before);
  result_.traffic_problem = traffic.problem();
  const std::optional<MachineTime> machine = ReadMachineTime();
  if (machine && machine_before_) result_.stolen_fraction = machine->StolenSince(*machine_before_);
  return absl::OkStatus();
}

void RunDriver::Sample(Phase phase, double elapsed_s) {
  const std::vector<ClusterClient::Reply> replies = CallAll(SnapshotRequestOf(), kSampleTimeoutMs);
  double committed_per_s = 0;
  double aborted_per_s = 0;
  for (uint32_t i : all_) {
    Island& island = islands_[i];
    SeriesRow row{.elapsed_s = elapsed_s, .island = i};
    const std::optional<CoreTime> core = CoreTimePassed(island, status_.islands(static_cast<int>(i)).pid());
    unreached_[i] = !replies[i].ok();
    if (absl::IsUnavailable(replies[i].status())) island.lost = true;  // a slow answer alone is no loss
    if (unreached_[i] && phase != Phase::kWarmup) island.silent = true;
    if (replies[i].ok()) {
      const Snapshot& snapshot = replies[i]->snapshot();
      IslandMeter::Step step = island.meter.Observe(snapshot);
      if (snapshot.boot_epoch() != island.epoch) island.lost = true;
      const std::vector<uint64_t> latency = step.sums.latency();
      row.reached = true;
      row.clients_waiting = step.clients_waiting;
      row.seconds = step.seconds > 0 ? step.seconds : kSampleIntervalMs / 1000.0;
      row.p50_us = instance::PercentileUs(latency, 0.50);
      row.p95_us = instance::PercentileUs(latency, 0.95);
      row.p99_us = instance::PercentileUs(latency, 0.99);
      if (phase == Phase::kMeasure) {
        island.sums.Add(step.sums);
        island.seconds += step.seconds;
      }
      if (core) {
        const IslandResult interval{.workers = WorkersOf(i), .seconds = row.seconds};
        row.cpu_fraction = interval.OfWorkersTime(core->ran_ns);
        row.core_wait_fraction = interval.OfWorkersTime(core->waited_ns);
      }
      row.sums = std::move(step.sums);
      for (ScopeSums& scope : row.sums.scopes) scope.latency.clear();
      committed_per_s += static_cast<double>(row.sums.committed()) / row.seconds;
      aborted_per_s += static_cast<double>(row.sums.aborted()) / row.seconds;
      Rejoin(i, snapshot);
    }
    if (phase == Phase::kMeasure) {
      if (core) island.core_time.Add(*core);
      island.core_time_known &= core.has_value();
      result_.series.push_back(std::move(row));
    }
  }
  if (phase != Phase::kBase) progress_(elapsed_s, committed_per_s, aborted_per_s, LostNow());
}

// An island that was started again is another process, of which `status_` does not know.
std::optional<CoreTime> RunDriver::CoreTimePassed(Island& island, int32_t pid) {
  const std::optional<CoreTime> now = ReadCoreTime(pid);
  const std::optional<CoreTime> before = std::exchange(island.core_before, now);
  return now && before ? std::optional(now->Since(*before)) : std::nullopt;
}

uint32_t RunDriver::WorkersOf(uint32_t island) const {
  return static_cast<uint32_t>(status_.configs(static_cast<int>(island)).workers_size());
}

// A restarted island has forgotten the run. If it refuses, the next sample asks again.
void RunDriver::Rejoin(uint32_t island, const Snapshot& snapshot) {
  if (snapshot.running() || snapshot.boot_epoch() == islands_[island].epoch) return;
  const ClusterClient::Reply started =
      client_.CallIsland(island, StartRequest(result_.plan), kSampleTimeoutMs);
  if (!started.ok()) {
    fmt::print(stderr, "island {} is back but does not run yet: {}\n", island,
               std::string(started.status().message()));
  }
}

// With no island left the supervisor tells whether they will come back or the deployment was taken down.
absl::Status RunDriver::CheckStillUp() const {
  if (LostNow() < islands_.size()) return absl::OkStatus();
  const absl::StatusOr<control::v1::ClusterStatus> status = client_.Status(kSampleTimeoutMs);
  if (status.ok() ? !status->stopping() : !absl::IsUnavailable(status.status())) return absl::OkStatus();
  const std::string why = client_.WhyEnded();
  return absl::UnavailableError(fmt::format("the deployment {} during the run; there is no result",
                                            !why.empty()  ? "has ended by itself (" + why + ")"
                                            : status.ok() ? "is being taken down"
                                                          : "was taken down, or its supervisor killed,"));
}

size_t RunDriver::LostNow() const {
  return static_cast<size_t>(std::count(unreached_.begin(), unreached_.end(), true));
}

void RunDriver::StopAll() {
  Request stop;
  stop.mutable_stop_run()->set_run_id(result_.plan.run_id);
  Request status;
  status.mutable_status();
  const int64_t transaction_ms = static_cast<int64_t>(status_.configs(0).transaction_timeout_ms());
  std::vector<ClusterClient::Reply> replies = CallAll(stop, transaction_ms + kStopSlackMs);
  for (uint32_t i : all_) {
    // Slow is not hung: one that still answers gets all the time it wants for its transactions.
    if (absl::IsDeadlineExceeded(replies[i].status())) {
      const bool hung = !client_.CallIsland(i, status, kSampleTimeoutMs).ok();
      if (!hung) replies[i] = client_.CallIsland(i, stop, kSlowStopMs);
      islands_[i].lost |= hung;
    }
    if (!replies[i].ok() && !absl::IsUnavailable(replies[i].status())) {
      fmt::print(stderr, "{}\n", std::string(replies[i].status().message()));
    }
  }
}

bool RunDriver::AnyLost() const {
  return std::any_of(islands_.begin(), islands_.end(), [](const Island& island) { return island.lost; });
}

// Coordinators have finished; participants may still have a rollback or a release of locks to do.
void RunDriver::Drain() {
  const int64_t until_ms = MonotonicMs() + kDrainMs;
  for (;;) {
    uint64_t open = 0;
    for (const ClusterClient::Reply& reply : CallAll(SnapshotRequestOf(), kCallTimeoutMs)) {
      if (reply.ok()) open += reply->snapshot().branches_open();
    }
    if (open == 0 || MonotonicMs() >= until_ms) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void RunDriver::CheckSum(const AuditSum& before) {
  SumCheck& sum = result_.sum;
  sum.island_lost = AnyLost();
  if (sum.island_lost) return;
  const std::vector<ClusterClient::Reply> replies = CallAll(SnapshotRequestOf(), kCallTimeoutMs);
  for (uint32_t i : all_) {
    Island& island = islands_[i];
    if (!replies[i].ok() || replies[i]->snapshot().boot_epoch() != island.epoch) {
      island.lost = true;
      continue;
    }
    sum.committed += replies[i]->snapshot().audit_committed() - island.audit_committed;
    sum.unknown += replies[i]->snapshot().audit_unknown() - island.audit_unknown;
  }
  sum.before = before.value;
  sum.rows_total = result_.plan.rows_total;
  sum.island_lost = AnyLost();
  if (sum.island_lost) return;
  const absl::StatusOr<AuditSum> after = Audit();
  if (!after.ok()) {
    sum.broken = std::string(after.status().message());
    fmt::print(stderr, "the audit after the run failed: {}\n", sum.broken);
    sum.island_lost = absl::IsUnavailable(after.status());
    return;
  }
  sum.after = after->value;
  sum.rows = after->rows;
}

void RunDriver::Collect() {
  for (uint32_t i : all_) {
    Island& island = islands_[i];
    // An island that was away has no clock of its own for the whole window.
    const double seconds = island.lost || island.silent ? result_.measured_s : island.seconds;
    result_.islands.push_back(
        {.island = i,
         .workers = WorkersOf(i),
         .lost = island.lost,
         .silent = island.silent && !island.lost,
         .seconds = seconds,
         .sums = std::move(island.sums),
         .core_time = island.core_time_known ? std::optional(island.core_time) : std::nullopt});
  }
}

}  // namespace islands::deploy
