// Says whether what was observed of a scenario may happen.
//
// Three judges, each alone enough to fail a run: what a step was allowed to return (`->` in the script), the
// anomalies the script names, and - knowing nothing of either - a search for a serial order of the committed
// transactions that explains every result and the final rows, and in which nobody comes before a transaction
// that had ended before he began (strict serializability).
//
// Thread safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "instance/simulation/isolation/placement.h"
#include "instance/simulation/isolation/script.h"

namespace islands::simulation::isolation {

enum class End : uint8_t { kNever, kCommitted, kAborted, kUnknown };

// What was seen of one run of a scenario.
struct Observation {
  static constexpr uint32_t kNotYet = std::numeric_limits<uint32_t>::max();
  struct StepSeen {
    bool done = false;     // it returned `result`
    bool blocked = false;  // not within the time that a free step takes
    std::string result;
  };
  struct SessionSeen {
    End end = End::kNever;
    std::string why;             // it aborted without being told to
    uint32_t over_by = kNotYet;  // after this step of the scenario its end was known
  };
  std::vector<StepSeen> steps;        // as Scenario::steps
  std::vector<SessionSeen> sessions;  // by number
  Rows final_rows;
  std::string amiss;  // what is wrong although all have ended: something held or open; empty = nothing
};

// How a run passed, or that it did not.
enum class Verdict : uint8_t { kSerial, kBlocked, kAborted, kAnomaly, kFailed };
std::string_view Name(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::kSerial;
  std::string detail;  // who blocked or aborted; what is wrong

  bool passed() const { return verdict < Verdict::kAnomaly; }
};

// One step on rows that nobody else uses: what it returns, and what it leaves.
std::string Apply(const Step& step, Placement placement, Rows* rows);

// The first anomaly line that came true; null if none.
const Anomaly* FindAnomaly(const Scenario& scenario, const Observation& seen);
// Whether some serial order explains it.
bool IsStrictlySerializable(const Scenario& scenario, Placement placement, const Observation& seen);

Judgement Judge(const Scenario& scenario, Placement placement, const Observation& seen);

}  // namespace islands::simulation::isolation
