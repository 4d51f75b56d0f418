// 128 random bits that tell one thing from all others of its kind: a boot of this machine's kernel, a ring
// directory.
//
// Thread safety: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/file_system.h"

namespace islands::log {

using BoxId = std::array<uint8_t, 16>;  // all zeros: none

absl::StatusOr<BoxId> MakeBoxId();
// 32 hexadecimal digits, and back; dashes and white space between them are no part of it. DATA_LOSS: it is
// none.
std::string ToText(const BoxId& id);
absl::StatusOr<BoxId> ParseBoxId(std::string_view text);

// What files of one cluster are told from those of another by: 64 bits of its id, which is a BoxId's text.
absl::StatusOr<uint64_t> ClusterFingerprint(std::string_view cluster_id);

// Of the kernel that runs: another one after every boot. The same in all containers of the machine.
absl::StatusOr<BoxId> KernelBootId(runtime::FileSystem& files);

}  // namespace islands::log
