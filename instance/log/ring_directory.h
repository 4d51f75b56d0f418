// Where the rings of a box are: a directory in shared memory, of this user alone, with a file per ring and
// one that says which directory this is.
//
//   id                             32 hexadecimal digits: random, made with the directory. The log's manifest
//                                  has them too, so that a directory that was removed and made again is not
//                                  taken for the old one
//   owner                          the log that the rings are of: ring_owner.h
//   island-1.worker-0.life-7.ring  a ring (ring.h); its header says the same as its name
//   *.new                          a file that is being made; what somebody who died has left of it, Make
//                                  removes
//
// The directory is looked at through a descriptor, so that what was checked is what is used; rings are opened
// by name, as private files (runtime/private_files.h): planting one takes our user.
//
// A copy of a deployment's data has the same cluster, so the same ring directory unless its file says
// otherwise, and a manifest with the same id. So whoever makes and removes has the kernel's lock (flock) on
// the directory itself; and rings are of one log directory, which the owner names by its device and inode:
//
//   the lock is held                    refused, whoever asks
//   rings of this log, or nobody's      they are used, or removed, as the manifest says
//   rings of another log                refused: what that one acknowledged last may be nowhere else
//   no rings, of another log            taken over, with a new id
//
// A log that was moved in its file system stays the same one; one that was copied is another. Rings that were
// themselves copied, as with a whole folder, are nobody's, and go to the log whose manifest names their id.
//
// Thread safety: none within a process. One process, which has the lock, makes and removes; the others open.
//
// Invariants:
//  1. The directory is no link, is ours, and nobody else may list, enter or change it.
//  2. Nothing in it is made, changed or removed without the lock, or while it has rings of another log. Rings
//     come after the owner's name.
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
#include "instance/log/ring_owner.h"
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
    std::string fallback;       // in the log directory; empty: none
    uint64_t bytes = 0;         // that the rings of a whole box take, headers included
    BoxId known{};              // that the manifest names: rings may be there; zeros: none
    std::string log_directory;  // whose they are
  };
  // The one that is known, wherever it is; else makes one at `path`, or, if there is no room, at the
  // fallback, and then `*warning` says so. RESOURCE_EXHAUSTED: there is no room at either; otherwise as Make.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> Choose(const Choice& choice, std::string* warning);

  // As it is, or a new one; with the lock, as long as the object lives, and for that log. PERMISSION_DENIED:
  // invariant 1. FAILED_PRECONDITION: invariant 2; says whose it is, and what to do.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> Make(const std::string& path,
                                                             const std::string& log_directory);
  // Without the lock. NOT_FOUND: there is none, or it has no id.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> Open(const std::string& path);
  // As somebody may have left it who died making it: id() is zeros.
  static absl::StatusOr<std::unique_ptr<RingDirectory>> OpenWithoutId(const std::string& path);

  const std::string& path() const { return path_; }
  const BoxId& id() const { return id_; }
  // FAILED_PRECONDITION: somebody else has the lock; says who.
  absl::Status Lock() const;
  // FAILED_PRECONDITION: it is, or was when its owner died, of another log; says which, and what to do.
  absl::Status CheckIsOf(const std::string& log_directory) const;
  // RESOURCE_EXHAUSTED: not so much room, counting what its rings take already.
  absl::Status CheckRoom(uint64_t bytes) const;
  // The same besides what they take.
  absl::Status CheckRoomForMore(uint64_t bytes) const;

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
  // Of the file that has the ring's name; 0: none has.
  uint64_t Inode(const StreamId& stream) const;

 private:
  RingDirectory(std::string path, runtime::UniqueFd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  absl::StatusOr<std::vector<std::string>> Names() const;
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  absl::StatusOr<std::optional<RingOwner>> ReadOwner() const;
  absl::Status Own(const std::string& log_directory) const;
  absl::Status ReadId();
  absl::Status MakeId();
  absl::Status Write(const char* name, const std::string& text) const;
  absl::Status RemoveUnfinished() const;
  absl::Status RemoveFile(const std::string& name) const;

  const std::string path_;
  const runtime::UniqueFd directory_;
  BoxId id_{};
};

}  // namespace islands::log
