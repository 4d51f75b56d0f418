// Copies of pages on their way home. A page that is written in its place may be torn by a loss of power; its
// copy is here then, whole, because it was synced before. So whatever page is half written, one of both is
// whole (InnoDB's double write).
//
//   double-write   offset   bytes
//                       0       8  magic "ISLDWRT1"
//                       8       8  number of the batch
//                      16       4  pages in it
//                      20       4  CRC-32C of the first 24 bytes with this field zero, and the checksums
//                      24  4 each  the pages' checksums, as in their headers
//                    4096 4096 each  the pages
//
// A batch overwrites the one before it, whose pages were synced at home before. Pages that stand behind those
// of the batch are older, and count as little as one whose checksum is not listed.
//
// Thread safety: plain functions.
//
// Invariant: 1. a page whose home may be torn is in the batch, and was synced there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/files/disk_page.h"
#include "runtime/file_system.h"

namespace islands::storage {

inline constexpr size_t kMostBatchPages = 1000;

// The header for `pages`, which are stamped.
void EncodeBatchHeader(uint64_t number, std::span<const DiskPage> pages, DiskPage* header);
// The pages of the file's batch that are whole; views of `file`. None if there is no batch: what was to be
// one had not been synced.
std::vector<ConstPageBytes> DecodeBatch(std::span<const std::byte> file);

// Before anything else reads the data files: pages that the batch has, and home has not or not surely, are
// written home and synced. Waits for the disk.
//
// All of the batch, though home may show it already: what can be read there is not on disk for sure if its
// writer died before the sync, or its sync failed. For the same reason the batch is written once more where
// it is: every sector of it is on disk already, or of no use.
absl::Status RestoreFromDoubleWrite(runtime::FileSystem& files, const DataFiles& data);

}  // namespace islands::storage
