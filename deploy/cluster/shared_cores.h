// Which deployments of this machine have workers on cores of this one: islands wait for each other then, and
// nothing that is measured is worth anything. No obstacle: whoever wants that may have it.
//
// Thread safety: any thread.
#pragma once

#include <string>
#include <vector>

#include "deploy/plan/resolve.h"

namespace islands::deploy {

// A note for each, of those that are up in other control directories and run for this user, as far as the
// registry and what islands were started with say. None where one of the two is not bound: the kernel chooses
// then.
std::vector<std::string> NotesOnSharedCores(const ResolvedDeployment& resolved);

}  // namespace islands::deploy
