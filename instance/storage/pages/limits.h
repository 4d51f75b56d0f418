// What keys, rows and trees may be.
//
// Thread safety: constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "partitioner/key_codec.h"

namespace islands::storage {

using partitioner::KeyView;
using RowView = std::span<const std::byte>;

inline constexpr uint32_t kReplicatedSite = 0xffff;  // where a replicated table lives, on every island
inline constexpr uint32_t kMaxSites = 0xfffe;
inline constexpr size_t kMaxRowBytes = 1536;
// Tables and indexes together: their roots are listed in one page per site.
inline constexpr size_t kMaxTrees = 256;

}  // namespace islands::storage
