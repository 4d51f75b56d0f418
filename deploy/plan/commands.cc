// `islands check FILE` and `islands plan FILE`.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "deploy/cli/output.h"
#include "deploy/plan/commands.h"
#include "deploy/plan/output.h"
#include "deploy/plan/pools.h"
#include "deploy/plan/resolve.h"

namespace islands::deploy {
namespace {

// `pools`: what is said of them.
absl::StatusOr<ResolvedDeployment> ResolveWithNotes(const std::string& path, const NotesOnOthers& others,
                                                    PredictedPools* pools) {
  auto resolved = ResolveFile(path);
  if (!resolved.ok()) return resolved;
  for (std::string& note : others(*resolved)) resolved->notes.push_back(std::move(note));
  *pools = PredictPools(*resolved, *runtime::MakePosixFileSystem());
  for (std::string& note : NotesOnPools(*resolved, *pools)) resolved->notes.push_back(std::move(note));
  return resolved;
}

// What `up` would find where it runs.
absl::Status CheckSurroundings(const ResolvedDeployment& resolved) {
  std::vector<std::string> complaints;
  for (const absl::Status& status : {CheckDirectories(resolved), CheckPemFiles(resolved.deployment)}) {
    if (!status.ok()) complaints.emplace_back(status.message());
  }
  return complaints.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(complaints, "\n"));
}

int Check(const CommandContext& context, const std::string& path, const NotesOnOthers& others) {
  PredictedPools pools;
  auto resolved = ResolveWithNotes(path, others, &pools);
  if (resolved.ok()) {
    if (absl::Status here = CheckSurroundings(*resolved); !here.ok()) resolved = here;
  }
  // Only an invalid file is an answer; not being able to look is a failure.
  if (!resolved.ok() && resolved.status().code() != absl::StatusCode::kInvalidArgument) {
    return Fail(context, resolved.status());
  }
  const std::string message(resolved.status().message());
  if (context.json()) {
    const std::vector<std::string> complaints =
        resolved.ok() ? std::vector<std::string>{} : absl::StrSplit(message, '\n');
    nlohmann::ordered_json answer = {{"file", path}, {"valid", resolved.ok()}, {"complaints", complaints}};
    answer["details"] = ComplaintsJson(complaints);
    answer["notes"] = resolved.ok() ? resolved->notes : std::vector<std::string>{};
    PrintJson(answer);
  }
  if (!resolved.ok()) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return kExitUsage;
  }
  if (!context.json()) {
    fmt::print("{}: ok, {} on {}\n", path, resolved->plan.layout, resolved->machine.Summary());
    for (const std::string& note : resolved->notes) fmt::print("note: {}\n", note);
  }
  return kExitOk;
}

int Plan(const CommandContext& context, const std::string& path, const NotesOnOthers& others) {
  PredictedPools pools;
  const auto resolved = ResolveWithNotes(path, others, &pools);
  if (!resolved.ok()) return Fail(context, resolved.status());
  if (context.json()) {
    PrintJson(PlanJson(*resolved, &pools));
  } else {
    fmt::print("{}", RenderPlan(*resolved, pools));
  }
  return kExitOk;
}

}  // namespace

void AddCheckCommand(CLI::App& app, CommandContext& context, NotesOnOthers others) {
  auto path = std::make_shared<std::string>();
  CLI::App* check =
      app.add_subcommand("check", "Check a deployment file; say everything that is wrong with it");
  AddDeploymentFile(check, path.get());
  OnCommand(check, context, [&context, path, others] { return Check(context, *path, others); });
}

void AddPlanCommand(CLI::App& app, CommandContext& context, NotesOnOthers others) {
  auto path = std::make_shared<std::string>();
  CLI::App* plan =
      app.add_subcommand("plan", "Show what `up` would run: cores, memory, sites and ports per island");
  AddDeploymentFile(plan, path.get());
  OnCommand(plan, context, [&context, path, others] { return Plan(context, *path, others); });
}

}  // namespace islands::deploy
