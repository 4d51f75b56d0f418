// The run directory: everything that is needed to understand a run later (design, section 8).
//
//   summary.json      what `islands run --format json` prints
//   timeseries.csv    per second and island
//   latency.csv       histogram by scope; buckets of latency_histogram.h that counted something
//   deployment.yaml   the deployment as it really ran, every default and `auto` replaced; can be used again
//   machine.xml       this machine as hwloc sees it
//   meta.json         version, commit, CPU model, kernel, seed, command line
//
// Thread safety: main thread only.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/run/result.h"
#include "proto/control.pb.h"

namespace islands::deploy {

class RunDirectory {
 public:
  // PARENT/NAME, or PARENT/NAME-2 and so on if that exists. Made at once, so that a run does not end without
  // a place for its results.
  static absl::StatusOr<RunDirectory> Create(const std::string& parent, const std::string& name);
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  // Removes it again if nothing was written.
  ~RunDirectory();

  const std::string& path() const { return path_; }
  absl::Status Write(const std::string& name, std::string_view content) const;

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// "20260131T120000Z"
std::string CompactUtc(int64_t unix_seconds);
// "2026-01-31T12:00:00Z"
std::string LongUtc(int64_t unix_seconds);

std::string TimeseriesCsv(const RunResult& result);
std::string LatencyCsv(const Sums& total);
// `machine`: as a deployment file names it.
std::string ResolvedYaml(const control::v1::ClusterStatus& status, const std::string& machine);
std::string MetaJson(const RunResult& result, const control::v1::ClusterStatus& status,
                     const std::string& command_line);

// What only the command knows.
struct RunContext {
  std::string machine;
  std::string command_line;
};
absl::Status WriteRunDirectory(const RunDirectory& directory, const RunResult& result,
                               const control::v1::ClusterStatus& status, const RunContext& context);

}  // namespace islands::deploy
