// Commands that are programs of their own, written in Python: experiments/{sweep,report,advise}.py,
// instance/gateway/tools/{client,table,history}.py. Only for words that IsTool knows.
//
// Thread safety: main thread only.
#pragma once

#include <string>
#include <vector>

#include "deploy/cli/commands.h"

namespace islands::deploy {

// So that `islands --help` lists them. Their own help is the program's.
void AddToolCommands(CLI::App& app);
bool IsTool(const std::string& word);
// Becomes the program, with all `arguments` but the command's name. Returns only if that fails: the exit
// code.
int ExecTool(const CommandContext& context, const std::string& tool,
             const std::vector<std::string>& arguments);

}  // namespace islands::deploy
