// `islands run FILE WORKLOAD`: one workload on a running deployment, from load to report.
//
// Thread safety: main thread only.
#pragma once

#include "deploy/commands.h"
#include "deploy/run_options.h"

namespace islands::deploy {

// Returns the exit code: 1 also when the sum check failed, 130 when interrupted (the run is stopped on every
// island).
int Run(const CommandContext& context, const RunOptions& options);

}  // namespace islands::deploy
