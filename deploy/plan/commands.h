// What can be asked without a running cluster: check, plan, machine.
//
// Thread safety: main thread only.
#pragma once

#include "deploy/cli/commands.h"

namespace islands::deploy {

void AddCheckCommand(CLI::App& app, CommandContext& context);
void AddPlanCommand(CLI::App& app, CommandContext& context);
void AddMachineCommand(CLI::App& app, CommandContext& context);

}  // namespace islands::deploy
