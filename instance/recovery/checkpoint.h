// The checkpoint of an island: from where its log has to be read, given the pages in its data files.
//
//   file     two blocks of CheckpointBlockBytes(sites), written in turns, each synced before the next begins
//   block    offset   bytes
//                 0       8  magic "ISLCHKP1"; "ISLCHKP2" where offset 84 is not 0, which versions before
//                            that did not look at
//                 8       8  number of the block: how many were written, this one included; it lies at block
//                            number mod 2
//                16       8  cluster: as in the log's segments
//                24       8  generation of the data files
//                32       8  schema: fingerprint of the tables and their sites
//                40       8  bound: an epoch
//                48       8  taken: an epoch
//                56  8 + 8   segment and offset: a position in the island's log
//                72       4  island
//                76       4  sites
//                80       4  CRC-32C of the block up to the last site, with this field zero
//                84       4  1: the second set of data files counts, not the first; 2: they are a snapshot
//                88  16 each  for every site: its number (8), its pages (8)
//
// It says:
//  1. Whatever was changed in epochs before the bound is in the files: in the first `pages` pages of each
//     site, all of which have been written. What comes to pages behind those begins with an image in the log.
//  2. Records of epochs from the bound on are behind the position.
//  3. A transaction with records of earlier epochs had ended when the checkpoint was taken; that end is of no
//     later epoch than `taken`.
//  4. Of a snapshot: the files have what was changed in epochs up to `taken`, and nothing that was later.
//
// It may be written only when `taken` is durable everywhere: the ends of 3 could be in a cut otherwise, and
// nobody would undo what is in the pages.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/segment.h"
#include "instance/storage/catalog.h"
#include "instance/storage/files/data_files.h"
#include "runtime/file_system.h"

namespace islands::recovery {

struct Checkpoint {
  struct Site {
    uint64_t site = 0;
    uint64_t pages = 0;
  };
  uint64_t number = 0;
  uint64_t cluster = 0;
  uint64_t generation = 0;
  uint64_t schema = 0;
  uint64_t bound = 0;
  uint64_t taken = 0;
  log::LogPosition position;
  uint32_t island = 0;
  std::vector<Site> sites;  // by slot
  uint32_t set = 0;         // of data files (storage::DataFiles)
  bool snapshot = false;
};

size_t CheckpointBlockBytes(size_t sites);
std::vector<std::byte> EncodeCheckpoint(const Checkpoint& checkpoint);
// The newest valid block of the whole file. DATA_LOSS: there is none.
absl::StatusOr<Checkpoint> DecodeCheckpointFile(std::span<const std::byte> file);

// How many pages, free ones included, the data of a generation have by its checkpoint: their files are longer
// by what they grow beforehand, and the log may know of more. DATA_LOSS: there is none that is whole. Nothing
// is locked.
absl::StatusOr<uint64_t> PagesAtHome(runtime::FileSystem& files, const std::string& directory,
                                     uint64_t generation);

// Of the first so many tables, all unless said otherwise, dropped ones among them. The same in all
// versions, for tables that are laid out alike.
uint64_t SchemaFingerprint(const storage::Catalog& catalog, size_t tables = SIZE_MAX);
// The same with which of them are dropped: what has been asked for one view of them is good for that view
// only.
uint64_t TablesFingerprint(const storage::Catalog& catalog);
// Of files that were written when the catalog had perhaps fewer tables: tables only come, behind the others.
bool IsSchemaOf(uint64_t schema, const storage::Catalog& catalog);

// FAILED_PRECONDITION: it belongs to other data than `expected`, of which all but bound, position and pages
// is compared. `path` is for the message.
absl::Status CheckSameData(const Checkpoint& found, const Checkpoint& expected, const std::string& path);

// Of the files; what it says is durable afterwards, whoever wrote it and died before the sync. Waits for the
// disk. DATA_LOSS: there is none that is whole.
absl::StatusOr<Checkpoint> ReadCheckpoint(runtime::FileSystem& files, const storage::DataFiles& data);
// The first of new files, whose pages are synced: from now on they are whole.
absl::Status WriteFirstCheckpoint(runtime::FileSystem& files, const storage::DataFiles& data,
                                  const Checkpoint& checkpoint);
// Whether the generation was ever finished, and is durable as far as one can see.
bool IsGenerationWhole(runtime::FileSystem& files, const std::string& directory, uint64_t generation);

}  // namespace islands::recovery
