// An island's pages on disk as a whole: a new generation of files is written, or one is read in.
//
//   load       BeginGeneration, where the store is paged: it writes to the new files while it is filled.
//              WriteGeneration: all pages of a store, synced, then the first checkpoint. Whoever keeps the
//              manifest may name the generation then; until then the one before it is as it was
//   start      ReadGeneration: pages that are half home come from the double-write area; then all are read,
//              into a store of Store::CreateForRedo; a paged one reads them when it wants them. Redo and undo
//              follow (recovery.h)
//   life       the cleaner has it (cleaner.h)
//
// Nothing of a load is in the log. So its pages have LSN 1, which is below that of every change: pages with
// LSN 0 would be logged whole at their first.
//
// Thread safety: plain functions; they wait for the disk, and nobody else uses the store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "instance/log/segment.h"
#include "instance/recovery/checkpoint.h"
#include "instance/storage/catalog.h"
#include "instance/storage/files/data_files.h"
#include "instance/storage/store.h"
#include "runtime/file_system.h"

namespace islands::recovery {

struct IslandData {
  std::shared_ptr<storage::DataFiles> files;
  Checkpoint checkpoint;
};

struct IslandDataOptions {
  std::string directory;  // of the island
  uint64_t cluster = 0;
  uint32_t island = 0;
  uint64_t generation = 1;
  bool direct = false;
};

// How many pages of how many have been moved; called now and then.
using Progress = absl::FunctionRef<void(uint64_t done, uint64_t all)>;
inline void NoProgress(uint64_t /*done*/, uint64_t /*all*/) {}

// From where the log counts for a new generation. Once EPOCH has all that the island has ever appended, and
// the head of its ring has reached the tail: the epoch behind EPOCH's, and the end of the island's log there.
// So nothing old is of that epoch or later; and no box, whatever happens to it, stamps with an earlier one.
struct LogBegin {
  uint64_t bound = 0;
  log::LogPosition position;
};

// Of a paged store, before its pages change for a load: those that it has on disk are copied to the files of
// the new generation, and from then on what has to leave memory goes there. Every page of it will be written.
absl::StatusOr<std::shared_ptr<storage::DataFiles>> BeginGeneration(runtime::FileSystem& files,
                                                                    const IslandDataOptions& options,
                                                                    storage::Store& store);

// RESOURCE_EXHAUSTED: the disk is full. What is there of the generation is no obstacle for another attempt.
// `begun`: by BeginGeneration, for this store; null: it is resident.
absl::StatusOr<IslandData> WriteGeneration(runtime::FileSystem& files, const storage::Catalog& catalog,
                                           const IslandDataOptions& options, storage::Store& store,
                                           const LogBegin& begin, Progress progress,
                                           std::shared_ptr<storage::DataFiles> begun = nullptr);

// The files of a generation, without a look at pages: they are there, the checkpoint is of these data, and no
// file is shorter than it says. `sites`: by slot. Errors as of ReadGeneration.
absl::StatusOr<IslandData> OpenGeneration(runtime::FileSystem& files, const storage::Catalog& catalog,
                                          const IslandDataOptions& options,
                                          const std::vector<uint32_t>& sites);

// Pages that are not whole are left out: redo has to begin with an image of each, or says that there is
// DATA_LOSS; in a paged store that is found when they are wanted. RESOURCE_EXHAUSTED: they do not fit a
// resident pool. FAILED_PRECONDITION: they belong to other data.
// UNAVAILABLE: somebody else uses the files, or a dead one's writes are still in flight.
absl::StatusOr<IslandData> ReadGeneration(runtime::FileSystem& files, const storage::Catalog& catalog,
                                          const IslandDataOptions& options, storage::Store& store,
                                          Progress progress);

}  // namespace islands::recovery
