// Runs scenarios on simulated clusters of the product.
//
// Steps are posted in the order of the script. The next one follows when the one before has returned, or when
// it has not for kBlockedNs: then it counts as blocked, and later steps of its session wait behind it.
//
// Thread safety: none; a run is one thread. Same scenario, arrangement and product: same result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "instance/simulation/isolation/judge.h"
#include "instance/simulation/isolation/placement.h"
#include "instance/simulation/isolation/script.h"
#include "runtime/clock.h"

namespace islands::simulation::isolation {

// Far more than a step takes that nobody hinders, and than it takes to find a deadlock; far less than the
// lock timeout.
inline constexpr int64_t kBlockedNs = 50 * runtime::kNsPerMs;

struct ScriptResult {
  std::string file;
  std::string scenario;
  Arrangement arrangement;
  Judgement judgement;

  bool passed() const { return judgement.passed(); }
  // One line; more if it did not pass.
  std::string Text() const;
};

Observation Observe(const Scenario& scenario, const Arrangement& arrangement);
ScriptResult RunScript(const Scenario& scenario, const Arrangement& arrangement);
// Every scenario in every arrangement. `each` sees a result as soon as it is there; false ends the whole.
std::vector<ScriptResult> RunAllScripts(const std::vector<Scenario>& scenarios,
                                        const std::vector<Arrangement>& arrangements,
                                        const std::function<bool(const ScriptResult&)>& each = {});

}  // namespace islands::simulation::isolation
