// What is to be said of the pages of an island's data files, once they have been read and the log was
// repeated.
//
// Thread safety: plain functions.
#pragma once

#include "absl/status/status.h"
#include "instance/log/epoch_file.h"
#include "instance/log/lsn.h"
#include "instance/recovery/island_data.h"
#include "instance/storage/store.h"
#include "instance/verify/report.h"
#include "runtime/file_system.h"

namespace islands::verify {

struct PageBounds {
  uint64_t durable = 0;  // the epoch that EPOCH says: no page is written before its own is
  log::Lsn last;         // of the log
};

// Pages that are not whole, neither at home nor as copies, and pages of a future that nobody knows.
// `*missing`: how many of the former there are that the log does not bring back.
absl::Status CheckPages(runtime::FileSystem& files, const recovery::IslandData& data,
                        const storage::Store& store, const PageBounds& bounds, Report* report,
                        uint64_t* missing);

}  // namespace islands::verify
