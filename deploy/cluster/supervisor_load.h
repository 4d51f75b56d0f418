// Rows that outlive islands: all islands of a deployment load them together, as one generation of data files.
//
//   all islands     write what they load as the next generation, and stand still
//   the manifest    names the generation: from then on it counts, everywhere
//   all islands     go on with the generation that the manifest names, whatever became of the load
//
// An island that cannot go on has rows that do not count; it has to begin another life, which reads those
// that do. While rows are loaded no life may begin, so that each is of the generation that the others end up
// with.
//
// Tables that clients add or drop need no generation: the manifest names them first, then all islands make
// them, and the next life of one that has not got to it does.
//
// Whoever has asked for a load, or for tables, need not live until it is over.
//
// Thread safety: GenerationLoads from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "deploy/cluster/client.h"
#include "deploy/cluster/supervisor_data.h"
#include "deploy/cluster/supervisor_log.h"
#include "instance/storage/manifest.h"
#include "proto/control.pb.h"
#include "runtime/mutex.h"

namespace islands::deploy {

using Loads = google::protobuf::RepeatedPtrField<control::v1::LoadSpec>;

// What those before leave when this one has been loaded: tables in the places that they have, and the shapes,
// of which it has nothing to say. Without a workload it loads nothing.
Loads LoadsAfter(const storage::Catalog::TableSpecs& of_file, const Loads& before,
                 const control::v1::LoadSpec& load);
// The same when tables were added or dropped. INVALID_ARGUMENT, ALREADY_EXISTS, NOT_FOUND: what is wrong with
// one of them. FAILED_PRECONDITION: one to be dropped is the file's, or a workload's.
absl::StatusOr<Loads> LoadsAfter(const storage::Catalog::TableSpecs& of_file, uint32_t sites,
                                 const Loads& before, const control::v1::TablesRequest& request);
// That loads have brought, or clients; null: it is among `of_file`, or there is none.
const control::v1::TableSpec* MadeTable(const storage::Catalog::TableSpecs& of_file, const Loads& loads,
                                        std::string_view name);
// As the manifest keeps them.
absl::StatusOr<std::string> LoadsToText(const Loads& loads);

class GenerationLoads {
 public:
  GenerationLoads(const ClusterClient& client, ClusterData& data, uint32_t islands);

  // Waits as long as it takes. A load without a workload leaves rows as they are. `check`: whether islands
  // may be asked now; `switched`: the manifest names this generation, of which these are the loads.
  // FAILED_PRECONDITION: rows are being loaded.
  absl::Status Load(const control::v1::LoadSpec& load, absl::FunctionRef<absl::Status()> check,
                    absl::FunctionRef<void(uint64_t generation, const Loads& loads)> switched);
  // Asks all islands whether they can, has `save` make it last, and all islands do it. OK also if one is lost
  // meanwhile: it is useless then. FAILED_PRECONDITION: rows are being loaded, or other tables changed.
  absl::Status ChangeTables(const control::v1::TablesRequest& request,
                            absl::FunctionRef<absl::Status()> save);
  bool under_way() const { return under_way_; }
  // The islands that cannot go on; each once.
  std::vector<uint32_t> TakeUseless();

 private:
  absl::Status LoadEverywhere(const control::v1::LoadSpec& load, uint64_t generation) const;
  void GoOnEverywhere();
  void NoteUseless(const std::vector<ClusterClient::Reply>& replies);

  const ClusterClient& client_;
  ClusterData& data_;
  std::vector<uint32_t> all_;
  std::atomic<bool> under_way_ = false;
  runtime::Mutex mutex_;
  std::vector<uint32_t> useless_ ABSL_GUARDED_BY(mutex_);
};

// What was loaded into the generation that counts, which may be nothing. DATA_LOSS: the manifest's load makes
// no sense.
absl::Status DescribeLoad(const storage::Manifest& manifest, control::v1::IslandConfig* config);
// What an island has to know of what is kept: which files and epochs count, where the rings are, and which
// load has shaped its tables; those that the load has made are no longer the file's. DATA_LOSS: as above.
absl::Status DescribeKept(const storage::Manifest& manifest, const BoxLog& log,
                          control::v1::IslandConfig* config);

}  // namespace islands::deploy
