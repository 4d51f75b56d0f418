// A stopped deployment's rows, written anew beside the files that have them: as its file cuts them now
// (`islands relayout`), or cut as they are, in as little room as they need (`islands compact`). One rename of
// the manifest decides (instance/recovery/relayout.h).
//
// Thread safety: main thread; the caller has the deployment's locks (stopped_data.h).
//
// Invariant: 1. whatever ends it before the rename, all is as it was, but for files that nobody needs, which
// the next one removes, and `up`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/plan/resolve.h"
#include "instance/recovery/relayout.h"
#include "instance/storage/manifest.h"
#include "runtime/file_system.h"

namespace islands::deploy {

struct Rewritten {
  std::vector<uint64_t> rows;  // by island of the new files
  double seconds = 0;
};

class Rewrite {
 public:
  // `disk` and `resolved` outlive it. `command`: for messages, as in "relayout".
  Rewrite(const ResolvedDeployment& resolved, runtime::FileSystem& disk, std::string command)
      : resolved_(resolved), disk_(disk), command_(std::move(command)) {}

  // What is there, cut as it is, once a rewrite that has come to its rename has been finished, if `finishes`.
  // FAILED_PRECONDITION: the file differs from it in more than the cut.
  absl::StatusOr<storage::Manifest> Load(bool finishes);
  // Whether there is anything in the way, short of the rows. Writes nothing. FAILED_PRECONDITION: it was not
  // taken down.
  absl::Status Check(const storage::Manifest& have);
  // `may_switch`: asked when all is written but the manifest. CANCELLED: Ctrl-C.
  absl::StatusOr<Rewritten> Run(const storage::Manifest& have, absl::FunctionRef<absl::Status()> may_switch);

  // By island, of the files that the manifest names.
  std::vector<uint64_t> BytesOf(const storage::Manifest& manifest);

 private:
  absl::StatusOr<std::unique_ptr<recovery::Relayout>> Begin(const storage::Manifest& have);
  absl::Status Copy(const storage::Manifest& have, recovery::Relayout& relayout);
  void Clean(const storage::Manifest& manifest);

  const ResolvedDeployment& resolved_;
  runtime::FileSystem& disk_;
  const std::string command_;
};

}  // namespace islands::deploy
