// The data files of one island: a file for each of its sites, one for copies of pages on their way there, and
// one for checkpoints.
//
//   DIRECTORY/generation-0000000001-site-00003         page n at n * 4096; site 65535: the replicated one
//            /generation-0000000001-double-write       double_write.h
//            /generation-0000000001-checkpoint         instance/recovery/checkpoint.h
//            /generation-0000000001-site-00003-b       the same sites in the other set: where snapshots are
//                                                      taken they go to the two in turns
//                                                      (instance/recovery/snapshot.h)
//
// A load writes all of them anew, as another generation (instance/recovery/island_data.h).
//
// Who uses them holds their locks, on the handles that he writes through: they fall only after the last write
// of an earlier life, and what they say is then all that it has said.
//
// Thread safety: plain values; owned by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/file_system.h"

namespace islands::storage {

struct DataFilesOptions {
  std::string directory;  // of the island
  uint64_t generation = 1;
  std::vector<uint32_t> sites;  // by slot, as in the store
  bool direct = false;          // past the page cache; where the file system can
};

class DataFiles {
 public:
  // UNAVAILABLE: somebody else uses them, or a dead one's writes are still in flight. NOT_FOUND.
  static absl::StatusOr<DataFiles> Open(runtime::FileSystem& files, const DataFilesOptions& options);
  // Empty files, instead of whatever an earlier attempt has left. Their names are durable; makes the
  // directory.
  static absl::StatusOr<DataFiles> Create(runtime::FileSystem& files, const DataFilesOptions& options);

  ~DataFiles();
  DataFiles(DataFiles&& other) noexcept;
  DataFiles& operator=(DataFiles&& other) noexcept;

  // The set of the sites' files that counts, as the checkpoint says; 0 at first. NOT_FOUND, UNAVAILABLE.
  absl::Status UseSet(uint32_t set);
  uint32_t set() const { return set_; }
  // The other one, for whoever writes all pages there; made if it is not there. Errors as of Create.
  absl::Status OpenOther();
  uint32_t other_set() const { return 1 - set_; }
  runtime::FileHandle other_site(size_t slot) const { return sites_[other_set()][slot]; }

  size_t slots() const { return options_.sites.size(); }
  uint32_t SiteOf(size_t slot) const { return options_.sites[slot]; }
  std::optional<size_t> SlotOf(uint32_t site) const;
  runtime::FileHandle site(size_t slot) const { return sites_[set_][slot]; }
  runtime::FileHandle double_write() const { return double_write_; }
  runtime::FileHandle checkpoint() const { return checkpoint_; }
  // For messages.
  std::string PathOf(size_t slot) const { return PathOf(set_, slot); }
  const DataFilesOptions& options() const { return options_; }

 private:
  static constexpr runtime::FileHandle kNone = -1;
  DataFiles(runtime::FileSystem& files, const DataFilesOptions& options)
      : files_(&files), options_(options) {}
  std::string PathOf(uint32_t set, size_t slot) const;
  absl::Status OpenAll(bool create);
  absl::Status OpenSet(uint32_t set, bool create);
  // Locked, from the first moment on.
  absl::Status OpenOne(const std::string& path, bool create, bool direct, runtime::FileHandle* file);

  runtime::FileSystem* files_;
  DataFilesOptions options_;
  std::array<std::vector<runtime::FileHandle>, 2>
      sites_;  // by set, and slot; a set that is not open is empty
  runtime::FileHandle double_write_ = kNone, checkpoint_ = kNone;
  uint32_t set_ = 0;
};

// How much the sites of a generation have at home, in one of the two sets; nothing is locked.
absl::StatusOr<uint64_t> BytesOfSites(runtime::FileSystem& files, const std::string& directory,
                                      uint64_t generation);
// Of a checkpoint in a directory.
std::string CheckpointPath(const std::string& directory, uint64_t generation);
// Removes the files of all generations but this one: nobody has them open.
absl::Status RemoveOtherGenerations(runtime::FileSystem& files, const std::string& directory,
                                    uint64_t generation);

}  // namespace islands::storage
