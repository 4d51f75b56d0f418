// A deployment's rows cut anew: for other islands, over other sites, or both.
//
//   Take      once for each island of before, in their order, with its rows as recovery makes them: they go
//             into the islands of the new cut, each of which becomes a generation of data files as soon as it
//             has all it will get
//   Switch    the manifest names the new cut and its generation, and that the log has to be made anew: this
//             one rename decides
//   Finish    the old log goes, an empty one comes, above every old epoch; the old files go; the manifest
//             says that it is done
//
// Who dies before the switch leaves the old cut and files that nobody needs (RemoveUnfinished); behind it the
// new one, and then Finish is due before anybody looks at the log. Both may be repeated.
//
// Rows are copied one by one and in order, so trees come out dense, whatever they were like, and files as
// long as they need: to the same cut it is what `islands compact` does. In memory are the pools of an island
// of before and of those of the new cut that it has rows for, each until it is whole.
//
// Thread safety: none; the caller has the locks of data and log, and no island lives.
//
// Invariants:
//  1. What the manifest names is whole at every moment.
//  2. Of the new cut nothing is stamped with an epoch that the old log had, and no boot epoch is used again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/recovery/island_data.h"
#include "instance/storage/catalog.h"
#include "instance/storage/manifest.h"
#include "instance/storage/store.h"
#include "partitioner/site_map.h"
#include "runtime/file_system.h"

namespace islands::recovery {

struct RelayoutOptions {
  std::string data_directory;  // of the deployment, as the next
  std::string log_directory;
  storage::Manifest have;               // of a generation of rows
  storage::Catalog::TableSpecs tables;  // all that its islands have, in their places
  uint32_t sites = 0;                   // of the new cut, as the next two
  std::vector<uint32_t> workers;        // by island
  std::vector<uint64_t> pool_bytes;     // by island
  bool paged = false;                   // what does not fit the pool of an island goes to its files meanwhile
};

class Relayout {
 public:
  // How many rows an island of the new cut has so far; not OK: it ends there.
  using Progress = absl::FunctionRef<absl::Status(uint32_t island, uint64_t rows)>;

  // FAILED_PRECONDITION: the log was not closed, and may have more than data files. DATA_LOSS: it is damaged.
  static absl::StatusOr<std::unique_ptr<Relayout>> Create(runtime::FileSystem& files,
                                                          RelayoutOptions options);

  // RESOURCE_EXHAUSTED: the rows do not fit an island's pool, which does not page, or the disk.
  absl::Status Take(uint32_t island, const storage::Store& rows, Progress progress);
  // All islands of before have been taken.
  absl::Status Switch();

  // What the manifest says from the switch on.
  const storage::Manifest& manifest() const { return to_; }
  // By island of the new cut; of replicated tables each has its own.
  const std::vector<uint64_t>& rows() const { return rows_; }

 private:
  struct Cut {
    storage::Catalog catalog;
    partitioner::SiteMap map;
  };
  Relayout(runtime::FileSystem& files, RelayoutOptions options, uint64_t epoch, Cut from, Cut to);
  // Keys that site `from` of before has and site `to` of the new cut gets.
  struct Share {
    int64_t begin = 0;
    int64_t end = 0;
  };
  Share ShareOf(storage::TableId table, uint32_t from, uint32_t to) const;
  void FindFeeders();
  absl::Status Copy(storage::TableId table, uint32_t from, const storage::Store& rows, uint32_t island,
                    uint32_t to, Share share, Progress progress);
  absl::Status CopyInto(uint32_t island, uint32_t from_island, const storage::Store& rows, Progress progress);
  absl::Status Begin(uint32_t island);
  absl::Status Write(uint32_t island);
  IslandDataOptions DataOf(uint32_t island) const;

  // Islands of before that an island of the new cut gets rows from: all from first to last.
  struct Feeders {
    uint32_t first = UINT32_MAX;
    uint32_t last = 0;
  };

  runtime::FileSystem& files_;
  const RelayoutOptions options_;
  storage::Manifest to_;
  const Cut from_;
  const Cut cut_;                                           // of to_
  std::vector<Feeders> feeders_;                            // by island of the new cut, as the next three
  std::vector<std::unique_ptr<storage::Store>> stores_;     // while it gets rows, as the next
  std::vector<std::shared_ptr<storage::DataFiles>> begun_;  // of one that pages
  std::vector<uint64_t> rows_;
  uint32_t written_ = 0;  // islands of the new cut
};

// If the manifest says that a relayout has come to its switch and no further. Saves what `manifest` is then.
// FAILED_PRECONDITION: the log was elsewhere. DATA_LOSS: the manifest makes no sense.
absl::Status FinishRelayout(runtime::FileSystem& files, const std::string& data_directory,
                            const std::string& log_directory, storage::Manifest* manifest);
// Files of generations that the manifest does not name, and of islands that it does not have.
absl::Status RemoveUnfinished(runtime::FileSystem& files, const std::string& data_directory,
                              const storage::Manifest& manifest);

}  // namespace islands::recovery
