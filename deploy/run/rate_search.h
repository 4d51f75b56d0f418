// `islands run --rate auto`: runs at one rate after the other until the knee is found (knee.h), then measures
// there.
//
// Every step is a run of its own, audited like any other, with an id of its own; short ones take a second, or
// the duration if that is shorter.
//
// Thread safety: main thread only.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/cluster/client.h"
#include "deploy/processes/interrupts.h"
#include "deploy/run/driver.h"
#include "deploy/run/knee.h"
#include "deploy/run/result.h"

namespace islands::deploy {

struct RateSearchSeams {
  RunDriver::Progress progress;                        // while it is measured at length
  std::function<void(const RateStep&)> on_step;        // a step has ended
  std::function<absl::Status(uint64_t run_id)> on_id;  // the next step is to have this id
};

// The rows are loaded. The result is of the last run, at length where a rate was found, with all steps. A
// step whose sum is wrong, whose transactions have read what cannot be or that lost an island ends the
// search, and is the result. FAILED_PRECONDITION: no rate holds. CANCELLED when interrupted.
absl::StatusOr<RunResult> FindRate(const ClusterClient& client, const RunPlan& plan, Interrupts& interrupts,
                                   const RateSearchSeams& seams);

// "12,000/s due  11,990 committed/s  p50 80 us  p99 ... us  holds", or "does not hold: 40 waited at the end".
std::string StepText(const RateStep& step);
nlohmann::ordered_json RateSearchJson(const RateSearch& search);
std::string RateSearchText(const RateSearch& search);

}  // namespace islands::deploy
