// How long data files are. They grow by extents, before who writes pages comes to their end: so their blocks
// lie together, and most writes of new pages change nothing that the file system has to keep about the file.
//
//   extent   an eighth of what there is, from 256 KiB to 8 MiB
//
// What is behind the pages that a checkpoint counts is nobody's: zeros, or what a life has left that came to
// no checkpoint. Files only grow; whoever writes all pages anew makes them as long as these need
// (instance/recovery/island_data.h).
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "instance/storage/files/data_files.h"
#include "runtime/file_system.h"

namespace islands::storage {

// Before pages up to `end` of a slot are written, nothing else of whose file is being written. Where the disk
// has no room for an extent, or the file system no way to ask for it, writes find out whether they have some.
void GrowFor(runtime::FileSystem& files, const DataFiles& data, size_t slot, uint64_t end);

// How much the sites of a generation use of it: less than BytesOfSites by free pages, and what is behind the
// last one. By site headers as they are on disk, of which the log may know better; of a site whose header is
// not whole it is all of its file. Nothing is locked.
absl::StatusOr<uint64_t> UsedBytesOfSites(runtime::FileSystem& files, const std::string& directory,
                                          uint64_t generation);

}  // namespace islands::storage
