// That an island lives, and that a life of it is over: the kernel's lock on island-N.lock.
//
// The lock is taken before the island says anything to anybody, and falls when its process ends, however it
// ends: with the lock free, or held by a later life, the life that had it before is dead. A clock proves
// nothing of the kind.
//
//   island-N.lock    PID\nBOOT EPOCH\n, of the last holder
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/control.pb.h"

namespace islands::server {

// For the life of this process. ALREADY_EXISTS: another one has the lock.
absl::Status LockIsland(const control::v1::IslandConfig& config);

// Whether the life that had this boot epoch is over. False also if the file is not there or cannot be read:
// then nobody can tell. The life must have spoken to us, so it has had the lock.
bool ProvenDead(const std::string& control_directory, uint32_t island, uint64_t boot_epoch);

}  // namespace islands::server
