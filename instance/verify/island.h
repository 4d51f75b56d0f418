// An island's files, as recovery reads them: checkpoint, data files, log; then the island as it would make
// it, in memory: redo, undo of who has not ended, and every tree walked. Where it pages, all pages are read
// once as they are on disk, and again when trees are walked.
//
// Thread safety: plain function; the caller has the deployment's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/catalog.h"
#include "instance/storage/store.h"
#include "instance/verify/box.h"
#include "instance/verify/report.h"
#include "runtime/file_system_overlay.h"

namespace islands::verify {

struct IslandOptions {
  uint32_t island = 0;
  std::string data_directory;  // of the island
  std::string log_directory;   // of the deployment
  uint64_t cluster = 0;
  uint64_t generation = 1;
  uint64_t next_life = 1;         // that `up` would begin
  std::vector<uint32_t> workers;  // of every island, as it would begin
  partitioner::SiteRun sites;     // of the island
  uint64_t pool_bytes = 64u << 20;
  bool paged = false;  // what does not fit is read again when it is looked at
};

// What costs no walk, and `up` does before it starts anybody: the files are there and as long as the
// checkpoint says, checkpoint and EPOCH are of one time, and the log's segments that recovery needs follow
// each other. As below.
absl::Status LookAtIsland(runtime::OverlayFileSystem& files, const storage::Catalog& catalog,
                          const IslandOptions& options, const Box& box, Report* report);

// Not OK: it could not look. What it has found, and what the island is like, is in the report. `recovered`,
// if not null: the rows as it would make them; null where something keeps it from that.
absl::Status VerifyIsland(runtime::OverlayFileSystem& files, const storage::Catalog& catalog,
                          const IslandOptions& options, const Box& box, Progress progress, Report* report,
                          std::unique_ptr<storage::Store>* recovered = nullptr);

}  // namespace islands::verify
