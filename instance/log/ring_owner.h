// RINGS/owner: of which log the rings of a directory are.
//
//   one line: DEVICE INODE DEVICE INODE PROCESS PATH
//
// Device and inode of the log's directory, then of the ring directory itself; the process that locked it
// last; the log directory's path without links, for people. A copy of the ring directory has another inode
// than the line says, and its rings are nobody's.
//
// It is replaced whole. Without one, or with one that is not such a line, rings are nobody's; so were those
// of versions before this file.
//
// Thread safety: plain values and functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace islands::log {

struct Place {
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string path;  // without links
};
// NOT_FOUND: there is nothing.
absl::StatusOr<Place> PlaceOf(const std::string& path);

struct RingOwner {
  Place log;
  uint64_t device = 0;  // of the ring directory
  uint64_t inode = 0;
  pid_t process = 0;

  // The same directory, whatever it is called now; or one whose disk has got another number meanwhile.
  bool IsAt(const Place& place) const {
    return log.inode == place.inode && (log.device == place.device || log.path == place.path);
  }
};

std::string ToText(const RingOwner& owner);
std::optional<RingOwner> ParseRingOwner(const std::string& text);

}  // namespace islands::log
