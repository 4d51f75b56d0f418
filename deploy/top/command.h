// `islands top`: what every island does right now, in a terminal.
//
//   sample     rows and histories out of status and snapshots  no I/O
//   screen     rows and a view of them as lines                no I/O
//   columns    the table within them; text its numbers         no I/O
//   keys       keys that change the view                       no I/O
//   terminal   lines onto a terminal
//   command    asks the cluster, waits, and puts these together
//
// Thread safety: main thread only.
#pragma once

#include "deploy/cli/commands.h"

namespace islands::deploy {

void AddTopCommand(CLI::App& app, CommandContext& context);

}  // namespace islands::deploy
