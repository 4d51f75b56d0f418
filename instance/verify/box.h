// What all islands' data hang on: the log's MANIFEST, EPOCH, and the rings.
//
// As `up` finds out what was lost: the log was closed, and nothing is in rings; or all rings are there, and
// what nobody has drained is drained; or power was lost, and what is beyond EPOCH counts no more. The logger
// that drains is the real one, over files that forget (runtime/file_system_overlay.h), with copies of the
// rings.
//
// Thread safety: plain functions; the caller has the deployment's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "instance/log/box_id.h"
#include "instance/log/box_manifest.h"
#include "instance/log/epoch_file.h"
#include "instance/log/ring_directory.h"
#include "instance/verify/report.h"
#include "runtime/file_system_overlay.h"

namespace islands::verify {

struct BoxOptions {
  std::string log_directory;
  uint64_t cluster = 0;
  std::vector<uint32_t> workers;      // of every island
  std::vector<uint64_t> boot_epochs;  // of every island, as MANIFEST.json has them
  log::BoxId boot{};                  // of the kernel that runs
};

struct Rings {
  log::BoxId directory{};  // zeros: there is none
  std::vector<log::RingDirectory::Found> found;
};
// The directory with this id, wherever it is.
using FindRings = absl::FunctionRef<absl::StatusOr<Rings>(const log::BoxId& known)>;

struct Box {
  bool closed = false;              // `down` has ended it: nobody was writing
  std::vector<uint64_t> lives;      // of every island, the last one that was started
  std::vector<log::EpochCut> cuts;  // with the one that `up` would make
  log::EpochBlock synced;           // EPOCH, as it is on disk
  log::EpochBlock block;            // as it is once the rings are drained
};

// MANIFEST and EPOCH alone, as if there were no rings: what `up` looks at before it starts anybody. None:
// what is wrong keeps from looking any further, and is in the report.
absl::StatusOr<std::optional<Box>> LookAtBox(runtime::OverlayFileSystem& files, const BoxOptions& options,
                                             Report* report);
// All of it. None: as above.
absl::StatusOr<std::optional<Box>> OpenBox(runtime::OverlayFileSystem& files, const BoxOptions& options,
                                           FindRings find_rings, Report* report);

// A file of two blocks that are written in turns: whether the one that is not `number`, the newest, is whole
// too, or was never written. `decode` says whether it finds one that is.
bool OtherBlockIsWhole(std::string content, uint64_t number,
                       absl::FunctionRef<bool(const std::string&)> decode);

}  // namespace islands::verify
