// Segments as files: what they are called, and what their headers say, without reading the rest.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "instance/log/segment.h"
#include "runtime/file_system.h"

namespace islands::log {

// segment-0000000001 and so on.
std::string SegmentName(uint64_t number);
// The number in a name as above; 0: it is none.
uint64_t SegmentNumber(const std::string& name);

// `queue` has nothing in flight. `*bytes`: how long the file is, if it could be asked. NOT_FOUND: there is no
// file; DATA_LOSS: it does not begin with a header.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(runtime::FileSystem& files, runtime::FileSystem::Queue& queue,
                                                const std::string& path, uint64_t* bytes);

}  // namespace islands::log
