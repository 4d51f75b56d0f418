// How `check` and `plan` show what would run, and how commands write what a person keeps.
//
// Thread safety: plain functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/plan/pools.h"
#include "deploy/plan/resolve.h"
#include "topology/machine.h"

namespace islands::deploy {

std::string RenderPlan(const ResolvedDeployment& resolved, const PredictedPools& pools);
// `pools`: null: without a word on them.
nlohmann::ordered_json PlanJson(const ResolvedDeployment& resolved, const PredictedPools* pools = nullptr);

// Packages, nodes, caches, cores: everything the model holds. `plan` shows only its summary.
nlohmann::ordered_json MachineJson(const topology::Machine& machine);
nlohmann::ordered_json MachineSummaryJson(const topology::Machine& machine);

// Of `file:line:column: found X, expected Y`: {"file", "line", "column", "found", "expected"} each.
nlohmann::ordered_json ComplaintsJson(const std::vector<std::string>& complaints);

// "0-5"; "3" for a single site.
std::string FormatSites(partitioner::SiteRun sites);

// Never overwrites: a deployment file may be the only description of existing data, and a measured machine
// cost minutes.
absl::Status WriteNew(const std::string& path, const std::string& text);

}  // namespace islands::deploy
