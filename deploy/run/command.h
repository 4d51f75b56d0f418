// `islands run FILE WORKLOAD`: one workload on a running deployment, from load to report; `islands load FILE
// WORKLOAD`: its rows alone; `islands template NISL`: a deployment file, perhaps for a workload.
//
// Thread safety: main thread only.
#pragma once

#include "deploy/cli/commands.h"

namespace islands::deploy {

void AddRunCommand(CLI::App& app, CommandContext& context);
void AddLoadCommand(CLI::App& app, CommandContext& context);
void AddTemplateCommand(CLI::App& app, CommandContext& context);

}  // namespace islands::deploy
