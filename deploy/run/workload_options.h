// The parameters of a workload as options of `islands run`.
//
// Thread safety: main thread only.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/run/describe.h"
#include "deploy/run/options.h"

namespace CLI {
class App;
}

namespace islands::deploy {

// What is neither an option nor its value, of a command line whose options are not all known yet: of those
// that `islands run` may have, all but --help take a value.
std::vector<std::string> WordsOf(const std::vector<std::string>& arguments);

// Their values go into `*options`. INVALID_ARGUMENT: a parameter has the name of an option that is there.
absl::Status AddWorkloadOptions(const DescribedWorkload& workload, CLI::App* command, RunOptions* options);

}  // namespace islands::deploy
