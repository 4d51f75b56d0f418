// What can be asked without a running cluster of one's own: check, plan, machine.
//
// Thread safety: main thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/plan/resolve.h"

namespace islands::deploy {

// What a person should know of other deployments that are up: for rooms above this one to say.
using NotesOnOthers = std::function<std::vector<std::string>(const ResolvedDeployment&)>;

void AddCheckCommand(CLI::App& app, CommandContext& context, NotesOnOthers others);
void AddPlanCommand(CLI::App& app, CommandContext& context, NotesOnOthers others);
void AddMachineCommand(CLI::App& app, CommandContext& context);

}  // namespace islands::deploy
