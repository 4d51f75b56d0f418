// MANIFEST.json in the data directory: what the data is, so that nothing else ever has to be guessed from
// files.
//
//   {"format": 2, "cluster_id": "...", "deployment": "quad-socket", "layout_generation": 1, "sites": 24,
//   "islands": 4,
//    "tables": [{"name", "key", "range": [b, e], "row_bytes", "replicated", "indexes"}], "boot_epochs": [3,
//    3, 4, 3],
//    "data": {"generation": 2, "load": "...", "workers": [6, 6, 6, 6], "relaid": 4711}}
//
// "data" is there once islands keep rows: of which generation their files are (storage/files/data_files.h),
// what was loaded into it (the loads of a control.v1.IslandConfig as JSON, or nothing), and with how many
// workers, by island, the log was used last. "relaid" is there between the two last steps of `islands
// relayout` alone (instance/recovery/relayout.h): the log that is there does not count.
//
// Only the holder of the data directory's lock (the supervisor) writes it, and always whole, by
// FileSystem::ReplaceFile. Its format is raised with that of anything else that outlives processes
// (FORMATS.md): pages, log, rings. So data of another version is refused here, before anything else of it is
// read. An island's next boot epoch is raised and synced here before its process starts, so before its first
// message; epochs are never used twice.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"
#include "runtime/file_system.h"

namespace islands::storage {

inline constexpr uint32_t kManifestFormat = 2;
inline constexpr const char* kManifestName = "MANIFEST.json";

struct Manifest {
  std::string cluster_id;  // random, 32 hex digits, made once
  std::string deployment;
  uint64_t layout_generation = 1;
  uint32_t sites = 0;
  uint32_t islands = 0;
  Catalog::TableSpecs tables;
  std::vector<uint64_t> boot_epochs;  // last one used, by island
  uint64_t data_generation = 0;       // 0: nothing outlives the islands
  std::string load;
  std::vector<uint32_t> workers;
  uint64_t relaid = 0;  // the log has to be made anew, above this epoch, before anything else; 0: it counts

  // Raises and returns the island's boot epoch; the caller saves before it uses it.
  uint64_t NextBootEpoch(uint32_t island);
};

// NOT_FOUND when there is none; DATA_LOSS with path, offset and reason when it does not parse or is another
// format.
absl::StatusOr<Manifest> LoadManifest(const std::string& directory, runtime::FileSystem& files);
absl::Status SaveManifest(const Manifest& manifest, const std::string& directory, runtime::FileSystem& files);

// The file's content as text; `path` is for messages.
absl::StatusOr<Manifest> ParseManifest(std::string_view text, const std::string& path);
std::string ManifestToText(const Manifest& manifest);

// OK when data described by `have` can be used by a deployment of `want`'s name, sites, islands and tables.
// The error names the first difference and what to do (change the file back, or `islands destroy`).
absl::Status CheckSameData(const Manifest& have, const Manifest& want);

// "has key [uint64], the deployment says [int64]": why tables of one name differ; empty when they do not.
// Names of fields do not count.
std::string TableDifference(const control::v1::TableSpec& have, const control::v1::TableSpec& want);

}  // namespace islands::storage
