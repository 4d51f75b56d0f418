// `islands profile`: where the time of a running deployment goes, over some seconds.
//
// Thread safety: main thread only.
#pragma once

#include "deploy/cli/commands.h"

namespace islands::deploy {

void AddProfileCommand(CLI::App& app, CommandContext& context);

}  // namespace islands::deploy
