// What a stopped deployment keeps, looked at: all of it for `islands verify`, and what costs no walk over
// pages and records before `up` starts anybody.
//
// Thread safety: plain functions; the caller has the deployment's lock, and no island of it lives.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/plan/resolve.h"
#include "instance/storage/catalog.h"
#include "instance/storage/manifest.h"
#include "instance/storage/store.h"
#include "instance/verify/report.h"
#include "runtime/file_system.h"

namespace islands::deploy {

// Shows on a terminal how far it is. UNAVAILABLE: somebody has files of it, or what he has written before he
// died is still in flight.
absl::StatusOr<verify::Report> WalkData(const ResolvedDeployment& resolved, runtime::FileSystem& disk);

// The same of data that may not be cut as the file says: `manifest` is what is there, of some generation.
// `take` gets the rows of each island, in order, as long as all is sound. An error of it, or of `go_on`,
// which is asked now and then, ends the walk.
using TakeRows = absl::FunctionRef<absl::Status(uint32_t island, const storage::Store& rows)>;
using GoOn = absl::FunctionRef<absl::Status()>;
absl::StatusOr<verify::Report> WalkRows(const ResolvedDeployment& resolved, const storage::Manifest& manifest,
                                        runtime::FileSystem& disk, TakeRows take, GoOn go_on);
// Of all tables that the islands of such data have, in their places.
absl::StatusOr<storage::Catalog::TableSpecs> TablesOf(const storage::Manifest& manifest);

// Manifests, EPOCH, checkpoints, sizes of data files, headers of the log's segments. DATA_LOSS: the findings
// that keep from starting, a line each, in `verify`'s words; others are in the supervisor's log.
absl::Status LookAtData(const ResolvedDeployment& resolved, runtime::FileSystem& disk);

}  // namespace islands::deploy
