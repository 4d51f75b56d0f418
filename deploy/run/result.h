// What a run found out, and how it is shown: JSON, text.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "deploy/run/core_time.h"
#include "deploy/run/counters.h"
#include "deploy/run/knee.h"
#include "deploy/run/options.h"
#include "deploy/run/traffic.h"

namespace islands::deploy {

// Where latencies begin. An island's own clients are its slots: nothing is due before one is free to do
// it, and latencies of an island that is overloaded look accordingly good.
std::string LatencyFrom(const RunOptions& options);

inline constexpr const char* kSumOk = "ok";
inline constexpr const char* kSumFailed = "failed";
inline constexpr const char* kSumSkipped = "skipped: island lost";

// What the audit of all rows says against what the islands counted as committed.
struct SumCheck {
  bool island_lost = false;
  std::string broken;  // what the audit after the run says of rows that are not as they have to be
  int64_t before = 0;  // sum over all rows before the run and after it drained
  int64_t after = 0;
  int64_t committed = 0;               // change of the sum that committed transactions make
  int64_t unknown = 0;                 // most that transactions of unknown outcome may have changed
  uint64_t rows = 0;                   // found by the audit after the run
  std::optional<uint64_t> rows_total;  // that there have to be

  std::string Verdict() const;
  std::string Explain() const;  // the numbers, for a failed check
};

struct IslandResult {
  uint32_t island = 0;
  uint32_t workers = 0;
  bool lost = false;    // it died, or could not be reached
  bool silent = false;  // it lives, but did not answer for a while: what it did last may be missing
  double seconds = 0;   // of the measured window
  Sums sums;
  std::optional<CoreTime> core_time;  // of the measured window; nothing if it was not to be had throughout
  struct Pool {                       // when it was over
    uint64_t bytes = 0;
    uint64_t data_bytes = 0;  // in memory or not
    bool paged = false;
  };
  std::optional<Pool> pool;  // nothing: it did not say

  // Of its workers' time: the share in which its threads had a core, or were ready without one.
  double OfWorkersTime(uint64_t ns) const;
  double PerSecond(uint64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

// One island's part of one sampling interval.
struct SeriesRow {
  double elapsed_s = 0;  // end of the interval, since measuring began
  uint32_t island = 0;
  bool reached = false;  // false: no snapshot, everything else is 0
  double seconds = 0;
  Sums sums;  // without latency buckets
  double p50_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  uint64_t clients_waiting = 0;        // for a slot, at its end
  std::optional<double> cpu_fraction;  // IslandResult::OfWorkersTime of the interval
  std::optional<double> core_wait_fraction;
};

// How the rate was found, with --rate auto.
struct RateSearch {
  double limit_us = 0;  // of p99
  bool limit_given = false;
  bool found = false;  // the last step was measured at length, and held
  std::vector<RateStep> steps;
};

struct RunResult {
  RunPlan plan;
  std::string deployment;
  std::string layout;
  std::string transport;
  std::string placement;
  std::string durability;   // of what the islands acknowledge
  std::string votes;        // epoch | forced
  std::string doctor;       // what it says of the machine, in short; empty: it was not asked
  std::string started_utc;  // "2026-01-31T12:00:00Z"
  double measured_s = 0;
  std::vector<IslandResult> islands;
  std::vector<SeriesRow> series;
  SumCheck sum;
  std::optional<RateSearch> rate_search;
  double stolen_fraction = 0;  // of all CPUs' time, while measuring
  uint64_t logger_ran_ns = 0;  // while measuring
  Traffic::Bytes traffic;      // of the whole machine, while measuring
  std::string traffic_problem;
  std::string run_directory;

  Sums Total() const;
  double CommittedPerSecond() const;  // sum of the islands' rates, each by its own clock
  // Of all workers' time; nothing if it is not known of every island.
  std::optional<double> CpuFraction() const;
  std::optional<double> CoreWaitFraction() const;
  // What of that is more than the deployment's own logger can have caused: other programs.
  std::optional<double> OthersFraction() const;
};

// How far a load is, as one asks again and again.
class LoadView {
 public:
  // A line, `seconds` after its beginning; empty: no island has said that it loads. An island that has says
  // nothing any more when it is done.
  std::string Text(const control::v1::ClusterStatus& status, double seconds);

 private:
  std::map<uint32_t, control::v1::LoadProgress> seen_;  // by island
};
nlohmann::ordered_json ResultJson(const RunResult& result);
std::string ResultText(const RunResult& result);

// 1234567 -> "1,234,567"
std::string Grouped(uint64_t number);

}  // namespace islands::deploy
