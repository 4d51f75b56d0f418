// Where the rings of a box are: a directory in shared memory, of this user alone, with a file per ring and
// one that says which directory this is.
//
//   id                             32 hexadecimal digits: random, made with the directory. The log's manifest
//                                  has them too, so that a directory that was removed and made again is not
//                                  taken for the old one
//   island-1.worker-0.life-7.ring  a ring (ring.h); its header says the same as its name
//   *.new                          a file that is being made; what somebody who died has left of it, Make
//                                  removes
//
// The directory is looked at through a descriptor, so that what was checked is what is used; rings are opened
// by name, as private files (runtime/private_files.h): planting one takes our user.
//
// Thread safety: none within a process. One process, which has the deployment's lock, makes and removes; the
// others open.
//
// Invariant: 1. the directory is no link, is ours, and nobody else may list, enter or change it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/log/box_id.h"
#include "instance/log/ring.h"
#include "runtime/descriptor.h"

namespace islands::log {

std::string RingName(const StreamId& stream);
// Only what RingName makes.
std::optional<StreamId> ParseRingName(const std::string& name);
// Under /dev/shm, by the fingerprint of the cluster's id.
std::string DefaultRingDirectory(uint64_t cluster);

class RingDirectory {
 public:
  struct Choice {
    std::string path;
    std::string fallback;  // in the log directory; empty: none
    uint64_t bytes = 0;    // that the rings of a whole box take, headers included
    BoxId known{};         // that the manifest names: rings may be there; zeros: none
  };
  // The one that is known, wherever it is; else makes one at `path`, or, if there is no room, at the
  // fallback, and then `*warning` says so. RESOURCE_EXHAUSTED: there is no room at either; PERMISSION_DENIED:
  // invariant 1.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> Choose(const Choice& choice, std::string* warning);

  // As it is, or a new one.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> Make(const std::string& path);
  // NOT_FOUND: there is none, or it has no id.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const BoxId& id() const { return id_; }
  // RESOURCE_EXHAUSTED: not so much room, counting what its rings take already.
  absl::Status CheckRoom(uint64_t bytes) const;

  struct Found {
    StreamId stream;                             // by its name
    absl::StatusOr<std::shared_ptr<Ring>> ring;  // DATA_LOSS: it is damaged
  };
  // All rings, by stream. Whole ones have whole records from head to tail.
  absl::StatusOr<std::vector<Found>> List() const;
  absl::StatusOr<std::shared_ptr<Ring>> OpenRing(const StreamId& stream) const;
  absl::StatusOr<std::shared_ptr<Ring>> MakeRing(const StreamId& stream, size_t capacity) const;
  // Of lives of the island before `life`: they have been drained (box_manifest.h says when).
  absl::Status RemoveEarlier(uint32_t island, uint64_t life) const;
  // Of all lives: they count no more, or all of them is in EPOCH.
  absl::Status RemoveRings() const;
  // And the directory itself.
  absl::Status Remove() const;

  // Somebody has removed or moved it: what is appended to its rings survives no kill of all who use them.
  bool Gone() const;
  // The ring's name is still there.
  bool Has(const StreamId& stream) const;

 private:
  RingDirectory(std::string path, runtime::UniqueFd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  static absl::StatusOr<std::unique_ptr<RingDirectory>> OpenWithoutId(const std::string& path);
  absl::StatusOr<std::vector<std::string>> Names() const;
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  absl::Status ReadId();
  absl::Status MakeId();
  absl::Status RemoveUnfinished() const;
  absl::Status RemoveFile(const std::string& name) const;

  const std::string path_;
  const runtime::UniqueFd directory_;
  BoxId id_{};
};

}  // namespace islands::log
