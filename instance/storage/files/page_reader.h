// Reads the pages of a data file from its beginning, many at a time.
//
// Thread safety: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "instance/storage/files/disk_page.h"
#include "runtime/file_system.h"

namespace islands::storage {

inline constexpr size_t kPagesPerRead = 64;
inline constexpr size_t kReadsInFlight = 16;  // 4 MiB of memory together

// Hands out pages 0 to `pages` - 1, in any order, as they are there: whole, torn or never written; zeros
// behind the file's end. Waits for the disk.
absl::Status ReadPages(runtime::FileSystem& files, runtime::FileHandle file, uint64_t pages,
                       absl::FunctionRef<void(uint64_t number, ConstPageBytes page)> visit);

}  // namespace islands::storage
