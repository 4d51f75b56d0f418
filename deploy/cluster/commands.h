// The options of the commands that lifecycle.h carries out.
//
// Thread safety: main thread only.
#pragma once

#include "deploy/cli/commands.h"

namespace islands::deploy {

void AddUpCommand(CLI::App& app, CommandContext& context);
void AddStatusCommand(CLI::App& app, CommandContext& context);
void AddLogsCommand(CLI::App& app, CommandContext& context);
void AddTxnCommand(CLI::App& app, CommandContext& context);
void AddPsCommand(CLI::App& app, CommandContext& context);
void AddRestartCommand(CLI::App& app, CommandContext& context);
void AddApplyCommand(CLI::App& app, CommandContext& context);
void AddDownCommand(CLI::App& app, CommandContext& context);
void AddVerifyCommand(CLI::App& app, CommandContext& context);
void AddRelayoutCommand(CLI::App& app, CommandContext& context);
void AddCompactCommand(CLI::App& app, CommandContext& context);
void AddDestroyCommand(CLI::App& app, CommandContext& context);
void AddSuperviseCommand(CLI::App& app, CommandContext& context);

}  // namespace islands::deploy
