// How many pages of a site are in use, from the bytes of its header as they are on disk (site_space.h): for
// who looks at files without a pool.
//
// Thread safety: plain function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "instance/storage/pages/page.h"

namespace islands::storage {

// Header included, free pages not. Null: it is no header.
std::optional<uint64_t> UsedPagesOf(std::span<const std::byte, kPageBytes> header);

}  // namespace islands::storage
