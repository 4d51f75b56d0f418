// The log of a deployment as one of its islands sees it: epochs in memory that all share, rings in a
// directory, files that the logger has written.
//
// Thread safety: none; the seam is used as island/keeper.h says.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "instance/island/keeper.h"
#include "instance/log/board.h"
#include "instance/log/ring_directory.h"
#include "proto/control.pb.h"
#include "runtime/file_system.h"

namespace islands::server {

class ServerLog {
 public:
  // `board`: a descriptor of memory that the supervisor made. NOT_FOUND, PERMISSION_DENIED: as RingDirectory
  // says of the directory with the rings.
  static absl::StatusOr<std::unique_ptr<ServerLog>> Open(const control::v1::IslandConfig& config, int board,
                                                         runtime::FileSystem& files);
  const instance::LogSeam& seam() const { return seam_; }

 private:
  ServerLog() = default;
  absl::Status Read(runtime::FileSystem& files, uint32_t island, const log::LogPosition& begin,
                    instance::LogSeam::TakeRecord take) const;

  std::unique_ptr<log::Board> board_;
  std::unique_ptr<log::RingDirectory> rings_;
  instance::LogSeam seam_;
};

}  // namespace islands::server
